//! Plans of redistribution against a model that looks at every element.

use std::collections::BTreeMap;
use std::sync::Arc;

use partgrid::distarray::redistribute::{Plan, Transfer};
use partgrid::distarray::{DimData, Dist, Distribution, Map, Version};
use partgrid::error::ErrorKind;
use partgrid::grid::Axis;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

/// Any map of `size` indices, those of unstructured ones from 0 on.
pub(super) fn any_map(size: u64) -> BoxedStrategy<Map> {
    let cyclic = (1_usize..6, 1_u64..8)
        .prop_map(move |(ranks, block)| Map::try_cyclic(size, ranks, block).unwrap());
    prop_oneof![
        cuts(size).prop_map(|cuts| Map::block(&cuts)),
        (1_usize..6).prop_map(move |ranks| Map::block(&Axis::try_even(size, ranks).unwrap())),
        cyclic,
        unstructured(size),
        padded(size),
        periodic(size),
    ]
    .boxed()
}

/// Irregular cuts, often with empty intervals.
fn cuts(size: u64) -> impl Strategy<Value = Axis> {
    vec(0..=size, 0..5).prop_map(move |mut inner| {
        inner.sort_unstable();
        let all: Vec<u64> = [0].into_iter().chain(inner).chain([size]).collect();
        Axis::try_new(all).unwrap()
    })
}

/// Every index on one rank, a few on a second one too.
fn unstructured(size: u64) -> impl Strategy<Value = Map> {
    let order = Just((0..size as i64).collect::<Vec<i64>>()).prop_shuffle();
    let repeats = vec((any::<Index>(), any::<Index>()), 0..4);
    (order, 1_usize..5, any::<bool>(), repeats).prop_map(move |(order, ranks, unique, repeats)| {
        let mut lists = vec![Vec::new(); ranks];
        for (place, index) in order.iter().enumerate() {
            lists[place * 5 / 3 % ranks].push(*index);
        }
        for (index, rank) in repeats {
            let list = &mut lists[rank.index(ranks)];
            if !unique && size > 0 && !list.contains(&(index.index(size as usize) as i64)) {
                list.push(index.index(size as usize) as i64);
            }
        }
        let lists = lists.into_iter().map(Arc::from).collect();
        Map::try_unstructured(size, lists, unique).unwrap()
    })
}

/// Communication padding as wide as the neighbours bear, and boundary padding.
fn padded(size: u64) -> impl Strategy<Value = Map> {
    (cuts(size), vec(0_u64..4, 8), any::<bool>()).prop_map(|(cuts, widths, periodic)| {
        let lengths: Vec<u64> = cuts.intervals().map(|each| each.end - each.start).collect();
        let between = |rank: usize| match lengths.get(rank + 1) {
            Some(next) => widths[rank].min(lengths[rank]).min(*next),
            None => 0,
        };
        let padding: Vec<[u64; 2]> = (0..lengths.len())
            .map(|rank| [if rank == 0 { 0 } else { between(rank - 1) }, between(rank)])
            .collect();
        Map::try_padded(&cuts, &padding, periodic).unwrap()
    })
}

/// 0.9: the halo of the first and last rank repeats the other end.
fn periodic(size: u64) -> impl Strategy<Value = Map> {
    (1_usize..5, 0_u64..3, 0_u64..3).prop_map(move |(ranks, left, right)| {
        let cuts = Axis::try_even(size, ranks).unwrap();
        let least = size / ranks as u64;
        let padding = Some([left.min(least), right.min(least)]);
        let data = cuts.intervals().enumerate().map(|(rank, owned)| DimData {
            size,
            proc_grid_size: ranks as u64,
            proc_grid_rank: rank as u64,
            periodic: Some(true),
            dist: Dist::Block {
                start: owned.start,
                stop: owned.end,
                padding,
            },
        });
        Map::try_from_dim_data(&data.collect::<Vec<_>>(), Version::V0_9).unwrap()
    })
}

/// Two distributions of one shape, in 1 to 3 dimensions.
pub(super) fn pair() -> impl Strategy<Value = (Distribution, Distribution)> {
    let dimension = |most: u64| (0..most).prop_flat_map(|size| (any_map(size), any_map(size)));
    let dimensions = prop_oneof![
        vec(dimension(40), 1),
        vec(dimension(14), 2),
        vec(dimension(7), 3),
    ];
    dimensions.prop_map(|maps| {
        let (from, to) = maps.into_iter().unzip();
        (
            Distribution::try_new(from).unwrap(),
            Distribution::try_new(to).unwrap(),
        )
    })
}

/// All places of a buffer, the last dimension fastest.
pub(super) fn places(shape: &[usize]) -> Vec<Vec<usize>> {
    shape.iter().fold(vec![vec![]], |places, len| {
        let longer = |place: Vec<usize>| (0..*len).map(move |at| [&place[..], &[at]].concat());
        places.into_iter().flat_map(longer).collect()
    })
}

pub(super) fn local_shape(distribution: &Distribution, rank: usize) -> Vec<usize> {
    let shape = distribution.local_shape(rank).unwrap();
    shape.iter().map(|len| *len as usize).collect()
}

/// The global indices of an element of a buffer.
pub(super) fn global(distribution: &Distribution, rank: usize, place: &[usize]) -> Vec<i64> {
    let ranks = distribution.coordinates(rank).unwrap();
    let sides = distribution.maps().iter().zip(ranks.iter().zip(place));
    sides
        .map(|(map, (rank, local))| map.global(*rank, *local).unwrap())
        .collect()
}

/// Pairs of places in both buffers, in the order of the message.
fn moves(transfer: &Transfer) -> Vec<(Vec<usize>, Vec<usize>)> {
    let all = |side: Vec<Vec<usize>>| {
        let shape: Vec<usize> = side.iter().map(Vec::len).collect();
        let place = |at: Vec<usize>| at.iter().zip(&side).map(|(at, side)| side[*at]).collect();
        places(&shape)
            .into_iter()
            .map(place)
            .collect::<Vec<Vec<usize>>>()
    };
    let dimensions = 0..transfer.combs().len();
    let from = dimensions
        .clone()
        .map(|number| transfer.local_from(number).flatten().collect());
    let to = dimensions.map(|number| transfer.local_to(number).flatten().collect());
    all(from.collect())
        .into_iter()
        .zip(all(to.collect()))
        .collect()
}

fn owns(distribution: &Distribution, rank: usize, place: &[usize]) -> bool {
    let owned = distribution.owned(rank).unwrap();
    let mut sides = owned.iter().zip(place);
    sides.all(|(part, local)| (part.local..part.local + part.indices.len()).contains(local))
}

/// Every place of every destination buffer is written once, with the element that belongs there, by a rank that owns it; and the counts are those of the transfers.
fn check(from: &Distribution, to: &Distribution) -> Plan {
    let plan = Plan::try_new(from, to).unwrap();
    let mut written: BTreeMap<(usize, Vec<usize>), usize> = BTreeMap::new();
    let mut counts = vec![vec![0; to.num_ranks()]; from.num_ranks()];
    let mut previous = None;
    for transfer in plan.transfers() {
        let ranks = (transfer.from_rank(), transfer.to_rank());
        assert!(
            previous < Some(ranks),
            "{previous:?} comes before {ranks:?}"
        );
        previous = Some(ranks);
        let moves = moves(&transfer);
        assert!(!moves.is_empty());
        assert_eq!(transfer.num_elements(), moves.len());
        assert_eq!(plan.transfer(ranks.0, ranks.1), Some(transfer), "{ranks:?}");
        counts[ranks.0][ranks.1] = moves.len() as u64;
        for (source, destination) in moves {
            assert!(owns(from, ranks.0, &source), "{ranks:?} sends {source:?}");
            assert_eq!(
                global(from, ranks.0, &source),
                global(to, ranks.1, &destination)
            );
            *written.entry((ranks.1, destination)).or_default() += 1;
        }
    }
    for rank in 0..to.num_ranks() {
        for place in places(&local_shape(to, rank)) {
            let times = written.remove(&(rank, place.clone()));
            assert_eq!(times, Some(1), "rank {rank}, {place:?}");
        }
        let sources: Vec<usize> = plan
            .transfers_to(rank)
            .map(|each| each.from_rank())
            .collect();
        let column = counts.iter().map(|row| row[rank]).enumerate();
        let wanted = column.filter(|(_, count)| *count > 0);
        assert!(wanted.map(|(from, _)| from).eq(sources));
    }
    assert!(written.is_empty(), "outside: {written:?}");
    check_counts(&plan, &counts);
    plan
}

fn check_counts(plan: &Plan, counts: &[Vec<u64>]) {
    assert_eq!(plan.counts().unwrap(), counts);
    let all = || {
        counts.iter().enumerate().flat_map(|(from, row)| {
            row.iter()
                .enumerate()
                .map(move |(to, count)| (from, to, *count))
        })
    };
    let sum = |keep: &dyn Fn(usize, usize) -> bool| -> u64 {
        all()
            .filter(|(from, to, _)| keep(*from, *to))
            .map(|(.., count)| count)
            .sum()
    };
    assert_eq!(plan.num_elements(), sum(&|_, _| true));
    assert_eq!(plan.local_elements(), sum(&|from, to| from == to));
    assert_eq!(plan.elements_moved(), sum(&|from, to| from != to));
    let some = all().filter(|(.., count)| *count > 0);
    assert_eq!(plan.num_transfers(), some.clone().count() as u64);
    assert_eq!(
        plan.messages(),
        some.filter(|(from, to, _)| from != to).count() as u64
    );
    for rank in 0..counts.len() {
        assert_eq!(
            plan.sent_by(rank),
            Some(sum(&|from, to| from == rank && to != rank))
        );
    }
    for rank in 0..counts[0].len() {
        assert_eq!(
            plan.received_by(rank),
            Some(sum(&|from, to| to == rank && from != rank))
        );
    }
    let (past, none) = (counts.len(), counts[0].len());
    assert_eq!((plan.sent_by(past), plan.received_by(none)), (None, None));
    assert_eq!((plan.count(past, 0), plan.transfer(0, none)), (0, None));
    assert_eq!(
        plan.transfers_from(past).count() + plan.transfers_to(none).count(),
        0
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn plans_agree_with_the_model((from, to) in pair()) {
        let plan = check(&from, &to);
        let one_to_one = |map: &Map| (0..map.num_ranks()).map(|rank| map.local_len(rank).unwrap()).sum::<u64>() == map.size();
        if to.maps().iter().all(one_to_one) {
            prop_assert_eq!(plan.num_elements(), to.shape().iter().product::<u64>());
        }
    }

    #[test]
    fn pairs_of_cyclic_dimensions_agree_with_the_model(
        size in 0_u64..400, ranks in [1_usize..9, 1_usize..9], blocks in [1_u64..20, 1_u64..20],
    ) {
        let map = |side: usize| Distribution::try_new(vec![Map::try_cyclic(size, ranks[side], blocks[side]).unwrap()]).unwrap();
        check(&map(0), &map(1));
    }

    #[test]
    fn from_a_distribution_to_itself_only_halos_are_messages((distribution, _) in pair()) {
        let plan = Plan::try_new(&distribution, &distribution).unwrap();
        for transfer in plan.transfers().filter(|transfer| !transfer.is_local()) {
            for (_, place) in moves(&transfer) {
                prop_assert!(!owns(&distribution, transfer.to_rank(), &place));
            }
        }
        let padded = (0..distribution.num_ranks()).any(|rank| {
            let owned = distribution.owned(rank).unwrap();
            owned.iter().zip(local_shape(&distribution, rank)).any(|(part, len)| part.indices.len() != len)
        });
        if !padded {
            prop_assert_eq!((plan.messages(), plan.elements_moved()), (0, 0));
        }
    }

    #[test]
    fn pieces_are_the_message_cut_in_order((from, to) in pair(), room in 1_usize..9, item in 1_usize..5) {
        for transfer in Plan::try_new(&from, &to).unwrap().transfers() {
            let mut elements = Vec::new();
            for piece in transfer.pieces(item, room * item).unwrap() {
                let moves = moves(&piece);
                prop_assert!(!moves.is_empty() && moves.len() <= room, "{} of {}", moves.len(), room);
                prop_assert_eq!(piece.num_elements(), moves.len());
                elements.extend(moves);
            }
            prop_assert_eq!(elements, moves(&transfer));
        }
    }
}

fn blocks(cuts: &[&[u64]]) -> Distribution {
    let maps = cuts
        .iter()
        .map(|cuts| Map::block(&Axis::try_new(cuts.to_vec()).unwrap()));
    Distribution::try_new(maps.collect()).unwrap()
}

#[test]
fn counts_of_the_printed_examples_are_right() {
    let [rows, columns] = [
        blocks(&[&[0, 2, 4, 5], &[0, 9]]),
        blocks(&[&[0, 5], &[0, 3, 6, 9]]),
    ];
    let plan = Plan::try_new(&rows, &columns).unwrap();
    assert_eq!(plan.counts().unwrap(), [[6, 6, 6], [6, 6, 6], [3, 3, 3]]);
    let [even, irregular] = [
        blocks(&[&[0, 3, 5], &[0, 5, 9]]),
        blocks(&[&[0, 1, 5], &[0, 2, 9]]),
    ];
    let plan = Plan::try_new(&even, &irregular).unwrap();
    assert_eq!(
        plan.counts().unwrap(),
        [[2, 3, 4, 6], [0, 4, 0, 8], [0, 0, 4, 6], [0, 0, 0, 8]]
    );
    assert_eq!(
        (plan.elements_moved(), plan.num_elements(), plan.messages()),
        (27, 45, 5)
    );
}

#[test]
fn an_array_without_dimensions_is_one_element() {
    let nothing = Distribution::try_new(Vec::new()).unwrap();
    let plan = check(&nothing, &nothing);
    assert_eq!((plan.num_elements(), plan.messages()), (1, 0));
}

#[test]
fn different_shapes_have_no_plan_and_the_error_names_both() {
    for other in [blocks(&[&[0, 9], &[0, 5]]), blocks(&[&[0, 5]])] {
        let error = Plan::try_new(&blocks(&[&[0, 5], &[0, 9]]), &other).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        let shapes = format!("got [5, 9] and {:?}", other.shape());
        assert!(error.message().ends_with(&shapes), "{error}");
    }
}

#[test]
fn an_index_that_the_source_lacks_is_named() {
    let list = |indices: [i64; 3]| {
        let map = Map::try_unstructured(3, vec![Arc::new([]), Arc::from(indices)], true);
        Distribution::try_new(vec![map.unwrap()]).unwrap()
    };
    let error = Plan::try_new(&list([0, 1, 2]), &list([0, -7, 2])).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.message().contains("index -7 is missing"), "{error}");
    assert_eq!(
        (error.context("grid rank"), error.context("dimension")),
        (Some("1"), Some("0"))
    );
}

#[test]
fn plans_of_the_largest_sizes_are_counted_without_a_loop_over_them() {
    let size = i64::MAX as u64;
    let one = |map: Map| Distribution::try_new(vec![map]).unwrap();
    let maps = [
        Map::block(&Axis::try_even(size, 7).unwrap()),
        Map::try_cyclic(size, 3, 1).unwrap(),
        Map::try_cyclic(size, 4, 1 << 60).unwrap(),
        Map::try_cyclic(size, 5, 3).unwrap(),
    ];
    for from in &maps {
        for to in &maps {
            let plan = Plan::try_new(&one(from.clone()), &one(to.clone())).unwrap();
            assert_eq!(plan.num_elements(), size);
            let transfers = plan
                .transfers()
                .map(|transfer| transfer.num_elements() as u64);
            assert_eq!(transfers.sum::<u64>(), size, "{from:?} {to:?}");
        }
    }
    let plane = Distribution::try_new(vec![maps[0].clone(); 2]).unwrap();
    let error = Plan::try_new(&plane, &plane).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
}

#[test]
fn beside_an_empty_dimension_the_largest_sizes_are_nothing() {
    let huge = Map::try_cyclic(i64::MAX as u64, 3, 1).unwrap();
    let none = Map::try_cyclic(0, 2, 1).unwrap();
    let maps = vec![huge.clone(), huge.clone(), huge, none];
    let cube = Distribution::try_new(maps).unwrap();
    let plan = Plan::try_new(&cube, &cube).unwrap();
    check_counts(&plan, &vec![vec![0; 54]; 54]);
    assert!(plan.plot().contains("0 of 0 elements in 0 messages"));
}

#[test]
fn a_matrix_of_too_many_counts_is_refused() {
    let many = Map::block(&Axis::try_even(5_000, 5_000).unwrap());
    let many = Distribution::try_new(vec![many]).unwrap();
    let plan = Plan::try_new(&many, &many).unwrap();
    assert_eq!(plan.messages(), 0);
    let error = plan.counts().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ResourcesExhausted);
}
