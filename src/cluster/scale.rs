//! How placement and planning grow with members and tiles: measured in one process, with members that are but names. `make bench-scale` prints it, docs/scale.md says what it means. What can be counted is counted with all tests.

use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::{ArrayRef, Int64Array};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{BinaryExpr, Column, lit};
use prost::Message;

use super::members::channel::Reach;
use super::members::{Member, Members};
use super::placement::leaf::{dealt, seats};
use super::tile::MemberTile;
use super::tile::outline::{Access, Outline};
use super::{Cluster, ClusterOptions, owner};
use crate::catalog::{Catalog, KeptFile};
use crate::counting::allocated_bytes;
use crate::grid::{Axis, ColumnStatistics, GridBuilder, GridId, PartitionGrid, Tile, TileData};
use crate::location::Location;
use crate::query::{GridScanExec, Session, SessionOptions};
use crate::share::{Handle, Incarnation};

const TILE_ROWS: u64 = 1 << 20;

pub(super) fn members(own: &Member, count: usize) -> Members {
    let others = (1..count).map(|number| {
        let uri = format!(
            "grpc://10.{}.{}.{}:8815",
            number >> 16,
            number >> 8 & 255,
            number & 255
        );
        let life = Incarnation::from_bits(number as u128 + 1);
        Member::try_new(&uri, life, Location::here()).unwrap()
    });
    Members::of(own.clone(), others)
}

/// A grid of two columns, with statistics as members tell them, of tiles that `data` makes.
fn grid_of(
    num_tiles: usize,
    data: impl Fn(usize, &SchemaRef) -> Arc<dyn TileData>,
) -> Arc<PartitionGrid> {
    let fields = ["g", "x"].map(|name| Field::new(name, DataType::Int64, false));
    let schema: SchemaRef = Arc::new(Schema::new(fields.to_vec()));
    let rows = Axis::try_from_lengths(std::iter::repeat_n(TILE_ROWS, num_tiles)).unwrap();
    let columns = Axis::try_from_lengths([2]).unwrap();
    let mut builder = GridBuilder::try_new(Arc::clone(&schema), rows, columns).unwrap();
    for number in 0..num_tiles {
        let first = number as i64 * TILE_ROWS as i64;
        let bounds = [(0, 99), (first, first + TILE_ROWS as i64 - 1)];
        let known = bounds.map(|(least, most)| {
            let bounds: ArrayRef = Arc::new(Int64Array::from(vec![least, most]));
            Some(ColumnStatistics {
                null_count: 0,
                bounds: Some(bounds),
                is_ascending: None,
            })
        });
        let tile = Tile::with_statistics(data(number, &schema), known);
        builder.set(&[number, 0], tile).unwrap();
    }
    Arc::new(builder.build().unwrap())
}

/// One whose row bands go round the members.
pub(super) fn grid(reach: &Arc<Reach>, members: &Members, num_tiles: usize) -> Arc<PartitionGrid> {
    let round = (0..members.len()).cycle().take(num_tiles);
    grid_at(reach, members, &round.collect::<Vec<_>>())
}

/// One whose row bands the members of these numbers have.
pub(super) fn grid_at(
    reach: &Arc<Reach>,
    members: &Members,
    owners: &[usize],
) -> Arc<PartitionGrid> {
    let all: Vec<(&Member, Arc<str>)> = members
        .iter()
        .map(|member| (member, member.uri().into()))
        .collect();
    let mut num_of_each = vec![0; all.len()];
    let places = owners.iter().map(|owner| {
        num_of_each[*owner] += 1;
        num_of_each[*owner] - 1
    });
    let places: Vec<usize> = places.collect();
    grid_of(owners.len(), |number, schema| {
        let (member, uri) = &all[owners[number]];
        let outline = Outline {
            handle: Handle {
                grid: GridId::from_bits(owners[number] as u128),
                position: vec![places[number], 0],
                incarnation: member.incarnation(),
                owner: member.location().clone(),
            },
            uri: Arc::clone(uri),
            was: Arc::default(),
            table: Arc::from("t"),
            schema: Arc::clone(schema),
            num_rows: TILE_ROWS,
            memory_bytes: 16 * TILE_ROWS,
            access: Access::default(),
        };
        Arc::new(MemberTile::new(outline, Arc::clone(reach)))
    })
}

/// One of a catalog, whose files are not there.
pub(super) fn kept_grid(catalog: &Catalog, num_tiles: usize) -> Arc<PartitionGrid> {
    grid_of(num_tiles, |number, schema| {
        let file = KeptFile {
            path: format!("tiles/{:032x}-{number}-0-{number:016x}.arrow", 7),
            bytes: 16 * TILE_ROWS,
            checksum: format!("{number:016x}"),
        };
        let tile = catalog.tile(file, schema, (TILE_ROWS, 16 * TILE_ROWS));
        Arc::clone(tile.unwrap().data())
    })
}

fn resident_bytes() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    let resident = pages.split(' ').nth(1).unwrap().parse::<u64>().unwrap();
    resident * 4096
}

fn timed<T>(work: impl FnOnce() -> T) -> (Duration, T) {
    let begun = Instant::now();
    let done = work();
    (begun.elapsed(), done)
}

/// The time of a statement from text to stages, without running it.
async fn planned(session: &Session, text: &str) -> (Duration, String) {
    let begun = Instant::now();
    let plan = session.sql(text).await.unwrap().explain();
    (begun.elapsed(), plan)
}

async fn measure(num_members: usize, num_tiles: usize) {
    let session = Session::try_new(&SessionOptions::default()).unwrap();
    let options = ClusterOptions::default();
    let cluster = Cluster::start(&session, "grpc://127.0.0.1:9", options).unwrap();
    let members = Arc::new(members(cluster.members().own(), num_members));
    cluster.set_members(members.iter().cloned());
    let before = resident_bytes();
    let (building, grid) = timed(|| grid(&cluster.reach, &members, num_tiles));
    let bytes = resident_bytes().saturating_sub(before) / num_tiles as u64;

    let seats = seats(&members, num_members);
    let (placing, _) = timed(|| {
        let id = grid.id().bits();
        (0..num_tiles as u64)
            .map(|band| owner(id, band, &seats))
            .max()
    });

    let scan = GridScanExec::over(Arc::clone(&grid), vec![0, 1], &[]).unwrap();
    let query = cluster.of_query(Arc::clone(&members));
    let (dealing, dealt) = timed(|| dealt(&scan, &query, num_members));
    assert_eq!(dealt.iter().map(Vec::len).sum::<usize>(), num_tiles);
    assert!(
        dealt
            .iter()
            .all(|bands| bands.len() >= num_tiles / num_members)
    );
    let codec = cluster.tile_codec(Some(&members));
    let (writing, sent) = timed(|| {
        let written = dealt.iter().map(|bands| {
            let message = codec.written(scan.grid(), bands, &[0]).unwrap();
            message.encoded_len()
        });
        written.sum::<usize>()
    });

    session.register("t", grid).unwrap();
    let (pruned, _) = planned(
        &session,
        "SELECT count(*) FROM t WHERE x BETWEEN 5 AND 7 AND g < 50",
    )
    .await;
    let (whole, plan) = planned(&session, "SELECT g, sum(x) FROM t GROUP BY g").await;
    assert!(
        plan.contains(&format!("members={num_members}")),
        "{plan:.300}"
    );
    let micros = |time: Duration| time.as_secs_f64() * 1e6 / num_tiles as f64;
    println!(
        "{num_members:>7} {num_tiles:>10} {bytes:>9} {:>7.2} {:>7.2} {:>7.2} {:>7.2} {:>9} {:>9.0} {:>9.0}",
        micros(building),
        micros(placing),
        micros(dealing),
        micros(writing),
        sent / num_members,
        pruned.as_secs_f64() * 1e3,
        whole.as_secs_f64() * 1e3,
    );
    assert!(scan.kept_row_bands().len() == num_tiles);
}

/// The same of a grid of the catalog, whose row bands are placed: for the first statement that reads all, and kept for the next.
async fn measure_kept(num_members: usize, num_tiles: usize) {
    let session = Session::try_new(&SessionOptions::default()).unwrap();
    let catalog = Catalog::open("memory:///scale").await.unwrap();
    let options = ClusterOptions {
        catalog: Some(catalog.clone()),
        ..ClusterOptions::default()
    };
    let cluster = Cluster::start(&session, "grpc://127.0.0.1:9", options).unwrap();
    let members = members(cluster.members().own(), num_members);
    cluster.set_members(members.iter().cloned());
    let (building, grid) = timed(|| kept_grid(&catalog, num_tiles));
    let all: Vec<usize> = (0..num_tiles.min(100_000)).collect();
    let codec = cluster.tile_codec(Some(&cluster.members()));
    let sent = codec.written(&grid, &all, &[0]).unwrap().encoded_len();
    session.register("kept", grid).unwrap();
    let (mut times, mut last) = (Vec::new(), String::new());
    for text in [
        "SELECT count(*) FROM kept WHERE x BETWEEN 5 AND 7 AND g < 50",
        "SELECT g, sum(x) FROM kept GROUP BY g",
        "SELECT g, max(x) FROM kept GROUP BY g",
    ] {
        let (time, plan) = planned(&session, text).await;
        times.push(format!("{:>9.0}", time.as_secs_f64() * 1e3));
        last = plan;
    }
    let spread = format!("members={num_members}");
    assert!(last.contains(&spread), "{last:.300}");
    println!(
        "{num_members:>7} {num_tiles:>10} {:>7.2} {:>9} {}",
        building.as_secs_f64() * 1e6 / num_tiles as f64,
        sent / all.len(),
        times.join(" ")
    );
}

/// How many of each are measured.
const SIZES: [(usize, usize); 5] = [
    (10, 100_000),
    (100, 100_000),
    (1_000, 100_000),
    (1_000, 1_000_000),
    (1_000, 10_000_000),
];

#[tokio::test(flavor = "multi_thread")]
#[ignore = "a measurement of minutes: make bench-scale"]
async fn members_and_tiles() {
    let most = std::env::var("PARTGRID_SCALE_TILES").ok();
    let most: usize = most
        .and_then(|text| text.parse().ok())
        .unwrap_or(10_000_000);
    let sizes = || SIZES.into_iter().filter(|(_, tiles)| *tiles <= most);
    println!(
        "                       for each tile: bytes, then microseconds of                     a statement, milliseconds"
    );
    println!(
        "members      tiles     bytes   build   place    deal   write    sent/B    pruned     whole"
    );
    for (num_members, num_tiles) in sizes() {
        measure(num_members, num_tiles).await;
    }
    println!("of a catalog, for each tile          a statement, milliseconds");
    println!("members      tiles   build    sent/B    pruned     whole     again");
    for (num_members, num_tiles) in sizes() {
        measure_kept(num_members, num_tiles).await;
    }
}

/// What dealing out so many tiles to so many members asks of the allocator, step by step, in bytes, and what is sent.
async fn asked(num_members: usize, num_tiles: usize) -> Vec<(&'static str, usize)> {
    let session = Session::try_new(&SessionOptions::default()).unwrap();
    let catalog = Catalog::open("memory:///asked").await.unwrap();
    let options = ClusterOptions {
        catalog: Some(catalog.clone()),
        ..ClusterOptions::default()
    };
    let cluster = Cluster::start(&session, "grpc://127.0.0.1:9", options).unwrap();
    let own = cluster.members().own().clone();
    let (members, meeting) = allocated_bytes(|| Arc::new(members(&own, num_members)));
    assert_eq!(members.len(), num_members);
    let (grid, building) = allocated_bytes(|| grid(&cluster.reach, &members, num_tiles));
    let (kept, naming) = allocated_bytes(|| kept_grid(&catalog, num_tiles));
    let query = cluster.of_query(Arc::clone(&members));
    let codec = cluster.tile_codec(Some(&members));
    let mut asked = vec![("meet", meeting), ("build", building), ("name", naming)];
    for grid in [grid, kept] {
        let over = |conditions: &[Arc<dyn PhysicalExpr>]| {
            GridScanExec::over(Arc::clone(&grid), vec![0, 1], conditions).unwrap()
        };
        let (scan, reading) = allocated_bytes(|| over(&[]));
        let x = Arc::new(Column::new("x", 1));
        let few: Arc<dyn PhysicalExpr> = Arc::new(BinaryExpr::new(x, Operator::Lt, lit(7_i64)));
        let (pruned, pruning) = allocated_bytes(|| over(&[few]));
        assert_eq!(pruned.kept_row_bands(), [0]);
        let (dealt, dealing) = allocated_bytes(|| dealt(&scan, &query, num_members));
        let (sent, writing) = allocated_bytes(|| {
            let written = dealt.iter().map(|bands| {
                let message = codec.written(&grid, bands, &[0]).unwrap();
                message.encoded_len()
            });
            written.sum::<usize>()
        });
        asked.extend([("read", reading), ("prune", pruning), ("deal", dealing)]);
        asked.extend([("write", writing), ("send", sent)]);
    }
    asked
}

/// Times of a machine that does other things say little; what is asked of the allocator is the same each time.
#[tokio::test]
async fn four_times_as_many_tiles_ask_for_four_times_as_much() {
    at_most_in_proportion(&asked(20, 4_096).await, &asked(20, 16_384).await);
}

/// With as many tiles each: what asks for something for each pair of members, or for each tile and member, asks for sixteen times as much.
#[tokio::test]
async fn four_times_as_many_members_ask_for_four_times_as_much() {
    at_most_in_proportion(&asked(64, 1_024).await, &asked(256, 4_096).await);
}

/// Of four times as many.
fn at_most_in_proportion(few: &[(&str, usize)], many: &[(&str, usize)]) {
    for ((step, few), (_, many)) in few.iter().zip(many) {
        // What is asked for all of them together is within.
        assert!(*few > 0 && *many <= 5 * few, "{step}: {few} {many}");
    }
}
