//! Any bytes under the name of a Parquet file: an error about the file or a grid whose tiles can be read. The first byte chooses how it is loaded.
#![no_main]

use std::sync::{Arc, LazyLock};

use arrow::array::{Int64Array, StringArray};
use libfuzzer_sys::fuzz_target;
use object_store::memory::InMemory;
use object_store::{ObjectStoreExt, path::Path};
use partgrid::error::ErrorKind;
use partgrid::grid::SortColumn;
use partgrid::load::{
    FilterCondition, FilterOperator, LoadOptions, SchemaEvolution, StringType, TileColumns, load,
};
use tokio::runtime::Runtime;

static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().expect("a runtime"));

/// More than any load of a file of the size that the fuzzer makes may use.
const MEMORY_LIMIT_BYTES: u64 = 256 << 20;

fuzz_target!(
    // The loader catches panics of the libraries that it feeds with foreign bytes; such a panic is no find. One that gets out of it is.
    init: std::panic::set_hook(Box::new(|_| {})),
    |bytes: &[u8]| {
        let Some((wish, file)) = bytes.split_first() else {
            return;
        };
        let store = Arc::new(InMemory::new());
        let path = Path::from("a.parquet");
        let result = RUNTIME.block_on(async {
            store.put(&path, file.to_vec().into()).await.expect("memory takes it");
            load(&["a.parquet".to_owned()], &options(*wish).with_store(store)).await
        });
        match result {
            Ok(grid) => {
                for tile in grid.tiles() {
                    let rows = tile.num_rows();
                    match tile.open() {
                        Ok(batch) => assert_eq!(batch.num_rows() as u64, rows),
                        Err(error) => expected(&error),
                    }
                }
            }
            Err(error) => expected(&error),
        }
    }
);

fn expected(error: &partgrid::error::Error) {
    if error.kind() == ErrorKind::Internal {
        eprintln!("an error of our own: {error}");
        std::process::abort();
    }
}

fn options(wish: u8) -> LoadOptions {
    let options = LoadOptions::default()
        .with_memory_limit_bytes(MEMORY_LIMIT_BYTES)
        .with_concurrency(1);
    let column = || "a".to_owned();
    let equals = |values: arrow::array::ArrayRef| FilterCondition {
        column: column(),
        operator: FilterOperator::Equal,
        values,
    };
    match wish % 9 {
        1 => options.with_columns(vec![column()]),
        2 => options.with_tile_rows(3).with_tile_columns(TileColumns::Count(1)),
        3 => options.with_filters(vec![vec![equals(Arc::new(Int64Array::from(vec![1])))]]),
        4 => options.with_filters(vec![vec![equals(Arc::new(StringArray::from(vec!["x"])))]]),
        5 => options.with_string_type(StringType::StringView),
        6 => options.with_schema_evolution(SchemaEvolution::Widen).with_dense(vec![vec![column()]]),
        7 => options.with_sort_by(vec![SortColumn {
            name: column(),
            descending: false,
        }]),
        _ => options,
    }
}
