//! How fast global indices become ranks and local indices, in lookups; plans of redistribution are made, in pairs of ranks; and carried out, in bytes, beside a plain copy of the same bytes.
#![allow(
    clippy::unwrap_used,
    clippy::allow_attributes,
    missing_docs,
    reason = "a benchmark may fail by panicking"
)]

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use partgrid::distarray::redistribute::{Layout, Plan, Source, Target};
use partgrid::distarray::{Distribution, Map, Place};
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

fn block(size: u64, ranks: usize) -> Map {
    Map::block(&Axis::try_even(size, ranks).unwrap())
}

fn cyclic(size: u64, ranks: usize, block_size: u64) -> Map {
    Map::try_cyclic(size, ranks, block_size).unwrap()
}

fn pair<const N: usize>(from: [Map; N], to: [Map; N]) -> [Distribution; 2] {
    [from, to].map(|maps| Distribution::try_new(maps.to_vec()).unwrap())
}

fn plans(criterion: &mut Criterion) {
    let size = 10_000_000;
    let (blocks, dealt) = (block(size, 1_000), cyclic(size, 1_000, 64));
    let cases = [
        (
            "1,000 blocks to 1,000 block-cyclic",
            pair([blocks.clone()], [dealt.clone()]),
        ),
        (
            "1,000 x 1,000 blocks to block-cyclic",
            pair([blocks.clone(), blocks.clone()], [dealt.clone(), dealt]),
        ),
        (
            "1,000 blocks to 1,013 blocks",
            pair([blocks], [block(size, 1_013)]),
        ),
        (
            "1,000 cyclic to 1,001 cyclic",
            pair([cyclic(size, 1_000, 1)], [cyclic(size, 1_001, 1)]),
        ),
    ];
    let mut group = criterion.benchmark_group("plan of redistribution");
    group.sample_size(10);
    for (name, [from, to]) in cases {
        let transfers = Plan::try_new(&from, &to).unwrap().num_transfers();
        group.throughput(Throughput::Elements(transfers));
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                let plan = Plan::try_new(black_box(&from), black_box(&to)).unwrap();
                black_box(plan.messages())
            });
        });
    }
    group.finish();
}

/// Doubles along one side of a square, 302 MB in all.
const SIDE: u64 = 6_144;
/// As many in one dimension.
const LINE: u64 = SIDE * SIDE;

fn moves() -> Vec<(&'static str, [Distribution; 2])> {
    let whole = |ranks: usize| block(SIDE, ranks);
    vec![
        (
            "4 blocks to 7 blocks",
            pair([block(LINE, 4)], [block(LINE, 7)]),
        ),
        (
            "4 x 1 blocks to 1 x 4 blocks",
            pair([whole(4), whole(1)], [whole(1), whole(4)]),
        ),
        (
            "64 x 1 blocks to 1 x 64 blocks",
            pair([whole(64), whole(1)], [whole(1), whole(64)]),
        ),
        (
            "4 blocks to 7 block-cyclic of 64",
            pair([block(LINE, 4)], [cyclic(LINE, 7, 64)]),
        ),
        (
            "4 blocks to 7 cyclic",
            pair([block(LINE, 4)], [cyclic(LINE, 7, 1)]),
        ),
    ]
}

fn copies(criterion: &mut Criterion) {
    let num_bytes = usize::try_from(LINE * 8).unwrap();
    let mut group = criterion.benchmark_group("redistribution");
    group
        .sample_size(15)
        .measurement_time(Duration::from_secs(3));
    group.throughput(Throughput::Bytes(num_bytes as u64));
    let (source, mut target) = (vec![1_u8; num_bytes], vec![2_u8; num_bytes]);
    group.bench_function("copy_from_slice", |bencher| {
        bencher.iter(|| {
            target.copy_from_slice(black_box(&source));
            black_box(target.as_slice());
        });
    });
    group.bench_function("copy_from_slice to new memory", |bencher| {
        bencher.iter(|| black_box(source.to_vec()));
    });
    drop((source, target));
    for (name, [from, to]) in moves() {
        let plan = Plan::try_new(&from, &to).unwrap();
        let (sources, mut targets) = (sections(&from), sections(&to));
        let sources: Vec<Source> = sources
            .iter()
            .map(|(bytes, layout)| Source {
                bytes,
                layout: layout.clone(),
            })
            .collect();
        group.bench_function(name, |bencher| {
            let views = targets.iter_mut().map(|(bytes, layout)| Target {
                bytes,
                layout: layout.clone(),
            });
            let mut views: Vec<Target> = views.collect();
            bencher.iter(|| plan.execute_into(black_box(&sources), &mut views).unwrap());
        });
        drop(targets);
        group.bench_function(format!("{name}, new memory"), |bencher| {
            bencher.iter(|| black_box(plan.execute(black_box(&sources)).unwrap()));
        });
    }
    group.finish();
}

/// Sections of doubles in C order, all their memory touched.
fn sections(distribution: &Distribution) -> Vec<(Vec<u8>, Layout)> {
    let ranks = 0..distribution.num_ranks();
    let section = |rank| {
        let shape = distribution.local_shape(rank).unwrap();
        let shape = shape.iter().map(|len| usize::try_from(*len).unwrap());
        let layout = Layout::try_c_order(&shape.collect::<Vec<_>>(), 8).unwrap();
        (vec![1_u8; layout.num_bytes()], layout)
    };
    ranks.map(section).collect()
}

/// Different indices below the size in an order that no cache foresees.
fn scattered(size: u64, count: usize) -> Vec<i64> {
    let indices = (0..count as u64).map(|place| place * 700_001 % size);
    indices.map(|index| i64::try_from(index).unwrap()).collect()
}

criterion_group!(benches, lookups, plans, copies);
criterion_main!(benches);
