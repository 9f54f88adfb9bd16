//! The functions that make storages.
//!
//! Comes in: shapes, types, values and parameters, or another storage or array. Goes out: new storages. Never here: where elements lie, which `partgrid::storage` decides.

use partgrid::grid::ElementType;
use partgrid::storage::{Fill, Host, Item, Parameters, Place, Plan, Storage, layout_of};
use pyo3::prelude::*;

use super::PyStorage;
use super::arguments::{Asked, Extents, Labels, Numbers, is_plain};
use super::dtype::Typed;
use super::gpu::Gpu;
use crate::argument::{Count, Given, Later};
use crate::error::Outcome;

/// From this size on the GIL is released while values are written.
const LONG_BYTES: usize = 1 << 20;

/// What the elements of a new storage hold.
enum Content {
    Undefined,
    Zeros,
    Ones,
    Value(Py<PyAny>),
}

fn make(
    py: Python<'_>,
    shape: &[usize],
    typed: Typed,
    content: &Content,
    parameters: &Parameters,
) -> Outcome<PyStorage> {
    let value = match content {
        Content::Ones => typed.one(py)?,
        Content::Value(value) => typed.bytes_of(value.bind(py), "fill_value")?,
        Content::Undefined | Content::Zeros => Vec::new(),
    };
    let fill = match content {
        Content::Undefined => Fill::Undefined,
        Content::Zeros => Fill::Zeros,
        Content::Ones | Content::Value(_) => Fill::Item(&value),
    };
    if let Some(storage) = Storage::spare(shape, &typed.item, fill, parameters) {
        return Ok(PyStorage::new(storage, typed.foreign));
    }
    let plan = Plan::try_shared(shape, typed.item.item_bytes(), parameters)?;
    let Typed { item, foreign } = typed;
    let is_long = plan.num_bytes() >= LONG_BYTES && matches!(fill, Fill::Item(_));
    let storage = match plan.place() {
        Place::Host if is_long => py.detach(|| Storage::try_new(plan, item, fill, &Host)),
        Place::Host => Storage::try_new(plan, item, fill, &Host),
        Place::Gpu => {
            let gpu = Gpu::try_new()?;
            py.detach(|| Storage::try_new(plan, item, fill, &gpu))
        }
    };
    Ok(PyStorage::new(storage?, foreign))
}

fn new(
    py: Python<'_>,
    shape: &Later<'_, Numbers>,
    dtype: Option<Bound<'_, PyAny>>,
    content: Content,
    asked: &Asked<'_>,
) -> Outcome<PyStorage> {
    // Most calls name a tuple of numbers and nothing else: what they come to is not moved about.
    let mut extents = Extents::new();
    if !is_plain(shape.object(), &mut extents) {
        Numbers(extents) = shape.named("shape")?;
    }
    let typed = match &dtype {
        None => Typed::of(Item::Number(ElementType::Float64)),
        Some(dtype) => Typed::read(dtype)?,
    };
    if asked.is_nothing() {
        return make(py, &extents, typed, &content, &Parameters::NONE);
    }
    make(py, &extents, typed, &content, &asked.parameters()?)
}

fn like(
    py: Python<'_>,
    data: &Bound<'_, PyAny>,
    dtype: Option<Bound<'_, PyAny>>,
    content: Content,
    asked: &Asked<'_>,
) -> Outcome<PyStorage> {
    let asked = asked.parameters()?;
    if let Ok(storage) = data.cast::<PyStorage>() {
        let storage = storage.get();
        let plan = storage.core.plan();
        let typed = match dtype {
            Some(dtype) => Typed::read(&dtype)?,
            None => Typed {
                item: storage.core.item().clone(),
                foreign: storage.foreign.as_ref().map(|dtype| dtype.clone_ref(py)),
            },
        };
        let parameters = asked.or_like(plan.parameters())?;
        return make(py, plan.shape(), typed, &content, &parameters);
    }
    let array = py
        .import("partgrid._storage")?
        .call_method1("as_numpy", (data,))?;
    let shape: Vec<usize> = array.getattr("shape")?.extract()?;
    let strides: Vec<isize> = array.getattr("strides")?.extract()?;
    let dtype = match dtype {
        Some(dtype) => dtype,
        None => array.getattr("dtype")?,
    };
    let dims: Option<Given<Labels>> = py
        .import("partgrid._storage")?
        .call_method1("dims_of", (data,))?
        .extract()?;
    let dims = dims.map(|dims| dims.named("__gt_dims__")).transpose()?;
    let parameters = asked.or_like(Parameters {
        layout: Some(layout_of(&strides)),
        dims: dims.map(Labels::dims).transpose()?,
        ..Parameters::default()
    })?;
    make(py, &shape, Typed::read(&dtype)?, &content, &parameters)
}

macro_rules! making {
    ($(
        $(#[$about:meta])*
        [$($signature:tt)*] fn $name:ident($($own:ident: $own_type:ty),*) => $make:ident($($argument:expr),*);
        $(#[$example:meta])*
        end;
    )*) => {$(
        $(#[$about])*
        ///     aligned_index: The element to which the memory is aligned, by default the first one. It is the origin too, where stencils begin unless they are told otherwise.
        ///     alignment_size: The bytes of which the address of that element is a multiple; a multiple or a divisor of the bytes of an element.
        ///     backend: The name of a backend of GT4Py, whose alignment, device and layout are taken. It excludes giving these.
        ///     device: `"gpu"` for memory of an accelerator: the GPU of CUDA that is current on this thread, by default the first. Without it that of the host.
        ///     dims: What the dimensions mean: labels out of `"I"`, `"J"`, `"K"`, and `"0"`, `"1"` and so on for dimensions of data.
        ///     layout: For each dimension the rank of its stride, 0 being the largest; by default C order.
        ///
        /// Returns:
        ///     The storage, in writable memory of its own. What is not given of a storage that is made like another is as there; a backend stands for alignment, device and layout.
        ///
        /// Raises:
        ///     InvalidArgumentError: A parameter is none of the allowed ones, or two contradict each other.
        ///     ResourcesExhaustedError: There is no such amount of memory.
        ///     UnsupportedError: A GPU is asked for where none is reached, or a type whose elements are no values in memory.
        ///
        /// Examples:
        ///     >>> import partgrid as pg
        $(#[$example])*
        #[pyfunction]
        #[pyo3(signature = ($($signature)*, *, aligned_index=None, alignment_size=None, backend=None, device=None, dims=None, layout=None))]
        #[expect(clippy::too_many_arguments, reason = "the parameters of the specification")]
        pub(crate) fn $name<'py>(
            py: Python<'py>,
            $($own: $own_type,)*
            aligned_index: Option<Later<'py, Numbers>>,
            alignment_size: Option<Later<'py, Count>>,
            backend: Option<Later<'py, String>>,
            device: Option<Later<'py, String>>,
            dims: Option<Later<'py, Labels>>,
            layout: Option<Later<'py, Numbers>>,
        ) -> Outcome<PyStorage> {
            $make(py, $($argument,)* &Asked { aligned_index, alignment_size, backend, device, dims, layout })
        }
    )*};
}

making! {
    /// Makes a storage whose values are not defined.
    ///
    /// Args:
    ///     shape: The number of elements along each dimension; none may be negative, zero is allowed.
    ///     dtype: What `numpy.dtype` takes, by default 64-bit floats.
    [shape, dtype=None] fn empty(shape: Later<'py, Numbers>, dtype: Option<Bound<'py, PyAny>>) => new(&shape, dtype, Content::Undefined);
    ///     >>> pg.storage.empty((6, 4), "float32", dims=("K", "I"), backend="gt:cpu_kfirst").strides
    ///     (4, 24)
    end;

    /// Makes a storage of zeros. Those of a large one are pages that the system hands out when they are first touched.
    ///
    /// Args:
    ///     shape: The number of elements along each dimension; none may be negative, zero is allowed.
    ///     dtype: What `numpy.dtype` takes, by default 64-bit floats.
    [shape, dtype=None] fn zeros(shape: Later<'py, Numbers>, dtype: Option<Bound<'py, PyAny>>) => new(&shape, dtype, Content::Zeros);
    ///     >>> pg.storage.zeros((2, 3), layout=(1, 0))[1].tolist()
    ///     [0.0, 0.0, 0.0]
    end;

    /// Makes a storage of ones.
    ///
    /// Args:
    ///     shape: The number of elements along each dimension; none may be negative, zero is allowed.
    ///     dtype: What `numpy.dtype` takes, by default 64-bit floats.
    [shape, dtype=None] fn ones(shape: Later<'py, Numbers>, dtype: Option<Bound<'py, PyAny>>) => new(&shape, dtype, Content::Ones);
    ///     >>> storage = pg.storage.ones((9, 5), alignment_size=64, aligned_index=(3, 0))
    ///     >>> (storage.address + 3 * storage.strides[0]) % 64
    ///     0
    end;

    /// Makes a storage that is filled with one number.
    ///
    /// Args:
    ///     shape: The number of elements along each dimension; none may be negative, zero is allowed.
    ///     fill_value: The number, cast as the type of numpy casts it: `numpy.dtype(dtype).type(fill_value)`.
    ///     dtype: What `numpy.dtype` takes, by default 64-bit floats.
    [shape, fill_value, dtype=None] fn full(shape: Later<'py, Numbers>, fill_value: Bound<'py, PyAny>, dtype: Option<Bound<'py, PyAny>>)
        => new(&shape, dtype, Content::Value(fill_value.unbind()));
    ///     >>> pg.storage.full((3,), 7, "int16")[:].tolist()
    ///     [7, 7, 7]
    end;

    /// Makes a storage of the shape of another one, or of an array, whose values are not defined.
    ///
    /// Args:
    ///     data: A storage, or an array with an interface of numpy or DLPack, of which layout and `__gt_dims__` are taken.
    ///     dtype: What `numpy.dtype` takes, by default the type of `data`.
    [data, dtype=None] fn empty_like(data: &Bound<'py, PyAny>, dtype: Option<Bound<'py, PyAny>>) => like(data, dtype, Content::Undefined);
    ///     >>> storage = pg.storage.zeros((4, 3), dims="KI", layout=(1, 0))
    ///     >>> pg.storage.empty_like(storage, "int32")
    ///     Storage (4, 3) of int32, layout (1, 0), dims ('K', 'I')
    end;

    /// Makes a storage of zeros of the shape of another one, or of an array.
    ///
    /// Args:
    ///     data: A storage, or an array with an interface of numpy or DLPack, of which layout and `__gt_dims__` are taken.
    ///     dtype: What `numpy.dtype` takes, by default the type of `data`.
    [data, dtype=None] fn zeros_like(data: &Bound<'py, PyAny>, dtype: Option<Bound<'py, PyAny>>) => like(data, dtype, Content::Zeros);
    ///     >>> pg.storage.zeros_like(pg.storage.ones((2, 2)))[0].tolist()
    ///     [0.0, 0.0]
    end;

    /// Makes a storage of ones of the shape of another one, or of an array.
    ///
    /// Args:
    ///     data: A storage, or an array with an interface of numpy or DLPack, of which layout and `__gt_dims__` are taken.
    ///     dtype: What `numpy.dtype` takes, by default the type of `data`.
    [data, dtype=None] fn ones_like(data: &Bound<'py, PyAny>, dtype: Option<Bound<'py, PyAny>>) => like(data, dtype, Content::Ones);
    ///     >>> pg.storage.ones_like(pg.storage.empty((2, 2)))[0].tolist()
    ///     [1.0, 1.0]
    end;

    /// Makes a storage of the shape of another one, or of an array, that is filled with one number.
    ///
    /// Args:
    ///     data: A storage, or an array with an interface of numpy or DLPack, of which layout and `__gt_dims__` are taken.
    ///     fill_value: The number, cast as the type of numpy casts it: `numpy.dtype(dtype).type(fill_value)`.
    ///     dtype: What `numpy.dtype` takes, by default the type of `data`.
    [data, fill_value, dtype=None] fn full_like(data: &Bound<'py, PyAny>, fill_value: Bound<'py, PyAny>, dtype: Option<Bound<'py, PyAny>>)
        => like(data, dtype, Content::Value(fill_value.unbind()));
    ///     >>> pg.storage.full_like(pg.storage.empty((2, 2), int), 5)[0].tolist()
    ///     [5, 5]
    end;
}
