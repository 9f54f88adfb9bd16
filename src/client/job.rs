//! Loads that a server does.
//!
//! Comes in: sources that the server can reach, a name. Goes out: a job that is watched from here. Never here: loading.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::connection::Client;
use super::upload::{IfExists, first, said_id};
use crate::error::{Error, ErrorKind, Result};
use crate::flight;
use crate::flight::messages::{JobName, JobProgress, LoadRequest, Named, SortBy};
use crate::grid::SortColumn;
use crate::load::{Progress, SchemaEvolution};

/// How often a server is asked how far it is.
const INTERVAL: Duration = Duration::from_millis(200);

/// What a server is to load.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteLoad {
    /// Paths and URLs as the server sees them.
    pub sources: Vec<String>,
    /// The name of the grid.
    pub name: String,
    /// What to do when there is one.
    pub if_exists: IfExists,
    /// The columns; all without any.
    pub columns: Vec<String>,
    /// Whether tiles are read when they are used.
    pub is_lazy: bool,
    /// Rows of a tile; as the server finds right for `None`.
    pub tile_rows: Option<u64>,
    /// By which columns to sort the rows.
    pub sort_by: Vec<SortColumn>,
    /// By which columns to bring rows with equal values into one row band, by hash.
    pub partition_by: Vec<String>,
    /// How many row bands that makes; as many as tiles of `tile_rows` rows would be for `None`.
    pub num_partitions: Option<u64>,
    /// Whether folder names such as `year=2013` become columns.
    pub hive_partitioning: bool,
    /// Which differences between the columns of files are borne.
    pub schema_evolution: SchemaEvolution,
    /// A name of this load: asked for again with the same name, what was done is not done again.
    pub load_id: Option<String>,
}

impl Default for RemoteLoad {
    fn default() -> Self {
        Self {
            sources: Vec::new(),
            name: String::new(),
            if_exists: IfExists::default(),
            columns: Vec::new(),
            is_lazy: false,
            tile_rows: None,
            sort_by: Vec::new(),
            partition_by: Vec::new(),
            num_partitions: None,
            hive_partitioning: true,
            schema_evolution: SchemaEvolution::default(),
            load_id: None,
        }
    }
}

/// A load of a server. Dropping it leaves the load alone.
#[derive(Debug, Clone)]
pub struct RemoteJob {
    client: Client,
    job: u64,
}

impl Client {
    /// Has the server load files as a grid. It goes on whether or not anybody waits.
    ///
    /// # Errors
    /// `InvalidArgument` for a load id that is empty; `PermissionDenied` for places that the server does not load from, and without the right to write; whatever else the server says.
    pub async fn load(&self, wanted: &RemoteLoad) -> Result<RemoteJob> {
        let request = LoadRequest {
            name: wanted.name.clone(),
            sources: wanted.sources.clone(),
            replace: wanted.if_exists == IfExists::Replace,
            columns: wanted.columns.clone(),
            is_lazy: wanted.is_lazy,
            tile_rows: wanted.tile_rows.unwrap_or(0),
            sort_by: wanted.sort_by.iter().map(SortBy::from).collect(),
            partition_by: wanted.partition_by.clone(),
            num_partitions: wanted.num_partitions.unwrap_or(0),
            no_hive: !wanted.hive_partitioning,
            schema_evolution: wanted.schema_evolution.name().to_owned(),
            load_id: said_id(wanted.load_id.as_deref())?,
        };
        let begun: JobName = first(&self.act("Load", request.to_bytes()).await?)?;
        Ok(RemoteJob {
            client: self.clone(),
            job: begun.job,
        })
    }
}

impl RemoteJob {
    /// How far it is; at its end, or after a while.
    async fn ask(&self, wait: Duration) -> Result<JobProgress> {
        let name = JobName {
            job: self.job,
            wait_millis: u64::try_from(wait.as_millis()).unwrap_or(u64::MAX),
        };
        first(&self.client.act("JobProgress", name.to_bytes()).await?)
    }

    /// How far it is.
    ///
    /// # Errors
    /// Whatever the server says.
    pub async fn progress(&self) -> Result<Progress> {
        Ok(progress_of(&self.ask(Duration::ZERO).await?))
    }

    /// Ends it; its grid does not appear.
    ///
    /// # Errors
    /// Whatever the server says.
    pub async fn cancel(&self) -> Result<()> {
        self.client.cancel_job(self.job).await
    }

    /// Waits for its end, telling `see` how far it is now and then; gives the rows of the grid.
    ///
    /// # Errors
    /// Why it failed, as the server says; `Cancelled` when somebody ended it.
    pub async fn wait(&self, mut see: impl FnMut(Progress) + Send) -> Result<u64> {
        loop {
            let next = Instant::now() + INTERVAL;
            let told = self.ask(INTERVAL).await?;
            see(progress_of(&told));
            match told.state.as_str() {
                // Servers of before answer at once.
                "running" => sleep_until(next).await,
                "done" => return Ok(told.num_rows),
                "cancelled" => {
                    return Err(Error::new(ErrorKind::Cancelled, "the load was cancelled"));
                }
                _ => {
                    let kind = flight::kind_named(&told.kind).unwrap_or(ErrorKind::Internal);
                    let error = flight::told(kind, &told.message);
                    let error = match told.is_about_path {
                        true => error.with_path_untold(),
                        false => error,
                    };
                    return Err(match told.request.is_empty() {
                        true => error,
                        // Under it the log of the server has more.
                        false => error.with_context("request", told.request),
                    });
                }
            }
        }
    }
}

fn progress_of(told: &JobProgress) -> Progress {
    Progress {
        num_files: 0,
        total_files: 0,
        num_tiles: told.num_tiles,
        total_tiles: told.total_tiles,
        num_rows: told.num_rows,
        total_rows: told.total_rows,
        num_bytes: told.num_bytes,
        total_bytes: told.total_bytes,
        tile_bytes: 0,
        spilled_tiles: 0,
        resumed_tiles: 0,
        arranged_rows: told.arranged_rows,
        rows_to_arrange: told.rows_to_arrange,
        elapsed: Duration::from_millis(told.elapsed_millis),
    }
}
