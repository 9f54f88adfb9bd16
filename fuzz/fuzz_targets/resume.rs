//! Any bytes in place of a finished tile in the folder of an interrupted load: the load notices and reads the source again.
#![no_main]

use std::fs;
use std::path::PathBuf;
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use partgrid::grid::PartitionGrid;
use partgrid::load::{LoadOptions, load};
use tempfile::TempDir;
use tokio::runtime::Runtime;

const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../data/airlines.parquet");

/// A load with one finished tile.
struct Load {
    runtime: Runtime,
    folder: TempDir,
    tile: PathBuf,
    good: PartitionGrid,
    bytes: Vec<u8>,
}

static LOAD: LazyLock<Load> = LazyLock::new(|| {
    let runtime = Runtime::new().expect("a runtime");
    let folder = tempfile::tempdir().expect("a folder");
    let good = run(&runtime, &folder);
    let names = fs::read_dir(folder.path()).expect("the folder");
    let paths = names.map(|entry| entry.expect("an entry").path());
    let tile = paths
        .into_iter()
        .find(|path| path.extension().is_some_and(|end| end == "tile"))
        .expect("one tile");
    let bytes = fs::read(&tile).expect("the tile");
    Load {
        runtime,
        folder,
        tile,
        good,
        bytes,
    }
});

fn run(runtime: &Runtime, folder: &TempDir) -> PartitionGrid {
    let options = LoadOptions::default().with_resume(folder.path().to_owned());
    let source = [SOURCE.to_owned()];
    runtime.block_on(load(&source, &options)).expect("the source is good")
}

fuzz_target!(
    init: std::panic::set_hook(Box::new(|_| {})),
    |bytes: &[u8]| {
        // The fuzzer's bytes over those of the tile, from a place that they choose.
        let mut tile = LOAD.bytes.clone();
        if let [low, high, rest @ ..] = bytes {
            let place = usize::from(u16::from_le_bytes([*low, *high])) % tile.len();
            let end = tile.len().min(place + rest.len());
            tile.truncate(end.max(tile.len() * usize::from(rest.len() % 3 != 0)));
            for (old, new) in tile.iter_mut().skip(place).zip(rest) {
                *old = *new;
            }
        }
        fs::write(&LOAD.tile, &tile).expect("the tile is written");
        let grid = run(&LOAD.runtime, &LOAD.folder);
        let batches = |grid: &PartitionGrid| grid.open_row_band(0).expect("one tile");
        assert_eq!(batches(&grid), batches(&LOAD.good));
    }
);
