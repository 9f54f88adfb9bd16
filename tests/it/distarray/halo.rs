//! Halos made fresh: all of them, from their owners, and nothing else.

use partgrid::distarray::redistribute::{HaloPlan, Plan, exchange_halos};
use partgrid::distarray::{DimData, Dist, Distribution, Map, Version};
use partgrid::grid::Axis;
use proptest::prelude::*;

use super::moving::{Buffer, buffers, targets};
use super::redistribute::{any_map, local_shape, pair};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn every_halo_is_filled_from_its_owner_and_nothing_else_is_written(
        (distribution, _) in pair(), item_bytes in 1_usize..=9, style in any::<u32>(),
    ) {
        let mut now = buffers(&distribution, item_bytes, style, false);
        let fresh = buffers(&distribution, item_bytes, style, true);
        let plan = HaloPlan::try_new(&distribution).unwrap();
        let elements = plan.transfers().map(|transfer| transfer.num_elements() as u64);
        prop_assert_eq!(plan.num_elements(), elements.sum::<u64>());
        let between = plan.transfers().filter(|transfer| !transfer.is_local()).count();
        prop_assert_eq!(plan.messages(), between as u64);
        let ranks = 0..distribution.num_ranks();
        let held: u64 = ranks.clone().map(|rank| distribution.local_shape(rank).unwrap().iter().product::<u64>()).sum();
        let owned: usize = ranks.clone().map(|rank| distribution.owned(rank).unwrap().iter().map(|part| part.indices.len()).product::<usize>()).sum();
        prop_assert_eq!(plan.num_elements(), held - owned as u64, "no element of a halo is written twice");
        let sent: usize = ranks.clone().map(|rank| plan.transfers_from(rank).count()).sum();
        let got: usize = ranks.map(|rank| plan.transfers_to(rank).count()).sum();
        prop_assert_eq!((sent, got), (plan.transfers().count(), plan.transfers().count()));
        exchange_halos(&distribution, &mut targets(&mut now)).unwrap();
        prop_assert_eq!(now, fresh);
    }

    #[test]
    fn a_distribution_without_padding_has_nothing_to_exchange(map in any_map(9)) {
        let padded = (0..map.num_ranks()).any(|rank| map.local_len(rank) != map.num_owned(rank));
        let distribution = Distribution::try_new(vec![map]).unwrap();
        let plan = HaloPlan::try_new(&distribution).unwrap();
        prop_assert_eq!(plan.num_elements() > 0, padded);
        let whole = Plan::try_new(&distribution, &distribution).unwrap();
        prop_assert!(whole.num_elements() >= plan.num_elements());
    }
}

/// Two ranks of 8 elements, periodic, one element of padding on each side.
fn periodic(version: Version) -> Distribution {
    let bounds = match version {
        Version::V0_9 => (8, [0..4, 4..8]),
        Version::V0_10 => (10, [0..6, 4..10]),
    };
    let ranks = bounds
        .1
        .into_iter()
        .enumerate()
        .map(|(rank, range)| DimData {
            size: bounds.0,
            proc_grid_size: 2,
            proc_grid_rank: rank as u64,
            periodic: Some(true),
            dist: Dist::Block {
                start: range.start,
                stop: range.end,
                padding: Some([1, 1]),
            },
        });
    let map = Map::try_from_dim_data(&ranks.collect::<Vec<_>>(), version).unwrap();
    Distribution::try_new(vec![map]).unwrap()
}

#[test]
fn outer_padding_of_a_periodic_dimension_is_filled_in_0_9_and_owned_in_0_10() {
    for (version, expected) in [
        (Version::V0_9, [*b"HABCDE", *b"DEFGHA"]),
        (Version::V0_10, [*b".ABCDE", *b"DEFGH."]),
    ] {
        let distribution = periodic(version);
        let mut now: Vec<Buffer> = (0..2)
            .map(|rank| Buffer::new(&local_shape(&distribution, rank), 1, 0))
            .collect();
        now[0].bytes[..6].copy_from_slice(b".ABCD.");
        now[1].bytes[..6].copy_from_slice(b".EFGH.");
        exchange_halos(&distribution, &mut targets(&mut now)).unwrap();
        for (buffer, expected) in now.iter().zip(expected) {
            assert_eq!(&buffer.bytes[..6], expected, "{version:?}");
        }
    }
}

#[test]
fn after_an_edit_the_neighbours_see_it() {
    let map = Map::try_padded(&Axis::try_even(6, 2).unwrap(), &[[0, 2], [2, 0]], false).unwrap();
    let distribution = Distribution::try_new(vec![map]).unwrap();
    let mut now: Vec<Buffer> = vec![Buffer::new(&[5], 1, 0), Buffer::new(&[5], 1, 0)];
    now[0].bytes[..5].copy_from_slice(b"abcde");
    now[1].bytes[..5].copy_from_slice(b"bcdef");
    now[0].bytes[2] = b'X';
    now[1].bytes[2] = b'Y';
    exchange_halos(&distribution, &mut targets(&mut now)).unwrap();
    let seen = now.iter().map(|buffer| &buffer.bytes[..5]);
    assert!(seen.eq([b"abXYe", b"bXYef"]));
}

#[test]
fn buffers_of_halos_that_do_not_fit_are_named() {
    let distribution = periodic(Version::V0_9);
    let mut now = vec![Buffer::new(&[6], 1, 0), Buffer::new(&[5], 1, 0)];
    let error = exchange_halos(&distribution, &mut targets(&mut now)).unwrap_err();
    assert_eq!(
        (error.context("rank"), error.context("side")),
        (Some("1"), Some("halo"))
    );
    assert!(error.message().contains("shape [6], got [5]"), "{error}");
    let error = exchange_halos(&distribution, &mut targets(&mut now[..1])).unwrap_err();
    assert!(
        error.message().contains("each of the 2 ranks, got 1"),
        "{error}"
    );
}
