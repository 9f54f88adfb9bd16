//! Pictures of distributions: every element is drawn where its rank has it.

use std::sync::Arc;

use partgrid::distarray::{Distribution, Halo, Map, Version};
use partgrid::grid::Axis;

fn one(map: Map) -> String {
    Distribution::try_new(vec![map]).unwrap().plot()
}

/// What the cells tell, and how dark they are.
fn cells(svg: &str) -> Vec<(String, String)> {
    let between = |line: &str, start: &str, stop: &str| {
        let rest = line.split_once(start).unwrap().1;
        rest.split_once(stop).unwrap().0.to_owned()
    };
    let rectangles = svg.lines().filter(|line| line.starts_with("<rect"));
    rectangles
        .map(|line| {
            (
                between(line, "<title>", "</title>"),
                between(line, "fill-opacity=\"", "\""),
            )
        })
        .collect()
}

#[test]
fn every_index_is_on_the_line_of_its_rank() {
    let lists: Vec<Arc<[i64]>> = vec![Arc::from([4, -1]), Arc::from([0, 2])];
    for (map, labels) in [
        (
            Map::try_cyclic(7, 3, 2).unwrap(),
            (0..7).collect::<Vec<i64>>(),
        ),
        (
            Map::block(&Axis::try_new(vec![0, 2, 2, 6]).unwrap()),
            (0..6).collect(),
        ),
        (
            Map::try_unstructured(4, lists, true).unwrap(),
            vec![-1, 0, 2, 4],
        ),
    ] {
        let expected = (0..map.num_ranks()).flat_map(|rank| {
            let map = &map;
            labels.iter().map(move |index| match map.locate(*index) {
                Some(place) if place.rank == rank => (
                    format!("{index}: rank {rank}, local {}", place.local),
                    "1".to_owned(),
                ),
                _ => (format!("{index}: not on rank {rank}"), "0".to_owned()),
            })
        });
        assert_eq!(cells(&one(map.clone())), expected.collect::<Vec<_>>());
    }
}

#[test]
fn padding_is_pale_and_the_boundary_dotted() {
    let halo = Halo {
        width: 1,
        boundary: [2, 0],
        periodic: false,
    };
    let map = Map::block(&Axis::try_even(6, 2).unwrap());
    let svg = one(map.try_with_halo(&halo, Version::V0_10).unwrap());
    let dark: Vec<String> = cells(&svg)
        .into_iter()
        .map(|(_, opacity)| opacity)
        .collect();
    assert_eq!(
        dark,
        [
            "1", "1", "1", "0.3", "0", "0", "0", "0", "0.3", "1", "1", "1"
        ]
    );
    assert_eq!(svg.matches("<circle").count(), 2);
    assert!(
        svg.contains("pale: communication padding") && svg.contains("dotted: boundary padding")
    );
}

#[test]
fn planes_tell_the_rank_of_every_element() {
    let maps = vec![
        Map::block(&Axis::try_even(3, 2).unwrap()),
        Map::try_cyclic(4, 2, 1).unwrap(),
        Map::block(&Axis::try_even(5, 5).unwrap()),
    ];
    let distribution = Distribution::try_new(maps).unwrap();
    let svg = distribution.plot();
    let expected = (0..3).flat_map(|row| {
        let distribution = &distribution;
        (0..4).map(move |column| {
            let (rank, local) = distribution.locate(&[row, column, 0]).unwrap();
            format!("({row}, {column}): rank {rank}, local {local:?}")
        })
    });
    let told: Vec<String> = cells(&svg).into_iter().map(|(title, _)| title).collect();
    assert_eq!(told, expected.collect::<Vec<_>>());
    assert!(svg.contains("3 x 4 x 5 elements on 20 ranks"));
    assert!(svg.contains("index 0 along the other dimensions"));
}

#[test]
fn large_arrays_are_drawn_to_scale_or_in_part_and_say_so() {
    let blocks = one(Map::block(
        &Axis::try_new(vec![0, 900_000, 1_000_000]).unwrap(),
    ));
    assert!(blocks.contains("2 blocks drawn to scale") && blocks.contains("width=\"432.0\""));
    let cyclic = one(Map::try_cyclic(1_000_000, 30, 1).unwrap());
    assert!(cyclic.contains("the first 48 of 1,000,000 indices"));
    assert!(cyclic.contains("the first 24 of 30 ranks"));
    assert!(cyclic.len() < 400_000);
    let point = Distribution::try_new(Vec::new()).unwrap().plot();
    assert_eq!(cells(&point).len(), 1);
}
