//! Answers and plans of SQL over the flights of 2013.
//!
//! Comes in: `sql/*.slt` (answers, as DuckDB gives them) and `sql/explain/*.slt` (plans). Goes out: a failure for each answer that differs. Every file of answers
//! runs on six cuttings of the same tables and in three processes, since an answer must not depend on where the cuts are, or the tiles. Never here: how the expected answers were made; see
//! `sql/README.md`.
#![cfg(all(feature = "parquet", feature = "sql"))]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::allow_attributes,
    missing_docs,
    reason = "a test may fail by panicking"
)]

#[cfg(feature = "distributed")]
#[path = "slt/cluster.rs"]
mod cluster;
#[path = "slt/engine.rs"]
mod engine;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
#[cfg(feature = "distributed")]
use cluster::Placement;
use engine::Engine;
use partgrid::grid::{Axis, GridBuilder, PartitionGrid, Tile};
use partgrid::load::{LoadOptions, load};
use partgrid::query::{Session, SessionOptions};
use sqllogictest::{
    DefaultColumnType, MakeConnection, Record, Runner, default_normalizer, default_validator,
    parse_file, strict_column_validator,
};

/// Fewer records of answers than this mean that files were lost.
const LEAST_ANSWERS: usize = 1000;

/// Fewer records of plans than this mean that files were lost.
const LEAST_PLANS: usize = 85;

/// Fewer records of shapes of plans than this mean that some were lost.
#[cfg(feature = "distributed")]
const LEAST_SHAPES: usize = 40;

/// Tables and where they are in `data/`.
const TABLES: [(&str, &str); 5] = [
    ("flights", "flights"),
    ("weather", "weather.parquet"),
    ("planes", "planes.parquet"),
    ("airports", "airports.parquet"),
    ("airlines", "airlines.parquet"),
];

#[test]
fn answers_are_those_of_duckdb_on_one_tile() {
    run_answers("one tile", &memory(), |grid| {
        let batch = whole(&grid);
        PartitionGrid::try_from_batches(batch.schema(), &[batch]).unwrap()
    });
}

#[test]
fn answers_are_those_of_duckdb_on_the_tiles_of_the_load() {
    run_answers("as loaded", &memory(), |grid| grid);
}

#[test]
fn answers_are_those_of_duckdb_on_many_small_tiles() {
    run_answers(
        "tiles of 1,000 rows",
        &memory().with_tile_rows(1000),
        |grid| {
            assert!(
                grid.num_rows() < 2000 || grid.rows().num_intervals() > 1,
                "{grid:?} is not cut"
            );
            grid
        },
    );
}

#[test]
fn answers_are_those_of_duckdb_on_column_bands_with_an_empty_row_band_between() {
    run_answers("three column bands", &memory(), |grid| banded(&grid));
}

#[test]
fn answers_are_those_of_duckdb_on_lazy_tiles() {
    run_answers("lazy tiles", &memory().with_lazy(true), |grid| {
        assert!(grid.tiles().iter().all(|tile| tile.data().is_lazy()));
        grid
    });
}

#[test]
fn answers_are_those_of_duckdb_on_shuffled_tiles_of_which_some_are_lazy() {
    run_answers("shuffled, half lazy", &memory().with_lazy(true), |grid| {
        shuffled(&grid)
    });
}

/// Choose which member has which tiles, where the environment names no other.
#[cfg(feature = "distributed")]
const SEEDS: [u64; 2] = [1, 2];

/// Such a number that nobody has chosen. It is said with each run.
#[cfg(feature = "distributed")]
fn any_seed() -> u64 {
    use std::hash::{BuildHasher, RandomState};

    RandomState::new().hash_one("seed")
}

#[cfg(feature = "distributed")]
#[test]
fn answers_are_those_of_duckdb_on_three_members() {
    let placement = Placement::new(3, SEEDS[0]);
    let (files, records) = run_members(placement, &files_of("sql"), true);
    report(&format!("{records} answers in {files} files on 3 members"));
    assert!(records >= LEAST_ANSWERS, "only {records} answers");
}

#[cfg(feature = "distributed")]
#[test]
fn every_shape_of_plan_answers_alike_on_one_two_three_and_five_members() {
    let [seed, other] = SEEDS;
    for (of, seed) in [
        (1, seed),
        (2, seed),
        (2, other),
        (3, seed),
        (3, any_seed()),
        (5, seed),
        (5, other),
    ] {
        run_shapes(Placement::new(of, seed));
    }
}

#[cfg(feature = "distributed")]
#[test]
fn every_shape_of_plan_answers_alike_where_a_member_has_no_tile() {
    // The one that is asked, and another one.
    for (of, without) in [(2, 0), (3, 0), (3, 2)] {
        run_shapes(Placement::new(of, SEEDS[1]).without(without));
    }
}

/// Nothing is fetched: each shape runs where the tiles are.
#[cfg(feature = "distributed")]
fn run_shapes(placement: Placement) {
    let shapes = [Path::new(env!("CARGO_MANIFEST_DIR")).join("sql/shapes.slt")];
    let (_, records) = run_members(placement, &shapes, false);
    let of = placement.of;
    report(&format!("{records} shapes of plans on {of} members"));
    assert!(records >= LEAST_SHAPES, "only {records} shapes");
}

#[cfg(feature = "distributed")]
fn run_members(mut placement: Placement, files: &[PathBuf], may_fetch: bool) -> (usize, usize) {
    if let Ok(seed) = std::env::var("PARTGRID_SLT_SEED") {
        placement.seed = seed.parse().unwrap();
    }
    let Placement { of, seed, without } = placement;
    let without = without.map(|member| format!(", none with member {member}"));
    report(&format!(
        "{of} members; PARTGRID_SLT_SEED={seed} puts the tiles there again{}",
        without.unwrap_or_default()
    ));
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let members = cluster::Members::start(&runtime, placement, may_fetch);
    let session = members.session();
    let cutting = Cutting { session, runtime };
    let ran = run_files(files, &cutting);
    drop(members);
    ran
}

#[test]
fn plans_read_no_more_than_they_must() {
    let session = session(&memory(), &|grid| grid);
    let (files, records) = run_folder("sql/explain", &session);
    report(&format!(
        "{records} plans in {files} files on 1 cutting (as loaded)"
    ));
    assert!(records >= LEAST_PLANS, "only {records} plans");
}

/// So that nobody overlooks that an answer became right: then its record moves to the other files.
#[test]
fn known_wrong_answers_are_still_wrong() {
    let session = session(&memory(), &|grid| grid);
    let mut records = 0;
    for file in files_of("sql/known") {
        for record in parse_file::<DefaultColumnType>(&file)
            .unwrap()
            .iter()
            .filter(|record| is_counted(record))
        {
            let count = Arc::new(AtomicUsize::new(0));
            let run = session
                .runtime
                .block_on(runner(&session, &count).run_async(record.clone()));
            assert!(
                run.is_err(),
                "this record passes now, move it to the other files: {record}"
            );
            records += count.load(Ordering::Relaxed);
        }
    }
    report(&format!("{records} known wrong answers"));
}

/// Writes what the engine does now into `sql/explain`; read every changed line before committing it.
#[test]
#[ignore = "changes files"]
fn rewrite_the_plans() {
    let session = session(&memory(), &|grid| grid);
    let count = Arc::new(AtomicUsize::new(0));
    let mut runner = runner(&session, &count);
    for file in files_of("sql/explain") {
        let separator = " ";
        let update = runner.update_test_file(
            &file,
            separator,
            default_validator,
            default_normalizer,
            strict_column_validator,
        );
        session.runtime.block_on(update).unwrap();
    }
    assert!(count.load(Ordering::Relaxed) > 0);
}

#[test]
fn a_wrong_expected_answer_fails() {
    let session = session(&memory(), &|grid| grid);
    let wrong = [
        "query I\nSELECT count(*) FROM airlines\n----\n17\n",
        "query T\nSELECT count(*) FROM airlines\n----\n16\n",
        "query II\nSELECT count(*) FROM airlines\n----\n16\n",
        "statement error no column `bar`\nSELECT foo FROM airlines\n",
        "statement ok\nSELECT foo FROM airlines\n",
    ];
    for script in wrong {
        let count = Arc::new(AtomicUsize::new(0));
        let run = session
            .runtime
            .block_on(runner(&session, &count).run_script_async(script));
        assert!(run.is_err(), "{script}");
        assert_eq!(count.load(Ordering::Relaxed), 1);
    }
}

/// A session with a runtime to run it on.
struct Cutting {
    session: Arc<Session>,
    runtime: tokio::runtime::Runtime,
}

fn run_answers(cutting: &str, options: &LoadOptions, cut: impl Fn(PartitionGrid) -> PartitionGrid) {
    let session = session(options, &cut);
    let (files, records) = run_folder("sql", &session);
    report(&format!(
        "{records} answers in {files} files on cutting `{cutting}` (1 of 6)"
    ));
    assert!(records >= LEAST_ANSWERS, "only {records} answers");
}

/// Runs every file of a folder; gives the number of files and of records. Each record that a file holds must have run.
fn run_folder(folder: &str, cutting: &Cutting) -> (usize, usize) {
    run_files(&files_of(folder), cutting)
}

fn run_files(files: &[PathBuf], cutting: &Cutting) -> (usize, usize) {
    let mut failures = Vec::new();
    let mut total = 0;
    for file in files {
        let records = parse_file::<DefaultColumnType>(file).unwrap();
        let held = records.iter().filter(|record| is_counted(record)).count();
        let count = Arc::new(AtomicUsize::new(0));
        let mut runner = runner(cutting, &count);
        for record in records {
            if let Err(error) = cutting.runtime.block_on(runner.run_async(record)) {
                failures.push(error.to_string());
            }
        }
        let run = count.load(Ordering::Relaxed);
        assert_eq!(
            run,
            held,
            "{} holds {held} records, {run} ran",
            file.display()
        );
        total += run;
    }
    assert!(
        failures.is_empty(),
        "{} failures:\n{}",
        failures.len(),
        failures.join("\n\n")
    );
    (files.len(), total)
}

/// Whether a record asks the engine something.
fn is_counted(record: &Record<DefaultColumnType>) -> bool {
    matches!(record, Record::Statement { .. } | Record::Query { .. })
}

fn files_of(folder: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let entries = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> = entries
        .filter(|path| path.extension().is_some_and(|ending| ending == "slt"))
        .collect();
    files.sort();
    files
}

/// Past the capture of the test harness, so that the numbers are seen in every run.
#[expect(
    clippy::explicit_write,
    reason = "the harness captures what eprintln prints"
)]
fn report(line: &str) {
    writeln!(std::io::stderr(), "slt: {line}").unwrap();
}

/// All tables under their names, cut by `cut`. A fixed number of shares keeps plans the same on every machine.
/// A load into memory, in the tiles of the files.
fn memory() -> LoadOptions {
    LoadOptions::default()
}

fn session(options: &LoadOptions, cut: &dyn Fn(PartitionGrid) -> PartitionGrid) -> Cutting {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let session = Session::try_new(&SessionOptions::default().with_threads(3)).unwrap();
    for (name, place) in TABLES {
        let source = format!("{}/data/{place}", env!("CARGO_MANIFEST_DIR"));
        let grid = runtime.block_on(load(&[source], options)).unwrap();
        session.register(name, Arc::new(cut(grid))).unwrap();
    }
    Cutting {
        session: Arc::new(session),
        runtime,
    }
}

fn whole(grid: &PartitionGrid) -> RecordBatch {
    let bands = (0..grid.rows().num_intervals()).map(|band| grid.open_row_band(band).unwrap());
    concat_batches(grid.schema(), &bands.collect::<Vec<_>>()).unwrap()
}

/// The grid with its columns in three bands (two where it has but two columns) and a row band without rows in the middle.
fn banded(grid: &PartitionGrid) -> PartitionGrid {
    let mut batches: Vec<RecordBatch> = (0..grid.rows().num_intervals())
        .map(|band| grid.open_row_band(band).unwrap())
        .collect();
    let middle = batches.len().div_ceil(2);
    batches.insert(middle, RecordBatch::new_empty(Arc::clone(grid.schema())));
    let rows = Axis::try_from_lengths(batches.iter().map(|batch| batch.num_rows() as u64)).unwrap();
    let num_bands = grid.num_columns().min(3);
    let columns = Axis::try_even(grid.num_columns() as u64, num_bands).unwrap();
    let mut builder =
        GridBuilder::try_new(Arc::clone(grid.schema()), rows, columns.clone()).unwrap();
    for (row_band, batch) in batches.iter().enumerate() {
        for (column_band, interval) in columns.intervals().enumerate() {
            let wanted: Vec<usize> = interval.map(|at| usize::try_from(at).unwrap()).collect();
            let tile = Tile::try_from_batch(&batch.project(&wanted).unwrap()).unwrap();
            builder.set(&[row_band, column_band], tile).unwrap();
        }
    }
    builder.build().unwrap()
}

/// The row bands in another order, every second one read into memory and cut in two.
fn shuffled(grid: &PartitionGrid) -> PartitionGrid {
    let count = grid.rows().num_intervals();
    // 7 shares no factor with the numbers of files.
    let order: Vec<usize> = (0..count).map(|place| (place * 7 + 3) % count).collect();
    let mut tiles = Vec::new();
    for (number, row_band) in order.into_iter().enumerate() {
        let lazy = grid.tile(&[row_band, 0]).unwrap();
        if number % 2 == 0 {
            tiles.push(lazy.clone());
            continue;
        }
        let batch = lazy.open().unwrap();
        let middle = batch.num_rows() / 2;
        for part in [
            batch.slice(0, middle),
            batch.slice(middle, batch.num_rows() - middle),
        ] {
            tiles.push(Tile::try_from_batch(&part).unwrap());
        }
    }
    let rows = Axis::try_from_lengths(tiles.iter().map(Tile::num_rows)).unwrap();
    let columns = grid.columns().clone();
    assert_eq!(columns.num_intervals(), 1);
    let mut builder = GridBuilder::try_new(Arc::clone(grid.schema()), rows, columns).unwrap();
    for (row_band, tile) in tiles.into_iter().enumerate() {
        builder.set(&[row_band, 0], tile).unwrap();
    }
    builder.build().unwrap()
}

fn runner(
    cutting: &Cutting,
    count: &Arc<AtomicUsize>,
) -> Runner<Engine, impl MakeConnection<Conn = Engine>> {
    let (session, count) = (Arc::clone(&cutting.session), Arc::clone(count));
    let mut runner = Runner::new(move || {
        let engine = Engine {
            session: Arc::clone(&session),
            count: Arc::clone(&count),
        };
        async { Ok(engine) }
    });
    runner.with_column_validator(strict_column_validator);
    runner
}
