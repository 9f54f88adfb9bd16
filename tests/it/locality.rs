//! Tiles at several distances in one grid: what plans say of them, in which order they are read, what is copied.

use std::sync::{Arc, Mutex};

use arrow::array::{Array, AsArray, Int64Array, ListArray, RecordBatch, StringArray};
use arrow::compute::concat_batches;
use arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef};
use async_trait::async_trait;
use futures::StreamExt;
use partgrid::error::{Error, ErrorKind, Result};
use partgrid::grid::{Axis, ColumnStatistics, GridBuilder, PartitionGrid, Tile, TileData};
use partgrid::location::{Device, Locality, Location};
use partgrid::query::{Query, Session, SessionOptions};
use tokio::runtime::Runtime;

use Locality::{File, Memory, Process};

#[test]
fn a_plan_names_the_tiles_of_each_place() {
    let world = World::new(&[Process, Memory, File, Memory, Process], 1);
    let plan = world.sql("SELECT name FROM t").explain();
    let expected = "tiles=5/5, from=[memory: 2 kept; process: 2 kept; file: 1 kept], rows=50";
    assert!(plan.contains(expected), "{plan}");
    let plan = world.sql("SELECT name FROM t WHERE id < 20").explain();
    let expected =
        "tiles=2/5, from=[memory: 1 kept, 1 pruned; process: 1 kept, 1 pruned; file: 1 pruned]";
    assert!(plan.contains(expected), "{plan}");
}

#[test]
fn a_plan_says_which_tiles_hold_other_columns() {
    let session = Session::try_new(&SessionOptions::default()).unwrap();
    let grid = crate::support::int_grid(&[2, 2], &[1, 2]);
    session.register("t", Arc::new(grid)).unwrap();
    let runtime = Runtime::new().unwrap();
    let plan = runtime.block_on(session.sql("SELECT c2 FROM t")).unwrap();
    let expected = "tiles=2/4, from=[memory: 2 kept, 2 of other columns]";
    assert!(plan.explain().contains(expected), "{}", plan.explain());
}

#[test]
fn near_tiles_are_read_before_far_ones() {
    for threads in [1, 2] {
        let world = World::new(&[File, Process, Memory, File, Memory], threads);
        let query = world.sql("SELECT name, id FROM t WHERE id <> 7");
        assert_eq!(
            world.ids(&query),
            (0..50).filter(|id| *id != 7).collect::<Vec<_>>()
        );
        let asked = world.asked.lock().unwrap().clone();
        if threads == 1 {
            // Those from elsewhere give the column of the condition first.
            assert_eq!(asked, [2, 4, 1, 1, 0, 0, 3, 3]);
        } else {
            // Each of both shares begins with a tile of the nearest place.
            let firsts: Vec<usize> = asked.iter().take(2).copied().collect();
            assert!(firsts.iter().any(|tile| [2, 4].contains(tile)), "{asked:?}");
        }
    }
}

#[test]
fn the_order_of_the_grid_stays_where_it_is_asked_for() {
    let world = World::new(&[File, Process, Memory], 1);
    let query = world.sql("SELECT id FROM t LIMIT 15");
    let batches = world.runtime.block_on(query.collect()).unwrap();
    let batch = concat_batches(&query.schema(), &batches).unwrap();
    let ids = batch.column(0).as_primitive::<Int64Type>();
    assert_eq!(ids.values().to_vec(), (0..15).collect::<Vec<_>>());
    assert_eq!(*world.asked.lock().unwrap(), [0, 1]);
    let sorted = world.sql("SELECT id FROM t ORDER BY id DESC");
    assert_eq!(world.ids(&sorted), (0..30).collect::<Vec<_>>());
}

#[test]
fn bytes_are_counted_for_each_place_and_nothing_is_copied_of_tiles_that_are_here() {
    let world = World::new(&[File, Memory, Process, Memory], 2);
    let query = world.sql("SELECT id FROM t");
    let analyzed = world.runtime.block_on(query.explain_analyze()).unwrap();
    for expected in [
        "memory_tiles=2, ",
        "memory_rows=20, ",
        "memory_bytes=160, ",
        "memory_bytes_copied=0, ",
        "process_tiles=1, ",
        "process_bytes=80, ",
        "process_bytes_copied=80, ",
        "file_rows=10, ",
        "file_bytes_copied=80, ",
    ] {
        assert!(
            analyzed.contains(expected),
            "{expected} is not in {analyzed}"
        );
    }
}

#[test]
fn what_a_tile_that_is_here_copies_all_the_same_is_counted() {
    // Lists that do not begin at 0 are rebuilt for the kernels of Arrow.
    let values: Vec<Option<Vec<Option<i64>>>> =
        (0..200_000).map(|row| Some(vec![Some(row)])).collect();
    let lists = ListArray::from_iter_primitive::<Int64Type, _, _>(values);
    let batch = RecordBatch::try_from_iter([("l", Arc::new(lists) as _)]).unwrap();
    let grid = PartitionGrid::try_from_batches(batch.schema(), &[batch]).unwrap();
    let session = Session::try_new(&SessionOptions::default().with_threads(1)).unwrap();
    session.register("t", Arc::new(grid)).unwrap();
    let runtime = Runtime::new().unwrap();
    let query = runtime.block_on(session.sql("SELECT l FROM t")).unwrap();
    let analyzed = runtime.block_on(query.explain_analyze()).unwrap();
    let copied = analyzed.split("memory_bytes_copied=").nth(1).unwrap();
    assert!(!copied.starts_with('0'), "{analyzed}");
}

#[test]
fn a_dynamic_filter_leaves_far_tiles_unread() {
    let world = World::with_rows(&[Process, Memory, Memory, Process], 1, 100_000);
    let query = world.sql("SELECT id FROM t WHERE id > 100002 ORDER BY id LIMIT 3");
    assert_eq!(world.ids(&query), [100_003, 100_004, 100_005]);
    assert_eq!(*world.asked.lock().unwrap(), [1]);
    let metrics = query.metrics().unwrap();
    assert_eq!((metrics.skipped_tiles, metrics.skipped_rows), (2, 200_000));
    assert_eq!((metrics.read_tiles(), metrics.read_rows), (1, 100_000));
    assert_eq!((metrics.skipped_morsels, metrics.copied_bytes()), (2, 0));
    assert!(metrics.filtered_rows > 1_000, "{metrics:?}");
    // What is skipped is done with as well.
    let progress = query.progress().unwrap();
    assert_eq!((progress.num_tiles, progress.total_tiles), (3, 3));
    assert_eq!((progress.num_rows, progress.total_rows), (300_000, 300_000));
    assert_eq!(progress.num_scans, 1);
    let analyzed = world.runtime.block_on(query.explain_analyze()).unwrap();
    assert!(analyzed.contains("tiles_skipped=2"), "{analyzed}");
}

#[test]
fn metrics_say_what_a_run_did() {
    let world = World::new(&[File, Memory, Process, Memory], 2);
    let query = world.sql("SELECT id FROM t WHERE id >= 10");
    assert_eq!(query.metrics(), None);
    assert_eq!(world.ids(&query), (10..40).collect::<Vec<_>>());
    let metrics = query.metrics().unwrap();
    assert!(metrics.is_done);
    assert_eq!((metrics.num_rows, metrics.read_rows), (30, 30));
    assert_eq!((metrics.tiles(), metrics.pruned_tiles()), (4, 1));
    assert_eq!((metrics.read_tiles(), metrics.copied_bytes()), (3, 80));
    let places = metrics.groups.iter().map(|group| {
        let tiles = (group.tiles, group.read_tiles);
        (group.locality, tiles, group.bytes, group.copied_bytes)
    });
    assert_eq!(
        places.collect::<Vec<_>>(),
        [
            (Memory, (2, 2), 160, 0),
            (Process, (1, 1), 80, 80),
            (File, (1, 0), 0, 0)
        ]
    );
    assert_eq!(metrics.operators[0].depth, 0);
    let scan = metrics.operators.last().unwrap();
    assert_eq!(
        (scan.name.as_str(), scan.num_rows),
        ("GridScanExec", Some(30))
    );
    let text = metrics.to_string();
    assert!(text.starts_with("30 rows in 0."), "{text}");
    let line = "\n  file: 0 of 1 tile read, 1 pruned, 0 rows, 0 bytes, 0 bytes copied";
    assert!(text.contains(line), "{text}");
}

#[test]
fn a_run_is_measured_while_it_goes_on_and_when_nobody_reads_on() {
    let world = World::new(&[Memory, Memory], 1);
    let query = world.sql("SELECT id FROM t");
    let mut stream = {
        let _entered = world.runtime.enter();
        query.stream().unwrap()
    };
    world.runtime.block_on(stream.next()).unwrap().unwrap();
    let metrics = query.metrics().unwrap();
    assert!(!metrics.is_done);
    assert_eq!((metrics.num_rows, metrics.num_batches), (10, 1));
    assert!(metrics.to_string().contains(" after "), "{metrics}");
    drop(stream);
    let metrics = query.metrics().unwrap();
    assert!(metrics.is_done);
    assert_eq!(query.metrics().unwrap().elapsed, metrics.elapsed);
}

#[test]
fn progress_is_unknown_before_a_run() {
    let world = World::new(&[Memory], 1);
    assert_eq!(world.sql("SELECT id FROM t").progress(), None);
}

struct World {
    session: Session,
    runtime: Runtime,
    /// The numbers of the tiles, in the order in which they were fetched.
    asked: Arc<Mutex<Vec<usize>>>,
}

impl World {
    fn new(places: &[Locality], threads: usize) -> Self {
        Self::with_rows(places, threads, 10)
    }

    /// A table `t` of tiles of so many rows, one at each of the places, of which the statistics are known.
    fn with_rows(places: &[Locality], threads: usize, rows: i64) -> Self {
        let options = SessionOptions::default().with_threads(threads);
        let session = Session::try_new(&options).unwrap();
        let asked = Arc::default();
        session
            .register("t", Arc::new(grid(places, rows, &asked)))
            .unwrap();
        let runtime = Runtime::new().unwrap();
        Self {
            session,
            runtime,
            asked,
        }
    }

    fn sql(&self, sql: &str) -> Query {
        let query = self.runtime.block_on(self.session.sql(sql)).unwrap();
        self.asked.lock().unwrap().clear();
        query
    }

    /// The sorted ids of an answer.
    fn ids(&self, query: &Query) -> Vec<i64> {
        let batches = self.runtime.block_on(query.collect()).unwrap();
        let batch = concat_batches(&query.schema(), &batches).unwrap();
        let ids = batch.column_by_name("id").unwrap();
        let mut ids = ids.as_primitive::<Int64Type>().values().to_vec();
        ids.sort_unstable();
        ids
    }
}

fn grid(places: &[Locality], rows: i64, asked: &Arc<Mutex<Vec<usize>>>) -> PartitionGrid {
    let schema = Arc::new(Schema::new(vec![
        Field::new("id", DataType::Int64, false),
        Field::new("name", DataType::Utf8, false),
    ]));
    let axis = Axis::try_from_lengths(places.iter().map(|_| rows as u64)).unwrap();
    let columns = Axis::try_even(2, 1).unwrap();
    let mut builder = GridBuilder::try_new(Arc::clone(&schema), axis, columns).unwrap();
    for (number, place) in places.iter().enumerate() {
        let ids = number as i64 * rows..(number as i64 + 1) * rows;
        let names = ids.clone().map(|id| Some(format!("row {id}")));
        let bounds = Int64Array::from(vec![ids.start, ids.end - 1]);
        let names: StringArray = names.collect();
        let columns: Vec<Arc<dyn Array>> =
            vec![Arc::new(Int64Array::from_iter_values(ids)), Arc::new(names)];
        let data = Placed {
            batch: RecordBatch::try_new(Arc::clone(&schema), columns).unwrap(),
            place: *place,
            number,
            asked: Arc::clone(asked),
        };
        let known = ColumnStatistics {
            null_count: 0,
            bounds: Some(Arc::new(bounds)),
            is_ascending: None,
        };
        let tile = Tile::with_statistics(Arc::new(data), [Some(known), None]);
        builder.set(&[number, 0], tile).unwrap();
    }
    builder.build().unwrap()
}

/// A tile that takes note of who asks for it, and copies what is not here.
#[derive(Debug)]
struct Placed {
    batch: RecordBatch,
    place: Locality,
    number: usize,
    asked: Arc<Mutex<Vec<usize>>>,
}

#[async_trait]
impl TileData for Placed {
    fn schema(&self) -> SchemaRef {
        self.batch.schema()
    }

    fn num_rows(&self) -> u64 {
        self.batch.num_rows() as u64
    }

    fn memory_bytes(&self) -> u64 {
        0
    }

    fn locations(&self) -> Vec<Location> {
        let here = Location::here();
        match self.place {
            Process => vec![Location::new(here.host(), here.process() + 1, Device::CPU)],
            _ => vec![here],
        }
    }

    fn is_lazy(&self) -> bool {
        self.place == File
    }

    fn open(&self) -> Result<RecordBatch> {
        match self.place {
            Memory => Ok(self.batch.clone()),
            _ => Err(Error::new(ErrorKind::NotLocal, "the tile is not here")),
        }
    }

    async fn fetch(&self, columns: &[usize]) -> Result<RecordBatch> {
        self.asked.lock().unwrap().push(self.number);
        let batch = self.batch.project(columns)?;
        if self.place == Memory {
            return Ok(batch);
        }
        Ok(concat_batches(
            &batch.schema(),
            [&batch.slice(0, 5), &batch.slice(5, batch.num_rows() - 5)],
        )?)
    }
}
