//! The same tables in several processes.
//!
//! Comes in: a number of members, a seed, who is to have no tile, whether they may fetch tiles of each other. Goes out: a session whose tables have their row bands there, each with a member that the seed chooses; this process is the first of them. Never here: which
//! files are run.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Lines, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;

use partgrid::cluster::{ClusterOptions, Join, PartOf, of_parts};
use partgrid::grid::PartitionGrid;
use partgrid::load::load;
use partgrid::memory::default_memory_limit_bytes;
use partgrid::query::Session;
use partgrid::serve::{Limits, Server};

use super::{TABLES, memory};

/// Says to a child which part it has, of how many members, the seed, and who has no tile.
const PART: &str = "PARTGRID_SLT_PART";

/// Says to a child where the list of members is.
const JOIN: &str = "PARTGRID_SLT_JOIN";

/// Says to a child that it may fetch tiles.
const MAY_FETCH: &str = "PARTGRID_SLT_MAY_FETCH";

/// Before what a child says: the harness writes to the same stream.
const MARK: &str = "\u{1}member ";

/// Rows of a tile, so that each table has some.
const TILE_ROWS: u64 = 5_000;

/// Which member has which row bands.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Placement {
    /// How many members there are.
    pub(crate) of: u64,
    pub(crate) seed: u64,
    /// The member that has none.
    pub(crate) without: Option<u64>,
}

impl Placement {
    pub(crate) fn new(of: u64, seed: u64) -> Self {
        Self {
            of,
            seed,
            without: None,
        }
    }

    /// The same over all members but one.
    pub(crate) fn without(self, member: u64) -> Self {
        assert!(member < self.of && self.of > 1);
        Self {
            without: Some(member),
            ..self
        }
    }

    /// The member that has a row band.
    fn member(self, row_band: usize) -> u64 {
        // Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014: the mix of SplitMix64.
        let mix = |number: u64| {
            let mut bits = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
            bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            bits ^ (bits >> 31)
        };
        let drawn = mix(self.seed ^ mix(row_band as u64));
        match self.without {
            None => drawn % self.of,
            Some(without) => {
                let other = drawn % (self.of - 1);
                other + u64::from(other >= without)
            }
        }
    }

    /// How many members have any.
    fn num_with_tiles(self) -> usize {
        number(self.of) - usize::from(self.without.is_some())
    }

    /// As a child is told it.
    fn written(self, part: u64) -> String {
        let Self { of, seed, without } = self;
        // Nobody has a number that is none of a member.
        format!("{part} {of} {seed} {}", without.unwrap_or(of))
    }

    /// Which part a child has, and where all are.
    fn read(written: &str) -> (u64, Self) {
        let numbers = written.split(' ').map(|number| number.parse().unwrap());
        let numbers: Vec<u64> = numbers.collect();
        let [part, of, seed, without] = numbers.try_into().unwrap();
        let without = Some(without).filter(|member| *member < of);
        (part, Self { of, seed, without })
    }
}

/// Members in processes of their own, and the one that is asked, which is here.
pub(crate) struct Members {
    /// They end with their input.
    others: Vec<(Child, Lines<BufReader<ChildStdout>>)>,
    server: Server,
    folder: tempfile::TempDir,
}

impl Drop for Members {
    fn drop(&mut self) {
        for (child, _) in &mut self.others {
            drop(child.stdin.take());
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }
}

impl Members {
    pub(crate) fn start(
        runtime: &tokio::runtime::Runtime,
        placement: Placement,
        may_fetch: bool,
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let join = folder.path().join("members");
        std::fs::write(&join, "").unwrap();
        let others = (1..placement.of).map(|part| child(&join, (part, placement), may_fetch));
        let others = others.collect();
        let server = runtime.block_on(server(&join, (0, placement), may_fetch));
        let mut members = Self {
            others,
            server,
            folder,
        };
        members.meet(runtime);
        assert_eq!(members.num_with_flights(), placement.num_with_tiles());
        members
    }

    /// How many processes have rows of the largest table.
    fn num_with_flights(&self) -> usize {
        let grid = self.session().grid("flights").unwrap();
        let tiles = grid.tiles().iter().filter(|tile| tile.num_rows() > 0);
        let processes = tiles.flat_map(|tile| tile.data().locations());
        let processes: BTreeSet<u64> = processes.map(|at| at.process()).collect();
        processes.len()
    }

    /// Each knows all others, and the grids of all.
    fn meet(&mut self, runtime: &tokio::runtime::Runtime) {
        let mut uris = vec![self.server.uri().to_owned()];
        for (_, said) in &mut self.others {
            uris.push(line(said));
        }
        std::fs::write(self.folder.path().join("members"), uris.join("\n")).unwrap();
        for (child, said) in &mut self.others {
            writeln!(child.stdin.as_mut().unwrap(), "refresh").unwrap();
            assert_eq!(line(said), "done");
        }
        let cluster = self.server.cluster().unwrap();
        runtime.block_on(cluster.refresh()).unwrap();
        assert_eq!(cluster.members().len(), self.others.len() + 1);
    }

    pub(crate) fn session(&self) -> Arc<Session> {
        Arc::new(self.server.session().clone())
    }
}

fn child(
    join: &Path,
    (part, placement): (u64, Placement),
    may_fetch: bool,
) -> (Child, Lines<BufReader<ChildStdout>>) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "cluster::a_member_of_a_cluster", "--ignored"]);
    command.args(["--nocapture", "--test-threads=1"]);
    command.env(PART, placement.written(part));
    command.env(JOIN, join);
    if may_fetch {
        command.env(MAY_FETCH, "1");
    }
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let said = BufReader::new(child.stdout.take().unwrap()).lines();
    (child, said)
}

fn line(said: &mut Lines<BufReader<ChildStdout>>) -> String {
    loop {
        let line = said.next().expect("the member ended").unwrap();
        // The harness may have begun the line.
        if let Some((_, said)) = line.split_once(MARK) {
            return said.to_owned();
        }
    }
}

/// A member with its part of all tables.
async fn server(join: &Path, (part, placement): (u64, Placement), may_fetch: bool) -> Server {
    let cluster = ClusterOptions {
        join: Some(Join::File(join.to_owned())),
        forbids_fetching: !may_fetch,
        ..ClusterOptions::default()
    };
    let limits = Limits {
        memory_bytes: default_memory_limit_bytes(),
        query_memory_bytes: default_memory_limit_bytes(),
        ..Limits::default()
    };
    let options = Server::builder().with_http_address(None).with_threads(2);
    let options = options.with_limits(limits);
    let server = Server::start(&options.with_cluster(cluster)).await.unwrap();
    for (name, place) in TABLES {
        let source = format!("{}/data/{place}", env!("CARGO_MANIFEST_DIR"));
        let grid = load(&[source], &memory().with_tile_rows(TILE_ROWS)).await;
        let part_of = Arc::new(placed(&grid.unwrap(), (part, placement)));
        assert!(placement.without != Some(part) || part_of.num_rows() == 0);
        let cluster = server.cluster().unwrap();
        cluster
            .contribute(
                name,
                part_of,
                PartOf::new(number(part), number(placement.of)),
            )
            .unwrap();
    }
    server
}

fn number(number: u64) -> usize {
    usize::try_from(number).unwrap()
}

/// The row bands of a table that a member has; one without any has an empty one.
fn placed(grid: &PartitionGrid, (part, placement): (u64, Placement)) -> PartitionGrid {
    let cuts = grid.rows().cuts();
    let bands = cuts.windows(2).enumerate();
    let own = bands.filter(|(band, _)| placement.member(*band) == part);
    let own: Vec<Arc<PartitionGrid>> = own
        .map(|(_, cut)| Arc::new(grid.slice(cut[0]..cut[1]).unwrap()))
        .collect();
    match own.is_empty() {
        true => grid.slice(0..0).unwrap(),
        false => of_parts(&own).unwrap(),
    }
}

/// Not a test: what a child does, until its parent is gone.
#[test]
#[ignore = "the other side of the tests of clusters: run by them, in processes of its own"]
fn a_member_of_a_cluster() {
    let Ok(data) = std::env::var(PART) else {
        return;
    };
    let (part, placement) = Placement::read(&data);
    let join = std::env::var(JOIN).unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let may_fetch = std::env::var(MAY_FETCH).is_ok();
    let server = runtime.block_on(server(Path::new(&join), (part, placement), may_fetch));
    println!("{MARK}{}", server.uri());
    for line in std::io::stdin().lines() {
        assert_eq!(line.unwrap(), "refresh");
        let cluster = server.cluster().unwrap();
        runtime.block_on(cluster.refresh()).unwrap();
        println!("{MARK}done");
    }
}
