//! The grid: axes, regions and geometry by their laws; building, views and statistics in the files below.

mod build;
mod cells;
mod numbers;
mod ranks;
mod statistics;
mod view;

use std::ops::Range;

use partgrid::error::ErrorKind;
use partgrid::grid::{Axis, Geometry, Region};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::support::allocated_bytes;

proptest! {
    #[test]
    fn each_index_lies_in_exactly_one_interval_and_comes_back(lengths in vec(0_u64..6, 1..12)) {
        let axis = Axis::try_from_lengths(lengths.clone()).unwrap();
        prop_assert_eq!(axis.extent(), lengths.iter().sum::<u64>());
        prop_assert_eq!(axis.intervals().map(|range| range.end - range.start).collect::<Vec<_>>(), lengths);
        for index in 0..axis.extent() {
            let holders = axis.intervals().filter(|range| range.contains(&index)).count();
            prop_assert_eq!(holders, 1);
            let (interval, local) = axis.locate(index).unwrap();
            prop_assert!(axis.interval(interval).unwrap().contains(&index));
            prop_assert_eq!(axis.global(interval, local), Some(index));
        }
        prop_assert_eq!(axis.locate(axis.extent()), None);
        prop_assert_eq!(axis.interval(axis.num_intervals()), None);
    }

    #[test]
    fn each_local_index_comes_back_and_none_lies_past_its_interval(lengths in vec(0_u64..6, 1..12)) {
        let axis = Axis::try_from_lengths(lengths.clone()).unwrap();
        for (interval, length) in lengths.iter().enumerate() {
            for local in 0..*length {
                let index = axis.global(interval, local).unwrap();
                prop_assert_eq!(axis.locate(index), Some((interval, local)));
            }
            prop_assert_eq!(axis.global(interval, *length), None);
            prop_assert_eq!(axis.global(interval, u64::MAX), None);
        }
    }

    #[test]
    fn overlapping_intervals_are_those_that_share_an_index(lengths in vec(0_u64..5, 1..10), start in 0_u64..40, len in 0_u64..40) {
        let axis = Axis::try_from_lengths(lengths).unwrap();
        let wanted = start..start + len;
        let found = axis.overlapping(wanted.clone());
        for (interval, range) in axis.intervals().enumerate() {
            let shares = range.clone().any(|index| wanted.contains(&index));
            prop_assert!(!shares || found.contains(&interval), "{interval} shares and is missing");
            let at_an_end = interval == found.start || interval + 1 == found.end;
            prop_assert!(!(found.contains(&interval) && at_an_end) || shares, "{interval} at an end shares nothing");
        }
    }

    #[test]
    fn even_axes_differ_by_at_most_one_and_sum_to_the_extent(extent in 0_u64..1000, count in 1_usize..40) {
        let axis = Axis::try_even(extent, count).unwrap();
        let lengths: Vec<u64> = axis.intervals().map(|range| range.end - range.start).collect();
        prop_assert_eq!((lengths.len(), lengths.iter().sum::<u64>()), (count, extent));
        prop_assert!(lengths[0] - lengths[count - 1] <= 1 && lengths.is_sorted_by(|a, b| a >= b));
    }

    #[test]
    fn positions_and_flat_indices_are_inverse_and_tiles_sum_to_the_whole(lengths in vec(vec(0_u64..4, 1..4), 0..4)) {
        let axes: Vec<Axis> = lengths.into_iter().map(|axis| Axis::try_from_lengths(axis).unwrap()).collect();
        let geometry = Geometry::try_new(axes).unwrap();
        let mut sum = 0;
        for (flat_index, position) in geometry.positions().enumerate() {
            prop_assert_eq!(geometry.flat_index(&position).unwrap(), flat_index);
            prop_assert_eq!(geometry.position(flat_index), Some(position.clone()));
            sum += geometry.region(&position).unwrap().num_elements();
        }
        prop_assert_eq!(geometry.positions().count(), geometry.num_tiles());
        prop_assert_eq!(geometry.position(geometry.num_tiles()), None);
        prop_assert_eq!(sum, geometry.shape().iter().product::<u64>());
    }

    #[test]
    fn the_tile_that_holds_an_element_is_the_one_whose_region_contains_it(lengths in vec(vec(0_u64..4, 1..4), 1..4), seed in any::<u64>()) {
        let axes: Vec<Axis> = lengths.into_iter().map(|axis| Axis::try_from_lengths(axis).unwrap()).collect();
        let geometry = Geometry::try_new(axes).unwrap();
        prop_assume!(geometry.shape().iter().all(|extent| *extent > 0));
        let indices: Vec<u64> = geometry.shape().iter().map(|extent| seed % extent).collect();
        let (position, local) = geometry.locate(&indices).unwrap();
        let element = Region::from_ranges(indices.iter().map(|index| *index..index + 1));
        let holders: Vec<Vec<usize>> = geometry.positions().filter(|at| geometry.region(at).unwrap().contains(&element)).collect();
        prop_assert_eq!(&holders, std::slice::from_ref(&position));
        let region = geometry.region(&position).unwrap();
        let global: Vec<u64> = region.start().iter().zip(&local).map(|(start, local)| start + local).collect();
        prop_assert_eq!(global, indices);
    }

    #[test]
    fn intersection_is_symmetric_and_holds_what_both_hold(left in region(), right in region()) {
        let shared = left.intersect(&right);
        prop_assert_eq!(&shared, &right.intersect(&left));
        let both = points(&left).into_iter().filter(|point| holds(&right, point)).count() as u64;
        prop_assert_eq!(shared.as_ref().map_or(0, Region::num_elements), both);
        if let Some(shared) = shared {
            prop_assert!(left.contains(&shared) && right.contains(&shared) && !shared.is_empty());
        }
        prop_assert_eq!(left.contains(&right), points(&right).iter().all(|point| holds(&left, point)));
        prop_assert!(left.contains(&left));
    }

    #[test]
    fn the_pieces_of_a_split_are_disjoint_and_sum_to_the_whole(whole in region(), dimension in 0_usize..2, at in 0_u64..16) {
        let range = whole.ranges().nth(dimension).unwrap();
        let inside = (range.start..=range.end).contains(&at);
        match whole.split(dimension, at) {
            Ok((left, right)) => {
                prop_assert!(inside);
                prop_assert_eq!(left.num_elements() + right.num_elements(), whole.num_elements());
                prop_assert_eq!(left.intersect(&right), None);
                prop_assert!(whole.contains(&left) && whole.contains(&right));
            }
            Err(error) => {
                prop_assert!(!inside);
                prop_assert_eq!(error.kind(), ErrorKind::InvalidArgument);
            }
        }
    }
}

#[test]
fn wrong_axes_are_refused_with_what_was_allowed() {
    let text = |cuts: &[u64]| Axis::try_new(cuts).unwrap_err().to_string();
    assert_eq!(
        text(&[0, 5, 3]),
        "cut points must be at least two, start at 0 and not decrease, got [0, 5, 3]"
    );
    assert_eq!(
        text(&[1, 5]),
        "cut points must be at least two, start at 0 and not decrease, got [1, 5]"
    );
    assert_eq!(
        text(&[0]),
        "cut points must be at least two, start at 0 and not decrease, got [0]"
    );
    assert!(text(&[]).ends_with("got []"));
    assert!(text(&(1..20).collect::<Vec<_>>()).ends_with("got [1, 2, 3, 4, 5, 6, 7, 8, …]"));
    let error = Axis::try_from_lengths([u64::MAX, 1]).unwrap_err();
    assert_eq!(
        error.message(),
        "interval lengths must add up to less than 2^64"
    );
    assert_eq!(
        Axis::try_even(5, 0).unwrap_err().message(),
        "an axis needs at least one interval, got 0"
    );
}

#[test]
fn wrong_regions_and_splits_are_refused() {
    let error = Region::try_new([1, 2], [3]).unwrap_err();
    assert!(error.message().ends_with("got [1, 2] and [3]"), "{error}");
    let error = Region::try_new([u64::MAX], [1]).unwrap_err();
    assert!(
        error
            .message()
            .starts_with("start + shape of a region must be less than 2^64"),
        "{error}"
    );
    let region = Region::try_new([2, 0], [3, 4]).unwrap();
    assert_eq!(
        region.split(2, 0).unwrap_err().message(),
        "a region of 2 dimensions has no dimension 2"
    );
    assert_eq!(
        region.split(0, 6).unwrap_err().message(),
        "a region can be split from 2 to 5 along dimension 0, got 6"
    );
    assert_eq!(region.to_string(), "[2..5, 0..4]");
    let huge = Region::try_new([0, 0], [u64::MAX, 3]).unwrap();
    assert_eq!(huge.num_elements(), u64::MAX);
}

#[test]
fn positions_and_indices_outside_are_not_found_with_the_size() {
    let geometry = Geometry::try_new([Axis::try_even(10, 3).unwrap(), Axis::uncut(2)]).unwrap();
    for position in [&[3, 0][..], &[0, 1], &[0], &[0, 0, 0]] {
        let error = geometry.region(position).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert!(
            error.message().ends_with("the grid has 3 x 1 tiles"),
            "{error}"
        );
    }
    assert_eq!(
        geometry.locate(&[10, 0]).unwrap_err().message(),
        "no element at [10, 0], the shape is [10, 2]"
    );
    assert_eq!(
        geometry.locate(&[1]).unwrap_err().kind(),
        ErrorKind::NotFound
    );
    let wide = Axis::try_even(1 << 33, 1 << 17).unwrap();
    let error = Geometry::try_new(vec![wide; 4]).unwrap_err();
    assert!(
        error
            .message()
            .starts_with("the number of tiles of a grid must fit"),
        "{error}"
    );
}

#[test]
fn a_geometry_of_a_million_tiles_costs_the_memory_of_its_cuts() {
    let (geometry, num_bytes) = allocated_bytes(|| {
        let axis = || Axis::try_even(1_000_000, 1_000).unwrap();
        Geometry::try_new([axis(), axis()]).unwrap()
    });
    assert_eq!(geometry.num_tiles(), 1_000_000);
    // 2 x 1,001 cuts of 8 bytes; growing the two lists asks for some of it twice.
    assert!((16_016..64_000).contains(&num_bytes), "{num_bytes}");
    let (_, num_bytes) = allocated_bytes(|| geometry.region(&[999, 999]).unwrap());
    assert!(num_bytes < 1_000, "{num_bytes}");
}

/// Regions of two dimensions within 0..14, empty ones too.
fn region() -> impl Strategy<Value = Region> {
    let range = || (0_u64..8, 0_u64..6).prop_map(|(start, len)| start..start + len);
    (range(), range()).prop_map(|(rows, columns)| Region::from_ranges([rows, columns]))
}

fn points(region: &Region) -> Vec<[u64; 2]> {
    let ranges: Vec<Range<u64>> = region.ranges().collect();
    let columns = ranges[1].clone();
    ranges[0]
        .clone()
        .flat_map(|row| columns.clone().map(move |column| [row, column]))
        .collect()
}

fn holds(region: &Region, point: &[u64; 2]) -> bool {
    region
        .ranges()
        .zip(point)
        .all(|(range, index)| range.contains(index))
}
