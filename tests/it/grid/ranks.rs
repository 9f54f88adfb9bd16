//! Grids of SPMD programs: what each rank has, and the same outline on all of them.

use partgrid::error::ErrorKind;
use partgrid::grid::{Axis, ElementType, GridBuilder, Outline, PartitionGrid, RankPart, Ranks};
use partgrid::location::{Device, Location};
use partgrid::partitioned::{
    Partition, Place, describe, describe_for_heat, describe_for_xgboost_ray, is_balanced_for_heat,
};
use proptest::prelude::*;

use crate::support::int_grid;

/// What ranks with these row bands say; `None` is a rank without data.
fn parts(locals: &[Option<PartitionGrid>]) -> Vec<RankPart> {
    let ranks = locals.iter().zip(1..);
    ranks
        .map(|(local, process)| RankPart {
            location: Location::new("10.0.0.7".parse().unwrap(), process, Device::CPU),
            outline: local.as_ref().map(Outline::of),
            locals: None,
        })
        .collect()
}

/// The grid as each rank has it.
fn on_all(locals: &[Option<PartitionGrid>]) -> Vec<PartitionGrid> {
    let parts = parts(locals);
    let ranks = locals.iter().enumerate();
    let grids =
        ranks.map(|(rank, local)| PartitionGrid::try_from_ranks(&parts, rank, local.as_ref()));
    grids.map(Result::unwrap).collect()
}

proptest! {
    #[test]
    fn every_tile_is_on_its_rank_and_all_ranks_see_the_same_outline(
        lengths in prop::collection::vec(prop::option::of(prop::collection::vec(0_u64..4, 1..4)), 1..5),
        widths in prop::collection::vec(1_u64..3, 1..3),
    ) {
        prop_assume!(lengths.iter().any(Option::is_some));
        let locals: Vec<Option<PartitionGrid>> = lengths
            .iter()
            .map(|lengths| lengths.as_ref().map(|lengths| int_grid(lengths, &widths)))
            .collect();
        let grids = on_all(&locals);
        let rows: u64 = lengths.iter().flatten().flatten().sum();
        for (rank, grid) in grids.iter().enumerate() {
            prop_assert_eq!(grid.num_rows(), rows);
            prop_assert_eq!(Outline::of(grid), Outline::of(&grids[0]));
            let ranks = grid.ranks().unwrap();
            prop_assert_eq!((ranks.rank(), ranks.num_ranks()), (rank, lengths.len()));
            for ((tile, owner), local) in grid.tiles().iter().zip(ranks.owners()).zip(grid.locals().unwrap()) {
                prop_assert_eq!(*local, *owner == rank);
                prop_assert_eq!(tile.open().is_ok(), *local);
                if !*local {
                    prop_assert_eq!(tile.locations()[0].process() as usize, *owner + 1);
                }
            }
            let mine: u64 = lengths[rank].iter().flatten().sum();
            let part = grid.rank_part().unwrap().unwrap();
            prop_assert_eq!(part.num_rows(), mine);
            if let Some(local) = &locals[rank] {
                let values = |grid: &PartitionGrid| -> Vec<_> {
                    let bands = 0..grid.rows().num_intervals();
                    let batches = bands.map(|band| grid.open_row_band(band).unwrap());
                    batches.flat_map(|batch| batch.column(0).to_data().buffer::<i64>(0)[..batch.num_rows()].to_vec()).collect()
                };
                prop_assert_eq!(values(&part), values(local));
            }
        }
    }

    #[test]
    fn a_refined_axis_covers_the_same_indices_in_enough_pieces(
        lengths in prop::collection::vec(0_u64..20, 1..6),
        wanted in 0_usize..30,
    ) {
        let axis = Axis::try_from_lengths(lengths).unwrap();
        let refined = axis.refined(wanted);
        prop_assert_eq!(refined.extent(), axis.extent());
        let filled = axis.intervals().filter(|interval| !interval.is_empty()).count();
        let possible = usize::try_from(axis.extent()).unwrap();
        prop_assert_eq!(refined.num_intervals(), wanted.min(possible).max(filled).max(1));
        // Old cuts stay, and no piece is empty unless there is nothing.
        prop_assert!(axis.cuts().iter().all(|cut| refined.cuts().contains(cut)));
        prop_assert!(axis.extent() == 0 || refined.intervals().all(|interval| !interval.is_empty()));
    }
}

#[test]
fn a_rank_past_the_last_is_refused() {
    let error = Ranks::try_new(0, 2, [0, 2]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert_eq!(error.message(), "a rank must be less than 2, got 2");
    Ranks::try_new(2, 2, [0]).unwrap_err();
}

#[test]
fn ranks_with_other_columns_get_the_same_error() {
    let locals = [Some(int_grid(&[2], &[1])), Some(int_grid(&[2], &[2]))];
    let parts = parts(&locals);
    let errors: Vec<String> = (0..2)
        .map(|rank| PartitionGrid::try_from_ranks(&parts, rank, locals[rank].as_ref()))
        .map(|grid| grid.unwrap_err().to_string())
        .collect();
    assert_eq!(errors[0], errors[1]);
    assert!(
        errors[0].contains("rank 0 has 1, rank 1 has 2"),
        "{}",
        errors[0]
    );
}

#[test]
fn the_draft_of_a_rank_names_its_tiles_and_the_processes_of_others() {
    let locals = [Some(int_grid(&[2, 1], &[2])), Some(int_grid(&[4], &[2]))];
    let described = describe(&on_all(&locals)[1]);
    assert_eq!(described.locals, Some(vec![vec![2, 0]]));
    let there = Location::new("10.0.0.7".parse().unwrap(), 1, Device::CPU);
    assert_eq!(described.partitions[0].locations, [Place::Process(there)]);
    assert_eq!(
        described.partitions[2].locations,
        [Place::Process(Location::here())]
    );
    assert_eq!(describe(&int_grid(&[1], &[1])).locals, None);
}

#[test]
fn heat_gets_one_partition_for_each_rank() {
    let locals = [
        Some(int_grid(&[2, 1], &[1, 1])),
        None,
        Some(int_grid(&[4], &[1, 1])),
    ];
    let described = describe_for_heat(&on_all(&locals)[2], ElementType::Int64).unwrap();
    assert_eq!(described.partition_tiling, [3, 1]);
    assert_eq!(described.locals, Some(vec![vec![2, 0]]));
    let numbers: Vec<_> = described
        .partitions
        .iter()
        .map(|partition| {
            (
                partition.start[0],
                partition.shape[0],
                &partition.locations[..],
            )
        })
        .collect();
    assert_eq!(
        numbers,
        [
            (0, 3, &[Place::Rank(0)][..]),
            (3, 0, &[Place::Rank(1)]),
            (3, 4, &[Place::Rank(2)])
        ]
    );
    assert!(!is_balanced_for_heat(&described));
    let even = [Some(int_grid(&[2], &[1])), Some(int_grid(&[1], &[1]))];
    let even = describe_for_heat(&on_all(&even)[0], ElementType::Int64).unwrap();
    assert!(is_balanced_for_heat(&even));
}

#[test]
fn heat_gets_no_rows_out_of_the_order_of_the_ranks() {
    let grid = on_all(&[Some(int_grid(&[2], &[2])), Some(int_grid(&[2], &[2]))]).remove(0);
    let mixed = |owners: &[usize], columns: &[u64]| {
        let bands = owners.len() / columns.len();
        let plain = int_grid(&vec![1; bands], columns);
        let mut builder = GridBuilder::try_new(
            plain.schema().clone(),
            plain.rows().clone(),
            plain.columns().clone(),
        )
        .unwrap()
        .with_ranks(Ranks::try_new(0, 2, owners).unwrap())
        .unwrap();
        for (position, tile) in plain.geometry().positions().zip(plain.tiles()) {
            builder.set(&position, tile.clone()).unwrap();
        }
        describe_for_heat(&builder.build().unwrap(), ElementType::Int64)
    };
    let error = mixed(&[1, 0], &[2]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(
        error
            .to_string()
            .contains("rank 0 has rows below those of rank 1"),
        "{error}"
    );
    let error = mixed(&[0, 1, 1, 1], &[1, 1]).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("two ranks have tiles of one row band"),
        "{error}"
    );
    mixed(&[0, 1], &[2]).unwrap();
    for element in [
        ElementType::UInt16,
        ElementType::UInt64,
        ElementType::Float16,
    ] {
        let error = describe_for_heat(&grid, element).unwrap_err();
        assert!(error.to_string().contains("dtype="), "{error}");
    }
}

#[test]
fn xgboost_ray_gets_whole_rows_and_the_address_of_the_node() {
    let described = describe_for_xgboost_ray(&int_grid(&[3, 0, 2], &[1, 2]), 4, "10.0.0.7");
    let rows: Vec<_> = described.partitions.iter().map(Partition::rows).collect();
    assert_eq!(rows, [0..1, 1..2, 2..3, 3..5]);
    assert_eq!(described.partition_tiling, [4, 1]);
    assert_eq!(described.partitions[0].shape, [1, 3]);
    assert_eq!(
        described.partitions[0].locations,
        [Place::Node("10.0.0.7".to_owned())]
    );
    assert_eq!(described.locals, None);
}
