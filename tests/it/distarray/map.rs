//! Maps by their laws, against a model that lists every index.

use std::sync::Arc;

use partgrid::distarray::{
    DimData, Dist, Distribution, IndexSet, Map, Part, Place, Version, translate,
};
use partgrid::error::ErrorKind;
use partgrid::grid::Axis;
use proptest::collection::vec;
use proptest::prelude::*;

/// What a map must say: for each rank the global index of each element of its buffer, and which of them it owns.
struct Model {
    size: u64,
    buffers: Vec<Vec<(i64, bool)>>,
}

impl Model {
    fn unpadded(size: u64, buffers: Vec<Vec<i64>>) -> Self {
        let owned = |indices: Vec<i64>| indices.into_iter().map(|index| (index, true)).collect();
        Self {
            size,
            buffers: buffers.into_iter().map(owned).collect(),
        }
    }

    /// Holds every question to a map against the lists.
    fn check(&self, map: &Map) {
        assert_eq!(
            (map.size(), map.num_ranks()),
            (self.size, self.buffers.len())
        );
        let mut owners: Vec<(i64, Place)> = Vec::new();
        for (rank, buffer) in self.buffers.iter().enumerate() {
            assert_eq!(
                map.local_len(rank),
                Some(buffer.len() as u64),
                "rank {rank}"
            );
            let owned = map.owned(rank).unwrap();
            assert_eq!(map.num_owned(rank), Some(owned.indices.len() as u64));
            let held = map.held(rank).unwrap();
            let all: Vec<i64> = buffer.iter().map(|(index, _)| *index).collect();
            assert_eq!(spread(&held, buffer.len()), all, "held by rank {rank}");
            for (local, (index, is_owned)) in buffer.iter().enumerate() {
                assert_eq!(map.global(rank, local), Some(*index), "{rank} {local}");
                let place = local.checked_sub(owned.local);
                let of_part = place.and_then(|place| owned.indices.get(place));
                assert_eq!(of_part, is_owned.then_some(*index), "{rank} {local}");
                if *is_owned {
                    owners.push((*index, Place { rank, local }));
                }
            }
            assert_eq!(map.global(rank, buffer.len()), None);
        }
        let past = self.buffers.len();
        assert_eq!(
            (map.owned(past), map.local_len(past), map.num_owned(past)),
            (None, None, None)
        );
        let mut indices: Vec<i64> = owners.iter().map(|(index, _)| *index).collect();
        for (index, place) in &owners {
            let all: Vec<Place> = owners
                .iter()
                .filter(|(each, _)| each == index)
                .map(|(_, place)| *place)
                .collect();
            assert_eq!(map.owners(*index), all);
            assert!(all.contains(place));
            assert_eq!(map.locate(*index), all.first().copied());
        }
        let mut places = vec![Place { rank: 9, local: 9 }; 3];
        map.locate_all(&indices, &mut places).unwrap();
        let expected: Vec<Place> = indices
            .iter()
            .map(|index| map.locate(*index).unwrap())
            .collect();
        assert_eq!(places, expected);
        for outside in [-1, i64::MIN, i64::MAX, self.size as i64] {
            if !indices.contains(&outside) {
                assert_eq!((map.locate(outside), map.owners(outside)), (None, vec![]));
                indices.push(outside);
                let error = map.locate_all(&indices, &mut places).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::InvalidArgument);
                assert!(
                    error.message().ends_with(&format!("got {outside}")),
                    "{error}"
                );
                indices.pop();
            }
        }
    }
}

/// The global indices of all places of a buffer that the parts fill without gaps.
fn spread(parts: &[Part], len: usize) -> Vec<i64> {
    let mut buffer = vec![None; len];
    for part in parts {
        for (place, index) in part.indices.iter().enumerate() {
            assert_eq!(buffer[part.local + place].replace(index), None);
            assert_eq!(part.indices.get(place), Some(index));
            assert_eq!(part.indices.place(index), Some(place));
        }
        let runs: Vec<i64> = part
            .indices
            .runs()
            .flat_map(|run| {
                assert!(run.len > 0);
                run.start..run.start + run.len as i64
            })
            .collect();
        assert!(runs.iter().copied().eq(part.indices.iter()));
        assert_eq!(part.indices.get(part.indices.len()), None);
    }
    buffer.into_iter().map(Option::unwrap).collect()
}

/// Its dictionaries make the same map again, in both versions.
fn check_round_trip(map: &Map) {
    for version in [Version::V0_9, Version::V0_10] {
        let ranks: Vec<DimData> = (0..map.num_ranks())
            .map(|rank| map.dim_data(rank, version).unwrap())
            .collect();
        for (rank, data) in ranks.iter().enumerate() {
            assert_eq!(Some(data.owned(version)), map.owned(rank));
            assert_eq!(Some(data.held(version)), map.held(rank));
            assert_eq!(Some(data.num_owned(version)), map.num_owned(rank));
            assert_eq!(Some(data.local_len(version)), map.local_len(rank));
        }
        assert_eq!(&Map::try_from_dim_data(&ranks, version).unwrap(), map);
        if version == Version::V0_9 {
            let new = translate(&ranks).unwrap();
            assert_eq!(&Map::try_from_dim_data(&new, Version::V0_10).unwrap(), map);
        }
    }
}

proptest! {
    #[test]
    fn blocks_agree_with_the_model(lengths in vec(0_u64..7, 1..9)) {
        let axis = Axis::try_from_lengths(lengths).unwrap();
        let buffers = axis.intervals().map(|range| (range.start as i64..range.end as i64).collect());
        let map = Map::block(&axis);
        Model::unpadded(axis.extent(), buffers.collect()).check(&map);
        check_round_trip(&map);
    }

    #[test]
    fn even_blocks_agree_with_the_model(size in 0_u64..60, ranks in 1_usize..9, rounded_up in any::<bool>()) {
        let axis = if rounded_up {
            let length = size.div_ceil(ranks as u64);
            let cuts: Vec<u64> = (0..=ranks as u64).map(|rank| (rank * length).min(size)).collect();
            Axis::try_new(cuts).unwrap()
        } else {
            Axis::try_even(size, ranks).unwrap()
        };
        let buffers = axis.intervals().map(|range| (range.start as i64..range.end as i64).collect());
        Model::unpadded(size, buffers.collect()).check(&Map::block(&axis));
    }

    #[test]
    fn cyclic_dimensions_agree_with_the_model(size in 0_u64..60, ranks in 1_usize..8, block_size in 1_u64..9) {
        let mut buffers = vec![Vec::new(); ranks];
        for index in 0..size {
            buffers[(index / block_size) as usize % ranks].push(index as i64);
        }
        let map = Map::try_cyclic(size, ranks, block_size).unwrap();
        Model::unpadded(size, buffers).check(&map);
        check_round_trip(&map);
    }

    #[test]
    fn unstructured_dimensions_agree_with_the_model(
        labels in proptest::sample::subsequence((-20_i64..40).collect::<Vec<_>>(), 0..40),
        order in any::<u64>(),
        ranks in 1_usize..5,
        from_zero in any::<bool>(),
    ) {
        let mut labels: Vec<i64> = if from_zero { (0..labels.len() as i64).collect() } else { labels };
        labels.sort_by_key(|label| (label.unsigned_abs() ^ order).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut buffers = vec![Vec::new(); ranks];
        for (place, label) in labels.iter().enumerate() {
            buffers[(place * 7 + order as usize % 5) % ranks].push(*label);
        }
        let lists = buffers.iter().map(|list| list.clone().into()).collect();
        let map = Map::try_unstructured(labels.len() as u64, lists, true).unwrap();
        Model::unpadded(labels.len() as u64, buffers).check(&map);
        check_round_trip(&map);
    }

    #[test]
    fn padded_blocks_agree_with_the_model(
        lengths in vec(2_u64..7, 1..6),
        widths in vec(0_u64..=2, 5),
        outer in [0_u64..=1, 0_u64..=1],
        periodic in any::<bool>(),
    ) {
        let axis = Axis::try_from_lengths(lengths.clone()).unwrap();
        let last = lengths.len() - 1;
        let mut padding = Vec::new();
        let mut buffers = Vec::new();
        for (rank, owned) in axis.intervals().enumerate() {
            let left = if rank == 0 { 0 } else { widths[rank - 1] };
            let right = if rank == last { 0 } else { widths[rank] };
            padding.push([if rank == 0 { outer[0] } else { left }, if rank == last { outer[1] } else { right }]);
            let held = owned.start - left..owned.end + right;
            buffers.push(held.map(|index| (index as i64, owned.contains(&index))).collect());
        }
        let map = Map::try_padded(&axis, &padding, periodic).unwrap();
        Model { size: axis.extent(), buffers }.check(&map);
        if !periodic || outer == [0, 0] {
            check_round_trip(&map);
        } else {
            let error = map.dim_data(0, Version::V0_9).unwrap_err();
            prop_assert_eq!(error.kind(), ErrorKind::Unsupported);
        }
    }

    #[test]
    fn halos_of_a_periodic_dimension_of_0_9_go_round_the_end(
        lengths in vec(2_u64..6, 1..5),
        widths in [0_u64..=2, 0_u64..=2],
    ) {
        let axis = Axis::try_from_lengths(lengths.clone()).unwrap();
        let size = axis.extent();
        let [left, right] = widths;
        let ranks: Vec<DimData> = axis.intervals().enumerate().map(|(rank, owned)| DimData {
            size,
            proc_grid_size: lengths.len() as u64,
            proc_grid_rank: rank as u64,
            periodic: Some(true),
            dist: Dist::Block { start: owned.start, stop: owned.end, padding: Some(widths) },
        }).collect();
        let buffers = axis.intervals().map(|owned| {
            let held = owned.start as i64 - left as i64..(owned.end + right) as i64;
            held.map(|index| (index.rem_euclid(size as i64), (owned.start as i64..owned.end as i64).contains(&index))).collect()
        });
        let map = Map::try_from_dim_data(&ranks, Version::V0_9).unwrap();
        Model { size, buffers: buffers.collect() }.check(&map);
        let back: Vec<DimData> = (0..ranks.len()).map(|rank| map.dim_data(rank, Version::V0_9).unwrap()).collect();
        prop_assert_eq!(&back, &ranks);
        let new = translate(&ranks).unwrap();
        prop_assert_eq!(new[0].size, size + left + right);
        for (old, new) in ranks.iter().zip(&new) {
            prop_assert_eq!(old.local_len(Version::V0_9), new.local_len(Version::V0_10));
        }
        if left == right || lengths.len() == 1 {
            Map::try_from_dim_data(&new, Version::V0_10).unwrap();
        }
    }

    #[test]
    fn ranks_of_a_distribution_are_row_major(counts in vec(1_usize..4, 0..4), size in 0_u64..7) {
        let maps = counts.iter().map(|count| Map::try_cyclic(size, *count, 2).unwrap()).collect();
        let distribution = Distribution::try_new(maps).unwrap();
        prop_assert_eq!(distribution.num_ranks(), counts.iter().product::<usize>());
        prop_assert_eq!(distribution.shape(), vec![size; counts.len()]);
        let mut previous = None;
        let mut elements = 0;
        for rank in 0..distribution.num_ranks() {
            let coordinates = distribution.coordinates(rank).unwrap();
            prop_assert!(previous < Some(coordinates.clone()), "coordinates rise with the rank");
            prop_assert_eq!(distribution.rank(&coordinates), Some(rank));
            elements += distribution.local_shape(rank).unwrap().iter().product::<u64>();
            let owned = distribution.owned(rank).unwrap();
            let first: Option<Vec<i64>> = owned.iter().map(|part| part.indices.get(0)).collect();
            if let Some(first) = first {
                prop_assert_eq!(distribution.locate(&first), Some((rank, vec![0; counts.len()])));
            }
            previous = Some(coordinates);
        }
        prop_assert_eq!(elements, size.pow(counts.len() as u32));
        prop_assert_eq!(distribution.coordinates(distribution.num_ranks()), None);
        prop_assert_eq!(distribution.rank(&counts), None.filter(|_: &usize| !counts.is_empty()).or(counts.is_empty().then_some(0)));
        prop_assert_eq!(distribution.locate(&vec![0; counts.len() + 1]), None);
    }
}

#[test]
fn the_partial_block_goes_to_the_rank_whose_turn_it_is() {
    let map = Map::try_cyclic(7, 2, 2).unwrap();
    assert_eq!([map.num_owned(0), map.num_owned(1)], [Some(4), Some(3)]);
    assert!(map.owned(1).unwrap().indices.iter().eq([2, 3, 6]));
}

#[test]
fn an_index_on_several_ranks_belongs_to_the_first() {
    let lists = || vec![Arc::from([5, 7]), Arc::from([7, 5, -1])];
    for size in [3, 5] {
        let map = Map::try_unstructured(size, lists(), false).unwrap();
        assert_eq!(map.locate(7), Some(Place { rank: 0, local: 1 }));
        assert_eq!(
            map.owners(7),
            [Place { rank: 0, local: 1 }, Place { rank: 1, local: 0 }]
        );
    }
    let error = Map::try_unstructured(4, lists(), false).unwrap_err();
    assert!(error.message().contains("got 4"), "{error}");
    let error = Map::try_unstructured(5, lists(), true).unwrap_err();
    assert!(
        error.message().contains("got 5 on ranks 0 and 1"),
        "{error}"
    );
    let error = Map::try_unstructured(2, vec![Arc::from([4, 4])], false).unwrap_err();
    assert!(error.message().contains("got 4 twice"), "{error}");
}

#[test]
fn the_extremes_of_labels_and_sizes_are_borne() {
    let labels: Arc<[i64]> = Arc::from([i64::MAX, i64::MIN, i64::MAX - 1]);
    let map = Map::try_unstructured(3, vec![Arc::clone(&labels)], true).unwrap();
    assert_eq!(map.locate(i64::MIN), Some(Place { rank: 0, local: 1 }));
    assert!(
        IndexSet::List(labels)
            .iter()
            .eq([i64::MAX, i64::MIN, i64::MAX - 1])
    );
    let size = i64::MAX as u64;
    let map = Map::try_cyclic(size, 3, size / 2).unwrap();
    assert_eq!(map.locate(i64::MAX - 1), Some(Place { rank: 2, local: 0 }));
    assert_eq!(map.num_owned(0), Some(size / 2));
    let map = Map::block(&Axis::try_even(size, 7).unwrap());
    assert_eq!(map.locate(i64::MAX - 1).unwrap().rank, 6);
}

#[test]
fn dictionaries_that_contradict_each_other_make_no_map() {
    let block = |rank: u64, start, stop, padding| DimData {
        size: 10,
        proc_grid_size: 2,
        proc_grid_rank: rank,
        periodic: None,
        dist: Dist::Block {
            start,
            stop,
            padding,
        },
    };
    let cases = [
        (vec![block(0, 0, 4, None), block(1, 5, 10, None)], "start"),
        (vec![block(0, 0, 6, None), block(1, 5, 10, None)], "start"),
        (vec![block(0, 0, 4, None), block(1, 4, 9, None)], "stop"),
        (vec![block(0, 0, 4, None)], "proc_grid_rank"),
        (
            vec![block(1, 5, 10, None), block(0, 0, 5, None)],
            "proc_grid_rank",
        ),
        (
            vec![block(0, 0, 6, Some([0, 1])), block(1, 3, 10, Some([2, 0]))],
            "padding",
        ),
        (
            vec![block(0, 0, 3, Some([0, 9])), block(1, 0, 10, None)],
            "start",
        ),
        (vec![block(0, 0, 5, None), block(1, 5, 11, None)], "start"),
    ];
    for (ranks, key) in cases {
        let error = Map::try_from_dim_data(&ranks, Version::V0_10).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Protocol, "{error}");
        assert_eq!(error.context("key"), Some(key), "{error}");
    }
}

#[test]
fn the_translation_of_the_periodic_example_keeps_the_buffers() {
    let rank = |rank: u64, start, stop| DimData {
        size: 8,
        proc_grid_size: 2,
        proc_grid_rank: rank,
        periodic: Some(true),
        dist: Dist::Block {
            start,
            stop,
            padding: Some([1, 1]),
        },
    };
    let old = [rank(0, 0, 4), rank(1, 4, 8)];
    let held: Vec<Vec<i64>> = old
        .iter()
        .map(|data| spread(&data.held(Version::V0_9), 6))
        .collect();
    assert_eq!(held, [[7, 0, 1, 2, 3, 4], [3, 4, 5, 6, 7, 0]]);
    let new = translate(&old).unwrap();
    let bounds: Vec<(u64, &Dist)> = new.iter().map(|data| (data.size, &data.dist)).collect();
    let padding = Some([1, 1]);
    assert_eq!(
        bounds,
        [
            (
                10,
                &Dist::Block {
                    start: 0,
                    stop: 6,
                    padding
                }
            ),
            (
                10,
                &Dist::Block {
                    start: 4,
                    stop: 10,
                    padding
                }
            )
        ]
    );
}

#[test]
fn an_undistributed_dimension_becomes_a_block_on_one_process() {
    let mut old = DimData::whole(10);
    old.dist = Dist::Undistributed { padding: None };
    assert_eq!(translate(&[old]).unwrap(), [DimData::whole(10)]);
}

#[test]
fn versions_are_three_plain_numbers_of_which_the_last_is_free() {
    for (text, version) in [
        ("0.9.0", Version::V0_9),
        ("0.9.12", Version::V0_9),
        ("0.10.0", Version::V0_10),
        ("0.10.7", Version::V0_10),
    ] {
        assert_eq!(Version::try_from_text(text).unwrap(), version);
    }
    for text in [
        "", "0.10", "v0.10.0", "0.10.0a1", "1.0.0", "0.8.0", "0.10.0.0", "0.10.", "0.10.00",
        " 0.10.0", "0.10.-1", "0.010.0",
    ] {
        let error = Version::try_from_text(text).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Protocol, "{text}");
        assert!(error.message().contains(&format!("{text:?}")), "{error}");
    }
}
