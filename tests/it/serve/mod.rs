//! The server through its own client, and through that of arrow-flight.

mod catalog;
mod clients;
mod hostile;
mod panics;
mod types;

use std::sync::Arc;

use arrow::array::{Int64Array, RecordBatch, StringArray};
use partgrid::grid::PartitionGrid;
use partgrid::serve::{Server, ServerOptions};

/// A grid of three tiles of a number and a text.
fn numbers() -> Arc<PartitionGrid> {
    let batches: Vec<RecordBatch> = (0..3)
        .map(|tile| {
            let numbers = Int64Array::from_iter_values(tile * 10..tile * 10 + 10);
            let names = StringArray::from_iter_values((0..10).map(|row| format!("n{tile}{row}")));
            RecordBatch::try_from_iter([
                ("n", Arc::new(numbers) as _),
                ("name", Arc::new(names) as _),
            ])
            .unwrap()
        })
        .collect();
    Arc::new(PartitionGrid::try_from_batches(batches[0].schema(), &batches).unwrap())
}

fn options() -> ServerOptions {
    Server::builder()
        .with_http_address(None)
        .with_grid("numbers", numbers())
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
}
