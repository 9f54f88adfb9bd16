//! `partgrid load` and `partgrid copy`: files in, files out, with a bar or events.
//!
//! Comes in: sources, a folder or URL. Goes out: Parquet files of the tiles that were loaded; on standard error a bar where a person sees it, with `--json` one event in
//! a line on standard output. Never here: loading, writing.

use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use indicatif::{HumanBytes, ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::{Value, json};

use super::hints::in_options;
use super::interrupt::{Interrupt, interrupted};
use super::remote::Remote;
use super::{Pipe, remote_load, runtime};
use crate::client::{IfExists, RemoteLoad};
use crate::error::{Error, ErrorKind, Result};
use crate::grid::picture::counted;
use crate::grid::{PartitionGrid, SortColumn};
use crate::load::{
    FileCompression, LoadJob, LoadOptions, Progress, SchemaEvolution, WriteOptions, check_output,
    is_in_store, write_grid,
};
use crate::memory::parse_size;

const BAR_INTERVAL: Duration = Duration::from_millis(100);
const EVENT_INTERVAL: Duration = Duration::from_millis(500);

/// Load files as one grid and write its tiles as Parquet files; with --server, have the server load
/// them as a grid
#[derive(Debug, Args)]
#[command(after_help = "EXAMPLES
  partgrid load 's3://bucket/logs/*.parquet' --out logs/ --tile-rows 1000000
  partgrid load a.parquet b.parquet --out both/ --partition-by year --compression snappy
  partgrid load data/ --out out/ --memory-limit 2GB --spill-to /tmp --json
  partgrid load 's3://bucket/logs/' --out logs/ --resume unfinished/ --sort-by time:desc
  partgrid --server grpc://localhost:8815 load /data/logs/ --name logs

A server loads only from places that its administrator allows (load.from). Ctrl-C ends its load.")]
pub(super) struct Load {
    /// Files, folders, patterns or URLs, together one grid; with --server, as the server sees them
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<String>,
    /// The folder or URL to write to; one file for each row band
    #[arg(long, value_name = "FOLDER")]
    out: Option<String>,
    /// With --server, the name of the grid that it makes, as it is, without quotes of SQL
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// With --server, take the place of a grid of the name
    #[arg(long)]
    replace: bool,
    /// With --server, a name of this load: given again with the same name and wishes, it changes
    /// nothing where it was done before, also after a restart of the server
    #[arg(long, value_name = "ID", requires = "name")]
    load_id: Option<String>,
    /// With --server, read tiles when they are used
    #[arg(long)]
    lazy: bool,
    #[command(flatten)]
    wishes: Wishes,
}

/// Copy Parquet files from one folder or URL to another, as tiles of one size or another
#[derive(Debug, Args)]
#[command(after_help = "EXAMPLES
  partgrid copy s3://bucket/flights/ flights/
  partgrid copy flights/ s3://bucket/flights/ --storage-option region=eu-central-1")]
pub(super) struct Copy {
    /// A file, folder, pattern or URL
    source: String,
    /// The folder or URL to write to
    destination: String,
    #[command(flatten)]
    wishes: Wishes,
}

#[derive(Debug, Args)]
pub(super) struct Wishes {
    /// Load these columns only, in this order
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    columns: Option<Vec<String>>,
    /// Cut the rows into tiles of about so many; by default by size
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    tile_rows: Option<u64>,
    /// Take no columns from folder names such as year=2013
    #[arg(long)]
    no_hive: bool,
    /// Which differences between the columns of files are borne
    #[arg(long, value_enum, default_value_t)]
    schema_evolution: Evolution,
    /// Memory for what is decoded and for tiles, such as 512MB; by default 80 % of the machine
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    memory_limit: Option<usize>,
    /// A folder for the tiles that the memory limit leaves no room for
    #[arg(long, value_name = "FOLDER")]
    spill_to: Option<PathBuf>,
    /// Leave finished tiles in this folder, and go on there if it holds some of the same load
    #[arg(long, value_name = "FOLDER")]
    resume: Option<PathBuf>,
    /// Sort the rows by these columns; NAME:desc for the greatest first (also :descending, and
    /// :asc or :ascending)
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    sort_by: Vec<String>,
    /// A setting for the stores of URLs, such as region=eu-central-1 (may be repeated)
    #[arg(long = "storage-option", value_name = "KEY=VALUE", value_parser = setting)]
    storage_options: Vec<(String, String)>,
    /// Write the rows of each combination of values of these columns into a folder of its own
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    partition_by: Vec<String>,
    /// How pages are compressed: none, snappy, lz4, zstd, gzip or brotli
    #[arg(long, value_name = "NAME", default_value = "zstd", value_parser = compression)]
    compression: FileCompression,
    /// Replace the files part-….parquet in the folder and in its folders key=value; other data files are refused
    #[arg(long)]
    overwrite: bool,
    /// Print events on standard output, one JSON object in a line
    #[arg(long)]
    json: bool,
    /// Show no bar and no last line
    #[arg(long, short)]
    quiet: bool,
}

#[derive(Debug, Clone, Copy, Default, ValueEnum)]
enum Evolution {
    /// None but order and nullability
    #[default]
    Strict,
    /// Columns may be missing: null there
    Union,
    /// Types may be widened as well
    Widen,
}

impl From<Evolution> for SchemaEvolution {
    fn from(evolution: Evolution) -> Self {
        match evolution {
            Evolution::Strict => Self::Strict,
            Evolution::Union => Self::Union,
            Evolution::Widen => Self::Widen,
        }
    }
}

fn sort_column(text: &str) -> SortColumn {
    let directed = text.rsplit_once(':').and_then(|(name, direction)| {
        let descending = SortColumn::is_descending(direction)?;
        Some((name, descending))
    });
    let (name, descending) = directed.unwrap_or((text, false));
    SortColumn {
        name: name.to_owned(),
        descending,
    }
}

/// An unknown column that reads like `NAME:WORD` is a column with a wrong direction, since there is no column of that very name.
fn directed(error: Error, sort_by: &[String]) -> Error {
    let is_unknown = error.kind() == ErrorKind::NotFound;
    // A server says the name in its text only.
    let names = |text: &&String| error.message().contains(&format!("`{text}`"));
    let Some(name) = sort_by.iter().find(names).filter(|_| is_unknown) else {
        return error;
    };
    match name.rsplit_once(':') {
        Some((column, direction)) => Error::invalid_argument(format!(
            "--sort-by must say {} behind a name, got {direction:?}",
            SortColumn::DIRECTIONS
        ))
        .with_column(column)
        .with_hint(format!("there is no column `{name}` either")),
        None => error,
    }
}

fn compression(name: &str) -> Result<FileCompression> {
    FileCompression::from_name(&name.to_lowercase())
}

fn setting(text: &str) -> Result<(String, String), String> {
    let pair = text.split_once('=').filter(|(key, _)| !key.is_empty());
    let (key, value) = pair.ok_or_else(|| format!("must read like KEY=VALUE, got {text:?}"))?;
    Ok((key.to_owned(), value.to_owned()))
}

impl Load {
    /// What is missing, here or for a server.
    pub(super) fn check(&self, is_far: bool) -> std::result::Result<(), String> {
        match (is_far, &self.name, &self.out) {
            (true, None, _) => {
                Err("a server wants a name for the grid: say --name NAME".to_owned())
            }
            (false, _, None) => Err("the tiles must go somewhere: say --out FOLDER".to_owned()),
            _ => Ok(()),
        }
    }

    pub(super) fn run(
        &self,
        remote: &Remote,
        stdout: &mut Pipe<'_>,
        stderr: &mut dyn Write,
    ) -> Result<()> {
        match (&self.out, &self.name) {
            (Some(out), _) => self.wishes.run(&self.paths, out, stdout, stderr),
            (None, Some(name)) => {
                let wanted = self.remote_load(name);
                remote_load::run(remote, &wanted, &self.wishes, stdout, stderr)
            }
            (None, None) => Ok(()),
        }
    }

    fn remote_load(&self, name: &str) -> RemoteLoad {
        let wishes = &self.wishes;
        RemoteLoad {
            sources: self.paths.clone(),
            name: name.to_owned(),
            if_exists: match self.replace {
                true => IfExists::Replace,
                false => IfExists::Fail,
            },
            columns: wishes.columns.clone().unwrap_or_default(),
            is_lazy: self.lazy,
            tile_rows: wishes.tile_rows,
            sort_by: wishes.sort_columns(),
            // `--partition-by` is about the folders that are written here.
            partition_by: Vec::new(),
            num_partitions: None,
            hive_partitioning: !wishes.no_hive,
            schema_evolution: wishes.schema_evolution.into(),
            load_id: self.load_id.clone(),
        }
    }
}

impl Copy {
    pub(super) fn run(&self, stdout: &mut Pipe<'_>, stderr: &mut dyn Write) -> Result<()> {
        let sources = std::slice::from_ref(&self.source);
        self.wishes.run(sources, &self.destination, stdout, stderr)
    }
}

impl Wishes {
    fn run(
        &self,
        sources: &[String],
        out: &str,
        stdout: &mut Pipe<'_>,
        stderr: &mut dyn Write,
    ) -> Result<()> {
        let mut events = self.events(stdout);
        events.print(&json!({"event": "started", "sources": sources, "out": out}))?;
        match self.load_and_write(sources, out, &mut events) {
            Ok((progress, files)) => {
                let mut last = fields("finished", &progress);
                if let Some(fields) = last.as_object_mut() {
                    fields.insert("files_written".to_owned(), json!(files));
                }
                events.print(&last)?;
                self.say(&progress, files, out, stderr);
                Ok(())
            }
            Err(error) => {
                // `copy` has the same options.
                let error = in_options(self.with_direction(error), "load");
                let kind = format!("{:?}", error.kind());
                events
                    .print(&json!({"event": "failed", "kind": kind, "error": error.to_string()}))?;
                Err(error)
            }
        }
    }

    fn load_and_write(
        &self,
        sources: &[String],
        out: &str,
        events: &mut Events<'_, '_>,
    ) -> Result<(Progress, u64)> {
        // What is half written goes with Ctrl-C.
        let interrupt = Interrupt::hear()?;
        let runtime = runtime(None)?;
        let _entered = runtime.enter();
        // Settings are for the side that lies in a store; where none does, they are refused.
        let is_from_store = sources.iter().any(|source| is_in_store(source));
        let is_to_store = is_in_store(out);
        let options = self.write_options(is_to_store || !is_from_store);
        runtime.block_on(check_output(out, &options))?;
        let started = Instant::now();
        let job = LoadJob::start(sources.to_vec(), self.load_options(is_from_store))?;
        let bar = self.bar();
        let interval = self.interval();
        let grid: Result<PartitionGrid> = runtime.block_on(async {
            loop {
                tokio::select! {
                    done = job.result() => return done,
                    () = interrupt.pressed() => return Err(interrupted()),
                    () = tokio::time::sleep(interval) => {}
                }
                let progress = job.progress();
                show(&bar, &progress);
                events.print(&fields("progress", &progress))?;
            }
        });
        if grid.is_err() {
            bar.finish_and_clear();
        }
        let grid = grid?;
        show(&bar, &job.progress());
        events.print(&fields("loaded", &job.progress()))?;
        bar.set_message("writing");
        let writing = Box::pin(write_grid(&grid, out, &options));
        let written = runtime.block_on(async {
            tokio::select! {
                done = writing => done,
                () = interrupt.pressed() => Err(interrupted()),
            }
        });
        bar.finish_and_clear();
        let whole = Progress {
            elapsed: started.elapsed(),
            ..job.progress()
        };
        Ok((whole, written?))
    }

    fn load_options(&self, with_settings: bool) -> LoadOptions {
        let mut options = LoadOptions::default()
            .with_hive_partitioning(!self.no_hive)
            .with_schema_evolution(self.schema_evolution.into())
            .with_storage_options(self.settings(with_settings));
        if let Some(columns) = &self.columns {
            options = options.with_columns(columns.clone());
        }
        if let Some(rows) = self.tile_rows {
            options = options.with_tile_rows(rows);
        }
        if let Some(bytes) = self.memory_limit {
            options = options.with_memory_limit_bytes(bytes as u64);
        }
        if let Some(folder) = &self.spill_to {
            options = options.with_spill_to(folder.clone());
        }
        if let Some(folder) = &self.resume {
            options = options.with_resume(folder.clone());
        }
        options.with_sort_by(self.sort_columns())
    }

    fn sort_columns(&self) -> Vec<SortColumn> {
        self.sort_by.iter().map(|text| sort_column(text)).collect()
    }

    fn write_options(&self, with_settings: bool) -> WriteOptions {
        WriteOptions::default()
            .with_compression(self.compression)
            .with_partition_by(self.partition_by.clone())
            .with_overwrite(self.overwrite)
            .with_storage_options(self.settings(with_settings))
    }

    fn settings(&self, are_meant: bool) -> Vec<(String, String)> {
        let settings = are_meant.then(|| self.storage_options.clone());
        settings.unwrap_or_default()
    }

    /// The error in terms of what was written behind `--sort-by`.
    pub(super) fn with_direction(&self, error: Error) -> Error {
        directed(error, &self.sort_by)
    }

    /// Where events go, if they are wanted.
    pub(super) fn events<'a, 'b>(&self, stdout: &'a mut Pipe<'b>) -> Events<'a, 'b> {
        Events {
            stdout,
            wanted: self.json,
        }
    }

    /// Whether a last line says what was done.
    pub(super) fn is_quiet(&self) -> bool {
        self.quiet || self.json
    }

    /// How often progress is told.
    pub(super) fn interval(&self) -> Duration {
        match self.json {
            true => EVENT_INTERVAL,
            false => BAR_INTERVAL,
        }
    }

    /// A bar where a person sees it; indicatif hides it where standard error is no terminal.
    pub(super) fn bar(&self) -> ProgressBar {
        let off = std::env::var("PARTGRID_PROGRESS").is_ok_and(|value| {
            matches!(
                value.trim().to_lowercase().as_str(),
                "0" | "false" | "off" | "no"
            )
        });
        if self.quiet || off {
            return ProgressBar::hidden();
        }
        let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr());
        let style = ProgressStyle::with_template(
            "loading: {percent:>3}%|{wide_bar}| {msg}, {bytes}/{total_bytes} [{elapsed_precise}<{eta_precise}, {bytes_per_sec}]",
        );
        bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
    }

    fn say(&self, progress: &Progress, files: u64, out: &str, stderr: &mut dyn Write) {
        if self.is_quiet() {
            return;
        }
        let line = format!(
            "{}, {} read, {} written to {out} in {:.1} s\n",
            counted(progress.num_rows, "row"),
            HumanBytes(progress.num_bytes),
            counted(files, "file"),
            progress.elapsed.as_secs_f64(),
        );
        super::say(stderr, &line);
    }
}

pub(super) fn show(bar: &ProgressBar, progress: &Progress) {
    if progress.is_arranging() {
        let (done, all) = (progress.arranged_rows, progress.rows_to_arrange);
        bar.set_message(format!("arranging, {done}/{all} rows"));
        return;
    }
    bar.set_length(progress.total_bytes);
    bar.set_position(progress.num_bytes);
    bar.set_message(format!(
        "{}/{} tiles",
        progress.num_tiles, progress.total_tiles
    ));
}

pub(super) fn fields(event: &str, progress: &Progress) -> Value {
    json!({
        "event": event,
        "files": progress.num_files,
        "total_files": progress.total_files,
        "tiles": progress.num_tiles,
        "total_tiles": progress.total_tiles,
        "rows": progress.num_rows,
        "total_rows": progress.total_rows,
        "bytes": progress.num_bytes,
        "total_bytes": progress.total_bytes,
        "tile_bytes": progress.tile_bytes,
        "spilled_tiles": progress.spilled_tiles,
        "resumed_tiles": progress.resumed_tiles,
        "arranged_rows": progress.arranged_rows,
        "rows_to_arrange": progress.rows_to_arrange,
        "seconds": progress.elapsed.as_secs_f64(),
        "bytes_per_second": progress.bytes_per_second(),
    })
}

/// Standard output, one event in a line.
pub(super) struct Events<'a, 'b> {
    stdout: &'a mut Pipe<'b>,
    wanted: bool,
}

impl Events<'_, '_> {
    pub(super) fn print(&mut self, event: &Value) -> Result<()> {
        if !self.wanted {
            return Ok(());
        }
        let printed = self.stdout.print(&format!("{event}\n"));
        if printed.is_err() && self.stdout.closed {
            // Nobody listens any more; the load matters, and whether it succeeds.
            (self.wanted, self.stdout.closed) = (false, false);
            return Ok(());
        }
        printed
    }
}
