//! `Prepared`.

use partgrid::error::{Error, ErrorKind};
use partgrid::query::Prepared;
use pyo3::prelude::*;

use crate::argument::{Count, Given, Seconds, Size};
use crate::error::Outcome;
use crate::parameters::parameters;
use crate::query::options;
use crate::result::PyQuery;
use crate::runtime::wait;

/// A statement whose names were looked up, made by `Session.prepare`. Safe to use from several threads.
#[pyclass(name = "Prepared", module = "partgrid", frozen, weakref)]
pub(crate) struct PyPrepared {
    prepared: Prepared,
    /// The process that looked it up.
    pid: u32,
}

impl PyPrepared {
    pub(crate) fn new(prepared: Prepared) -> Self {
        Self {
            prepared,
            pid: std::process::id(),
        }
    }
}

#[pymethods]
impl PyPrepared {
    /// The SQL text.
    #[getter]
    fn query(&self) -> &str {
        self.prepared.text()
    }

    /// The parameters in order, each with the Arrow type that its place suggests as text, or `None`.
    #[getter]
    fn parameters(&self) -> Outcome<Vec<(String, Option<String>)>> {
        let parameters = self.prepared.parameters()?.into_iter();
        let shown = parameters.map(|(name, kind)| (name, kind.map(|kind| kind.to_string())));
        Ok(shown.collect())
    }

    /// The statement with values for its parameters. It runs when its result is asked for.
    ///
    /// Args:
    ///     params: Values, as in `Session.sql`.
    ///     timeout: Seconds that each run may take, in place of that of the session.
    ///     memory_limit: Bytes, or a text such as `"512MB"`, that each run may use.
    ///     threads: Into how many shares the query is spread.
    ///
    /// Returns:
    ///     A result that has not run yet.
    ///
    /// Raises:
    ///     QueryError: Values and parameters do not fit, or a name stands for something else now that does not fit.
    ///     NotLocalError: The statement was prepared before a fork, in the parent process.
    #[expect(clippy::too_many_arguments, reason = "keyword arguments of Python")]
    #[pyo3(signature = (params=None, *, timeout=None, memory_limit=None, threads=None))]
    fn sql(
        &self,
        py: Python<'_>,
        params: Option<&Bound<'_, PyAny>>,
        timeout: Option<Given<Seconds>>,
        memory_limit: Option<Given<Size>>,
        threads: Option<Given<Count>>,
    ) -> Outcome<PyQuery> {
        if self.pid != std::process::id() {
            let text = "this statement was prepared before a fork, in the parent process";
            return Err(Error::new(ErrorKind::NotLocal, text)
                .with_hint("prepare it again in this process")
                .into());
        }
        let options = options(timeout, memory_limit, threads)?;
        let params = parameters(params)?;
        let prepared = self.prepared.clone();
        let planned = wait(py, async move {
            Box::pin(prepared.query(params, &options)).await
        })?;
        Ok(PyQuery::new(self.prepared.text().to_owned(), planned))
    }

    fn __repr__(&self) -> Outcome<String> {
        let names: Vec<String> = self
            .parameters()?
            .into_iter()
            .map(|(name, _)| name)
            .collect();
        Ok(format!(
            "Prepared({:?}, parameters: {})",
            self.query(),
            names.join(", ")
        ))
    }
}
