//! `Server`.

use std::mem::ManuallyDrop;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use partgrid::cluster::{Cluster, PartOf};
use partgrid::error::{Error, ErrorKind};
use partgrid::load::load;
use partgrid::serve::{Origin, Server, Settings};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict};

use crate::argument::{
    Count, Given, Refusal, Seconds, insecure, of_user, optional, replicas, shown, text,
};
use crate::connection::rebalanced;
use crate::error::Outcome;
use crate::grid::PyGrid;
use crate::query::grid_of;
use crate::runtime::wait;

/// A server that holds grids: Arrow Flight SQL for any client (ADBC, JDBC, pyarrow.flight), and a status page.
///
/// It runs on threads of this process until `stop`, or the end of a `with` block. Grids are shared with it, not copied. A forked child has no server of its parent.
///
/// Without TLS and tokens it listens on this machine only. SQL of clients reads grids, and makes and drops them where their token says so; it never touches files, URLs or settings.
///
/// Args:
///     grids: Names and grids, or other data as `Session.register` takes it.
///     address: Where Flight SQL listens, as `"host:port"`; port 0 takes a free one. By default what `config` says, and a free port of 127.0.0.1 without it.
///     http: Where the status page and the metrics are, likewise; None for nowhere.
///     catalog: Where grids that clients make are kept: a folder, which is for this server alone; or the URL of an object store, or `shared://` and the absolute path of a folder, which several servers may
///         have. What is there is served from the start, and what others change within seconds. Without it they are gone when the server ends.
///     tls: Files of the certificate and its key in PEM, and, if clients must show certificates too, of those who vouch for them.
///     tokens: A file of tokens (`partgrid token` makes them); every call then needs one.
///     join: Makes the server a member of a cluster: the addresses of all members as a list of `"host:port"`, or `"file:PATH"` for a file with one in each line, or `"dns:NAME:PORT"`. Any member answers SQL over the
///         grids of all, and each reads its own tiles (docs/cluster.md).
///     insecure: Whether addresses other than loopback are allowed without TLS and tokens: whoever reaches the port may then do everything.
///     config: A TOML file of settings. Arguments replace what it says.
///     settings: More settings by key, such as `{"limits.query_time": 120, "limits.query_memory": "2GiB"}`; the command `partgrid config` lists all.
///
/// Raises:
///     InvalidArgumentError: A setting is unknown or has no such value, or would let strangers in.
///     StorageError: The address is in use, or not one of this machine.
///     NotFoundError: A file is not there.
///
/// Examples:
///     >>> import partgrid as pg
///     >>> with pg.Server({"airlines": pg.read_parquet("data/airlines.parquet")}) as server:
///     ...     server.uri.startswith("grpc://127.0.0.1:"), server.tables
///     (True, ['airlines'])
#[pyclass(name = "Server", module = "partgrid", frozen, weakref)]
pub(crate) struct PyServer {
    server: ManuallyDrop<Arc<Server>>,
    pid: u32,
}

impl Drop for PyServer {
    #[expect(unsafe_code, reason = "a child must not touch what its parent runs")]
    fn drop(&mut self) {
        if self.pid == std::process::id() {
            // SAFETY: not used any more.
            unsafe { ManuallyDrop::drop(&mut self.server) };
        }
    }
}

/// How grids are given.
const NAMED: &str = "each grid has a name: Server({\"flights\": grid})";

/// The keys and values of a dict, if there is one.
fn pairs<'py>(
    py: Python<'py>,
    dict: Option<Py<PyDict>>,
) -> impl Iterator<Item = (Bound<'py, PyAny>, Bound<'py, PyAny>)> {
    dict.into_iter()
        .flat_map(move |dict| dict.into_bound(py).iter())
}

/// A key of the argument `name`.
fn key_of(key: &Bound<'_, PyAny>, name: &str) -> Outcome<String> {
    let refused = || Refusal::new(key, "have texts as keys").named(name);
    Ok(text(key).ok_or_else(refused)?)
}

fn check_log(said: &Settings) -> Outcome<()> {
    if said.log_filter().is_none() && !said.is_log_json() && said.traces().is_none() {
        return Ok(());
    }
    let text = "the settings of the log hold for the command `partgrid serve`";
    let mut error = Error::invalid_argument(text);
    let mut all = said.listed().into_iter();
    let is_of_log =
        |key: &str, origin: &Origin| key.starts_with("log.") && *origin != Origin::Default;
    if let Some((key, _, origin, _)) = all.find(|(key, _, origin, _)| is_of_log(key, origin)) {
        error = error.with_context("setting", key);
        if let Origin::File(path) = origin {
            error = error.with_file(path);
        }
    }
    let hint = "a server within a program writes no log: leave log.* out";
    Err(error.with_hint(hint).into())
}

/// What a value of a setting is as text.
fn setting(value: &Bound<'_, PyAny>) -> Outcome<String> {
    if let Ok(flag) = value.cast::<PyBool>() {
        return Ok(flag.is_true().to_string());
    }
    if let Ok(path) = value.extract::<PathBuf>() {
        return Ok(of_user(path).to_string_lossy().into_owned());
    }
    if value.extract::<f64>().is_ok() {
        return Ok(value.str()?.to_string());
    }
    let text = format!(
        "a setting must be a text, a number, True or False, got {}",
        shown(value)
    );
    Err(Error::invalid_argument(text).into())
}

fn files(tls: &Bound<'_, PyAny>) -> Outcome<Vec<String>> {
    let paths: Vec<PathBuf> = tls.extract().unwrap_or_default();
    if !(2..=3).contains(&paths.len()) {
        let text = format!(
            "tls must be files of certificate and key, and of the client CA if there is one, got {}",
            shown(tls)
        );
        return Err(Error::invalid_argument(text).into());
    }
    let texts = paths
        .into_iter()
        .map(|path| of_user(path).to_string_lossy().into_owned());
    Ok(texts.collect())
}

/// Where the addresses of members are written, as the setting has it.
fn joined(join: &Bound<'_, PyAny>) -> Outcome<String> {
    if let Ok(text) = join.extract::<String>() {
        return Ok(text);
    }
    if let Ok(list) = join.extract::<Vec<String>>() {
        return Ok(match list.as_slice() {
            [] => "alone".to_owned(),
            list => list.join(","),
        });
    }
    let text = format!(
        "join must be a text or a list of \"host:port\", got {}",
        shown(join)
    );
    Err(Error::invalid_argument(text).into())
}

impl PyServer {
    fn cluster(&self) -> Outcome<Arc<Cluster>> {
        let cluster = self.of_here()?.cluster();
        Ok(cluster.map(Arc::clone).ok_or_else(|| {
            let text = "this server is no member of a cluster";
            Error::invalid_argument(text).with_hint("start it with join=[…]")
        })?)
    }

    fn of_here(&self) -> Outcome<&Arc<Server>> {
        if self.pid == std::process::id() {
            return Ok(&self.server);
        }
        let text = "the server runs in the process that started it, of which this one is a fork";
        Err(Error::new(ErrorKind::NotLocal, text).into())
    }
}

#[pymethods]
impl PyServer {
    #[new]
    #[expect(clippy::too_many_arguments, reason = "keyword arguments of Python")]
    #[pyo3(signature = (grids=None, *, address=None, http=Some("127.0.0.1:0"), catalog=None, tls=None, tokens=None, join=None, insecure: "bool" = false, config=None, settings=None))]
    fn new(
        py: Python<'_>,
        grids: Option<Given<Py<PyDict>>>,
        address: Option<Given<String>>,
        http: Option<&str>,
        catalog: Option<Given<PathBuf>>,
        tls: Option<&Bound<'_, PyAny>>,
        tokens: Option<Given<PathBuf>>,
        join: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = insecure)] insecure: bool,
        config: Option<Given<PathBuf>>,
        settings: Option<Given<Py<PyDict>>>,
    ) -> Outcome<Self> {
        let grids = optional(grids, "grids").map_err(|error| error.with_hint(NAMED))?;
        let mut said = Settings::default();
        // Free ports, unless somebody says otherwise.
        said.add_flag("server.address", "127.0.0.1:0")?;
        said.add_flag("server.http", "127.0.0.1:0")?;
        if let Some(path) = optional(config, "config")? {
            said.add_file(&path)?;
        }
        if let Some(address) = optional(address, "address")? {
            said.add_flag("server.address", address)?;
        }
        match http {
            Some("127.0.0.1:0") => {}
            other => said.add_flag("server.http", other.unwrap_or("off"))?,
        }
        if let Some(catalog) = optional(catalog, "catalog")? {
            said.add_flag("server.catalog", catalog.to_string_lossy())?;
        }
        if let Some(tls) = tls {
            let keys = ["tls.certificate", "tls.key", "tls.client_ca"];
            for (key, path) in keys.iter().zip(files(tls)?) {
                said.add_flag(key, path)?;
            }
        }
        if let Some(path) = optional(tokens, "tokens")? {
            said.add_flag("auth.tokens", path.to_string_lossy())?;
        }
        if let Some(join) = join {
            said.add_flag("cluster.join", joined(join)?)?;
        }
        if insecure {
            said.add_flag("server.insecure", "true")?;
        }
        for (key, value) in pairs(py, optional(settings, "settings")?) {
            said.add_flag(&key_of(&key, "settings")?, setting(&value)?)?;
        }
        check_log(&said)?;
        let mut options = said.options()?;
        // Before anything is loaded.
        options.check_start()?;
        for (name, data) in pairs(py, grids) {
            let name = key_of(&name, "grids")?;
            let grid = grid_of(&data, &format!("grids[{name:?}]"))?;
            options = options.with_grid(name, grid);
        }
        let configured = said.grids();
        let server = wait(py, async move {
            for (name, path) in configured {
                let loaded = Box::pin(load(&[path], &options.load_options())).await?;
                options = options.with_grid(name, Arc::new(loaded));
            }
            Server::start(&options).await
        })?;
        Ok(Self {
            server: ManuallyDrop::new(Arc::new(server)),
            pid: std::process::id(),
        })
    }

    /// Where clients reach it: `grpc://host:port`, or `grpc+tls://` with a certificate.
    #[getter]
    fn uri(&self) -> String {
        self.server.uri().to_owned()
    }

    /// Where the status page is; None when it is off.
    #[getter]
    fn http_uri(&self) -> Option<String> {
        self.server.http_uri()
    }

    /// The URIs of the members of the cluster as this one sees them, its own first.
    ///
    /// Raises:
    ///     InvalidArgumentError: The server is no member of a cluster.
    #[getter]
    fn members(&self) -> Outcome<Vec<String>> {
        let members = self.cluster()?.members();
        Ok(members
            .iter()
            .map(|member| member.uri().to_owned())
            .collect())
    }

    /// Looks for members elsewhere from now on, in place of what `join` of the server said.
    ///
    /// Args:
    ///     members: As `join` of the server.
    ///
    /// Raises:
    ///     InvalidArgumentError: The server is no member of a cluster, or `members` are not written like that.
    fn join(&self, members: &Bound<'_, PyAny>) -> Outcome<()> {
        let members = joined(members)?.parse()?;
        self.cluster()?.join(members);
        Ok(())
    }

    /// Makes data of this process one part of a grid of the cluster. Once all parts are there, any member answers SQL over the grid, within a second or after `refresh`. Nothing is copied: the tiles stay here,
    /// and each member reads its own.
    ///
    /// Args:
    ///     name: The name of the grid of all members.
    ///     data: A grid, or other data as `Session.register` takes it; its columns must be those of all parts.
    ///     part: The number of the part, from 0; the rows of the grid come in the order of these numbers.
    ///     of: How many parts there are.
    ///     replicas: How many members are to have the part, 1 to 16, this one among them. The others copy it in the background, whole, into their memory; when a member is lost, statements read its parts from those
    ///         who have copies, and one more copy is made elsewhere. With fewer members than that, all have it.
    ///
    /// Raises:
    ///     InvalidArgumentError: The server is no member of a cluster, `part` is not 0 to `of` - 1, there are none or too many parts, there can be no such number of replicas, or the grid was rebalanced since its parts were contributed.
    #[pyo3(signature = (name, data, part, of, *, replicas: "int" = 1))]
    #[expect(clippy::too_many_arguments, reason = "keyword arguments of Python")]
    fn contribute(
        &self,
        name: Given<String>,
        data: &Bound<'_, PyAny>,
        part: Given<usize>,
        of: Given<Count>,
        #[pyo3(from_py_with = replicas)] replicas: usize,
    ) -> Outcome<()> {
        let grid = grid_of(data, "data")?;
        let name = name.named("name")?;
        let Count(of) = of.named("of")?;
        let part = part.named("part").map_err(|error| {
            let last = of.saturating_sub(1);
            error.with_hint(format!("the numbers of {of} parts are 0 to {last}"))
        })?;
        let of = usize::try_from(of).unwrap_or(usize::MAX);
        let part = PartOf::new(part, of).with_replicas(replicas);
        Ok(self.cluster()?.contribute(&name, grid, part)?)
    }

    /// Spreads the rows of a grid of the cluster over the members that are there now, in shares by their memory, and waits. Members that have more than their share give row bands from the end of what they have to those
    /// that have least, so that as few bytes move as that takes; what moves is copied into the memory of its new member. Rows keep their order. Statements go on meanwhile; the old tiles stay for about a minute for
    /// those that read them. A member that comes gets tiles only this way.
    ///
    /// Args:
    ///     name: The name of the grid of all members, as its parts were contributed.
    ///     without: The URIs of members that are to have nothing of it, as `members` says them, since they are going to be taken away: what they have goes to the others.
    ///
    /// Returns:
    ///     `{"bytes_moved": …, "tiles_moved": …, "tiles_kept": …}`; 0 moved where the shares are even already.
    ///
    /// Raises:
    ///     InvalidArgumentError: The server is no member of a cluster, or `without` names who is none, or all members.
    ///     NotFoundError: There is no grid of the cluster by this name with all its parts.
    ///     PartitionLostError: A part of it is gone.
    ///     WorkerLostError, StorageError and others: A member could not take its share. The grid is as it was.
    #[pyo3(signature = (name, *, without=None))]
    fn rebalance<'py>(
        &self,
        py: Python<'py>,
        name: Given<String>,
        without: Option<Given<Vec<String>>>,
    ) -> Outcome<Bound<'py, PyDict>> {
        let (cluster, name) = (self.cluster()?, name.named("name")?);
        let without = optional(without, "without")?.unwrap_or_default();
        let moved = wait(py, async move { cluster.rebalance(&name, &without).await })?;
        Ok(rebalanced(py, moved)?)
    }

    /// Takes the parts of a grid away that this process has, copies among them, and the grid itself from this member. Members that have copies of these parts let them go when they look next; the originals of
    /// copies that go stay with their members.
    /// It stays away from this member, also where others have all its parts, until one of its parts is contributed anew, by whichever member, or the grid is rebalanced.
    ///
    /// Args:
    ///     name: The name of the grid of all members.
    ///
    /// Returns:
    ///     Whether there was anything.
    ///
    /// Raises:
    ///     InvalidArgumentError: The server is no member of a cluster.
    fn withdraw(&self, name: Given<String>) -> Outcome<bool> {
        Ok(self.cluster()?.withdraw(&name.named("name")?))
    }

    /// Looks now who else is in the cluster, and which grids have all their parts, which else is done every second; and what others have changed in a catalog that they share, else every five seconds.
    ///
    /// Raises:
    ///     InvalidArgumentError: The server is no member of a cluster and shares no catalog, or parts of one grid have other columns.
    ///     StorageError: The list of members or the catalog cannot be read.
    fn refresh(&self, py: Python<'_>) -> Outcome<()> {
        let server = Arc::clone(self.of_here()?);
        let cluster = match self.cluster() {
            Err(_) if server.shares_catalog() => None,
            cluster => Some(cluster?),
        };
        wait(py, async move {
            if let Some(cluster) = cluster {
                cluster.refresh().await?;
            }
            server.look_at_catalog().await
        })
    }

    /// The names of grids and views, sorted.
    #[getter]
    fn tables(&self) -> Outcome<Vec<String>> {
        Ok(self.of_here()?.session().tables())
    }

    /// Puts a grid under a name, in place of one that had it. Nothing is copied.
    ///
    /// Args:
    ///     name: The name.
    ///     data: A grid, or other data as `Session.register` takes it.
    ///
    /// Raises:
    ///     InvalidArgumentError: The name is empty, longer than 200 bytes, or has control characters.
    ///     InvalidDataError: It is that of a table of the catalog that is damaged.
    fn register(&self, name: Given<String>, data: &Bound<'_, PyAny>) -> Outcome<()> {
        let grid = grid_of(data, "data")?;
        Ok(self.of_here()?.register(&name.named("name")?, grid)?)
    }

    /// Takes a name away, also from the catalog.
    ///
    /// Args:
    ///     name: The name of a grid or view.
    ///
    /// Returns:
    ///     Whether there was one.
    ///
    /// Raises:
    ///     StorageError: The catalog cannot be written; then the name stays.
    fn deregister(&self, py: Python<'_>, name: Given<String>) -> Outcome<bool> {
        let (server, name) = (Arc::clone(self.of_here()?), name.named("name")?);
        wait(py, async move { server.session().drop_table(&name).await })
    }

    /// The grid under a name.
    ///
    /// Args:
    ///     name: The name.
    ///
    /// Returns:
    ///     The grid. Nothing is copied.
    ///
    /// Raises:
    ///     NotFoundError: There is no such grid.
    ///     QueryError: It is a view, which has no grid.
    fn grid(&self, name: Given<String>) -> Outcome<PyGrid> {
        let grid = self.of_here()?.session().grid(&name.named("name")?)?;
        Ok(PyGrid::shared(grid))
    }

    /// Reads the files of tokens and certificates again, and of a member of a cluster that of the token that it shows, and that of those whom it trusts. Connections that are open stay.
    ///
    /// Raises:
    ///     NotFoundError: A file is gone; then what was read before stays in use.
    ///     InvalidDataError: A file is not what it should be; likewise.
    ///     InvalidArgumentError: A start would refuse it, such as a token of members with which one may not do all; likewise.
    fn reload(&self) -> Outcome<()> {
        Ok(self.of_here()?.reload()?)
    }

    /// Takes no more connections and begins nothing new, lets queries and loads finish, and ends them when the time is over. Their clients are told which.
    ///
    /// Args:
    ///     within: Seconds.
    #[pyo3(signature = (within=None))]
    fn stop(&self, py: Python<'_>, within: Option<Given<Seconds>>) -> Outcome<()> {
        let within = optional(within, "within")?.and_then(|within| within.limit);
        let within = within.unwrap_or(Duration::from_secs(10));
        let server = Arc::clone(self.of_here()?);
        wait(py, async move {
            server.shutdown(within).await;
            Ok(())
        })
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyAny>) -> Outcome<()> {
        if self.pid != std::process::id() {
            return Ok(());
        }
        self.stop(py, None)
    }

    fn __repr__(&self) -> String {
        format!("Server({:?})", self.server.uri())
    }
}
