//! Writing the tiles of a grid.
//!
//! Comes in: a grid. Goes out: the same grid, whose tiles know their files in the catalog; or the first error, once nothing of it is being written any more. Never here: manifests, which say what counts.

use std::future::Future;
use std::sync::Arc;

use bytes::Bytes;
use futures::StreamExt;
use futures::stream::FuturesOrdered;

use super::manifest::{TileFile, checksum};
use super::paths::{TILES, unique};
use super::tile::KeptTile;
use super::{Catalog, WRITING_MEBIBYTES};
use crate::error::{Error, Result};
use crate::grid::{GridBuilder, GridId, PartitionGrid, Tile};
use crate::share::ipc;

/// Tiles that are encoded and written at once.
const TILES_AT_ONCE: usize = 16;

impl Catalog {
    /// Writes the tiles of a grid that are not in this catalog yet; gives the same grid, whose tiles know their files. It has no name: files are removed when it is dropped, before it is kept under one.
    ///
    /// # Errors
    /// Whatever stands in the way of reading its tiles and of writing.
    pub async fn write_all(&self, grid: &Arc<PartitionGrid>) -> Result<Arc<PartitionGrid>> {
        match self.holds(grid) {
            true => Ok(Arc::clone(grid)),
            false => Ok(self.write_grid(grid).await?.0),
        }
    }

    pub(super) async fn write_grid(
        &self,
        grid: &Arc<PartitionGrid>,
    ) -> Result<(Arc<PartitionGrid>, Vec<TileFile>)> {
        let (rows, columns) = (grid.rows().clone(), grid.columns().clone());
        let builder = GridBuilder::try_new(Arc::clone(grid.schema()), rows, columns)?;
        let mut builder = builder.with_order(grid.order().clone())?.with_id(grid.id());
        let each = grid.geometry().positions().zip(grid.tiles());
        let each = each.map(|(position, tile)| self.tile_in(grid.id(), position, tile));
        let written = all_or_none(each.collect());
        let written = self.while_writing(grid.id(), written).await?;
        let mut files = Vec::with_capacity(written.len());
        for (file, tile) in written {
            builder.set(&file.position, tile)?;
            files.push(file);
        }
        let written = builder.build()?.with_loads(grid.loads().to_vec());
        Ok((Arc::new(written), files))
    }

    /// A tile in this catalog; it may be there already: rows are appended to what stays.
    async fn tile_in(
        &self,
        grid: GridId,
        position: Vec<usize>,
        tile: &Tile,
    ) -> Result<(TileFile, Tile)> {
        match KeptTile::of(tile, &self.files) {
            Some(known) => Ok((known.clone().at(&position), tile.clone())),
            None => self.write_tile(grid, &position, tile).await,
        }
    }

    pub(super) async fn write_tile(
        &self,
        grid: GridId,
        position: &[usize],
        tile: &Tile,
    ) -> Result<(TileFile, Tile)> {
        let mebibytes = u32::try_from(tile.data().memory_bytes() >> 20).unwrap_or(u32::MAX);
        let turn = self
            .room
            .acquire_many(mebibytes.clamp(1, WRITING_MEBIBYTES));
        let _turn = turn.await.map_err(|error| {
            Error::internal("nobody may write to the catalog any more").with_source(error)
        })?;
        let schema = tile.data().schema();
        let all: Vec<usize> = (0..schema.fields().len()).collect();
        let batch = tile.data().fetch(&all).await;
        let batch = batch.map_err(|error| error.with_position(position))?;
        let encoded = batch.clone();
        let written = tokio::task::spawn_blocking(move || {
            let mut bytes = Vec::new();
            ipc::write(&encoded, &[], &mut bytes)?;
            let sum = checksum(&bytes);
            Ok::<_, Error>((bytes, sum))
        });
        let written = written.await.map_err(|error| {
            Error::internal("a thread that wrote a tile ended").with_source(error)
        })?;
        let (bytes, sum) = written.map_err(|error| error.with_position(position))?;
        let place: Vec<String> = position.iter().map(ToString::to_string).collect();
        let file = TileFile {
            position: position.to_vec(),
            path: format!("{TILES}/{grid}-{}-{}.arrow", place.join("-"), unique()?),
            bytes: bytes.len() as u64,
            checksum: sum,
            rows: tile.num_rows(),
            memory_bytes: tile.data().memory_bytes(),
        };
        let data = KeptTile::new(&self.files, file.clone(), Arc::clone(&schema));
        let (catalog, path) = (self.clone(), file.path.clone());
        // Not to be left half way: what nobody waits for any more is removed once it is written.
        let putting = tokio::spawn(async move {
            let is_new = catalog.put_once(&path, Bytes::from(bytes)).await;
            (is_new, data)
        });
        let (is_new, data) = putting.await.map_err(|error| {
            Error::internal("a task that wrote a tile ended").with_source(error)
        })?;
        if !is_new? {
            return Err(Error::internal("a name that is drawn at random was taken"));
        }
        data.keep_batch(batch);
        let num_columns = schema.fields().len();
        let known = (0..num_columns).map(|column| tile.known_statistics(column).cloned());
        Ok((file, Tile::with_statistics(Arc::new(data), known)))
    }
}

/// What all make, in order, some at once. After an error none begins any more, and it is told once those that have begun are done: whoever tries again does not meet them.
async fn all_or_none<T>(each: Vec<impl Future<Output = Result<T>>>) -> Result<Vec<T>> {
    let mut made = Ok(Vec::with_capacity(each.len()));
    let mut waiting = each.into_iter();
    let mut running: FuturesOrdered<_> = waiting.by_ref().take(TILES_AT_ONCE).collect();
    while let Some(one) = running.next().await {
        match (&mut made, one) {
            (Ok(all), Ok(one)) => all.push(one),
            (Ok(_), Err(error)) => made = Err(error),
            (Err(_), _) => {}
        }
        if made.is_ok() {
            running.extend(waiting.next());
        }
    }
    made
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use futures::executor::block_on;

    use super::*;

    /// What becomes of tiles of which those of some numbers fail, each after as many steps as its number from behind; and which were done.
    fn made_of(count: usize, failing: &[usize]) -> (Result<Vec<usize>>, Vec<usize>) {
        let done = RefCell::new(Vec::new());
        let each = (0..count).map(|number| {
            let done = &done;
            async move {
                for _ in number..count {
                    tokio::task::yield_now().await;
                }
                done.borrow_mut().push(number);
                match failing.contains(&number) {
                    true => Err(Error::internal(format!("tile {number}"))),
                    false => Ok(number),
                }
            }
        });
        let made = block_on(all_or_none(each.collect()));
        (made, done.into_inner())
    }

    #[test]
    fn all_are_made_in_order() {
        let (made, mut done) = made_of(3 * TILES_AT_ONCE, &[]);
        let all: Vec<usize> = (0..3 * TILES_AT_ONCE).collect();
        assert_eq!(made.unwrap(), all);
        assert_ne!(done, all);
        done.sort_unstable();
        assert_eq!(done, all);
    }

    #[test]
    fn an_error_is_told_once_what_has_begun_is_done() {
        let (made, mut done) = made_of(3 * TILES_AT_ONCE, &[2, 5]);
        assert!(made.unwrap_err().to_string().contains("tile 2"));
        done.sort_unstable();
        // Two more have begun when the third is known to have failed.
        let begun: Vec<usize> = (0..TILES_AT_ONCE + 2).collect();
        assert_eq!(done, begun);
    }
}
