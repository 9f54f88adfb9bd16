//! How fast queries read a grid, in rows of the grid.
#![allow(
    clippy::unwrap_used,
    clippy::allow_attributes,
    missing_docs,
    reason = "a benchmark may fail by panicking"
)]

use std::path::Path;
use std::sync::Arc;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use partgrid::load::{LoadOptions, load};
use partgrid::query::{Session, SessionOptions};

const QUERIES: [(&str, &str); 5] = [
    (
        "filter that keeps all rows",
        "SELECT count(*) FROM f WHERE distance >= 0",
    ),
    ("sum of one column", "SELECT sum(distance) FROM f"),
    (
        "one month of twelve",
        "SELECT sum(distance) FROM f WHERE month = 7",
    ),
    (
        "group by",
        "SELECT carrier, dest, avg(dep_delay) FROM f GROUP BY carrier, dest",
    ),
    ("slices of every column", "SELECT * FROM f"),
];

fn scan(criterion: &mut Criterion) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/flights");
    let source = [folder.to_str().unwrap().to_owned()];
    let grid = Arc::new(
        runtime
            .block_on(load(&source, &LoadOptions::default()))
            .unwrap(),
    );
    let session = Session::try_new(&SessionOptions::default()).unwrap();
    session.register("f", Arc::clone(&grid)).unwrap();
    let mut group = criterion.benchmark_group("scan, rows of the grid");
    group
        .sample_size(20)
        .throughput(Throughput::Elements(grid.num_rows()));
    for (name, query) in QUERIES {
        let query = runtime.block_on(session.sql(query)).unwrap();
        group.bench_function(name, |bencher| {
            bencher.iter(|| runtime.block_on(query.collect()).unwrap());
        });
    }
    group.finish();
}

criterion_group!(benches, scan);
criterion_main!(benches);
