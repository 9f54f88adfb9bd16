//! `Schema`: names and types of columns, without data.

use std::io::Cursor;

use arrow::datatypes::{DataType, SchemaRef};
use arrow::ipc::reader::StreamReader;
use arrow::ipc::writer::StreamWriter;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyCapsule, PyType};

use crate::capsule::schema_capsule;
use crate::error::Outcome;

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
        let reader = StreamReader::try_new(Cursor::new(stream), None)?;
        Ok(Self::new(reader.schema()))
    }

    fn __reduce__<'py>(
        slf: &Bound<'py, Self>,
    ) -> Outcome<(Bound<'py, PyAny>, (Bound<'py, PyBytes>,))> {
        let mut stream = Vec::new();
        StreamWriter::try_new(&mut stream, &slf.get().core)?.finish()?;
        let stream = PyBytes::new(slf.py(), &stream);
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
