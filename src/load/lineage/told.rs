//! What other processes make of the lineage of tiles that they are told: tests.
//!
//! Comes in: lazy grids of this process. Goes out: failures where tiles in another process would not be the same, or not be refused. Never here: what runs outside of tests.

use prost::Message;

use super::{Lineage, LineagePlace, LineageReader, Lineages, is_below, source_place, task_place};
use crate::error::ErrorKind;
use crate::grid::{PartitionGrid, SortColumn};
use crate::load::{LoadOptions, StringType, load};

const FLIGHTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/data/flights");

async fn flights() -> PartitionGrid {
    let options = LoadOptions::default()
        .with_lazy(true)
        .with_tile_rows(5_000)
        .with_string_type(StringType::StringView);
    load(&[FLIGHTS.to_owned()], &options).await.unwrap()
}

/// A lineage as another process gets it.
fn sent(lineages: &Lineages) -> Lineage {
    let [lineage] = lineages.all.as_slice() else {
        panic!("one grid has one lineage");
    };
    Lineage::decode(lineage.encode_to_vec().as_slice()).unwrap()
}

#[tokio::test]
async fn tiles_of_other_processes_are_the_same() {
    let grid = flights().await;
    let mut lineages = Lineages::default();
    let places: Vec<LineagePlace> = grid
        .tiles()
        .iter()
        .map(|tile| lineages.place(tile).unwrap().unwrap())
        .collect();
    let lineage = sent(&lineages);
    let allowed = [FLIGHTS.to_owned()];
    let mut reader = LineageReader::try_new(&lineage, &allowed).unwrap();
    for (tile, place) in grid.tiles().iter().zip(places) {
        let schema = tile.data().schema();
        let other = reader.tile(place, &schema, 7).unwrap();
        assert_eq!(
            (other.num_rows(), other.data().memory_bytes()),
            (tile.num_rows(), 7)
        );
        let columns: Vec<usize> = (0..schema.fields().len()).collect();
        let expected = tile.data().fetch(&columns).await.unwrap();
        assert_eq!(other.data().fetch(&columns).await.unwrap(), expected);
    }
}

#[tokio::test]
async fn who_was_told_of_tiles_tells_the_same() {
    let grid = flights().await;
    let mut lineages = Lineages::default();
    let mut place = |tile| lineages.place(tile).unwrap().unwrap();
    let places: Vec<LineagePlace> = grid.tiles().iter().map(&mut place).collect();
    let lineage = sent(&lineages);
    let allowed = [FLIGHTS.to_owned()];
    let mut reader = LineageReader::try_new(&lineage, &allowed).unwrap();
    let mut again = Lineages::default();
    for (tile, place) in grid.tiles().iter().zip(places) {
        let other = reader.tile(place, &tile.data().schema(), 7).unwrap();
        assert_eq!(again.place(&other).unwrap(), Some(place));
        assert_eq!(task_place(&other), task_place(tile));
        assert!(is_below(&other, &allowed) && !is_below(&other, &["/nowhere".to_owned()]));
    }
    assert_eq!(sent(&again), lineage);
}

#[tokio::test]
async fn tiles_in_memory_are_told_as_what_they_were_read_from() {
    let options = LoadOptions::default().with_tile_rows(5_000);
    let remembering = options.clone().with_files_remembered(true);
    let grid = load(&[FLIGHTS.to_owned()], &remembering).await.unwrap();
    let mut lineages = Lineages::default();
    let mut place = |tile| lineages.place(tile).unwrap().unwrap();
    let places: Vec<LineagePlace> = grid.tiles().iter().map(&mut place).collect();
    let lineage = sent(&lineages);
    let allowed = [FLIGHTS.to_owned()];
    let mut reader = LineageReader::try_new(&lineage, &allowed).unwrap();
    for (tile, place) in grid.tiles().iter().zip(places) {
        // It is in memory, so that it matters who reads it.
        assert!(!tile.data().is_lazy() && task_place(tile).is_none());
        assert!(source_place(tile).is_some() && is_below(tile, &allowed));
        let other = reader.tile(place, &tile.data().schema(), 7).unwrap();
        let all: Vec<usize> = (0..tile.data().schema().fields().len()).collect();
        assert_eq!(
            other.data().fetch(&all).await.unwrap(),
            tile.open().unwrap()
        );
    }
    // Rows that lie otherwise than in the files are not told.
    let column = SortColumn {
        name: "distance".to_owned(),
        descending: false,
    };
    for other in [
        options.clone(),
        remembering.clone().with_sort_by(vec![column]),
    ] {
        let grid = load(&[FLIGHTS.to_owned()], &other).await.unwrap();
        assert!(grid.tiles().iter().all(|tile| source_place(tile).is_none()));
    }
}

#[tokio::test]
async fn files_elsewhere_and_messages_that_do_not_fit_are_refused() {
    let grid = flights().await;
    let tile = grid.tiles().first().unwrap();
    let mut lineages = Lineages::default();
    let place = lineages.place(tile).unwrap().unwrap();
    let lineage = sent(&lineages);
    let schema = tile.data().schema();
    let refused = |lineage: &Lineage, allowed: &str, place: LineagePlace| {
        let allowed = [allowed.to_owned()];
        let mut reader = LineageReader::try_new(lineage, &allowed).unwrap();
        reader.tile(place, &schema, 7).unwrap_err().kind()
    };
    assert_eq!(
        refused(&lineage, "/nowhere", place),
        ErrorKind::PermissionDenied
    );
    let mut climbing = lineage.clone();
    climbing.files[0].path = format!("{FLIGHTS}/../../secret.parquet");
    assert_eq!(
        refused(&climbing, FLIGHTS, place),
        ErrorKind::PermissionDenied
    );
    let mut elsewhere = lineage.clone();
    elsewhere.files[0].store = Some("s3://other/".to_owned());
    assert_eq!(refused(&elsewhere, FLIGHTS, place), ErrorKind::InvalidData);
    for strange in [
        LineagePlace { file: 9, ..place },
        LineagePlace {
            task: 1 << 40,
            ..place
        },
        LineagePlace {
            first_column: 1,
            ..place
        },
        LineagePlace {
            first_column: u64::MAX,
            ..place
        },
    ] {
        assert_eq!(refused(&lineage, FLIGHTS, strange), ErrorKind::InvalidData);
    }
    let mut long = lineage.clone();
    long.files[0].tasks[0].num_rows = u64::MAX;
    let allowed = [FLIGHTS.to_owned()];
    let mut reader = LineageReader::try_new(&long, &allowed).unwrap();
    let tile = reader.tile(place, &schema, 7).unwrap();
    let error = tile.data().fetch(&[0]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidData, "{error}");
}
