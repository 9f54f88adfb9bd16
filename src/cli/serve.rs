//! `partgrid serve`: a server until it is told to stop; `partgrid config`: its settings.
//!
//! Comes in: flags, a file of settings, the environment. Goes out: a server; what it says goes to standard error. Never here: what is served.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use comfy_table::Table;
use tokio::signal::unix::{SignalKind, signal};

use super::grid_argument::GridArgument;
use super::log::{Log, read_filter};
use super::table::plain;
use super::voice::Voice;
use super::{Pipe, grid_argument, runtime};
use crate::error::{Error, Result};
use crate::grid::picture;
use crate::load::load;
use crate::serve::{Server, Settings, Traces};

/// Where settings come from: a file, the environment, flags; each replaces those before it
#[derive(Debug, Args)]
struct Sources {
    /// A TOML file of settings; see `partgrid config`
    #[arg(long, value_name = "FILE", env = "PARTGRID_CONFIG")]
    config: Option<PathBuf>,
    /// One setting, for instance limits.query_time=120; once for each
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Where Flight SQL listens [default: 127.0.0.1:8815]
    #[arg(long, value_name = "IP:PORT")]
    address: Option<String>,
    /// Where the status page and the metrics are, or off [default: 127.0.0.1:8816]
    #[arg(long, value_name = "IP:PORT")]
    http: Option<String>,
    /// Where grids that clients make are kept: a folder, or the URL of an object store. Without it
    /// they are gone when the server ends
    #[arg(long, value_name = "FOLDER")]
    catalog: Option<String>,
    /// The certificate, in PEM; encrypts both ports
    #[arg(long, value_name = "FILE")]
    tls_certificate: Option<String>,
    /// Its private key, in PEM
    #[arg(long, value_name = "FILE")]
    tls_key: Option<String>,
    /// Clients must show a certificate that one of these vouches for
    #[arg(long, value_name = "FILE")]
    tls_client_ca: Option<String>,
    /// Ask every caller for one of these tokens; `partgrid token` makes them
    #[arg(long, value_name = "FILE")]
    tokens: Option<String>,
    /// Be a member of a cluster: HOST:PORT of all members with commas, file:PATH or dns:NAME:PORT.
    /// Any member answers SQL over the grids of all
    #[arg(long, value_name = "MEMBERS")]
    join: Option<String>,
    /// The grids are part I of the N parts of grids of all members, which any of them can query once
    /// all parts are there, in the order of their numbers; for instance 0/3
    #[arg(long, value_name = "I/N")]
    part: Option<String>,
    /// Allow addresses other than loopback without TLS and tokens: whoever reaches the port may do
    /// everything
    #[arg(long)]
    insecure: bool,
}

impl Sources {
    fn settings(&self) -> Result<Settings> {
        let mut settings = Settings::default();
        if let Some(path) = &self.config {
            settings.add_file(path)?;
        }
        settings.add_environment(std::env::vars())?;
        let flags = [
            ("server.address", &self.address),
            ("server.http", &self.http),
            ("server.catalog", &self.catalog),
            ("tls.certificate", &self.tls_certificate),
            ("tls.key", &self.tls_key),
            ("tls.client_ca", &self.tls_client_ca),
            ("auth.tokens", &self.tokens),
            ("cluster.join", &self.join),
            ("cluster.part", &self.part),
        ];
        for (key, value) in flags {
            if let Some(value) = value {
                settings.add_flag(key, value)?;
            }
        }
        if self.insecure {
            settings.add_flag("server.insecure", "true")?;
        }
        for pair in &self.set {
            let Some((key, value)) = pair.split_once('=') else {
                let text = format!("--set must read like KEY=VALUE, got {pair:?}");
                return Err(Error::invalid_argument(text));
            };
            settings.add_flag(key.trim(), value)?;
        }
        Ok(settings)
    }
}

/// Serve grids over Arrow Flight SQL, with a status page
#[derive(Debug, Args)]
#[command(after_help = "EXAMPLES
  partgrid serve --grid flights=flights.parquet
  partgrid serve --config server.toml
  partgrid serve --address 0.0.0.0:8815 --tls-certificate cert.pem --tls-key key.pem \\
      --tokens tokens.toml
  PARTGRID_LIMITS__QUERY_TIME=120 partgrid serve --config server.toml

Any client of Flight SQL can connect: ADBC, pyarrow.flight. Without TLS and tokens only this
machine can. The first SIGTERM or Ctrl-C lets what runs finish (server.stop_within seconds), the
second ends it; SIGHUP reads certificates and tokens again.")]
pub(super) struct Serve {
    #[command(flatten)]
    sources: Sources,
    /// A grid and its files (file, folder or pattern), loaded before the server listens; once for
    /// each
    #[arg(long = "grid", value_name = "NAME=PATH", value_parser = grid_argument::parse)]
    grids: Vec<GridArgument>,
}

impl Serve {
    pub(super) fn run(&self, voice: &mut Voice<'_>) -> Result<()> {
        let settings = self.sources.settings()?;
        voice.is_json = settings.is_log_json();
        let mut options = settings.options()?;
        // Before anything is loaded, which may take long.
        options.check_start()?;
        let runtime = runtime(None)?;
        let traces = match settings.traces() {
            Some(url) => {
                let _within = runtime.enter();
                Some(Traces::to(url)?)
            }
            None => None,
        };
        let log = Log {
            filter: settings.log_filter(),
            usual: Some(settings.usual_log_filter()),
            is_json: settings.is_log_json(),
            traces: traces.as_ref(),
        };
        log.start()?;
        for (name, path) in self.named(&settings)? {
            let sources = [path];
            let grid = runtime.block_on(Box::pin(load(&sources, &options.load_options())))?;
            let rows = picture::counted(grid.num_rows(), "row");
            voice.inform(&format!("loaded {name}: {rows}"));
            options = options.with_grid(name, Arc::new(grid));
        }
        let ended = runtime.block_on(async {
            let server = Server::start(&options).await?;
            for warning in server.warnings() {
                voice.warn(warning);
            }
            voice.inform(&format!("serving Flight SQL at {}", server.uri()));
            if let Some(uri) = server.http_uri() {
                voice.inform(&format!("status page at {uri}/"));
            }
            tell_service_manager("READY=1");
            wait(&server, voice).await?;
            tell_service_manager("STOPPING=1");
            voice.inform("stopping: what runs may finish");
            let stopping = server.shutdown(settings.stop_within());
            let mut again = stop_signals()?;
            tokio::select! {
                () = stopping => {}
                _ = again.interrupt.recv() => {}
                _ = again.terminate.recv() => {}
            }
            Ok(())
        });
        if let Some(Err(error)) = traces.map(|traces| traces.finish()) {
            voice.warn(&error.to_string());
        }
        runtime.shutdown_timeout(Duration::from_secs(1));
        ended
    }
}

impl Serve {
    /// The grids of flags, and those of the settings that no flag replaces.
    ///
    /// # Errors
    /// `InvalidArgument` for two flags with one name: the first one would be gone.
    fn named(&self, settings: &Settings) -> Result<Vec<(String, String)>> {
        let mut grids = settings.grids();
        grids.retain(|(name, _)| self.grids.iter().all(|grid| grid.name != *name));
        for (place, grid) in self.grids.iter().enumerate() {
            let mut before = self.grids.iter().take(place);
            if before.any(|before| before.name == grid.name) {
                let text = format!("--grid names `{}` twice", grid.name);
                return Err(Error::invalid_argument(text).with_hint(
                    "a folder or a pattern such as 'data/*.parquet' makes one grid of many files",
                ));
            }
            grids.push((grid.name.clone(), grid.path.clone()));
        }
        Ok(grids)
    }
}

struct StopSignals {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
}

fn stop_signals() -> Result<StopSignals> {
    let listen = |kind| {
        signal(kind).map_err(|error| {
            Error::internal("the command cannot listen to signals").with_source(error)
        })
    };
    Ok(StopSignals {
        interrupt: listen(SignalKind::interrupt())?,
        terminate: listen(SignalKind::terminate())?,
    })
}

/// Waits for the signal to stop; reloads at each SIGHUP.
async fn wait(server: &Server, voice: &mut Voice<'_>) -> Result<()> {
    let mut stop = stop_signals()?;
    let mut hangup = signal(SignalKind::hangup()).map_err(|error| {
        Error::internal("the command cannot listen to signals").with_source(error)
    })?;
    loop {
        tokio::select! {
            _ = stop.interrupt.recv() => return Ok(()),
            _ = stop.terminate.recv() => return Ok(()),
            _ = hangup.recv() => match server.reload() {
                Ok(()) => voice.inform("certificates and tokens were read again"),
                Err(error) => voice.warn_of("what cannot be used stays as it was", &error),
            },
        }
    }
}

/// Tells systemd, where it listens.
fn tell_service_manager(state: &str) {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixDatagram};

    let Some(path) = std::env::var_os("NOTIFY_SOCKET") else {
        return;
    };
    let text = path.to_string_lossy();
    let address = match text.strip_prefix('@') {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(&path),
    };
    let sent = address
        .and_then(|address| UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address));
    if let Err(error) = sent {
        tracing::warn!(%error, "the service manager was not told {state}");
    }
}

/// Show the settings of `partgrid serve` that hold here, and where each was said
#[derive(Debug, Args)]
#[command(after_help = "A file of settings is TOML:
  [server]
  address = \"127.0.0.1:8815\"
  [limits]
  query_time = 120
  query_memory = \"2GiB\"
  [grids]
  flights = \"data/flights/**/*.parquet\"

The variable of limits.query_time is PARTGRID_LIMITS__QUERY_TIME. A flag replaces a variable, a
variable replaces the file.")]
pub(super) struct Config {
    #[command(flatten)]
    sources: Sources,
}

impl Config {
    pub(super) fn run(&self, stdout: &mut Pipe<'_>) -> Result<()> {
        let settings = self.sources.settings()?;
        settings.options()?;
        if let Some(filter) = settings.log_filter() {
            drop(read_filter("log.filter", filter)?);
        }
        let mut table = Table::new();
        table.set_header(["setting", "value", "said in", "what it is"]);
        for (key, value, origin, what) in settings.listed() {
            table.add_row([key, value, origin.to_string(), what.to_owned()]);
        }
        stdout.print(&format!("{}\n", plain(table)))
    }
}
