//! What each member does in a load in another order.
//!
//! Comes in: messages of the member that was asked for the load, with tiles of files or pieces of a group. Goes out: keys of some rows; pieces in the catalog, of the rows of each group; tiles in the catalog, of the rows of
//! a group in order, and what is known of their values. The message of another member is not believed. Never here: which rows go where (`load`), the load as a whole (`arrange.rs`).

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::Schema;
use futures::future::try_join_all;
use futures::{StreamExt, TryStreamExt, stream};
use prost::Message;

use super::arrange::lengths;
use crate::cluster::Cluster;
use crate::cluster::codec::message::{Arrange, Arranged, FORMAT, Step};
use crate::cluster::codec::tiles::{broken, id_bits};
use crate::error::{Error, ErrorKind, Result};
use crate::grid::{Axis, GridBuilder, GridId, PartitionGrid, Tile};
use crate::load::Cut;
use crate::query::max_threads;
use crate::share::told;

/// How many pieces are read at a time.
const PIECES_AT_ONCE: usize = 8;

/// # Errors
/// `Internal` when the thread ended.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| Error::internal("a thread that arranged rows ended").with_source(error))?
}

impl Cluster {
    /// Does its part of a load in another order, as the member says that was asked for it.
    ///
    /// # Errors
    /// `InvalidData` for a message that cannot be, whatever stands in the way of reading and writing.
    pub(crate) async fn arrange_part(&self, message: &[u8]) -> Result<Vec<u8>> {
        let message = Arrange::decode(message).map_err(|_| broken("its bytes"))?;
        if message.format != FORMAT {
            return Err(broken("tiles in the format of another version"));
        }
        if let Some(wanted) = &message.wanted {
            wanted.check()?;
        }
        let tiles = message.tiles.as_ref().ok_or_else(|| broken("no tiles"))?;
        let part = self.tile_codec(None).read(tiles)?;
        let arranged = match Step::try_from(message.step) {
            Ok(Step::Keys) => some_keys(part, message).await?,
            Ok(Step::Scatter) => self.scattered(part, message).await?,
            Ok(Step::Gather) => self.gathered(part, message).await?,
            Err(_) => return Err(broken("what is to be done")),
        };
        Ok(arranged.encode_to_vec())
    }

    async fn scattered(&self, part: PartitionGrid, message: Arrange) -> Result<Arranged> {
        let catalog = self.catalog()?;
        let id = GridId::from_bits(id_bits(&message.grid)?);
        let wanted = Arc::new(message.wanted.ok_or_else(|| broken("no order"))?);
        check_numbers(&part, &message.numbers)?;
        let (part, numbers) = (&part, message.numbers.into_iter().enumerate());
        let each = numbers.map(|(row_band, number)| {
            let wanted = Arc::clone(&wanted);
            async move {
                let fetched = part.row_band(row_band).iter().map(|tile| {
                    let all: Vec<usize> = (0..tile.data().schema().fields().len()).collect();
                    async move { tile.data().fetch(&all).await }
                });
                let batch = part.join_row_band(row_band, &try_join_all(fetched).await?)?;
                let pieces = blocking(move || wanted.scattered(&batch, number)).await?;
                let position = usize::try_from(number).map_err(|_| broken("a row band"))?;
                let mut files = Vec::with_capacity(pieces.len());
                for (group, piece) in pieces {
                    let tile = Tile::try_from_batch(&piece)?;
                    files.push(catalog.write(id, &[position, group], &tile).await?);
                }
                Ok::<_, Error>(files)
            }
        });
        let each: Vec<_> = each.collect();
        let files: Vec<Vec<String>> = stream::iter(each)
            .buffer_unordered(max_threads())
            .try_collect()
            .await?;
        Ok(Arranged {
            files: files.into_iter().flatten().collect(),
            ..Arranged::default()
        })
    }

    async fn gathered(&self, part: PartitionGrid, message: Arrange) -> Result<Arranged> {
        let catalog = self.catalog()?;
        let id = GridId::from_bits(id_bits(&message.grid)?);
        let wanted = message.wanted.ok_or_else(|| broken("no order"))?;
        let [group] = message.numbers.as_slice() else {
            return Err(broken("several groups at a time"));
        };
        let group = usize::try_from(*group).map_err(|_| broken("a group"))?;
        // The pieces, and the rows in order beside them.
        let (needed, limit) = (
            part.memory_bytes().saturating_mul(2),
            self.session.memory_limit_bytes(),
        );
        if needed > limit as u64 {
            let text = format!(
                "a group of rows that are brought into order together takes {needed} bytes, this member has {limit}"
            );
            return Err(Error::new(ErrorKind::ResourcesExhausted, text).with_hint(
                "raise limits.memory, or load with fewer tile_rows or more num_partitions",
            ));
        }
        let schema = Arc::clone(part.schema());
        let all: Vec<usize> = (0..schema.fields().len()).collect();
        let fetched = part.tiles().iter().map(|tile| tile.data().fetch(&all));
        let fetched: Vec<_> = fetched.collect();
        let batches: Vec<RecordBatch> = stream::iter(fetched)
            .buffered(PIECES_AT_ONCE)
            .try_collect()
            .await?;
        let columns = Axis::try_from_lengths(message.band_columns)?;
        let arranging = move || {
            let pieces = PartitionGrid::try_from_batches(Arc::clone(&schema), &batches)?;
            let bands = wanted.arranged(&pieces, group)?;
            drop(pieces);
            if bands.is_empty() {
                return Ok(None);
            }
            let grid = in_bands(&schema, &bands, columns)?;
            let statistics = told(&grid)?;
            Ok(Some((grid, statistics)))
        };
        // Nothing may have come to a group.
        let Some((grid, statistics)) = blocking(arranging).await? else {
            return Ok(Arranged::default());
        };
        let each = grid.geometry().positions().zip(grid.tiles());
        let each = each.map(|(position, tile)| async move {
            let written = catalog.write(id, &position, tile).await;
            written.map_err(|error| error.with_position(&position))
        });
        let each: Vec<_> = each.collect();
        let files = stream::iter(each).buffered(max_threads()).try_collect();
        Ok(Arranged {
            files: files.await?,
            lengths: lengths(grid.rows()),
            statistics,
            ..Arranged::default()
        })
    }
}

/// # Errors
/// `InvalidData` for another number of row bands than there are.
fn check_numbers(part: &PartitionGrid, numbers: &[u64]) -> Result<()> {
    match part.rows().num_intervals() == numbers.len() {
        true => Ok(()),
        false => Err(broken("the positions of tiles")),
    }
}

/// Batches one below the other, in column bands.
fn in_bands(schema: &Arc<Schema>, batches: &[RecordBatch], columns: Axis) -> Result<PartitionGrid> {
    if columns.extent() != schema.fields().len() as u64 {
        return Err(broken("the columns of its column bands"));
    }
    let rows = Axis::try_from_lengths(batches.iter().map(|batch| batch.num_rows() as u64))?;
    let mut builder = GridBuilder::try_new(Arc::clone(schema), rows, columns.clone())?;
    for (row_band, batch) in batches.iter().enumerate() {
        for (band, interval) in columns.intervals().enumerate() {
            let numbers = interval.map(|number| usize::try_from(number).unwrap_or(usize::MAX));
            let tile = batch.project(&numbers.collect::<Vec<_>>())?;
            builder.set(&[row_band, band], Tile::try_from_batch(&tile)?)?;
        }
    }
    builder.build()
}

/// Keys of some rows of row bands.
async fn some_keys(part: PartitionGrid, message: Arrange) -> Result<Arranged> {
    let wanted = Arc::new(message.wanted.ok_or_else(|| broken("no order"))?);
    check_numbers(&part, &message.numbers)?;
    let most = message.most_keys;
    let (part, numbers) = (&part, message.numbers.into_iter().enumerate());
    let each = numbers.map(|(row_band, number)| {
        let wanted = Arc::clone(&wanted);
        async move {
            let batch = only(part.row_band(row_band), &wanted.cut_by()).await?;
            blocking(move || wanted.keys(&batch, number, most)).await
        }
    });
    let each: Vec<_> = each.collect();
    let keys: Vec<Vec<Cut>> = stream::iter(each)
        .buffer_unordered(max_threads())
        .try_collect()
        .await?;
    Ok(Arranged {
        keys: keys.into_iter().flatten().collect(),
        ..Arranged::default()
    })
}

/// Some columns of a row band, by their names.
async fn only(tiles: &[Tile], names: &[&str]) -> Result<RecordBatch> {
    let (mut fields, mut values) = (Vec::new(), Vec::new());
    for tile in tiles {
        let schema = tile.data().schema();
        let known = schema.fields().iter().enumerate();
        let wanted = known.filter(|(_, field)| names.contains(&field.name().as_str()));
        let wanted: Vec<usize> = wanted.map(|(number, _)| number).collect();
        if !wanted.is_empty() {
            let batch = tile.data().fetch(&wanted).await?;
            fields.extend(batch.schema().fields().iter().cloned());
            values.extend(batch.columns().iter().cloned());
        }
    }
    Ok(RecordBatch::try_new(Arc::new(Schema::new(fields)), values)?)
}
