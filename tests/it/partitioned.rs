//! The `__partitioned__` draft as plain data: every number against the grid, and the draft's own second example.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, Field, Schema};
use partgrid::error::ErrorKind;
use partgrid::grid::{AbsentTile, Axis, GridBuilder, PartitionGrid, Tile};
use partgrid::location::{Device, Location};
use partgrid::partitioned::{
    Claim, ClaimedPartition, FrameKeys, Part, Partition, Place, check, describe, import,
    location_parts,
};
use proptest::prelude::*;

use crate::support::int_grid;

#[test]
fn the_second_example_of_the_draft_comes_out_with_its_numbers() {
    let described = describe(&int_grid(&[4, 4], &[4, 4]));
    assert_eq!(
        (described.shape, described.partition_tiling),
        (vec![8, 8], vec![2, 2])
    );
    let numbers: Vec<_> = described
        .partitions
        .iter()
        .map(|partition| {
            (
                &partition.position[..],
                &partition.start[..],
                &partition.shape[..],
            )
        })
        .collect();
    let shape: &[u64] = &[4, 4];
    assert_eq!(
        numbers,
        [
            (&[0, 0][..], &[0, 0][..], shape),
            (&[0, 1], &[0, 4], shape),
            (&[1, 0], &[4, 0], shape),
            (&[1, 1], &[4, 4], shape),
        ]
    );
}

#[test]
fn every_position_is_there_once_in_row_major_order_with_its_region() {
    let grid = int_grid(&[3, 0, 5, 1], &[1, 2]);
    let described = describe(&grid);
    let positions: Vec<Vec<usize>> = grid.geometry().positions().collect();
    assert_eq!(positions.len(), 8);
    for (partition, position) in described.partitions.iter().zip(&positions) {
        let region = grid.geometry().region(position).unwrap();
        assert_eq!(&partition.position, position);
        assert_eq!(
            (&partition.start[..], &partition.shape[..]),
            (region.start(), region.shape())
        );
    }
    let elements = |partition: &Partition| partition.shape.iter().product::<u64>();
    assert_eq!(
        described.partitions.iter().map(elements).sum::<u64>(),
        9 * 3
    );
}

#[test]
fn locations_are_distinct_and_this_process_comes_first() {
    let here = Location::here();
    let there = Location::new("10.0.0.2".parse().unwrap(), 7, Device::CPU);
    let gpu = Location::new(here.host(), here.process(), "kDLCUDA:1".parse().unwrap());
    let given = vec![
        there.clone(),
        gpu.clone(),
        here.clone(),
        there.clone(),
        here.clone(),
    ];
    let described = describe(&far_grid(given));
    assert_eq!(
        described.partitions[0].locations,
        [here, there, gpu].map(Place::Process)
    );
    assert!(
        describe(&far_grid(Vec::new())).partitions[0]
            .locations
            .is_empty()
    );
}

#[test]
fn a_location_in_host_memory_has_two_parts_and_one_on_a_device_three() {
    let host = location_parts(&Location::new("10.0.0.2".parse().unwrap(), 7, Device::CPU));
    assert_eq!(
        (host.host.as_str(), host.process, host.device),
        ("10.0.0.2", 7, None)
    );
    let gpu = Location::new("::1".parse().unwrap(), 9, "kDLOneAPI:0".parse().unwrap());
    let gpu = location_parts(&gpu);
    assert_eq!((gpu.host.as_str(), gpu.process), ("::1", 9));
    assert_eq!(gpu.device.as_deref(), Some("kDLOneAPI:0"));
}

#[test]
fn a_grid_without_rows_has_its_empty_partition() {
    let schema = Arc::new(Schema::new(vec![Field::new("n", DataType::Int32, true)]));
    let described = describe(&PartitionGrid::try_from_batches(schema, &[]).unwrap());
    assert_eq!(
        (described.shape, described.partition_tiling),
        (vec![0, 1], vec![1, 1])
    );
    assert_eq!(described.partitions[0].shape, [0, 1]);
}

// In a time that grows with their square it would not end.
#[test]
fn a_million_tiles_are_described() {
    let schema = Arc::new(Schema::new(vec![Field::new("n", DataType::Int32, true)]));
    let tile = Tile::try_from_batch(&RecordBatch::new_empty(Arc::clone(&schema))).unwrap();
    let rows = Axis::try_from_lengths(vec![0; 1_000_000]).unwrap();
    let mut builder = GridBuilder::try_new(schema, rows, Axis::uncut(1)).unwrap();
    for row_band in 0..1_000_000 {
        builder.set(&[row_band, 0], tile.clone()).unwrap();
    }
    let grid = builder.build().unwrap();
    assert_eq!(describe(&grid).partitions.len(), 1_000_000);
}

proptest! {
    #[test]
    fn what_is_described_checks_as_the_same_grid_in_any_order(
        rows in prop::collection::vec(0_u64..5, 1..6),
        columns in prop::collection::vec(1_u64..4, 1..4),
        turn in 0_usize..30,
    ) {
        let grid = int_grid(&rows, &columns);
        let mut claim = claim_of(&grid);
        let count = claim.partitions.len();
        claim.partitions.rotate_left(turn % count);
        prop_assert_eq!(&check(&claim).unwrap().geometry, grid.geometry());
    }

    #[test]
    fn no_other_number_passes(
        entry in 0_usize..6,
        which in 0_usize..6,
        number in prop_oneof![0_u64..12, Just(u64::MAX), Just(1 << 63)],
    ) {
        let grid = int_grid(&[3, 4], &[1, 2, 1]);
        let good = claim_of(&grid);
        let mut claim = good.clone();
        let partition = &mut claim.partitions[entry];
        let numbers = [&mut partition.position, &mut partition.start, &mut partition.shape];
        numbers.into_iter().nth(which / 2).unwrap()[which % 2] = number;
        match check(&claim) {
            Ok(_) => prop_assert_eq!(claim, good),
            Err(error) => {
                prop_assert_eq!(error.kind(), ErrorKind::Protocol);
                let text = error.to_string();
                prop_assert!(text.starts_with("partitions") || text.starts_with("shape"), "{}", text);
            }
        }
    }
}

#[test]
fn a_claim_of_huge_numbers_costs_no_memory() {
    let entry = ClaimedPartition {
        position: vec![0, 0],
        start: vec![0, 0],
        shape: vec![u64::MAX, 1],
    };
    let claim = |tiling: [u64; 2]| Claim {
        shape: vec![u64::MAX, 1],
        partition_tiling: tiling.to_vec(),
        partitions: vec![entry.clone()],
    };
    assert_eq!(
        check(&claim([1, 1])).unwrap().geometry.shape(),
        [u64::MAX, 1]
    );
    for tiling in [[u64::MAX, u64::MAX], [1 << 62, 1], [0, 1]] {
        let error = check(&claim(tiling)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Protocol);
    }
}

#[test]
fn an_imported_grid_has_the_values_of_the_parts_and_outlines_of_the_others() {
    let grid = int_grid(&[2, 3], &[1, 2]);
    let checked = check(&claim_of(&grid)).unwrap();
    let there = Location::new("10.0.0.9".parse().unwrap(), 3, Device::CPU);
    let mut parts: Vec<Part> = grid
        .tiles()
        .iter()
        .map(|tile| Part::Here(tile.open().unwrap()))
        .collect();
    let whole = import(&checked, &parts, FrameKeys::default()).unwrap();
    assert_eq!(
        whole.open_row_band(1).unwrap(),
        grid.open_row_band(1).unwrap()
    );
    parts[1] = Part::Elsewhere(vec![there.clone()]);
    let half = import(&checked, &parts, FrameKeys::default()).unwrap();
    let tile = half.tile(&[0, 1]).unwrap();
    assert_eq!((tile.num_rows(), tile.locations()), (2, vec![there]));
    assert_eq!(tile.open().unwrap_err().kind(), ErrorKind::NotLocal);
    parts[3] = Part::Elsewhere(Vec::new());
    let error = import(&checked, &parts, FrameKeys::default()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotLocal);
}

fn claim_of(grid: &PartitionGrid) -> Claim {
    let described = describe(grid);
    let numbers = |numbers: &[usize]| numbers.iter().map(|number| *number as u64).collect();
    Claim {
        shape: described.shape.clone(),
        partition_tiling: numbers(&described.partition_tiling),
        partitions: described
            .partitions
            .iter()
            .map(|partition| ClaimedPartition {
                position: numbers(&partition.position),
                start: partition.start.clone(),
                shape: partition.shape.clone(),
            })
            .collect(),
    }
}

fn far_grid(locations: Vec<Location>) -> PartitionGrid {
    let schema = Arc::new(Schema::new(vec![Field::new("n", DataType::Int32, true)]));
    let tile = AbsentTile::new(Arc::clone(&schema), 4, locations);
    let mut builder = GridBuilder::try_new(schema, Axis::uncut(4), Axis::uncut(1)).unwrap();
    builder.set(&[0, 0], Tile::new(Arc::new(tile))).unwrap();
    builder.build().unwrap()
}
