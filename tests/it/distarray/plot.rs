//! Pictures of plans: every number in them is one of the plan.

use partgrid::distarray::redistribute::Plan;
use partgrid::distarray::{Distribution, Map};
use partgrid::grid::Axis;
use proptest::prelude::*;

use super::redistribute::pair;

fn blocks(cuts: &[&[u64]]) -> Distribution {
    let maps = cuts
        .iter()
        .map(|cuts| Map::block(&Axis::try_new(cuts.to_vec()).unwrap()));
    Distribution::try_new(maps.collect()).unwrap()
}

fn example() -> Plan {
    let from = blocks(&[&[0, 3, 5], &[0, 5, 9]]);
    Plan::try_new(&from, &blocks(&[&[0, 1, 5], &[0, 2, 9]])).unwrap()
}

/// Ranges of ranks of both sides, and the elements between them, as the picture tells them.
fn cells(svg: &str) -> Vec<([std::ops::Range<usize>; 2], u64)> {
    let ranks = |text: &str| match text.split_once("..") {
        Some((first, stop)) => first.parse().unwrap()..stop.parse().unwrap(),
        None => text.parse().unwrap()..text.parse::<usize>().unwrap() + 1,
    };
    let titles = svg.lines().filter(|line| line.contains("fill-opacity"));
    titles
        .map(|line| {
            let title = line.split("<title>").nth(1).unwrap();
            let title = title.split(" element").next().unwrap();
            let (sides, count) = title.split_once(": ").unwrap();
            let (from, to) = sides.split_once(" to ").unwrap();
            let count = count.replace(',', "").parse().unwrap();
            ([ranks(from), ranks(to)], count)
        })
        .collect()
}

#[test]
fn the_table_shows_who_sends_how_much_to_whom() {
    let lines = [
        "4 ranks to 4 ranks, 27 of 45 elements in 5 messages",
        "from \\ to  0  1  2  3",
        "        0  2  3  4  6",
        "        1  ·  4  ·  8",
        "        2  ·  ·  4  6",
        "        3  ·  ·  ·  8",
    ];
    assert_eq!(example().table(), lines.join("\n"));
}

#[test]
fn the_picture_tells_what_stays_from_what_is_sent() {
    let svg = example().plot();
    assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>"));
    let cell = |from: usize, to: usize| {
        let title = format!("<title>{from} to {to}: ");
        svg.lines().find(|line| line.contains(&title)).unwrap()
    };
    assert!(cell(0, 0).contains("#e69f00") && cell(0, 0).contains(": 2 elements"));
    assert!(cell(0, 1).contains("#0072b2") && cell(0, 1).contains(": 3 elements"));
    assert!(cell(3, 3).contains("fill-opacity=\"1.00\""));
    assert!(cell(1, 0).contains("fill-opacity=\"0.00\""));
    assert!(!svg.contains("bins of ranks"));
}

#[test]
fn many_ranks_are_drawn_in_bins_without_a_look_at_each() {
    let side = |map: Map| Distribution::try_new(vec![map; 2]).unwrap();
    let from = side(Map::block(&Axis::try_even(100_000, 1_000).unwrap()));
    let to = side(Map::try_cyclic(100_000, 1_000, 7).unwrap());
    let plan = Plan::try_new(&from, &to).unwrap();
    let svg = plan.plot();
    assert!(
        svg.contains("drawn as 40 x 40 bins of ranks"),
        "{}",
        &svg[..600]
    );
    let cells = cells(&svg);
    assert_eq!(cells.len(), 1_600);
    assert_eq!(cells[0].0, [0..25_000, 0..25_000]);
    assert_eq!(
        cells.iter().map(|(_, count)| count).sum::<u64>(),
        plan.num_elements()
    );
    let table = plan.table();
    assert_eq!(table.lines().count(), 14);
    assert!(
        table
            .lines()
            .last()
            .unwrap()
            .trim_start()
            .starts_with("916000..1000000"),
        "{table}"
    );
}

proptest! {
    #[test]
    fn cells_are_sums_of_counts((from, to) in pair()) {
        let plan = Plan::try_new(&from, &to).unwrap();
        let counts = plan.counts().unwrap();
        let mut seen = vec![vec![false; to.num_ranks()]; from.num_ranks()];
        for ([rows, columns], count) in cells(&plan.plot()) {
            prop_assert!(!rows.is_empty() && !columns.is_empty());
            let sum: u64 = counts[rows.clone()].iter().flat_map(|row| &row[columns.clone()]).sum();
            prop_assert_eq!(sum, count);
            for row in &mut seen[rows] {
                for cell in &mut row[columns.clone()] {
                    prop_assert!(!std::mem::replace(cell, true), "a cell is drawn twice");
                }
            }
        }
        prop_assert!(seen.iter().flatten().all(|cell| *cell));
    }
}
