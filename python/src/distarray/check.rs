//! `validate`: all that is wrong with the sections of anybody.

use partgrid::distarray::Value;
use partgrid::distarray::check::{Finding, Mode, validate_all, validate_local};
use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};

use super::value::{name_of, value_of};
use crate::argument::shown;

/// One thing that is wrong with a section of a distributed array, and where. `str()` gives it as one line.
#[pyclass(name = "Finding", module = "partgrid.distarray", frozen, eq)]
#[derive(PartialEq)]
pub(crate) struct PyFinding {
    core: Finding,
}

#[pymethods]
impl PyFinding {
    /// The rule that is broken, such as `D5`; docs/distarray.md has them all.
    #[getter]
    fn rule(&self) -> &'static str {
        self.core.rule.name()
    }

    /// `"error"`, or `"warning"` for what is valid and still worth a look.
    #[getter]
    fn severity(&self) -> &'static str {
        self.core.severity.name()
    }

    /// The number of the section, where there are several.
    #[getter]
    fn rank(&self) -> Option<usize> {
        self.core.rank
    }

    /// The dimension.
    #[getter]
    fn dimension(&self) -> Option<usize> {
        self.core.dimension
    }

    /// The key of the dictionary.
    #[getter]
    fn key(&self) -> Option<&'static str> {
        self.core.key
    }

    /// What is wrong, what was expected, what came.
    #[getter]
    fn message(&self) -> &str {
        &self.core.message
    }

    fn __repr__(&self) -> String {
        format!("Finding({})", self.core)
    }

    fn __str__(&self) -> String {
        self.core.to_string()
    }
}

/// Everything that is wrong with one section of a distributed array, or with all sections of one.
///
/// Nothing that a producer hands out makes it raise: an exception in `__distarray__` is a finding too, but for interrupts. Versions 0.9 and 0.10 of the protocol are known.
///
/// Args:
///     sections: One section: an object with `__distarray__`, or its dictionary. Or a list or tuple of the sections of all ranks, rank 0 first; what they say of each other is then
///         checked as well.
///     strict: Whether the letter of the protocol counts. `False` makes warnings of what has only one meaning: lists for padding, integers of other types, lists for indices in 0.9.
///
/// Returns:
///     The findings; none when all rules hold.
///
/// Examples:
///     >>> import partgrid as pg
///     >>> [str(each) for each in pg.distarray.validate({"__version__": "0.10.0"})][0]
///     'error T2: the key `buffer` must be there (key: buffer)'
#[pyfunction]
#[pyo3(signature = (sections, *, strict=true))]
pub(crate) fn validate(sections: &Bound<'_, PyAny>, strict: bool) -> PyResult<Vec<PyFinding>> {
    let mode = match strict {
        true => Mode::Strict,
        false => Mode::Lenient,
    };
    let list = sections.cast::<PyList>().map(|list| list.iter().collect());
    let tuple = || {
        sections
            .cast::<PyTuple>()
            .map(|tuple| tuple.iter().collect())
    };
    let several: Result<Vec<Bound<'_, PyAny>>, _> = list.or_else(|_| tuple());
    let findings = match several {
        Ok(several) => {
            let several = several.iter().map(section_of);
            validate_all(&several.collect::<PyResult<Vec<_>>>()?, mode)
        }
        Err(_) => validate_local(&section_of(sections)?, mode),
    };
    let findings = findings.into_iter();
    Ok(findings.map(|core| PyFinding { core }).collect())
}

/// The dictionary of an object, or what it is instead.
///
/// # Errors
/// What a producer raised that is no `Exception`: a wish to end this process is no finding.
fn section_of(object: &Bound<'_, PyAny>) -> PyResult<Value> {
    if object.is_instance_of::<PyDict>() {
        return Ok(value_of(object));
    }
    match dictionary_of(object) {
        Ok(dictionary) => Ok(value_of(&dictionary)),
        Err(error) if !error.is_instance_of::<PyException>(object.py()) => Err(error),
        Err(error) => {
            let cause = error.value(object.py());
            let text = format!("{} that raised {}", name_of(object), shown(cause));
            Ok(Value::Other(text))
        }
    }
}

/// What `__distarray__` gives; the object itself when it has none.
pub(super) fn dictionary_of<'py>(object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    match object.getattr_opt("__distarray__")? {
        Some(method) => method.call0(),
        None => Ok(object.clone()),
    }
}
