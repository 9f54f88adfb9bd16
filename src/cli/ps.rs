//! `partgrid ps`: who shares tiles on this host and who reads them; of a server, what runs there.
//!
//! Comes in: nothing, or a server. Goes out: a line for each segment of shared memory of this user's processes, or for each query and load of the server. Never here: memory, or processes of others.

use std::time::Duration;

use clap::Args;
use comfy_table::{CellAlignment, Table};
use humantime::format_duration;

use super::remote::Remote;
use super::table::plain;
use super::{Pipe, runtime};
use crate::client::{
    AwayMember, Client, ServedError, ServedJob, ServedMember, ServedQuery, ServerStatus,
};
use crate::error::{Error, ErrorKind, Result, format_position};
use crate::grid::picture::{self, visible, visible_lines};
use crate::share::{SharedSegment, SharingProcess, sharing_processes};

/// The longest text of a query that a line shows.
const MAX_TEXT: usize = 60;

/// What is said of a member; the last only where somebody is away.
const MEMBER: [&str; 10] = [
    "member",
    "host",
    "process",
    "state",
    "queries",
    "parts",
    "grid memory",
    "query memory",
    "process memory",
    "reason",
];

/// What stands for what nobody has said.
const NOT_KNOWN: &str = "not known";

/// Show the shared memory of your processes on this host and who reads it; with --server, what runs
/// there
#[derive(Debug, Args)]
#[command(after_help = "COLUMNS
  owner     the process that made the tile
  bytes     in memory, once, however many processes read it
  kind      shared: put there by to_shared, or a tile of a server since somebody opened it; copy: of
            a tile in private memory, until its last reader is done
  readers   the processes that have it open beside its owner

A grid in private memory that nobody else reads shows no line.

With --server, a line for each query (q) and load (l) that runs: yours, or all for an administrator.
Of a server in a cluster, then a line for each member, as it sees them, with what each has said of
itself a moment ago:
  queries         how many run there, asked of it
  parts           how many parts of statements it holds for members
  grid memory     of its grids
  query memory    of queries and parts
  process memory  of the whole process
Who is in the list of members and no member is away, with the reason for administrators.
What is wrong with the server as long as it is (a list of members that cannot be read or does not name
it, grids of which parts are missing, tables that are left out) stands before them, with the time since when it is so.
  partgrid --server grpc://localhost:8815 ps
  partgrid --server grpc://localhost:8815 ps --cancel q1f")]
pub(super) struct Ps {
    /// Of a server, also what has ended of late
    #[arg(long)]
    all: bool,
    /// Of a server, end this query or load, by its id; once for each
    #[arg(long, value_name = "ID", value_parser = run_id)]
    cancel: Vec<RunId>,
}

/// A query or a load of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RunId {
    Query(u64),
    Load(u64),
}

fn run_id(text: &str) -> std::result::Result<RunId, String> {
    let number = |digits: &str| u64::from_str_radix(digits, 16).ok();
    let query = text.strip_prefix('q').and_then(number).map(RunId::Query);
    let load = || text.strip_prefix('l').and_then(number).map(RunId::Load);
    query.or_else(load).ok_or_else(|| {
        format!("an id must read like q1f (a query) or l3 (a load), got {text:?}; ps lists them")
    })
}

impl Ps {
    pub(super) fn run(&self, remote: &Remote, stdout: &mut Pipe<'_>) -> Result<()> {
        let runtime = runtime(None)?;
        let Some(client) = runtime.block_on(remote.connect())? else {
            let owners = sharing_processes()?;
            return stdout.print(&format!("{}\n", listed(&owners)));
        };
        if self.cancel.is_empty() {
            let status = runtime.block_on(client.status())?;
            return stdout.print(&format!("{}\n", running(&status, self.all)));
        }
        for id in &self.cancel {
            let what = runtime.block_on(cancelled(&client, *id))?;
            stdout.print(&format!("cancelled {what}\n"))?;
        }
        Ok(())
    }
}

/// Ends it, and says what it was.
async fn cancelled(client: &Client, id: RunId) -> Result<String> {
    let status = client.status().await?;
    let (done, name) = match id {
        RunId::Query(id) => (client.cancel_query(id).await, format!("q{id:x}")),
        RunId::Load(id) => (client.cancel_job(id).await, format!("l{id:x}")),
    };
    let queries = status.queries.iter().map(query_row);
    let mut rows = queries.chain(status.jobs.iter().map(job_row));
    let what = rows.find_map(|[id, .., what]| (id == name).then_some(what));
    match done {
        Ok(()) => Ok(format!("{name}: {}", what.unwrap_or_default())),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let error: Error = error.with_context("id", name);
            Err(error.with_hint(
                "`ps` lists what runs and can be ended, `ps --all` also what has ended of late",
            ))
        }
        Err(error) => Err(error.with_context("id", name)),
    }
}

/// What runs, or also what ran.
fn running(status: &ServerStatus, all: bool) -> String {
    let mut table = Table::new();
    table.set_header(["id", "caller", "state", "time", "rows", "progress", "what"]);
    let is_wanted = |state: &str| all || state == "running";
    let queries = status.queries.iter();
    for query in queries.filter(|query| is_wanted(&query.state)) {
        table.add_row(query_row(query));
    }
    for job in status.jobs.iter().filter(|job| is_wanted(&job.state)) {
        table.add_row(job_row(job));
    }
    for number in 3..6 {
        if let Some(column) = table.column_mut(number) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let is_running = |state: &str| u64::from(state == "running");
    let queries: u64 = status
        .queries
        .iter()
        .map(|one| is_running(&one.state))
        .sum();
    let loads: u64 = status.jobs.iter().map(|one| is_running(&one.state)).sum();
    let queries = match queries {
        1 => "1 query".to_owned(),
        many => format!("{} queries", picture::thousands(many)),
    };
    let loads = picture::counted(loads, "load");
    let runs = format!("{}\n{queries} and {loads} running", plain(table));
    let wrong = status.errors.iter().filter(|error| error.standing);
    let runs = wrong.fold(runs, |said, error| {
        format!("{said}\n\n{}", wrong_lines(error))
    });
    // Of itself alone there is nothing to say.
    if status.members.len() + status.away.len() < 2 {
        return runs;
    }
    format!("{runs}\n\n{}", listed_members(status))
}

/// What is wrong, and what can be done: the first line by itself, the others below it.
fn wrong_lines(error: &ServedError) -> String {
    let message = visible_lines(&error.message).replace('\n', "\n  ");
    format!("wrong since {}: {message}", visible(&error.time))
}

/// Who is in the cluster, and who is not.
fn listed_members(ServerStatus { members, away, .. }: &ServerStatus) -> String {
    let num_columns = match away.is_empty() {
        true => MEMBER.len() - 1,
        false => MEMBER.len(),
    };
    let mut table = Table::new();
    table.set_header(MEMBER.into_iter().take(num_columns));
    let rows = members.iter().map(member_row);
    for row in rows.chain(away.iter().map(away_row)) {
        table.add_row(row.into_iter().take(num_columns));
    }
    for number in 4..9 {
        if let Some(column) = table.column_mut(number) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let number = picture::counted(members.len() as u64, "member");
    let gone = match away.len() {
        0 => String::new(),
        some => format!(", {} away", picture::thousands(some as u64)),
    };
    format!("{}\n{number}{gone}", plain(table))
}

fn member_row(member: &ServedMember) -> [String; MEMBER.len()] {
    let asked = if member.is_here { " (asked)" } else { "" };
    [
        visible(&member.uri),
        visible(&member.host),
        member.pid.to_string(),
        format!("{}{asked}", visible(&member.state)),
        said(member.queries, picture::thousands),
        said(member.parts, picture::thousands),
        said(member.grid_bytes, picture::bytes),
        said(member.query_bytes, picture::bytes),
        said(member.resident_bytes, picture::bytes),
        String::new(),
    ]
}

/// Of whom nothing is known but why.
fn away_row(away: &AwayMember) -> [String; MEMBER.len()] {
    let mut row = [""; MEMBER.len()].map(|_| NOT_KNOWN.to_owned());
    let reason = away.reason.as_deref().unwrap_or(NOT_KNOWN);
    let [uri, _, _, state, .., why] = &mut row;
    *uri = visible(&away.uri);
    *state = "away".to_owned();
    *why = visible(reason);
    row
}

/// What a member has said of itself; of one that has not, 0 would be another thing.
fn said(figure: Option<u64>, words: fn(u64) -> String) -> String {
    figure.map_or_else(|| NOT_KNOWN.to_owned(), words)
}

fn query_row(query: &ServedQuery) -> [String; 7] {
    let text = query.sql.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut shown: String = text.chars().take(MAX_TEXT).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    [
        format!("q{}", visible(&query.id)),
        visible(&query.caller),
        visible(&query.state),
        time(query.elapsed_seconds),
        picture::thousands(query.rows),
        percent(query.progress),
        visible(&shown),
    ]
}

fn job_row(job: &ServedJob) -> [String; 7] {
    let mut what = format!("load {}", visible(&job.name));
    if !job.message.is_empty() {
        what = format!("{what}: {}", visible(&job.message));
    }
    [
        format!("l{}", visible(&job.id)),
        visible(&job.caller),
        visible(&job.state),
        time(job.elapsed_seconds),
        picture::thousands(job.rows),
        percent(job.progress),
        what,
    ]
}

/// Of what takes long, milliseconds say nothing.
fn time(seconds: f64) -> String {
    let elapsed = Duration::try_from_secs_f64(seconds).unwrap_or_default();
    let millis = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX);
    let shown = match millis {
        0..10_000 => Duration::from_millis(millis),
        _ => Duration::from_secs(elapsed.as_secs()),
    };
    format_duration(shown).to_string()
}

fn percent(progress: Option<f64>) -> String {
    progress.map_or_else(String::new, |share| format!("{:.0} %", share * 100.0))
}

fn listed(owners: &[SharingProcess]) -> String {
    let mut table = Table::new();
    table.set_header(["owner", "grid", "tile", "bytes", "kind", "readers"]);
    let mut bytes = 0;
    for owner in owners {
        let process = owner.process.to_string();
        match &owner.segments {
            None => {
                table.add_row([process.as_str(), "does not answer", "", "", "", ""]);
            }
            Some(segments) => {
                for segment in segments {
                    bytes += segment.segment_bytes;
                    table.add_row(row(&process, segment));
                }
            }
        }
    }
    if let Some(column) = table.column_mut(3) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let shares =
        |owner: &&SharingProcess| owner.segments.as_ref().is_some_and(|all| !all.is_empty());
    let processes = match owners.iter().filter(shares).count() {
        1 => "1 process shares".to_owned(),
        many => format!("{many} processes share"),
    };
    format!("{}\n{processes} {}", plain(table), picture::bytes(bytes))
}

fn row(process: &str, segment: &SharedSegment) -> [String; 6] {
    let mut readers: Vec<String> = Vec::new();
    for reader in &segment.readers {
        let reader = reader.to_string();
        if !readers.contains(&reader) {
            readers.push(reader);
        }
    }
    [
        process.to_owned(),
        segment.grid.to_string(),
        format_position(&segment.position),
        picture::thousands(segment.segment_bytes),
        if segment.is_copy { "copy" } else { "shared" }.to_owned(),
        readers.join(" "),
    ]
}
