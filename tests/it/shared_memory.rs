//! Shared memory between processes: every type, in place, with the very schema; views; what is listed; a reader that outlives its owner. The other process is this binary, started again.
#![cfg(target_os = "linux")]
#![expect(
    clippy::print_stdout,
    reason = "the other process reports to its parent"
)]

mod other;

use std::any::Any;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use arrow::array::{Array, ArrayData, RecordBatch, RecordBatchOptions};
use arrow::datatypes::{DataType, Field, Schema};
use partgrid::error::ErrorKind;
use partgrid::grid::{Axis, GridId, PartitionGrid, RowOrder, TileData};
use partgrid::location::{Locality, Location};
use partgrid::share::{
    Handle, RemoteTile, SharedSegment, SharedTile, attach, handle, handles, lend, open,
    open_region, serve, sharing_processes, to_shared,
};

use self::other::{Other, TASK, read_handle, written};
use crate::support::{column_of_every_type, int_grid};

#[test]
fn a_shared_tile_lies_in_a_sealed_map_of_its_owner_too() {
    let grid = Arc::new(to_shared(&every_type()).unwrap());
    for tile in grid.tiles() {
        assert_eq!(tile.data().locality(), Locality::Shared);
        assert_eq!(tile.locations(), [Location::here()]);
        check_in_place(tile.data().as_ref());
    }
    let plain = every_type();
    for row_band in 0..grid.rows().num_intervals() {
        let (shared, plain) = (grid.open_row_band(row_band), plain.open_row_band(row_band));
        assert_eq!(shared.unwrap(), plain.unwrap());
    }
    assert_eq!(grid.schema(), plain.schema());
}

#[test]
fn another_process_reads_every_type_in_place() {
    let grid = Arc::new(to_shared(&every_type()).unwrap());
    check_by_another("every_type", &grid);
}

#[test]
fn another_process_reads_every_type_of_a_grid_in_private_memory() {
    check_by_another("every_type", &Arc::new(every_type()));
}

#[test]
fn a_tile_of_a_lent_grid_lies_in_its_segment_once_another_process_has_opened_it() {
    let (grid, plain) = (Arc::new(every_type()), every_type());
    lend(&grid, u64::MAX);
    let before = grid.open_row_band(0).unwrap();
    for _ in 0..2 {
        check_by_another("every_type", &grid);
        for (tile, plain) in grid.tiles().iter().zip(plain.tiles()) {
            assert_eq!(tile.open().unwrap(), plain.open().unwrap());
            assert_eq!(tile.data().memory_bytes(), plain.data().memory_bytes());
            check_buffers(tile.data().as_ref());
        }
        let listed = segments_of(grid.id());
        assert_eq!(listed.len(), 3);
        assert!(listed.iter().all(|segment| !segment.is_copy));
    }
    assert_eq!(before, plain.open_row_band(0).unwrap());
    let id = grid.id();
    drop(grid);
    let started = Instant::now();
    while !segments_of(id).is_empty() {
        assert!(started.elapsed().as_secs() < 5);
        std::thread::yield_now();
    }
}

#[test]
fn copies_of_lent_tiles_have_no_more_bytes_than_they_may() {
    let mut owner = Other::start("lend", "");
    let handles: Vec<Handle> = [owner.line(), owner.line()]
        .map(|line| read_handle(&line))
        .into();
    assert_eq!(open(&handles[0]).unwrap().num_rows(), 2);
    let error = open(&handles[1]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ResourcesExhausted, "{error}");
    assert!(error.message().contains("may have 40 bytes"), "{error}");
}

#[test]
fn another_process_reads_rows_and_columns_of_a_shared_grid_without_a_copy_of_the_segment() {
    let grid = to_shared(&int_grid(&[100, 50], &[3, 1])).unwrap();
    let part = grid.slice(90..120).unwrap().select(&["c2", "c0"]).unwrap();
    let part = Arc::new(part);
    check_by_another("part", &part);
    let found = [grid.id(), part.id()].map(|id| segments_of(id).len());
    assert_eq!(found, [4, 0]);
}

#[test]
fn batches_without_rows_or_columns_are_shared() {
    let empty = int_grid(&[0, 2, 0], &[1, 1]);
    let shared = to_shared(&empty).unwrap();
    assert_eq!(
        shared.open_row_band(0).unwrap(),
        empty.open_row_band(0).unwrap()
    );
    assert_eq!(
        shared.open_row_band(1).unwrap(),
        empty.open_row_band(1).unwrap()
    );
    let schema = Arc::new(Schema::empty());
    let options = RecordBatchOptions::new().with_row_count(Some(5));
    let batch = RecordBatch::try_new_with_options(schema, vec![], &options).unwrap();
    let shared = PartitionGrid::try_from_batches(batch.schema(), &[batch]).unwrap();
    let shared = Arc::new(to_shared(&shared).unwrap());
    assert_eq!(shared.open_row_band(0).unwrap().num_rows(), 5);
    check_by_another("no_columns", &shared);
}

#[test]
fn a_tile_that_is_shared_already_stays_as_it_is() {
    let grid = to_shared(&int_grid(&[3, 2], &[1])).unwrap();
    let again = to_shared(&grid.slice(1..5).unwrap()).unwrap();
    let once_more = to_shared(&again).unwrap();
    for (one, other) in again.tiles().iter().zip(once_more.tiles()) {
        assert!(Arc::ptr_eq(one.data(), other.data()));
    }
}

#[test]
fn what_a_reader_has_open_stays_when_the_owner_is_killed() {
    let mut owner = Other::start("own", "");
    let handle = owner.line();
    let handle = read_handle(&handle);
    let (tile, region) = open_region(&handle).unwrap();
    assert_eq!((region.start(), region.shape()), (&[2, 0][..], &[3, 2][..]));
    let data: &dyn Any = tile.data().as_ref();
    assert_eq!(data.downcast_ref::<SharedTile>().unwrap().copied_bytes(), 0);
    assert!(
        Arc::ptr_eq(open(&handle).unwrap().data(), tile.data()),
        "mapped once"
    );
    let process = owner.id();
    let owned = |listed: Vec<partgrid::share::SharingProcess>| {
        let owner = listed.into_iter().find(|each| each.process == process);
        owner.and_then(|owner| owner.segments)
    };
    let segments = owned(sharing_processes().unwrap()).unwrap();
    let read = segments
        .iter()
        .find(|each| each.position == [1, 0])
        .unwrap();
    assert_eq!(read.readers, [std::process::id()]);
    let started = Instant::now();
    owner.child.kill().unwrap();
    owner.child.wait().unwrap();
    let expected = int_grid(&[2, 3], &[2]).open_row_band(1).unwrap();
    assert_eq!(tile.open().unwrap(), expected);
    let other = Handle {
        position: vec![0, 0],
        ..handle.clone()
    };
    let error = open(&other).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PartitionLost, "{error}");
    assert!(started.elapsed().as_secs() < 5);
    drop(tile);
    assert_eq!(open(&handle).unwrap_err().kind(), ErrorKind::PartitionLost);
    assert!(owned(sharing_processes().unwrap()).is_none());
}

#[test]
fn a_dropped_grid_is_lost_for_other_processes_too() {
    let mut owner = Other::start("own", "");
    let handle = read_handle(&owner.line());
    owner.say("drop");
    assert_eq!(owner.line(), "dropped");
    let error = open(&handle).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PartitionLost);
    assert!(error.message().contains("the grid was dropped"), "{error}");
    assert_eq!(error.context("position"), Some("(1, 0)"));
    let outside = Handle {
        position: vec![7],
        ..handle
    };
    assert_eq!(open(&outside).unwrap_err().kind(), ErrorKind::PartitionLost);
}

#[test]
fn an_attached_grid_opens_its_tiles_as_they_are_read_and_hands_out_the_handles_of_their_owner() {
    let mut owner = Other::start("own", "");
    let first = read_handle(&owner.line());
    let plain = int_grid(&[2, 3], &[2]);
    let axes = [plain.rows().clone(), plain.columns().clone()];
    let of = |row_band| Handle {
        position: vec![row_band, 0],
        ..first.clone()
    };
    let parts = vec![(of(0), 10), (of(1), 20)];
    let attached = || {
        let (schema, axes, parts) = (plain.schema().clone(), axes.clone(), parts.clone());
        attach(first.grid, schema, axes, RowOrder::default(), parts)
    };
    let grid = attached().unwrap();
    assert!(
        Arc::ptr_eq(&grid, &attached().unwrap()),
        "one grid for one id"
    );
    assert_eq!((grid.id(), grid.memory_bytes()), (first.grid, 30));
    let data: &dyn Any = grid.tiles()[0].data().as_ref();
    assert_eq!(data.downcast_ref::<RemoteTile>().unwrap().handle(), &of(0));
    assert_eq!(
        grid.tiles()[0].locations(),
        std::slice::from_ref(&first.owner)
    );
    assert_eq!(
        grid.open_row_band(0).unwrap(),
        plain.open_row_band(0).unwrap()
    );
    assert_eq!(
        grid.tiles()[0].locations(),
        [Location::here(), first.owner.clone()]
    );
    assert_eq!(handle(&grid, &[1, 0]).unwrap(), of(1));
    let sum = |grid: &PartitionGrid| grid.tiles()[1].column_statistics(1).unwrap().clone();
    assert_eq!(sum(&grid).null_count, sum(&plain).null_count);
    // A part of it is this process's own.
    let part = Arc::new(grid.slice(1..4).unwrap());
    assert!(handle(&part, &[0, 0]).unwrap().owner.is_here());
    // Too few handles make no grid.
    let other = GridId::from_bits(1);
    let parts = vec![(of(0), 10)];
    let missing = attach(
        other,
        plain.schema().clone(),
        axes.clone(),
        RowOrder::default(),
        parts,
    );
    assert_eq!(missing.unwrap_err().kind(), ErrorKind::InvalidArgument);
    let wrong = [Axis::try_from_lengths([4, 1]).unwrap(), axes[1].clone()];
    let parts = vec![(of(0), 10), (of(1), 20)];
    let wrong = attach(
        other,
        plain.schema().clone(),
        wrong,
        RowOrder::default(),
        parts,
    )
    .unwrap();
    let error = wrong.open_row_band(0).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidData, "{error}");
}

#[test]
fn many_threads_open_one_tile_once() {
    let mut owner = Other::start("own", "");
    let handle = read_handle(&owner.line());
    std::thread::scope(|scope| {
        let opening: Vec<_> = (0..16)
            .map(|_| scope.spawn(|| open(&handle).unwrap()))
            .collect();
        let tiles: Vec<_> = opening
            .into_iter()
            .map(|each| each.join().unwrap())
            .collect();
        assert!(
            tiles
                .iter()
                .all(|tile| Arc::ptr_eq(tile.data(), tiles[0].data()))
        );
    });
}

/// What the other process does; nothing when this binary runs tests.
#[test]
fn the_other_process() {
    let Ok(task) = std::env::var(TASK) else {
        return;
    };
    let (task, text) = task.split_once('\n').unwrap();
    match task {
        "own" => own_until_told(),
        "lend" => lend_little(),
        "every_type" => compare(text, &every_type()),
        "no_columns" => {
            let tile = open(&read_handle(text)).unwrap();
            assert_eq!(
                (tile.num_rows(), tile.open().unwrap().num_columns()),
                (5, 0)
            );
        }
        "part" => {
            let grid = int_grid(&[100, 50], &[3, 1]);
            compare(
                text,
                &grid.slice(90..120).unwrap().select(&["c2", "c0"]).unwrap(),
            );
        }
        other => panic!("no task {other}"),
    }
    println!("REPORT good");
}

/// The second tile of three rows of a grid in private memory.
fn own_until_told() {
    let grid = Arc::new(int_grid(&[2, 3], &[2]));
    serve().unwrap();
    let mut handles = handles(&grid).unwrap();
    println!("REPORT {}", written(&handles.nth(1).unwrap()));
    drop(handles);
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    drop(grid);
    println!("REPORT dropped");
    std::io::stdin().read_line(&mut line).unwrap();
}

/// Two tiles of which the second one is too large to be lent.
fn lend_little() {
    let grid = Arc::new(int_grid(&[2, 3], &[2]));
    lend(&grid, 40);
    serve().unwrap();
    for handle in handles(&grid).unwrap() {
        println!("REPORT {}", written(&handle));
    }
    std::io::stdin().read_line(&mut String::new()).unwrap();
}

fn compare(handles: &str, expected: &PartitionGrid) {
    for (line, wanted) in handles.lines().zip(expected.tiles()) {
        let handle = read_handle(line);
        let (tile, region) = open_region(&handle).unwrap();
        assert_eq!(
            region,
            expected.geometry().region(&handle.position).unwrap()
        );
        let batch = tile.open().unwrap();
        assert_eq!(batch, wanted.open().unwrap(), "{line}");
        assert_eq!(batch.schema(), wanted.data().schema(), "{line}");
        for (found, wanted) in batch.columns().iter().zip(wanted.open().unwrap().columns()) {
            found.to_data().validate_full().unwrap();
            assert_eq!(found.data_type(), wanted.data_type());
        }
        assert_eq!(tile.locations(), [Location::here(), handle.owner.clone()]);
        assert_eq!(
            tile.data().memory_bytes(),
            wanted.data().memory_bytes(),
            "{line}"
        );
        check_in_place(tile.data().as_ref());
    }
    assert_eq!(handles.lines().count(), expected.tiles().len());
}

/// As [`check_buffers`], and nothing was copied.
fn check_in_place(data: &dyn TileData) {
    let shared: &dyn Any = data;
    let shared = shared.downcast_ref::<SharedTile>().unwrap();
    assert_eq!(shared.copied_bytes(), 0);
    check_buffers(data);
}

/// All buffers lie in read-only maps of sealed memory.
fn check_buffers(data: &dyn TileData) {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let lines = maps.lines().filter(|line| line.contains("memfd:partgrid"));
    let maps: Vec<(usize, usize)> = lines
        .map(|line| {
            let mut fields = line.split_whitespace();
            let (start, stop) = fields.next().unwrap().split_once('-').unwrap();
            assert_eq!(fields.next(), Some("r--s"), "{line}");
            let address = |text| usize::from_str_radix(text, 16).unwrap();
            (address(start), address(stop))
        })
        .collect();
    for (column, field) in data
        .open()
        .unwrap()
        .columns()
        .iter()
        .zip(data.schema().fields())
    {
        for (address, length) in buffers(&column.to_data()) {
            let within = maps
                .iter()
                .any(|(start, stop)| *start <= address && address + length <= *stop);
            assert!(within, "{length} bytes of {field}");
        }
    }
}

fn buffers(data: &ArrayData) -> Vec<(usize, usize)> {
    let validity = data.nulls().map(|nulls| nulls.buffer());
    let own = data.buffers().iter().chain(validity);
    let own = own.filter(|buffer| !buffer.is_empty());
    let mut found: Vec<(usize, usize)> = own
        .map(|buffer| (buffer.as_ptr().addr(), buffer.len()))
        .collect();
    data.child_data()
        .iter()
        .for_each(|child| found.extend(buffers(child)));
    found
}

/// Three row bands of every type, the last one a slice, with metadata of fields and schema, and two column bands.
fn every_type() -> PartitionGrid {
    let columns = column_of_every_type();
    let note = |text: &str| HashMap::from([("note".to_owned(), text.to_owned())]);
    let fields = columns.iter().map(|(name, column)| {
        let field = Field::new(*name, column.data_type().clone(), true);
        match column.data_type() {
            DataType::Int32 => field.with_metadata(note("of a field")),
            _ => field,
        }
    });
    let schema = Schema::new(fields.collect::<Vec<_>>()).with_metadata(note("of the schema"));
    let arrays = columns.into_iter().map(|(_, column)| column).collect();
    let batch = RecordBatch::try_new(Arc::new(schema), arrays).unwrap();
    let batches = [batch.clone(), batch.slice(0, 0), batch.slice(2, 4)];
    PartitionGrid::try_from_batches(batch.schema(), &batches).unwrap()
}

/// The segments that this process has for a grid.
fn segments_of(grid: GridId) -> Vec<SharedSegment> {
    let own = sharing_processes().unwrap().into_iter();
    let mut own = own.filter(|each| each.process == std::process::id());
    let segments = own.next().and_then(|own| own.segments).unwrap_or_default();
    segments
        .into_iter()
        .filter(|each| each.grid == grid)
        .collect()
}

fn check_by_another(task: &str, grid: &Arc<PartitionGrid>) {
    serve().unwrap();
    let lines: Vec<String> = handles(grid).unwrap().map(|each| written(&each)).collect();
    let mut other = Other::start(task, &lines.join("\n"));
    assert_eq!(other.line(), "good");
}
