//! Grids -> a server.
//!
//! Comes in: a grid, a name. Goes out: the same grid on the server, tile for tile, under the name once all of it is there. Tiles are read one row band after the other, so that a lazy grid need not fit
//! into memory. Never here: what the server does with it.

use std::sync::{Arc, OnceLock};

use arrow_flight::{FlightData, FlightDescriptor};
use futures::{FutureExt, StreamExt, stream};
use prost::Message;

use super::connection::Client;
use crate::error::{Error, ErrorKind, Result};
use crate::flight::messages::{Acknowledgement, BeginUpload, Named, Upload, UploadCommand};
use crate::flight::{Compression, encoded, schema_bytes};
use crate::grid::{PartitionGrid, Tile};

/// What to do when the server has a grid of the name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum IfExists {
    /// It is an error.
    #[default]
    Fail,
    /// The new one takes its place, all at once.
    Replace,
}

/// What must be so before the server acknowledges a grid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durability {
    /// The most that it does: the grid outlives it where it has a catalog.
    #[default]
    Most,
    /// The grid outlives it; a server without a catalog refuses before anything is sent.
    Durable,
    /// It has all of the grid in memory. The grid ends with the server, also where that has a catalog.
    Memory,
}

impl Durability {
    /// The one of a name: `durable`, `memory`.
    ///
    /// # Errors
    /// `InvalidArgument` for another one.
    pub fn from_name(name: &str) -> Result<Self> {
        match name {
            "durable" => Ok(Self::Durable),
            "memory" => Ok(Self::Memory),
            other => Err(Error::invalid_argument(format!(
                "ack must be \"durable\" or \"memory\", got {other:?}"
            ))),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Most => "",
            Self::Durable => "durable",
            Self::Memory => "memory",
        }
    }
}

/// How a grid is sent.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct UploadOptions {
    if_exists: IfExists,
    durability: Durability,
    load_id: Option<String>,
}

impl UploadOptions {
    /// What to do when the server has a grid of the name.
    #[must_use]
    pub fn with_if_exists(self, if_exists: IfExists) -> Self {
        Self { if_exists, ..self }
    }

    /// What must be so before it is acknowledged.
    #[must_use]
    pub fn with_durability(self, durability: Durability) -> Self {
        Self { durability, ..self }
    }

    /// A name of this upload: sent again with the same name, as after an answer that was lost, the same rows change nothing. Other rows are refused.
    #[must_use]
    pub fn with_load_id(self, load_id: impl Into<String>) -> Self {
        let load_id = Some(load_id.into());
        Self { load_id, ..self }
    }
}

impl From<IfExists> for UploadOptions {
    fn from(if_exists: IfExists) -> Self {
        Self::default().with_if_exists(if_exists)
    }
}

/// The id of a load, as messages have it.
///
/// # Errors
/// `InvalidArgument` for an empty one, which messages take for none.
pub(super) fn said_id(load_id: Option<&str>) -> Result<String> {
    match load_id {
        Some("") => Err(Error::invalid_argument("a load id must not be empty")),
        other => Ok(other.unwrap_or_default().to_owned()),
    }
}

/// What the server promises of a grid that it took.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Acknowledged {
    /// Whether the grid outlives the server.
    pub is_durable: bool,
    /// Its rows.
    pub num_rows: u64,
}

impl Client {
    /// Sends a grid, with its cuts, and puts it under a name once all of it is there. When anything fails, the server forgets what came.
    ///
    /// # Errors
    /// Whatever stands in the way of reading a tile, and whatever the server says.
    pub async fn upload(
        &self,
        grid: &Arc<PartitionGrid>,
        name: &str,
        options: impl Into<UploadOptions>,
    ) -> Result<Acknowledged> {
        let options = options.into();
        let begin = BeginUpload {
            name: name.to_owned(),
            schema: schema_bytes(grid.schema())?.to_vec(),
            row_cuts: grid.rows().cuts().to_vec(),
            column_cuts: grid.columns().cuts().to_vec(),
            replace: options.if_exists == IfExists::Replace,
            acknowledge: options.durability.name().to_owned(),
            load_id: said_id(options.load_id.as_deref())?,
        };
        let begun = self.act("BeginUpload", begin.to_bytes()).await?;
        let upload: Upload = first(&begun)?;
        let sent = self.send(grid, &upload).boxed().await;
        if let Err(error) = sent {
            // It would be forgotten after a while in any case.
            drop(self.act("AbortUpload", upload.to_bytes()).await);
            return Err(error);
        }
        let committed = self.act("CommitUpload", upload.to_bytes()).await?;
        let promised: Acknowledgement = first(&committed)?;
        Ok(Acknowledged {
            is_durable: promised.is_durable,
            num_rows: promised.num_rows,
        })
    }

    async fn send(&self, grid: &Arc<PartitionGrid>, upload: &Upload) -> Result<()> {
        let positions: Vec<Vec<usize>> = grid.geometry().positions().collect();
        for position in positions {
            let tile = grid.tile(&position)?.clone();
            let sent = self
                .send_tile(tile, upload.upload.clone(), &position)
                .boxed();
            sent.await.map_err(|error| error.with_position(&position))?;
        }
        Ok(())
    }

    async fn send_tile(&self, tile: Tile, upload: Vec<u8>, position: &[usize]) -> Result<()> {
        let schema = tile.data().schema();
        let all: Vec<usize> = (0..schema.fields().len()).collect();
        let batch = tile.data().fetch(&all).await?;
        let number = |place: usize| position.get(place).map_or(0, |at| *at as u64);
        let command = UploadCommand {
            upload,
            row_band: number(0),
            column_band: number(1),
        };
        let descriptor = FlightDescriptor::new_cmd(command.to_bytes());
        let batches = stream::iter([Ok(batch)]);
        let messages = encoded(&schema, batches, Compression::None, Some(descriptor))?;
        // What stands in the way of encoding ends the stream; it is said afterwards.
        let failure = Arc::new(OnceLock::new());
        let noted = Arc::clone(&failure);
        let messages = messages.scan(noted, |noted, message: Result<FlightData>| {
            let message = message.map_err(|error| drop(noted.set(error)));
            std::future::ready(message.ok())
        });
        let answered = self.put(messages.boxed()).await;
        match failure.get() {
            Some(error) => Err(Error::clone(error)),
            None => answered.map(drop),
        }
    }
}

/// The message in the first body of an answer.
pub(super) fn first<M: Message + Default>(bodies: &[bytes::Bytes]) -> Result<M> {
    M::decode(body(bodies)?).map_err(|error| not_ours().with_source(error))
}

/// The first body of an answer.
pub(super) fn body(bodies: &[bytes::Bytes]) -> Result<&[u8]> {
    bodies.first().map(AsRef::as_ref).ok_or_else(not_ours)
}

fn not_ours() -> Error {
    Error::new(
        ErrorKind::Protocol,
        "the server answers in words that are not ours",
    )
}
