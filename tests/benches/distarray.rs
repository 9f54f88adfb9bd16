//! How fast global indices become ranks and local indices, in lookups.
#![allow(
    clippy::unwrap_used,
    clippy::allow_attributes,
    missing_docs,
    reason = "a benchmark may fail by panicking"
)]

use std::hint::black_box;
use std::sync::Arc;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use partgrid::distarray::{Map, Place};
use partgrid::grid::Axis;

/// Fits the first-level cache together with its places.
const COUNT: usize = 1_024;
const SIZE: u64 = 1_000_003;
const RANKS: usize = 48;

fn lookups(criterion: &mut Criterion) {
    let lengths = (0..RANKS as u64).map(|rank| 20_000 + rank * 37);
    let irregular = Axis::try_from_lengths(lengths).unwrap();
    let even = Axis::try_even(SIZE, RANKS).unwrap();
    let padding: Vec<[u64; 2]> = (0..RANKS).map(|_| [2, 2]).collect();
    let order = scattered(SIZE, usize::try_from(SIZE).unwrap());
    let shares: Vec<Arc<[i64]>> = order
        .chunks(usize::try_from(SIZE).unwrap() / RANKS + 1)
        .map(Arc::from)
        .collect();
    let maps = [
        ("block, even", Map::block(&even)),
        (
            "block, padded",
            Map::try_padded(&even, &padding, false).unwrap(),
        ),
        ("block, irregular", Map::block(&irregular)),
        ("cyclic", Map::try_cyclic(SIZE, RANKS, 1).unwrap()),
        ("block-cyclic", Map::try_cyclic(SIZE, RANKS, 60).unwrap()),
        (
            "unstructured",
            Map::try_unstructured(SIZE, shares, true).unwrap(),
        ),
    ];
    let mut group = criterion.benchmark_group("global index to rank and local index");
    group.throughput(Throughput::Elements(COUNT as u64));
    for (name, map) in maps {
        let indices = scattered(map.size().min(SIZE), COUNT);
        let mut places: Vec<Place> = Vec::new();
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                map.locate_all(black_box(&indices), &mut places).unwrap();
                black_box(places.as_slice());
            });
        });
    }
    group.finish();
}

/// Different indices below the size in an order that no cache foresees.
fn scattered(size: u64, count: usize) -> Vec<i64> {
    let indices = (0..count as u64).map(|place| place * 700_001 % size);
    indices.map(|index| i64::try_from(index).unwrap()).collect()
}

criterion_group!(benches, lookups);
criterion_main!(benches);
