//! How placement and planning grow with members and tiles: measured in one process, with members that are but names. `make bench-scale` prints it, docs/scale.md says what it means.

use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::{ArrayRef, Int64Array};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use prost::Message;

use super::leaf::{dealt, seats};
use super::members::{Member, Members};
use super::tile::{MemberTile, Outline};
use super::{Cluster, ClusterOptions, owner};
use crate::grid::{Axis, ColumnStatistics, GridBuilder, GridId, PartitionGrid, Tile};
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

/// A grid of two columns whose row bands go round the members, with statistics as members tell them.
pub(super) fn grid(cluster: &Cluster, members: &Members, num_tiles: usize) -> Arc<PartitionGrid> {
    let fields = ["g", "x"].map(|name| Field::new(name, DataType::Int64, false));
    let schema: SchemaRef = Arc::new(Schema::new(fields.to_vec()));
    let rows = Axis::try_from_lengths(std::iter::repeat_n(TILE_ROWS, num_tiles)).unwrap();
    let columns = Axis::try_from_lengths([2]).unwrap();
    let mut builder = GridBuilder::try_new(Arc::clone(&schema), rows, columns).unwrap();
    let all: Vec<&Member> = members.iter().collect();
    for number in 0..num_tiles {
        let member = all[number % all.len()];
        let outline = Outline {
            handle: Handle {
                grid: GridId::from_bits((number % all.len()) as u128),
                position: vec![number / all.len(), 0],
                incarnation: member.incarnation(),
                owner: member.location().clone(),
            },
            uri: member.uri().to_owned(),
            schema: Arc::clone(&schema),
            num_rows: TILE_ROWS,
            memory_bytes: 16 * TILE_ROWS,
            forbids_fetching: false,
        };
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
        let tile = MemberTile::new(outline, Arc::clone(&cluster.reach));
        let tile = Tile::with_statistics(Arc::new(tile), known);
        builder.set(&[number, 0], tile).unwrap();
    }
    Arc::new(builder.build().unwrap())
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
    let (building, grid) = timed(|| grid(&cluster, &members, num_tiles));
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

#[tokio::test(flavor = "multi_thread")]
#[ignore = "a measurement of minutes: make bench-scale"]
async fn members_and_tiles() {
    println!(
        "                       for each tile: bytes, then microseconds of                     a statement, milliseconds"
    );
    println!(
        "members      tiles     bytes   build   place    deal   write    sent/B    pruned     whole"
    );
    let most = std::env::var("PARTGRID_SCALE_TILES").ok();
    let most: usize = most
        .and_then(|text| text.parse().ok())
        .unwrap_or(10_000_000);
    for (num_members, num_tiles) in [
        (10, 100_000),
        (100, 100_000),
        (1_000, 100_000),
        (1_000, 1_000_000),
        (1_000, 10_000_000),
    ] {
        if num_tiles <= most {
            measure(num_members, num_tiles).await;
        }
    }
}
