//! Types and values of elements, as numpy takes them.
//!
//! Comes in: anything that `numpy.dtype` takes, and a number. Goes out: an [`Item`], and the bytes of the number in it. numpy is asked for what is not the name of a number. Never here:
//! types whose elements refer to objects.

use std::ffi::CString;

use partgrid::error::Error;
use partgrid::grid::ElementType;
use partgrid::storage::{Foreign, Item};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBool, PyComplex, PyDict, PyFloat, PyInt, PyMemoryView, PyString, PyType};

use crate::argument::{Refusal, shown};
use crate::convert::import;
use crate::error::Outcome;

const WANTED_BY: &str = "a storage of this type";

/// The type of the elements of a storage: what the core knows of it, and the `numpy.dtype` where only numpy knows the rest.
pub(super) struct Typed {
    pub(super) item: Item,
    pub(super) foreign: Option<Py<PyAny>>,
}

impl Typed {
    pub(super) fn of(item: Item) -> Self {
        Self {
            item,
            foreign: None,
        }
    }

    /// The type that an argument `dtype` stands for.
    pub(super) fn read(dtype: &Bound<'_, PyAny>) -> Outcome<Self> {
        match known(dtype) {
            Some(item) => Ok(Self::of(item)),
            None => Self::ask_numpy(&numpy_dtype(dtype.py())?.call1((dtype,))?),
        }
    }

    /// The type of a `numpy.dtype`.
    fn ask_numpy(dtype: &Bound<'_, PyAny>) -> Outcome<Self> {
        let type_string: String = dtype.getattr("str")?.extract()?;
        if let Some(item) = Item::of_type_string(&type_string) {
            return Ok(Self::of(item));
        }
        let refused = |why: &str, hint: &str| {
            let text = format!("dtype must be of values that lie in the storage, got {why}");
            Error::unsupported(text).with_hint(hint)
        };
        if dtype.getattr("hasobject")?.extract()? {
            let why = format!("{dtype}, references to objects of Python");
            return Err(refused(&why, "take a type that holds the values").into());
        }
        if !dtype.getattr("subdtype")?.is_none() {
            let why = format!("the array type {dtype}");
            return Err(
                refused(&why, "give its dimensions in shape, and dims=(..., \"0\")").into(),
            );
        }
        let item = Item::try_foreign(Foreign {
            item_bytes: dtype.getattr("itemsize")?.extract()?,
            type_string,
            format: format_of(dtype)?,
        })?;
        Ok(Self {
            item,
            foreign: Some(dtype.clone().unbind()),
        })
    }

    /// The bytes of an element that holds `value`, cast as numpy's types cast.
    pub(super) fn bytes_of(&self, value: &Bound<'_, PyAny>, name: &str) -> Outcome<Vec<u8>> {
        let is_float = self.item == Item::Number(ElementType::Float64);
        if is_float && value.is_exact_instance_of::<PyFloat>() {
            return Ok(value.extract::<f64>()?.to_ne_bytes().to_vec());
        }
        let py = value.py();
        let numpy = import(py, "numpy", "the value of a storage")?;
        let bytes: Vec<u8> = match &self.foreign {
            Some(dtype) => {
                let options = PyDict::new(py);
                options.set_item("dtype", dtype)?;
                let filled = numpy.call_method("full", ((), value), Some(&options))?;
                filled.call_method0("tobytes")?.extract()?
            }
            None => {
                let is_number = ["__index__", "__float__", "__complex__"]
                    .iter()
                    .any(|method| value.hasattr(method).unwrap_or(false));
                if !is_number {
                    return Err(Refusal::new(value, "be a number").named(name).into());
                }
                let dtype = numpy_dtype(py)?.call1((self.item.type_string(),))?;
                let cast = dtype.getattr("type")?.call1((value,))?;
                cast.call_method0("tobytes")?.extract()?
            }
        };
        if bytes.len() != self.item.item_bytes() {
            return Err(Refusal::new(value, "be one number").named(name).into());
        }
        Ok(bytes)
    }

    /// The bytes of an element that holds one.
    pub(super) fn one(&self, py: Python<'_>) -> Outcome<Vec<u8>> {
        match self.item.one() {
            Some(bytes) => Ok(bytes),
            None => self.bytes_of(PyInt::new(py, 1).as_any(), "the value of ones"),
        }
    }
}

/// `numpy.dtype`.
fn numpy_dtype(py: Python<'_>) -> PyResult<&Bound<'_, PyAny>> {
    static DTYPE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let dtype = DTYPE.get_or_try_init(py, || {
        PyResult::Ok(import(py, "numpy", WANTED_BY)?.getattr("dtype")?.unbind())
    })?;
    Ok(dtype.bind(py))
}

/// The types that need no numpy: names, type strings, and the number types of Python.
fn known(dtype: &Bound<'_, PyAny>) -> Option<Item> {
    if let Ok(name) = dtype.cast::<PyString>() {
        let name = name.to_str().ok()?;
        return match name {
            "bool" => Some(Item::Bool),
            "complex64" => Some(Item::Complex64),
            "complex128" => Some(Item::Complex128),
            _ => match ElementType::try_from_name(name) {
                Ok(element) => Some(Item::Number(element)),
                Err(_) => Item::of_type_string(name),
            },
        };
    }
    let class = dtype.cast::<PyType>().ok()?;
    let py = class.py();
    if class.is(py.get_type::<PyFloat>()) {
        Some(Item::Number(ElementType::Float64))
    } else if class.is(py.get_type::<PyInt>()) {
        Some(Item::Number(ElementType::Int64))
    } else if class.is(py.get_type::<PyBool>()) {
        Some(Item::Bool)
    } else if class.is(py.get_type::<PyComplex>()) {
        Some(Item::Complex128)
    } else {
        None
    }
}

/// The format of PEP 3118 that numpy gives a type; `None` where it has none, as for times, or one that it does not read again as the same type, as for records with gaps.
fn format_of(dtype: &Bound<'_, PyAny>) -> Outcome<Option<CString>> {
    let numpy = import(dtype.py(), "numpy", WANTED_BY)?;
    // Of an array without dimensions numpy leaves out how records are packed.
    let sample = numpy.call_method1("empty", ((1,), dtype))?;
    let Ok(view) = PyMemoryView::from(&sample) else {
        return Ok(None);
    };
    let again = numpy.call_method1("asarray", (&view,));
    let again = again.and_then(|again| again.getattr("dtype")?.eq(dtype));
    if !again.unwrap_or(false) {
        return Ok(None);
    }
    let format: String = view.getattr("format")?.extract()?;
    let text = CString::new(format)
        .map_err(|_| Error::internal(format!("a format with a zero byte for {}", shown(dtype))))?;
    Ok(Some(text))
}
