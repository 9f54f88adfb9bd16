//! `connect` and `Connection`.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use partgrid::client::{
    Client, ClientOptions, Durability, IfExists, Rebalanced, RemoteLoad, UploadOptions,
};
use partgrid::error::Error;
use partgrid::load::SchemaEvolution;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::argument::{self, Count, Given, Seconds, Size, optional};
use crate::error::Outcome;
use crate::grid::PyGrid;
use crate::job::LoadBar;
use crate::parameters::parameters;
use crate::query::grid_of;
use crate::result::PyQuery;
use crate::runtime::{wait, wait_and_tick};
use crate::wishes::{Names, SortBy, Sources};

/// Connects to a server of partgrid, or another one of Arrow Flight SQL.
///
/// Args:
///     uri: `grpc://host:port`, or `grpc+tls://host:port` with TLS.
///     token: The token to show with each call.
///     ca: A file of those who vouch for the server, in PEM; by default those that the system trusts.
///     certificate: A file of the certificate that the client shows, in PEM (mutual TLS).
///     key: A file of its key.
///     server_name: The name that the certificate of the server must have, where it is another than that of the URI.
///     tls: Whether the connection is encrypted, where the URI leaves it open: `host:port` without a scheme, and, to be spoken to by TLS, `grpc://host:port`. By default the URI alone says it. A URI that says otherwise (`grpc+tcp://` with True, `grpc+tls://` with False) is refused.
///     insecure: Lets the token go to another host without TLS, where whoever is on the way can read it. This machine needs no such leave.
///     timeout: How long each query may take, in seconds; the server may allow less.
///     memory_limit: What each query may use of the server's memory, in bytes or as text such as `"2GB"`; the server may allow less.
///
/// Returns:
///     The connection.
///
/// Raises:
///     InvalidArgumentError: It is no such URI, it contradicts `tls`, there is a certificate without a key, or a token would go to another host without TLS.
///     StorageError: No server answers there within ten seconds, or its certificate is not trusted.
///
/// Examples:
///     >>> import partgrid as pg
///     >>> with pg.Server({"airlines": pg.read_parquet("data/airlines.parquet")}) as server:
///     ...     connection = pg.connect(server.uri)
///     ...     connection.grids(), connection.sql("SELECT count(*) AS n FROM airlines").to_arrow()["n"].to_pylist()
///     (['airlines'], [16])
#[pyfunction]
#[expect(clippy::too_many_arguments, reason = "keyword arguments of Python")]
#[pyo3(signature = (uri, *, token=None, ca=None, certificate=None, key=None, server_name=None, tls=None, insecure: "bool" = false, timeout=None, memory_limit=None))]
pub(crate) fn connect(
    py: Python<'_>,
    uri: Given<String>,
    token: Option<Given<String>>,
    ca: Option<Given<PathBuf>>,
    certificate: Option<Given<PathBuf>>,
    key: Option<Given<PathBuf>>,
    server_name: Option<Given<String>>,
    tls: Option<Given<bool>>,
    #[pyo3(from_py_with = argument::insecure)] insecure: bool,
    timeout: Option<Given<Seconds>>,
    memory_limit: Option<Given<Size>>,
) -> Outcome<PyConnection> {
    let uri = uri.named("uri")?;
    let mut options = ClientOptions::default().with_insecure(insecure);
    if let Some(token) = optional(token, "token")? {
        options = options.with_token(token);
    }
    if let Some(ca) = optional(ca, "ca")? {
        options = options.with_ca(ca);
    }
    match (optional(certificate, "certificate")?, optional(key, "key")?) {
        (Some(certificate), Some(key)) => options = options.with_identity(certificate, key),
        (None, None) => {}
        _ => {
            let text = "certificate and key go together, got one of them";
            return Err(Error::invalid_argument(text).into());
        }
    }
    if let Some(name) = optional(server_name, "server_name")? {
        options = options.with_server_name(name);
    }
    if let Some(is_tls) = optional(tls, "tls")? {
        options = options.with_tls(is_tls);
    }
    if let Some(limit) = optional(timeout, "timeout")?.and_then(|timeout| timeout.limit) {
        options = options.with_timeout(limit);
    }
    if let Some(bytes) = optional(memory_limit, "memory_limit")? {
        options = options.with_memory_limit_bytes(bytes.0);
    }
    let client = wait(py, async move { Client::connect(&uri, &options).await })?;
    Ok(PyConnection {
        client,
        pid: std::process::id(),
    })
}

/// What was moved, as a dictionary.
pub(crate) fn rebalanced(py: Python<'_>, moved: Rebalanced) -> PyResult<Bound<'_, PyDict>> {
    let answer = PyDict::new(py);
    answer.set_item("bytes_moved", moved.moved_bytes)?;
    answer.set_item("tiles_moved", moved.moved_tiles)?;
    answer.set_item("tiles_kept", moved.kept_tiles)?;
    Ok(answer)
}

fn named_choice(if_exists: &str) -> Outcome<IfExists> {
    match if_exists {
        "fail" => Ok(IfExists::Fail),
        "replace" => Ok(IfExists::Replace),
        other => {
            let text = format!("if_exists must be \"fail\" or \"replace\", got {other:?}");
            let error = Error::invalid_argument(text);
            Err(match other {
                "append" => error.with_hint("adbc_ingest(name, rows, mode=\"append\") of adbc_driver_flightsql adds rows to a table"),
                _ => error,
            }
            .into())
        }
    }
}

/// A connection to a server, made by `connect`. Safe to use from several threads; a forked child makes its own.
#[pyclass(name = "Connection", module = "partgrid", frozen, weakref)]
pub(crate) struct PyConnection {
    client: Client,
    pid: u32,
}

impl PyConnection {
    fn client(&self) -> Outcome<Client> {
        if self.pid == std::process::id() {
            return Ok(self.client.clone());
        }
        Err(Error::invalid_argument(
            "this connection was made before a fork, in the parent process",
        )
        .with_hint("call connect() again in this process")
        .into())
    }

    /// The grid of a name.
    pub(crate) fn found(slf: &Bound<'_, Self>, name: String) -> Outcome<PyGrid> {
        let (client, asked) = (slf.get().client()?, name.clone());
        let grid = wait(slf.py(), async move { client.grid(&asked).await })?;
        Ok(PyGrid::of_server(grid, slf.clone().unbind(), name))
    }

    /// Has the rows of a grid dealt out anew.
    pub(crate) fn moved(
        &self,
        py: Python<'_>,
        name: &str,
        without: Option<Given<Vec<String>>>,
    ) -> Outcome<Rebalanced> {
        let (client, name) = (self.client()?, name.to_owned());
        let without = optional(without, "without")?.unwrap_or_default();
        wait(py, async move { client.rebalance(&name, &without).await })
    }
}

#[pymethods]
impl PyConnection {
    /// Where the server is.
    #[getter]
    fn uri(&self) -> &str {
        self.client.uri()
    }

    /// The names of the grids that the caller may see, sorted.
    ///
    /// Raises:
    ///     PermissionDeniedError: The token is not good.
    fn grids(&self, py: Python<'_>) -> Outcome<Vec<String>> {
        let client = self.client()?;
        wait(py, async move { client.grids().await })
    }

    /// A grid of the server, with all that a grid can do. Its tiles stay where they are until they are read: then they are mapped, without a copy, where the server runs on this host as this user, and fetched
    /// column by column elsewhere. Nothing that was fetched is kept.
    ///
    /// Args:
    ///     name: The name.
    ///
    /// Returns:
    ///     The grid as it is now. When the server drops or replaces it, tiles that were not read are lost (`PartitionLostError` or `NotFoundError`). Pickled, it names the memory of the server where that can
    ///     be mapped, and else this process, which fetches tiles for whoever opens it.
    ///
    /// Raises:
    ///     NotFoundError: The server has no such grid for this caller.
    ///     ProtocolError: It is no server of partgrid.
    fn grid(slf: &Bound<'_, Self>, name: Given<String>) -> Outcome<PyGrid> {
        Self::found(slf, name.named("name")?)
    }

    /// Plans a statement on the server; it runs there when its result is asked for, and rows come as they are found. One that names something (CREATE VIEW, CREATE TABLE … AS, DROP) takes
    /// effect now.
    ///
    /// Args:
    ///     query: The SQL text.
    ///     params: Values for its parameters, as `partgrid.sql` takes them: a list or tuple for `$1` and `?`, a dict for `$name`. They are sent as values, never as SQL text.
    ///     timeout: Seconds that each run may take, in place of those of the connection; the server may allow less.
    ///     memory_limit: Bytes, or a text such as `"512MB"`, that each run may use of the server's memory, likewise.
    ///
    /// Returns:
    ///     A result that has not run yet. Its `metrics` is always None, and so is what `progress()` returns.
    ///
    /// Raises:
    ///     QueryError: The SQL is wrong.
    ///     PermissionDeniedError: The token does not allow it.
    ///     InvalidArgumentError: A limit is 0, or the server takes none.
    ///     ResourcesExhaustedError: A limit was reached, now or when it runs; the text says whether it is the server's.
    #[expect(clippy::too_many_arguments, reason = "keyword arguments of Python")]
    #[pyo3(signature = (query, params=None, *, timeout=None, memory_limit=None))]
    fn sql(
        &self,
        py: Python<'_>,
        query: Given<String>,
        params: Option<&Bound<'_, PyAny>>,
        timeout: Option<Given<Seconds>>,
        memory_limit: Option<Given<Size>>,
    ) -> Outcome<PyQuery> {
        let (client, text) = (self.client()?, query.named("query")?);
        let (asked, values) = (text.clone(), parameters(params)?);
        let time = optional(timeout, "timeout")?.and_then(|timeout| timeout.limit);
        let bytes = optional(memory_limit, "memory_limit")?.map(|size| size.0);
        let asking = async move {
            let client = Box::pin(client.within(time, bytes)).await?;
            Box::pin(client.sql_with(&asked, values)).await
        };
        let query = wait(py, asking)?;
        Ok(PyQuery::new(text, query))
    }

    /// Sends a grid to the server, tile for tile, and puts it under a name once all of it is there.
    ///
    /// Args:
    ///     data: A grid, or other data as `Session.register` takes it.
    ///     name: The name.
    ///     if_exists: What to do when the server has a grid of the name: `"fail"` or `"replace"`.
    ///     ack: What must be so before this returns: `"durable"`, the grid outlives the server, which refuses before anything is sent where it has no catalog; `"memory"`, the server has all of it, and keeps it in no
    ///         catalog. By default the most that the server does.
    ///     load_id: A name of this upload: repeated with the same name, as after an answer that was lost, the same rows change nothing, also after a restart of a server with a catalog. Other rows under the name are refused.
    ///
    /// Returns:
    ///     `{"rows": …, "durable": …}`: whether the grid outlives the server.
    ///
    /// Raises:
    ///     QueryError: There is such a grid.
    ///     PermissionDeniedError: The token does not allow it.
    ///     ResourcesExhaustedError: It is larger than the server takes.
    ///     UnsupportedError: It is to be durable, and the server has no catalog.
    #[expect(clippy::too_many_arguments, reason = "keyword arguments of Python")]
    #[pyo3(signature = (data, name, *, if_exists="fail", ack=None, load_id=None))]
    fn upload<'py>(
        &self,
        py: Python<'py>,
        data: &Bound<'py, PyAny>,
        name: Given<String>,
        if_exists: &str,
        ack: Option<Given<String>>,
        load_id: Option<Given<String>>,
    ) -> Outcome<Bound<'py, PyDict>> {
        let (client, name) = (self.client()?, name.named("name")?);
        let grid = grid_of(data, "data")?;
        let mut options = UploadOptions::default().with_if_exists(named_choice(if_exists)?);
        if let Some(ack) = optional(ack, "ack")? {
            options = options.with_durability(Durability::from_name(&ack)?);
        }
        if let Some(load_id) = optional(load_id, "load_id")? {
            options = options.with_load_id(load_id);
        }
        let sent = Arc::clone(&grid);
        let promised = wait(py, async move {
            Box::pin(client.upload(&sent, &name, options)).await
        })?;
        let answer = PyDict::new(py);
        answer.set_item("rows", promised.num_rows)?;
        answer.set_item("durable", promised.is_durable)?;
        Ok(answer)
    }

    /// Has the server load Parquet files as a grid, and waits. Ctrl-C ends the load on the server.
    ///
    /// Args:
    ///     path: Paths, folders, patterns or URLs as the server sees them; it loads only from places that its administrator allows (`load.from`).
    ///     name: The name.
    ///     if_exists: What to do when the server has a grid of the name: `"fail"` or `"replace"`.
    ///     columns: Names of the wanted columns; all by default.
    ///     lazy: Whether tiles are read when they are used.
    ///     tile_rows: Rows of a tile; as the server finds right by default.
    ///     sort_by: A column or several to sort the rows by, as `read_parquet` takes them.
    ///     partition_by: A name or a list of names: rows with equal values in these columns come into one row band, as `read_parquet` has it.
    ///     num_partitions: How many row bands `partition_by` makes; by default as many as tiles of `tile_rows` rows would be.
    ///     hive_partitioning: Whether folder names such as `month=01` become columns.
    ///     schema_evolution: Which differences between the columns of files are borne: `"strict"`, `"union"` or `"widen"`.
    ///     load_id: A name of this load: repeated with the same name, as after an answer that was lost, the same paths and wishes change nothing, also after a restart of a server with a catalog. Others under the name are refused.
    ///     progress: True for a bar in any case, False for none; by default where a person sees it.
    ///
    /// Returns:
    ///     `{"rows": …}`.
    ///
    /// Raises:
    ///     PermissionDeniedError: The token or the server does not allow it.
    ///     QueryError: There is such a grid.
    ///     PathNotFoundError, InvalidDataError and others: The load failed, as `read_parquet` would; the text is the server's.
    #[expect(clippy::too_many_arguments, reason = "keyword arguments of Python")]
    #[pyo3(signature = (path, name, *, if_exists="fail", columns=None, lazy: "bool" = false, tile_rows=None, sort_by=None, partition_by=None, num_partitions=None, hive_partitioning: "bool" = true, schema_evolution: "str" = "strict", load_id=None, progress=None))]
    fn load_parquet<'py>(
        &self,
        py: Python<'py>,
        path: Given<Sources>,
        name: Given<String>,
        if_exists: &str,
        columns: Option<Given<Vec<String>>>,
        #[pyo3(from_py_with = argument::lazy)] lazy: bool,
        tile_rows: Option<Given<Count>>,
        sort_by: Option<Given<SortBy>>,
        partition_by: Option<Given<Names>>,
        num_partitions: Option<Given<Count>>,
        #[pyo3(from_py_with = argument::hive_partitioning)] hive_partitioning: bool,
        #[pyo3(from_py_with = argument::schema_evolution)] schema_evolution: &str,
        load_id: Option<Given<String>>,
        progress: Option<Given<bool>>,
    ) -> Outcome<Bound<'py, PyDict>> {
        let client = self.client()?;
        let wanted = RemoteLoad {
            sources: path.named("path")?.into_strings()?,
            name: name.named("name")?,
            if_exists: named_choice(if_exists)?,
            columns: optional(columns, "columns")?.unwrap_or_default(),
            is_lazy: lazy,
            tile_rows: optional(tile_rows, "tile_rows")?.map(|count| count.0),
            sort_by: optional(sort_by, "sort_by")?.map_or_else(Vec::new, |columns| columns.0),
            partition_by: optional(partition_by, "partition_by")?
                .map_or_else(Vec::new, |names| names.0),
            num_partitions: optional(num_partitions, "num_partitions")?.map(|count| count.0),
            hive_partitioning,
            schema_evolution: SchemaEvolution::from_name(schema_evolution)?,
            load_id: optional(load_id, "load_id")?,
        };
        let job = wait(py, async move { client.load(&wanted).await })?;
        let bar = LoadBar::new(py, optional(progress, "progress")?)?;
        let seen = Arc::new(Mutex::new(None));
        let (noted, waited) = (Arc::clone(&seen), job.clone());
        let waiting = async move {
            let note =
                |progress| *noted.lock().unwrap_or_else(PoisonError::into_inner) = Some(progress);
            waited.wait(note).await
        };
        let done = wait_and_tick(py, waiting, || {
            let now = *seen.lock().unwrap_or_else(PoisonError::into_inner);
            now.map_or(Ok(()), |progress| bar.show(py, progress))
        });
        bar.close(py)?;
        let rows = match done {
            Ok(rows) => rows,
            Err(raised) => {
                // Whoever is interrupted wants no grid any more.
                drop(wait(py, async move { job.cancel().await }));
                return Err(raised);
            }
        };
        let answer = PyDict::new(py);
        answer.set_item("rows", rows)?;
        Ok(answer)
    }

    /// Has the server, a member of a cluster, spread the rows of a grid over the members that are there now, as `Server.rebalance` says, and waits.
    ///
    /// Args:
    ///     name: The name of the grid of all members.
    ///     without: The URIs of members that are to have nothing of it, as for `Server.rebalance`.
    ///
    /// Returns:
    ///     `{"bytes_moved": …, "tiles_moved": …, "tiles_kept": …}`; 0 moved where the shares are even already.
    ///
    /// Raises:
    ///     PermissionDeniedError: The token may not do everything with all grids.
    ///     InvalidArgumentError: `without` names who is no member, or all members.
    ///     NotFoundError: The server is no member of a cluster, or knows no grid of all by this name.
    ///     PartitionLostError: A part of it is gone.
    ///     WorkerLostError, StorageError and others: A member could not take its share. The grid is as it was.
    #[pyo3(signature = (name, *, without=None))]
    fn rebalance<'py>(
        &self,
        py: Python<'py>,
        name: Given<String>,
        without: Option<Given<Vec<String>>>,
    ) -> Outcome<Bound<'py, PyDict>> {
        let moved = self.moved(py, &name.named("name")?, without)?;
        Ok(rebalanced(py, moved)?)
    }

    fn __repr__(&self) -> String {
        format!("Connection({:?})", self.client.uri())
    }
}
