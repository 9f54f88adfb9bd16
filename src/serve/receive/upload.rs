//! Grids under construction: tiles that clients send one by one.
//!
//! Comes in: a name and cuts, then tiles in any order, over any connections, then the word that all are there. Goes out: a grid under the name, all at once. An upload of which nothing is heard for a while is
//! forgotten, with what came of it; sooner when all connections on which somebody worked at it have ended. Never here: messages of Arrow.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use arrow::datatypes::SchemaRef;

use super::again::{self, Sum};
use super::held::Held;
use super::ingest::check_right;
use super::visit::{Visit, Visitors};
use crate::error::{Error, ErrorKind, Result};
use crate::flight::messages::{Acknowledgement, BeginUpload};
use crate::flight::{schema_bytes, schema_of};
use crate::grid::{Axis, GridBuilder, LoadMark, PartitionGrid, Tile, slice_bytes};
use crate::serve::door::auth::{Caller, Scope};
use crate::serve::door::call::Call;
use crate::serve::service::Service;
use crate::serve::watch::health;

/// The most tiles of one grid.
const MAX_TILES: usize = 100_000;

/// Of the time for which a client may be silent, the part for which one whose connections have ended may stay away.
const GRACE_OF_SILENCE: u32 = 3;

/// A grid of which tiles are still missing.
pub(in crate::serve) struct Construction {
    name: String,
    replace: bool,
    /// Whether it is kept, where the server keeps grids.
    is_kept: bool,
    schema: SchemaRef,
    rows: Axis,
    columns: Axis,
    /// What the client calls it, if it may repeat it.
    load_id: Option<String>,
    /// Whether the grid of the name says that it was done before.
    is_repeated: bool,
    parts: Mutex<Parts>,
    /// Who sends it.
    senders: Arc<Visitors>,
    /// Ends with it.
    life: Visit,
}

/// A tile that came.
struct Came {
    tile: Tile,
    /// What was sent, where the upload may be repeated.
    sum: String,
    _held: Vec<Held>,
}

#[derive(Default)]
struct Parts {
    tiles: BTreeMap<[usize; 2], Came>,
    bytes: u64,
    is_ended: bool,
}

impl Construction {
    /// Begins one.
    ///
    /// # Errors
    /// `PermissionDenied` without the right to write the name, `Query` when it is taken, `InvalidArgument` for cuts that are none.
    pub(in crate::serve) fn begin(
        service: &Service,
        caller: &Caller,
        wanted: BeginUpload,
    ) -> Result<Self> {
        check_right(caller, &wanted.name)?;
        health::check_whole(service, &wanted.name)?;
        let load_id = again::id_of(&wanted.load_id)?;
        let before = service.session.named(&wanted.name)?;
        let is_known = |before: &Arc<PartitionGrid>| again::is_known(load_id.as_deref(), before);
        let is_repeated = before.as_ref().is_some_and(is_known);
        if before.is_some() && !wanted.replace && !is_repeated {
            return Err(taken(&wanted.name));
        }
        let acknowledge = Some(wanted.acknowledge.as_str()).filter(|word| !word.is_empty());
        let is_kept = is_kept(service, acknowledge)?;
        let schema = schema_of(&wanted.schema)?;
        let (rows, columns) = (
            Axis::try_new(wanted.row_cuts)?,
            Axis::try_new(wanted.column_cuts)?,
        );
        let num_tiles = rows.num_intervals().saturating_mul(columns.num_intervals());
        if num_tiles > MAX_TILES {
            let text =
                format!("a grid that is uploaded may have {MAX_TILES} tiles, got {num_tiles}");
            return Err(
                Error::new(ErrorKind::ResourcesExhausted, text).with_hint("make its tiles larger")
            );
        }
        // Names, cuts and columns that do not fit are said now, not after all tiles came.
        GridBuilder::try_new(Arc::clone(&schema), rows.clone(), columns.clone())?;
        Ok(Self {
            name: wanted.name,
            replace: wanted.replace,
            is_kept,
            schema,
            rows,
            columns,
            load_id,
            is_repeated,
            parts: Mutex::default(),
            senders: Arc::default(),
            life: Visit::default(),
        })
    }

    /// Sees that it can be kept, if it is to be and was not before, so that nothing is sent in vain.
    ///
    /// # Errors
    /// Why the catalog cannot be written.
    pub(in crate::serve) async fn check_durable(&self, service: &Service) -> Result<()> {
        match self.is_kept && !self.is_repeated {
            true => health::check_durable(service).await.map_err(|error| {
                let hint = format!(
                    "{}; an upload with ack=\"memory\" is not kept",
                    health::NOTHING_BEGUN
                );
                error.with_hint(hint)
            }),
            false => Ok(()),
        }
    }

    fn parts(&self) -> MutexGuard<'_, Parts> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a tile in its place; one that is there already is replaced, so that a tile can be sent again.
    ///
    /// # Errors
    /// `InvalidArgument` for a tile of other rows or columns than its place, `ResourcesExhausted` past the limit.
    pub(super) fn set(
        &self,
        position: [usize; 2],
        schema: &SchemaRef,
        batches: &[RecordBatch],
        held: (Vec<Held>, u64),
    ) -> Result<()> {
        let (held, most_bytes) = held;
        let [row_band, column_band] = position;
        let nowhere = || Error::not_found("the grid has no such place").with_position(&position);
        let rows = self.rows.interval(row_band).ok_or_else(nowhere)?;
        let columns = self.columns.interval(column_band).ok_or_else(nowhere)?;
        let numbers: Vec<usize> = columns.filter_map(|at| usize::try_from(at).ok()).collect();
        let wanted = self.schema.project(&numbers)?;
        if wanted.fields() != schema.fields() {
            let text = "the tile must have the columns of its column band, it has others";
            return Err(Error::invalid_argument(text).with_position(&position));
        }
        let batch = concat_batches(&Arc::new(wanted), batches)?;
        if batch.num_rows() as u64 != rows.end - rows.start {
            let text = format!(
                "the tile must have {} rows, got {}",
                rows.end - rows.start,
                batch.num_rows()
            );
            return Err(Error::invalid_argument(text).with_position(&position));
        }
        let bytes = slice_bytes(&batch);
        let mut sum = Sum::default();
        if self.load_id.is_some() {
            sum.add_batch(&batch)?;
        }
        let tile = Tile::try_from_batch(&batch)?;
        let mut parts = self.parts();
        if parts.is_ended {
            return Err(crate::serve::door::call::unknown("upload"));
        }
        if parts.bytes.saturating_add(bytes) > most_bytes {
            let text = format!("an upload may have {most_bytes} bytes, got more");
            return Err(Error::new(ErrorKind::ResourcesExhausted, text));
        }
        parts.bytes += bytes;
        let came = Came {
            tile,
            sum: sum.all(),
            _held: held,
        };
        if let Some(before) = parts.tiles.insert(position, came) {
            let bytes = before.tile.data().memory_bytes();
            parts.bytes = parts.bytes.saturating_sub(bytes);
        }
        Ok(())
    }

    /// Puts the grid under its name, kept where the server has a catalog and the client did not want memory alone.
    ///
    /// # Errors
    /// `InvalidArgument` when tiles are missing, `Query` when the name was taken meanwhile, whatever stands in the way of keeping it; then nothing has changed.
    pub(in crate::serve) async fn commit(
        &self,
        service: &Service,
        caller: &Caller,
    ) -> Result<Acknowledgement> {
        caller.require(Scope::Write)?;
        let (rows, columns) = (self.rows.clone(), self.columns.clone());
        let mut builder = GridBuilder::try_new(Arc::clone(&self.schema), rows, columns)?;
        {
            let parts = self.parts();
            if parts.is_ended {
                return Err(crate::serve::door::call::unknown("upload"));
            }
            for (position, came) in &parts.tiles {
                builder.set(position, came.tile.clone())?;
            }
        }
        let grid = builder.build()?;
        let num_rows = grid.num_rows();
        let load = self.mark(num_rows)?;
        let load = load.as_ref();
        let was_done =
            |before: &PartitionGrid| load.map_or(Ok(false), |load| again::was_done(load, before));
        let before = service.session.named(&self.name)?;
        let outlives = |grid: &PartitionGrid| {
            let catalog = service.catalog.as_ref();
            catalog.is_none_or(|catalog| catalog.holds(grid))
        };
        if let Some(before) = before
            && was_done(&before)?
            && (!self.is_kept || outlives(&before))
        {
            return Ok(self.ended(service, num_rows));
        }
        let grid = Arc::new(grid.with_loads(again::with(&[], load)));
        let session = &service.session;
        let free = |grid| {
            move |before: Option<&Arc<PartitionGrid>>| match before {
                // It was done meanwhile.
                Some(before) if was_done(before)? => Ok(Arc::clone(before)),
                Some(_) if !self.replace => Err(taken(&self.name)),
                _ => Ok(grid),
            }
        };
        if self.is_kept {
            let grid = session.write_ahead(&self.name, grid).await?;
            session.put(&self.name, free(grid)).await?;
        } else {
            service.check_room(&self.name, &grid)?;
            session.put_here(&self.name, free(grid)).await?;
        }
        Ok(self.ended(service, num_rows))
    }

    /// What is known of the load that it is, if the client gave it an id: the columns, the cuts and the rows that came.
    fn mark(&self, num_rows: u64) -> Result<Option<LoadMark>> {
        let Some(id) = self.load_id.clone() else {
            return Ok(None);
        };
        let mut sum = Sum::default();
        sum.add(&schema_bytes(&self.schema)?);
        for axis in [&self.rows, &self.columns] {
            for cut in axis.cuts() {
                sum.add(&cut.to_le_bytes());
            }
        }
        for came in self.parts().tiles.values() {
            sum.add(came.sum.as_bytes());
        }
        let digest = sum.all();
        Ok(Some(LoadMark {
            id,
            digest,
            num_rows,
        }))
    }

    /// Lets go of the tiles, and takes no more.
    pub(in crate::serve) fn give_up(&self) {
        let mut parts = self.parts();
        parts.is_ended = true;
        parts.tiles.clear();
    }

    /// Lets go of the tiles, and says what is promised.
    fn ended(&self, service: &Service, num_rows: u64) -> Acknowledgement {
        self.give_up();
        Acknowledgement {
            is_durable: self.is_kept && service.catalog.is_some(),
            num_rows,
        }
    }
}

/// Whether a grid is to be kept of which this must be so before it is acknowledged; where nothing is said, the most that the server does.
///
/// # Errors
/// `Unsupported` where it is to be durable and the server keeps nothing, `InvalidArgument` for another word.
pub(super) fn is_kept(service: &Service, acknowledge: Option<&str>) -> Result<bool> {
    match acknowledge {
        None => Ok(true),
        Some("memory") => Ok(false),
        Some("durable") if service.catalog.is_some() => Ok(true),
        Some("durable") => {
            let text = "the server has no catalog: what it takes ends with it";
            Err(Error::unsupported(text)
                .with_hint("ask for \"memory\", or have the administrator set server.catalog"))
        }
        Some(other) => Err(Error::invalid_argument(format!(
            "what an upload waits for must be memory or durable, got {other:?}"
        ))),
    }
}

/// There is a grid of the name.
pub(in crate::serve) fn taken(name: &str) -> Error {
    Error::new(ErrorKind::Query, "the table exists already")
        .with_context("table", name)
        .with_hint("if_exists=\"replace\" replaces it; or choose another name")
}

/// Keeps one for its caller, until it is there as a grid, is given up, or its senders have gone away.
///
/// # Errors
/// As [`Named::keep`](super::answers::Named::keep).
pub(in crate::serve) fn keep(
    service: &Arc<Service>,
    call: &Call,
    begun: Construction,
) -> Result<[u8; 16]> {
    let begun = Arc::new(begun);
    let uploads = &service.answers.uploads;
    let name = uploads.keep(&call.caller, Arc::clone(&begun))?;
    if let Some(connected) = &call.connected {
        begun.senders.add(&connected.visitor);
        let (senders, ended) = (Arc::clone(&begun.senders), begun.life.visitor());
        let grace = service.limits.silence / GRACE_OF_SILENCE;
        let service = Arc::downgrade(service);
        tokio::spawn(async move {
            tokio::select! {
                () = ended.gone() => {}
                () = senders.gone_for(grace) => abandon(&service, &name),
            }
        });
    }
    Ok(name)
}

/// Forgets one that nobody sends any more.
fn abandon(service: &Weak<Service>, name: &[u8; 16]) {
    let Some(service) = service.upgrade() else {
        return;
    };
    if let Some(upload) = service.answers.uploads.forget(name) {
        upload.give_up();
        tracing::info!(table = %upload.name, "an upload was given up: its client went away");
    }
}

/// The upload of a name, at which somebody works on the connection of the call.
///
/// # Errors
/// `NotFound` for another's.
pub(in crate::serve) fn find(
    service: &Service,
    call: &Call,
    name: &[u8],
) -> Result<Arc<Construction>> {
    let found = service.answers.uploads.find(&call.caller, name)?;
    if let Some(connected) = &call.connected {
        found.senders.add(&connected.visitor);
    }
    Ok(found)
}
