//! How fast Parquet files become a grid, in bytes of the files and in rows.
#![allow(
    clippy::unwrap_used,
    clippy::allow_attributes,
    missing_docs,
    reason = "a benchmark may fail by panicking"
)]

use std::hint::black_box;
use std::path::{Path, PathBuf};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use partgrid::load::{LoadOptions, load};

fn flights() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("data/flights")
}

fn file_bytes(path: &Path) -> u64 {
    if path.is_file() {
        return path.metadata().unwrap().len();
    }
    let entries = std::fs::read_dir(path).unwrap();
    entries
        .map(|entry| file_bytes(&entry.unwrap().path()))
        .sum()
}

fn all_columns(criterion: &mut Criterion) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let source = [flights().to_str().unwrap().to_owned()];
    let rows = runtime
        .block_on(load(&source, &LoadOptions::default()))
        .unwrap()
        .num_rows();
    let throughputs = [
        (
            "bytes of the files",
            Throughput::Bytes(file_bytes(&flights())),
        ),
        ("rows", Throughput::Elements(rows)),
    ];
    for (unit, throughput) in throughputs {
        let mut group = criterion.benchmark_group(format!("load, {unit}"));
        group.sample_size(10).throughput(throughput);
        for (name, columns) in [
            ("all columns", None),
            ("two columns", Some(["carrier", "distance"])),
        ] {
            let mut options = LoadOptions::default();
            if let Some(columns) = columns {
                options = options.with_columns(columns.map(str::to_owned).to_vec());
            }
            group.bench_function(name, |bencher| {
                bencher.iter(|| {
                    runtime
                        .block_on(load(black_box(&source), &options))
                        .unwrap()
                });
            });
        }
        group.finish();
    }
}

criterion_group!(benches, all_columns);
criterion_main!(benches);
