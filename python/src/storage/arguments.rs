//! The optional parameters of the specification, as Python passes them.
//!
//! Comes in: any Python objects. Goes out: `Parameters`, or the error that names the argument. Never here: what the parameters do.

use partgrid::error::Error;
use partgrid::storage::{Backend, Dims, Parameters, Place};
use pyo3::inspect::PyStaticExpr;
use pyo3::prelude::*;
use pyo3::type_hint_union;
use pyo3::types::{PyInt, PyTuple};
use smallvec::SmallVec;

use crate::argument::{Argument, Count, Later, Refusal, items, text, whole};

/// One number for each dimension; of as many as stencils have, without an allocation.
pub(super) type Extents = SmallVec<[usize; 4]>;

/// Whole numbers that are not negative, one for each dimension.
pub(crate) struct Numbers(pub(super) Extents);

impl Argument for Numbers {
    const TYPE: PyStaticExpr = <Vec<usize> as FromPyObject<'_, '_>>::INPUT_TYPE;

    fn read(value: &Bound<'_, PyAny>) -> Result<Self, Refusal> {
        let mut numbers = Extents::new();
        if is_plain(value, &mut numbers) {
            return Ok(Self(numbers));
        }
        let refused = || Refusal::new(value, "be a sequence of whole numbers");
        let Some(parts) = items(value) else {
            let refusal = refused();
            return Err(match value.extract::<u64>() {
                Ok(number) => refusal.write(format!("({number},)")),
                Err(_) => refusal,
            });
        };
        let number = |part: &Bound<'_, PyAny>| {
            let number = whole(part, 0, "be a sequence of whole numbers")?;
            usize::try_from(number).map_err(|_| refused())
        };
        let numbers: Result<_, Refusal> = parts.iter().map(number).collect();
        // One of the parts is wrong, and the whole is what the caller wrote.
        let is_negative = |part: &Bound<'_, PyAny>| part.lt(0).unwrap_or(false);
        let is_beyond = |part: &Bound<'_, PyAny>| {
            part.is_instance_of::<PyInt>() && part.gt(usize::MAX).unwrap_or(false)
        };
        numbers.map(Self).map_err(|_| {
            if parts.iter().any(is_negative) {
                return Refusal::new(value, "have no negative number");
            }
            if parts.iter().any(is_beyond) {
                return Refusal::new(value, "be within the addresses of a process");
            }
            refused()
        })
    }
}

/// Whether a value is a tuple of plain numbers, as nearly all are. These are put behind `numbers`, where they stay.
pub(super) fn is_plain(value: &Bound<'_, PyAny>, numbers: &mut Extents) -> bool {
    let Ok(parts) = value.cast_exact::<PyTuple>() else {
        return false;
    };
    parts.iter_borrowed().all(|part| {
        let number = part.cast_exact::<PyInt>().ok();
        let number = number.and_then(|number| number.extract::<u64>().ok());
        let number = number.and_then(|number| usize::try_from(number).ok());
        number.map(|number| numbers.push(number)).is_some()
    })
}

/// Labels of dimensions: a sequence of texts or of axes of GT4Py, or one text of which every letter is a label.
pub(crate) struct Labels(Vec<String>);

impl Argument for Labels {
    const TYPE: PyStaticExpr = type_hint_union!(
        <Vec<String> as FromPyObject<'_, '_>>::INPUT_TYPE,
        <String as FromPyObject<'_, '_>>::INPUT_TYPE
    );

    fn read(value: &Bound<'_, PyAny>) -> Result<Self, Refusal> {
        if let Some(letters) = text(value) {
            return Ok(Self(letters.chars().map(String::from).collect()));
        }
        let label = |part: &Bound<'_, PyAny>| match text(part) {
            Some(label) => Some(label),
            None => text(&part.getattr("__gt_axis_name__").ok()?),
        };
        let parts = items(value);
        let labels = parts.and_then(|parts| parts.iter().map(label).collect::<Option<_>>());
        labels.map(Self).ok_or_else(|| {
            Refusal::new(value, "be a sequence of labels").write("(\"I\", \"J\", \"K\")")
        })
    }
}

impl Labels {
    /// The checked labels.
    pub(crate) fn dims(self) -> Result<Dims, Error> {
        Dims::try_from_labels(&self.0)
    }
}

/// The optional parameters of one call.
pub(super) struct Asked<'py> {
    pub(super) aligned_index: Option<Later<'py, Numbers>>,
    pub(super) alignment_size: Option<Later<'py, Count>>,
    pub(super) backend: Option<Later<'py, String>>,
    pub(super) device: Option<Later<'py, String>>,
    pub(super) dims: Option<Later<'py, Labels>>,
    pub(super) layout: Option<Later<'py, Numbers>>,
}

/// The value of the argument `name`, if it was given.
fn given<T: Argument>(later: Option<&Later<'_, T>>, name: &str) -> Result<Option<T>, Error> {
    later.map(|later| later.named(name)).transpose()
}

impl Asked<'_> {
    /// Whether nothing was asked for.
    pub(super) fn is_nothing(&self) -> bool {
        self.aligned_index.is_none()
            && self.alignment_size.is_none()
            && self.backend.is_none()
            && self.device.is_none()
            && self.dims.is_none()
            && self.layout.is_none()
    }

    /// What was asked for, each parameter checked by itself.
    pub(super) fn parameters(&self) -> Result<Parameters, Error> {
        let alignment_size = given(self.alignment_size.as_ref(), "alignment_size")?;
        let alignment_size = alignment_size.map(|Count(bytes)| {
            usize::try_from(bytes).map_err(|_| {
                Error::invalid_argument("alignment_size must be within the addresses of a process")
            })
        });
        let backend = given(self.backend.as_ref(), "backend")?;
        let device = given(self.device.as_ref(), "device")?;
        let place = device.map(|name| match name.as_str() {
            "gpu" => Ok(Place::Gpu),
            _ => Err(Error::invalid_argument(format!(
                "device must be \"gpu\" or None, got {name:?}"
            ))
            .with_hint("None is the memory of the host")),
        });
        Ok(Parameters {
            aligned_index: given(self.aligned_index.as_ref(), "aligned_index")?
                .map(|index| index.0.into_vec()),
            alignment_size: alignment_size.transpose()?,
            backend: backend
                .map(|name| Backend::try_from_name(&name))
                .transpose()?,
            place: place.transpose()?,
            dims: given(self.dims.as_ref(), "dims")?
                .map(Labels::dims)
                .transpose()?,
            layout: given(self.layout.as_ref(), "layout")?.map(|ranks| ranks.0.into_vec()),
        })
    }
}
