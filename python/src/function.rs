//! Functions of Python within SQL.
//!
//! Comes in: a callable or a class. Goes out: functions of the core that call it with the GIL held, on the thread that runs the query. What it raises ends the query, and comes out as
//! it is. Never here: what is called with what, which is `partgrid._functions`.

use std::fmt;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow::datatypes::{Field, Schema};
use partgrid::error::{Error, Result};
use partgrid::query::{Aggregate, Function, FunctionSignature};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyCapsule, PyTuple};

use crate::capsule::{array_capsules, take_schema};
use crate::error::Outcome;
use crate::parameters::one_column;
use crate::runtime::{Shared, called};

/// A batch, as an object that pyarrow takes: the arguments of a call.
#[pyclass(name = "_Arguments", module = "partgrid", frozen)]
pub(crate) struct PyArguments {
    batch: RecordBatch,
}

impl PyArguments {
    pub(crate) fn new(batch: RecordBatch) -> Self {
        Self { batch }
    }
}

#[pymethods]
impl PyArguments {
    /// How many rows there are, also without arguments.
    #[getter]
    fn num_rows(&self) -> usize {
        self.batch.num_rows()
    }

    /// The Arrow PyCapsule interface.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> Outcome<Bound<'py, PyTuple>> {
        array_capsules(py, &self.batch, requested_schema)
    }
}

/// The types of a function, of which the last is that of its value.
fn signature(name: String, types: &Bound<'_, PyAny>, volatile: bool) -> Outcome<FunctionSignature> {
    let capsule = types.call_method0("__arrow_c_schema__")?;
    let capsule: Bound<'_, PyCapsule> = capsule.cast_into().map_err(PyErr::from)?;
    let schema = Schema::try_from(&take_schema(capsule.as_any())?)?;
    let mut types: Vec<_> = schema
        .fields()
        .iter()
        .map(|field| field.data_type().clone())
        .collect();
    let returns = types
        .pop()
        .ok_or_else(|| Error::internal("a function without a type"))?;
    Ok(FunctionSignature {
        name,
        arguments: types,
        returns,
        volatile,
    })
}

/// A scalar function. `caller` is called with the arguments and gives a batch of one column.
pub(crate) fn scalar(
    name: String,
    caller: Py<PyAny>,
    types: &Bound<'_, PyAny>,
    volatile: bool,
) -> Outcome<Function> {
    let signature = signature(name, types, volatile)?;
    let caller = Shared::new(caller);
    let body = move |arrays: &[ArrayRef], num_rows: usize| {
        called(|py| {
            let arguments = arguments(py, arrays, num_rows)?;
            one_column(&caller.bind(py).call1((arguments,))?)
        })
    };
    Ok(Function::try_scalar(signature, Arc::new(body))?)
}

/// An aggregate. `caller` has the methods `new`, `update`, `state`, `merge` and `evaluate`, all but the first with a group before their arguments.
pub(crate) fn aggregate(
    name: String,
    caller: Py<PyAny>,
    types: &Bound<'_, PyAny>,
) -> Outcome<Function> {
    let signature = signature(name, types, false)?;
    let caller = Arc::new(Shared::new(caller));
    let body = move || {
        let group = called(|py| Ok(caller.bind(py).call_method0("new")?.unbind()))?;
        let group = Shared::new(group);
        let caller = Arc::clone(&caller);
        Ok(Box::new(Group { caller, group }) as Box<dyn Aggregate>)
    };
    Ok(Function::try_aggregate(signature, Arc::new(body))?)
}

fn arguments(py: Python<'_>, arrays: &[ArrayRef], num_rows: usize) -> Outcome<Py<PyArguments>> {
    let field = |(number, array): (usize, &ArrayRef)| {
        Field::new(
            format!("argument {number}"),
            array.data_type().clone(),
            true,
        )
    };
    let fields: Vec<Field> = arrays.iter().enumerate().map(field).collect();
    let options = RecordBatchOptions::new().with_row_count(Some(num_rows));
    let schema = Arc::new(Schema::new(fields));
    let batch = RecordBatch::try_new_with_options(schema, arrays.to_vec(), &options)?;
    Ok(Py::new(py, PyArguments { batch })?)
}

/// One group of rows: an object of the user's class.
struct Group {
    caller: Arc<Shared>,
    group: Shared,
}

impl fmt::Debug for Group {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a group of an aggregate of Python")
    }
}

impl Aggregate for Group {
    fn update(&mut self, arrays: &[ArrayRef]) -> Result<()> {
        called(|py| {
            let num_rows = arrays.first().map_or(0, |array| array.len());
            let arguments = arguments(py, arrays, num_rows)?;
            self.caller
                .bind(py)
                .call_method1("update", (self.group.bind(py), arguments))?;
            Ok(())
        })
    }

    fn state(&mut self) -> Result<Vec<u8>> {
        called(|py| {
            Ok(self
                .caller
                .bind(py)
                .call_method1("state", (self.group.bind(py),))?
                .extract()?)
        })
    }

    fn merge(&mut self, state: &[u8]) -> Result<()> {
        called(|py| {
            let state = PyBytes::new(py, state);
            self.caller
                .bind(py)
                .call_method1("merge", (self.group.bind(py), state))?;
            Ok(())
        })
    }

    fn evaluate(&mut self) -> Result<ArrayRef> {
        called(|py| {
            one_column(
                &self
                    .caller
                    .bind(py)
                    .call_method1("evaluate", (self.group.bind(py),))?,
            )
        })
    }
}
