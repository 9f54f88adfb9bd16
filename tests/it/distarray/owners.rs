//! Grids of SPMD programs as arrays: one section for each tile, or for each rank.

use std::sync::Arc;

use partgrid::distarray::{Columns, Distribution, ExportOptions, Map, Parts, Version};
use partgrid::error::ErrorKind;
use partgrid::grid::{AbsentTile, Axis, GridBuilder, PartitionGrid, Ranks, Tile};

use super::export::{export, ints};
use crate::support::int_grid;

/// A grid of rows in bands of these lengths, whose owners are these ranks, as one of them has it.
fn owned(rows: &[u64], owners: &[usize], rank: usize) -> PartitionGrid {
    let plain = int_grid(rows, &[1]);
    let schema = Arc::clone(plain.schema());
    let num_ranks = owners.iter().max().unwrap() + 1;
    let ranks = Ranks::try_new(rank, num_ranks, owners.to_vec()).unwrap();
    let builder = GridBuilder::try_new(
        Arc::clone(&schema),
        plain.rows().clone(),
        plain.columns().clone(),
    );
    let mut builder = builder.unwrap().with_ranks(ranks).unwrap();
    for (band, owner) in owners.iter().enumerate() {
        let tile = plain.tile(&[band, 0]).unwrap();
        let tile = match *owner == rank {
            true => tile.clone(),
            false => Tile::new(Arc::new(AbsentTile::new(
                Arc::clone(&schema),
                tile.num_rows(),
                Vec::new(),
            ))),
        };
        builder.set(&[band, 0], tile).unwrap();
    }
    builder.build().unwrap()
}

#[test]
fn owners_of_row_bands_make_blocks_cyclic_or_unstructured_dimensions() {
    let lies = |map: &Map, rank: usize| map.dim_data(rank, Version::V0_10).unwrap().dist_type();
    for (rows, owners, kind) in [
        (&[2, 3, 0, 1][..], &[0, 0, 1, 2][..], "b"),
        (&[2, 2, 2, 1], &[0, 1, 0, 1], "c"),
        (&[2, 2, 2, 2, 2], &[0, 1, 2, 0, 1], "c"),
        (&[2, 3, 2, 1], &[0, 1, 0, 1], "u"),
        (&[2, 2, 2, 2], &[0, 1, 1, 0], "u"),
        (&[0, 0, 0], &[0, 1, 0], "u"),
    ] {
        for rank in 0..=*owners.iter().max().unwrap() {
            let grid = owned(rows, owners, rank);
            let options = ExportOptions {
                parts: Parts::Ranks,
                ..ExportOptions::default()
            };
            let array = partgrid::distarray::export(&grid, Columns::One("c0"), &options).unwrap();
            let map = &array.distribution.maps()[0];
            assert_eq!(lies(map, rank), kind, "{owners:?}");
            for section in &array.sections {
                assert_eq!(section.numbers.is_some(), section.rank == rank);
            }
            let indices = map.owned(rank).unwrap().indices;
            let expected: Vec<i64> = indices.iter().map(|index| index * 100).collect();
            assert_eq!(
                ints(&array.sections[rank]),
                expected,
                "{owners:?} rank {rank}"
            );
            // And as tiles: those of others have everything but their elements.
            let tiles = export(&grid, "c0").unwrap();
            let here: Vec<bool> = tiles
                .sections
                .iter()
                .map(|each| each.numbers.is_some())
                .collect();
            assert_eq!(
                here,
                owners
                    .iter()
                    .map(|owner| *owner == rank)
                    .collect::<Vec<_>>()
            );
            let all = Distribution::try_new(vec![Map::block(&Axis::uncut(grid.num_rows()))]);
            let error = tiles.redistributed(&all.unwrap()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::NotLocal);
        }
    }
}
