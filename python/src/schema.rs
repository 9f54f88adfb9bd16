//! `Schema`: names and types of columns, without data.

use arrow::datatypes::{DataType, SchemaRef};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyCapsule, PyType};

use crate::capsule::schema_capsule;
use crate::error::Outcome;
use crate::share::{schema_bytes, schema_from};

/// The names and types of columns. Any library that takes `__arrow_c_schema__` reads it: `pyarrow.schema(schema)`. Pickles with the standard library.
#[pyclass(name = "Schema", module = "partgrid", frozen, eq)]
#[derive(PartialEq)]
pub(crate) struct PySchema {
    core: SchemaRef,
}

impl PySchema {
    pub(crate) fn new(core: SchemaRef) -> Self {
        Self { core }
    }

    pub(crate) fn core(&self) -> &SchemaRef {
        &self.core
    }
}

#[pymethods]
impl PySchema {
    /// The names of the columns, in order.
    #[getter]
    fn names(&self) -> Vec<String> {
        let fields = self.core.fields().iter();
        fields.map(|field| field.name().clone()).collect()
    }

    /// The types of the columns as text, in order.
    #[getter]
    fn types(&self) -> Vec<String> {
        let fields = self.core.fields().iter().map(|field| field.data_type());
        fields.map(DataType::to_string).collect()
    }

    /// The Arrow PyCapsule interface.
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> Outcome<Bound<'py, PyCapsule>> {
        schema_capsule(py, &self.core)
    }

    /// Makes a schema from what another one pickled. Used by `pickle`.
    #[classmethod]
    fn _from_ipc(_class: &Bound<'_, PyType>, stream: &[u8]) -> Outcome<Self> {
        Ok(Self::new(schema_from(stream)?))
    }

    fn __reduce__<'py>(
        slf: &Bound<'py, Self>,
    ) -> Outcome<(Bound<'py, PyAny>, (Bound<'py, PyBytes>,))> {
        let stream = schema_bytes(slf.py(), &slf.get().core)?;
        Ok((slf.get_type().getattr("_from_ipc")?, (stream,)))
    }

    fn __len__(&self) -> usize {
        self.core.fields().len()
    }

    fn __repr__(&self) -> String {
        let pairs = self.names().into_iter().zip(self.types());
        let pairs: Vec<String> = pairs
            .map(|(name, kind)| format!("{name}: {kind}"))
            .collect();
        format!("Schema({})", pairs.join(", "))
    }
}
