//! numpy arrays in and out, for what the protocols of arrays do not carry: times, texts, records, and one block of a whole grid.
//!
//! Comes in: a `numpy.ndarray`, or a grid. Goes out: a grid over the same memory where Arrow has it the same way, or an array. numpy is imported when one of these is called.
//! Never here: what becomes of values, which `partgrid::device` and `partgrid::grid` decide.

use std::panic::RefUnwindSafe;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};
use partgrid::device::{ElementKind, Strided, import_strided};
use partgrid::error::{Error, ErrorKind};
use partgrid::grid::{ElementType, FillValue, Gather, Numbers, Order, PartitionGrid};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyFloat};

use crate::argument::{Given, Refusal, optional};
use crate::array::{PyArray, ndarray};
use crate::convert::import;
use crate::error::Outcome;
use crate::grid::PyGrid;
use crate::runtime::{attached, wait};

/// Memory that a Python object keeps alive. The last one to drop it may be any thread.
struct Owner(Option<Py<PyAny>>);

/// A panic leaves nothing half done in it: it is only kept and dropped.
impl RefUnwindSafe for Owner {}

impl Drop for Owner {
    fn drop(&mut self) {
        let mut object = self.0.take();
        attached(|py| {
            if let Some(object) = object.take() {
                object.drop_ref(py);
            }
        });
        // Left only when the interpreter has ended, and its objects with it.
        std::mem::forget(object);
    }
}

/// Refuses an array of numpy with a mask, whose memory has values where it has none.
pub(crate) fn refuse_masked(array: &Bound<'_, PyAny>) -> Outcome<()> {
    let modules = array.py().import("sys")?.getattr("modules")?;
    let Ok(masked) = modules.get_item("numpy.ma") else {
        return Ok(());
    };
    if !array.is_instance(&masked.getattr("MaskedArray")?)? {
        return Ok(());
    }
    let class = array.get_type().qualname()?;
    let text = format!("an array without a mask was expected, got {class}");
    Err(Error::new(ErrorKind::Protocol, text)
        .with_hint("from_arrow of pyarrow.table({name: pyarrow.array(array)}) has nulls there; array.filled(value) has a value")
        .into())
}

/// Makes a grid of one tile of a numpy array.
///
/// An array of one dimension becomes one column, one of two dimensions a column for each index of the second, and one of records a column for each field. Columns whose
/// elements are neighbours in memory share it (all columns of an array in Fortran order, a single one of an array in C order); all others are copied, and so are booleans
/// (which become bits), texts, days, and numbers in foreign byte order. Shared memory must not change while the grid lives.
///
/// Args:
///     array: Booleans, integers, floats up to 64 bits, `datetime64` in days, s, ms, us or ns, `timedelta64` in s, ms, us or ns (NaT becomes null), unicode texts, or records of
///         them.
///     names: The names of the columns, by default `column_0`, `column_1` and so on, or those of the records' fields.
///
/// Returns:
///     The grid. It keeps the array alive.
///
/// Raises:
///     UnsupportedError: The elements have no Arrow type of the same values; the text says what to do.
///     InvalidArgumentError: The array has other than one or two dimensions, or names do not fit.
///     InvalidDataError: A text is no unicode, or a day does not fit 32 bits.
///
/// Examples:
///     >>> import numpy as np, partgrid as pg
///     >>> grid = pg.from_numpy(np.arange(6.0).reshape(3, 2), names=["a", "b"])
///     >>> grid.shape
///     (3, 2)
///     >>> grid.to_numpy()
///     array([[0., 1.],
///            [2., 3.],
///            [4., 5.]])
#[pyfunction]
#[pyo3(signature = (array, names=None))]
pub(crate) fn from_numpy(
    array: &Bound<'_, PyAny>,
    names: Option<Given<Vec<String>>>,
) -> Outcome<PyGrid> {
    let names = optional(names, "names")?;
    let numpy = import(array.py(), "numpy", "from_numpy")?;
    refuse_masked(array)?;
    if !array.is_instance(&numpy.getattr("ndarray")?)? {
        let class = array.get_type().qualname()?;
        return Err(Error::new(
            ErrorKind::Protocol,
            format!("a numpy.ndarray was expected, got {class}"),
        )
        .with_hint("numpy.asarray makes one of lists and buffers")
        .into());
    }
    let fields: Option<Vec<String>> = array.getattr("dtype")?.getattr("names")?.extract()?;
    let Some(fields) = fields else {
        let columns = columns_of(array)?;
        return Ok(PyGrid::new(PartitionGrid::try_from_columns(
            columns, names,
        )?));
    };
    let mut columns = Vec::with_capacity(fields.len());
    for name in &fields {
        let part = columns_of(&array.get_item(name)?).map_err(|error| error.in_column(name))?;
        let [column] = part.as_slice() else {
            return Err(Error::unsupported(
                "records become columns when they are in one dimension and each field is one value",
            )
            .with_column(name)
            .with_hint("pass array.ravel(), and fields of several values as arrays of their own")
            .into());
        };
        columns.push(ArrayRef::clone(column));
    }
    let names = names.unwrap_or(fields);
    Ok(PyGrid::new(PartitionGrid::try_from_columns(
        columns,
        Some(names),
    )?))
}

/// The columns of an array of at most two dimensions, over its memory where they lie in one piece.
#[expect(unsafe_code, reason = "numpy says where the elements are by address")]
pub(crate) fn columns_of(array: &Bound<'_, PyAny>) -> Outcome<Vec<ArrayRef>> {
    let py = array.py();
    let dtype = array.getattr("dtype")?;
    let native: bool = dtype.getattr("isnative")?.extract()?;
    let array = if native {
        array.clone()
    } else {
        array.call_method1("astype", (dtype.call_method1("newbyteorder", ("=",))?,))?
    };
    let interface = array.getattr("__array_interface__")?;
    let type_string: String = interface.get_item("typestr")?.extract()?;
    let (address, _): (usize, bool) = interface.get_item("data")?.extract()?;
    let memory = Memory {
        strided: Strided {
            address: std::ptr::with_exposed_provenance(address),
            kind: ElementKind::try_from_type_string(&type_string)?,
            shape: array.getattr("shape")?.extract()?,
            strides: array.getattr("strides")?.extract()?,
        },
    };
    let owner = Arc::new(Owner(Some(array.unbind())));
    // SAFETY: numpy's array says what its memory is, and `owner` keeps the array; that nobody writes there is what the documentation asks for.
    Ok(py.detach(move || unsafe { memory.import(owner) })?)
}

/// An address that may go to another thread.
struct Memory {
    strided: Strided,
}

#[expect(unsafe_code, reason = "a raw pointer is not Send by itself")]
// SAFETY: the pointer is only read, while its owner lives.
unsafe impl Send for Memory {}

impl Memory {
    /// # Safety
    /// As [`import_strided`].
    #[expect(unsafe_code, reason = "passes the promise on")]
    unsafe fn import(self, owner: Arc<Owner>) -> Result<Vec<ArrayRef>, Error> {
        // SAFETY: as the caller vouches.
        unsafe { import_strided(&self.strided, owner) }
    }
}

/// What `Grid.to_numpy` was asked for.
pub(crate) struct Wish<'a, 'py> {
    pub(crate) dtype: Option<&'a Bound<'py, PyAny>>,
    pub(crate) fill: Option<FillValue>,
    pub(crate) order: Order,
    pub(crate) copy: Option<bool>,
}

impl Wish<'_, '_> {
    /// What the array of a grid shall be, and the type of its elements.
    pub(crate) fn resolve(
        &self,
        py: Python<'_>,
        grid: &PartitionGrid,
    ) -> Outcome<(Gather, ElementType)> {
        let numpy = import(py, "numpy", "to_numpy")?;
        let element = match self.dtype {
            Some(dtype) => {
                let dtype = numpy.getattr("dtype")?.call1((dtype,))?;
                let name: String = dtype.getattr("name")?.extract()?;
                Some(ElementType::try_from_name(&name)?)
            }
            None => None,
        };
        let gather = Gather {
            element,
            order: self.order,
            fill: self.fill,
        };
        let element = gather.element_of(grid.schema().fields())?;
        Ok((gather, element))
    }
}

/// The rows and columns of a grid as one `numpy.ndarray`.
pub(crate) fn to_numpy<'py>(
    py: Python<'py>,
    grid: &PartitionGrid,
    wish: &Wish<'_, 'py>,
) -> Outcome<Bound<'py, PyAny>> {
    let numpy = import(py, "numpy", "to_numpy")?;
    let (gather, element) = wish.resolve(py, grid)?;
    let bands = fetched(py, grid)?;
    if wish.copy != Some(true) {
        let whole = Numbers::over(&bands, &gather)?;
        if let Some(whole) = whole {
            return Ok(ndarray(&numpy, &Bound::new(py, PyArray::new(whole))?)?);
        }
        if wish.copy == Some(false) {
            return Err(PyValueError::new_err(
                "the grid is not one dense tile of this type and order without nulls: an array of it is a copy\nhint: pass copy=None, or load the columns with dense= into one tile",
            )
            .into());
        }
    }
    let options = PyDict::new(py);
    options.set_item("dtype", element.type_string())?;
    options.set_item("order", if wish.order == Order::Rows { "C" } else { "F" })?;
    let shape = (grid.num_rows(), grid.num_columns());
    let array = numpy.call_method("zeros", (shape,), Some(&options))?;
    fill_block(py, &array, &bands, &gather)?;
    Ok(array)
}

/// Has the core write into a fresh array.
#[expect(unsafe_code, reason = "numpy says where its memory is by address")]
fn fill_block(
    py: Python<'_>,
    array: &Bound<'_, PyAny>,
    bands: &[RecordBatch],
    gather: &Gather,
) -> Outcome<()> {
    let interface = array.getattr("__array_interface__")?;
    let (address, _): (usize, bool) = interface.get_item("data")?.extract()?;
    let num_bytes: usize = array.getattr("nbytes")?.extract()?;
    py.detach(|| {
        let start = std::ptr::with_exposed_provenance_mut::<u8>(address);
        // SAFETY: a new array of zeros of this size, without gaps, which nobody else has seen and the caller holds.
        let block = unsafe { std::slice::from_raw_parts_mut(start, num_bytes) };
        gather.write(bands, block)
    })?;
    Ok(())
}

/// The row bands of a grid; of lazy tiles only the columns that the grid has.
fn fetched(py: Python<'_>, grid: &PartitionGrid) -> Outcome<Vec<RecordBatch>> {
    let bands = async {
        let mut bands = Vec::with_capacity(grid.rows().num_intervals());
        for row_band in 0..grid.rows().num_intervals() {
            let mut tiles = Vec::new();
            for tile in grid.row_band(row_band) {
                let columns: Vec<usize> = (0..tile.data().schema().fields().len()).collect();
                tiles.push(tile.data().fetch(&columns).await?);
            }
            bands.push(grid.join_row_band(row_band, &tiles)?);
        }
        Ok(bands)
    };
    wait(py, bands)
}

/// The value that stands for nulls.
pub(crate) fn fill_value(value: Option<&Bound<'_, PyAny>>) -> Outcome<Option<FillValue>> {
    let Some(value) = value else {
        return Ok(None);
    };
    if value.is_instance_of::<PyFloat>() {
        return Ok(Some(FillValue::Float(value.extract()?)));
    }
    if value.hasattr("__index__")? {
        let number = value.extract::<i128>();
        let number = number.map_err(|_| {
            Refusal::new(value, "be a number of at most 128 bits").named("fill_null")
        })?;
        return Ok(Some(FillValue::Int(number)));
    }
    match value.extract::<f64>() {
        Ok(value) => Ok(Some(FillValue::Float(value))),
        Err(_) => Err(Refusal::new(value, "be an int or a float")
            .named("fill_null")
            .into()),
    }
}
