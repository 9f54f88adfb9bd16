//! One process of a cluster, driven by lines of text.
//!
//! This same test binary runs again as a child ([`a_member_of_a_cluster`]): a server that is a member, with tiles of its own that the parent never sees. The parent ([`Process`]) writes the file that names the
//! members, and asks them for answers.

use std::io::{BufRead, BufReader, Lines, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use arrow::array::RecordBatch;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use partgrid::cluster::{ClusterOptions, Join, NEAR_BYTES, PartOf};
use partgrid::query::Session;
use partgrid::serve::Server;
use tokio::time::timeout;

use super::data;

/// Says to the child which data it has, and which part of how many that is: `SEED PART OF`.
const DATA: &str = "PARTGRID_TEST_MEMBER";
/// Says to the child where the members are written.
const JOIN: &str = "PARTGRID_TEST_JOIN";
/// Says to the child that it may fetch tiles.
const MAY_FETCH: &str = "PARTGRID_TEST_MAY_FETCH";
/// Says to the child how much it reads of others in statements that it runs alone.
const NEAR: &str = "PARTGRID_TEST_NEAR";
/// What lines for the parent begin with; the test harness writes others.
const MARK: &str = "@@ ";

/// A statement that gives nothing for so long will not.
const PATIENCE: Duration = Duration::from_secs(100);

/// The answer of a statement: one text for each row, sorted.
pub(super) async fn answer(session: &Session, sql: &str) -> partgrid::Result<Vec<String>> {
    let batches = session.sql(sql).await?.collect().await?;
    let mut rows: Vec<String> = batches.iter().flat_map(rows_of).collect();
    rows.sort();
    Ok(rows)
}

fn rows_of(batch: &RecordBatch) -> Vec<String> {
    let options = FormatOptions::default().with_null("NULL");
    let columns = batch.columns().iter();
    let columns: Vec<_> = columns
        .map(|column| ArrayFormatter::try_new(column, &options).unwrap())
        .collect();
    let row = |row| {
        let cells = columns.iter().map(|column| column.value(row).to_string());
        cells.collect::<Vec<_>>().join("|")
    };
    (0..batch.num_rows()).map(row).collect()
}

/// A child.
pub(super) struct Process {
    child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
    pub(super) uri: String,
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Process {
    /// A member with the rows of a seed, which are part `part` of `of`.
    fn start(
        join: &Path,
        (seed, part, of): (u64, usize, usize),
        (may_fetch, near_bytes): (bool, u64),
    ) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "cluster::member::a_member_of_a_cluster"]);
        command.args(["--ignored", "--nocapture", "--test-threads=1"]);
        command.env(DATA, format!("{seed} {part} {of}"));
        command.env(JOIN, join);
        command.env(NEAR, near_bytes.to_string());
        if may_fetch {
            command.env(MAY_FETCH, "1");
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let input = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut process = Self {
            child,
            input,
            output,
            uri: String::new(),
        };
        process.uri = process.read();
        process
    }

    fn read(&mut self) -> String {
        loop {
            let line = self.output.next().expect("the member ended").unwrap();
            // The harness may have begun the line.
            if let Some((_, said)) = line.split_once(MARK) {
                return said.to_owned();
            }
        }
    }

    /// Says a line, and waits for nothing.
    pub(super) fn begin(&mut self, line: &str) {
        writeln!(self.input, "{line}").unwrap();
        self.input.flush().unwrap();
    }

    /// Says a line, and gives what comes back.
    pub(super) fn ask(&mut self, line: &str) -> String {
        self.begin(line);
        self.read()
    }

    /// The answer of a statement, as [`answer`] gives it, or the error.
    pub(super) fn sql(&mut self, sql: &str) -> Result<Vec<String>, String> {
        let said = self.ask(&format!("sql {}", sql.replace('\n', " ")));
        match said.split_once(' ').unwrap_or((&said, "")) {
            ("rows", "") => Ok(Vec::new()),
            ("rows", rows) => Ok(rows.split('\t').map(str::to_owned).collect()),
            (_, error) => Err(error.to_owned()),
        }
    }

    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends it a signal.
    pub(super) fn signal(&self, name: &str) {
        let mut kill = Command::new("kill");
        let sent = kill
            .arg(format!("-{name}"))
            .arg(self.child.id().to_string())
            .status();
        assert!(sent.unwrap().success());
    }
}

/// Processes that know each other, and whose tiles are the grids `data::GRIDS`; their list is in `folder`. They spread all statements.
pub(super) fn cluster(folder: &Path, seeds: &[u64], may_fetch: bool) -> Vec<Process> {
    started(folder, seeds, (may_fetch, 0))
}

/// The same, which run statements over little data alone and fetch nothing.
pub(super) fn near(folder: &Path, seeds: &[u64]) -> Vec<Process> {
    started(folder, seeds, (false, NEAR_BYTES))
}

fn started(folder: &Path, seeds: &[u64], wishes: (bool, u64)) -> Vec<Process> {
    let join = folder.join("members");
    let of = seeds.len();
    let start = |(part, seed): (usize, &u64)| Process::start(&join, (*seed, part, of), wishes);
    let mut processes: Vec<Process> = seeds.iter().enumerate().map(start).collect();
    let uris: Vec<String> = processes
        .iter()
        .map(|process| process.uri.clone())
        .collect();
    std::fs::write(&join, uris.join("\n")).unwrap();
    for process in &mut processes {
        assert_eq!(process.ask("refresh"), "done");
    }
    processes
}

async fn obey(server: &Server, line: &str) -> String {
    let (verb, rest) = line.split_once(' ').unwrap_or((line, ""));
    let said = |error: partgrid::Error| {
        let text = error.to_string().replace('\n', " ");
        format!("error {:?} {text}", error.kind())
    };
    match verb {
        "refresh" => match server.cluster().unwrap().refresh().await {
            Ok(()) => "done".to_owned(),
            Err(error) => said(error),
        },
        "sql" => match timeout(PATIENCE, answer(server.session(), rest)).await {
            Ok(Ok(rows)) => format!("rows {}", rows.join("\t")),
            Ok(Err(error)) => said(error),
            Err(_) => format!("error none after {PATIENCE:?}"),
        },
        "explain" => match server.session().sql(rest).await {
            Ok(query) => query.explain().replace('\n', "\t"),
            Err(error) => said(error),
        },
        "processes" => {
            let query = server.session().sql(rest).await.unwrap();
            query.collect().await.unwrap();
            let processes = query.metrics().unwrap().processes;
            let told = processes.iter().map(|of| {
                let rows: u64 = of.groups.iter().map(|group| group.rows).sum();
                let copied: u64 = of.groups.iter().map(|group| group.copied_bytes).sum();
                format!("{} {rows} {copied}", of.process)
            });
            let mut told: Vec<String> = told.collect();
            told.sort();
            told.join(",")
        }
        "memory" => server.session().memory_bytes().to_string(),
        other => panic!("a member knows no {other}"),
    }
}

/// Not a test: what a child does, until its parent is gone.
#[test]
#[ignore = "the other side of the tests of clusters: run by them, in processes of its own"]
fn a_member_of_a_cluster() {
    let Ok(data) = std::env::var(DATA) else {
        return;
    };
    let numbers: Vec<u64> = data
        .split(' ')
        .map(|number| number.parse().unwrap())
        .collect();
    let [seed, part, of] = numbers.try_into().unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let cluster = ClusterOptions {
            join: Some(Join::File(std::env::var(JOIN).unwrap().into())),
            forbids_fetching: std::env::var(MAY_FETCH).is_err(),
            near_bytes: std::env::var(NEAR).unwrap().parse().unwrap(),
            ..ClusterOptions::default()
        };
        let options = Server::builder().with_http_address(None).with_threads(2);
        let server = Server::start(&options.with_cluster(cluster)).await.unwrap();
        for name in data::GRIDS {
            let grid = data::part(name, seed);
            let cluster = server.cluster().unwrap();
            cluster
                .contribute(name, grid, PartOf::new(part as usize, of as usize))
                .unwrap();
        }
        println!("{MARK}{}", server.uri());
        for line in std::io::stdin().lines() {
            let line = line.unwrap();
            println!("{MARK}{}", obey(&server, &line).await);
        }
    });
}
