//! Rows of clients -> grids under names.
//!
//! Comes in: batches, as they come; the name, and what to do when there is such a grid. Goes out: a grid of tiles of the usual size, under its name all at once or not at all. Never here: messages.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::compute::{cast, concat_batches};
use arrow::datatypes::{DataType, Field, SchemaRef};
use arrow_flight::sql::{CommandStatementIngest, TableExistsOption, TableNotExistOption};

use super::again;
use super::upload::is_kept;
use crate::error::{Error, ErrorKind, Result};
use crate::flight::ACK;
use crate::grid::{Axis, GridBuilder, LoadMark, PartitionGrid, Tile, slice_bytes};
use crate::query::{CATALOG, SCHEMA};
use crate::serve::door::auth::{Caller, Scope};
use crate::serve::door::call::Call;
use crate::serve::service::Service;
use crate::serve::watch::health;

/// A tile is finished when it has so many rows or bytes.
const TILE_ROWS: usize = 1024 * 1024;
const TILE_BYTES: u64 = 128 * 1024 * 1024;

/// The option of a command that says what is to be so before its rows are acknowledged.
const ACK_OPTION: &str = "ack";

/// The longest name of a grid.
pub(in crate::serve) const MAX_NAME_BYTES: usize = 200;

/// What to do with the rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Target {
    name: String,
    if_missing: bool,
    if_there: IfThere,
    /// Whether the rows are kept, where the server keeps grids.
    is_kept: bool,
}

/// What to do when there is a grid of the name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum IfThere {
    Fail,
    Append,
    Replace,
}

impl Target {
    /// The target of a command.
    ///
    /// # Errors
    /// `InvalidArgument` for a name that none may have, `PermissionDenied` for one that the caller may not see, `Unsupported` for temporary tables, other catalogs, and rows that are to last where the server keeps nothing.
    pub(super) fn of(
        service: &Service,
        call: &Call,
        ingest: &CommandStatementIngest,
    ) -> Result<Self> {
        check_right(&call.caller, &ingest.table)?;
        if ingest.temporary {
            let text = "the server has no temporary tables";
            return Err(Error::unsupported(text).with_hint("drop the table when it is done"));
        }
        for (given, known) in [(&ingest.catalog, CATALOG), (&ingest.schema, SCHEMA)] {
            if let Some(given) = given.as_deref().filter(|given| !given.is_empty())
                && given != known
            {
                let text = format!("tables are in {CATALOG}.{SCHEMA}, got {given:?}");
                return Err(Error::not_found(text));
            }
        }
        let others = ingest.options.keys().filter(|option| *option != ACK_OPTION);
        // Always the same of several.
        if let Some(option) = others.min() {
            let text =
                format!("the server knows one option of ingestion, {ACK_OPTION:?}, got {option:?}");
            return Err(Error::unsupported(text));
        }
        let is_kept = is_kept(service, acknowledge(call, ingest)?)?;
        let wanted = ingest.table_definition_options.as_ref();
        let if_missing =
            wanted.is_none_or(|wanted| wanted.if_not_exist() != TableNotExistOption::Fail);
        let if_there = match wanted.map(|wanted| wanted.if_exists()) {
            None | Some(TableExistsOption::Unspecified | TableExistsOption::Fail) => IfThere::Fail,
            Some(TableExistsOption::Append) => IfThere::Append,
            Some(TableExistsOption::Replace) => IfThere::Replace,
        };
        Ok(Self {
            name: ingest.table.clone(),
            if_missing,
            if_there,
            is_kept,
        })
    }
}

impl Target {
    /// Sees that rows can be kept under the name, if they are to be and unless the load was done before, so that nothing is sent in vain.
    ///
    /// # Errors
    /// `InvalidData` for the name of a table that is damaged; why the catalog cannot be written.
    pub(super) async fn check(&self, service: &Service, load_id: Option<&str>) -> Result<()> {
        health::check_whole(service, &self.name)?;
        let before = service.session.named(&self.name)?;
        let was_done = before.is_some_and(|before| again::is_known(load_id, &before));
        match self.is_kept && !was_done {
            true => health::check_durable(service).await,
            false => Ok(()),
        }
    }

    /// Whether what was put under the name outlives the server.
    pub(super) fn is_durable(&self, service: &Service) -> bool {
        self.is_kept && service.catalog.is_some()
    }

    /// What is done with the rows, as a number: other rows and another deed are another load.
    pub(super) fn mode(&self) -> u8 {
        match self.if_there {
            IfThere::Fail => 0,
            IfThere::Append => 1,
            IfThere::Replace => 2,
        }
    }
}

/// What is to be so before rows are acknowledged, as an option of the command or a header says it.
fn acknowledge<'a>(call: &'a Call, ingest: &'a CommandStatementIngest) -> Result<Option<&'a str>> {
    let option = ingest.options.get(ACK_OPTION).map(String::as_str);
    let header = call.acknowledge.as_deref();
    match (option, header) {
        (Some(option), Some(header)) if option != header => Err(Error::invalid_argument(format!(
            "the option {ACK_OPTION} and the header {ACK} must say the same, got {option:?} and {header:?}"
        ))),
        _ => Ok(option.or(header)),
    }
}

/// Whether a caller may put a grid under a name.
///
/// # Errors
/// As [`check_name`]; `PermissionDenied` without the right to write, or to names like this.
pub(in crate::serve) fn check_right(caller: &Caller, name: &str) -> Result<()> {
    caller.require(Scope::Write)?;
    check_name(name)?;
    if caller.may_see(name) {
        return Ok(());
    }
    let text = format!("the token `{}` has no right to this name", caller.name());
    let names: Vec<String> = caller
        .patterns()
        .iter()
        .flat_map(|patterns| patterns.iter())
        .map(|pattern| format!("`{pattern}`"))
        .collect();
    let hint = format!(
        "it is for names like {}: take one of these, or ask the administrator for another token",
        names.join(", ")
    );
    Err(Error::new(ErrorKind::PermissionDenied, text)
        .with_context("table", name)
        .with_hint(hint))
}

/// # Errors
/// `InvalidArgument` for a name that is empty, too long, or has control characters.
pub(in crate::serve) fn check_name(name: &str) -> Result<()> {
    if name.is_empty() || name.len() > MAX_NAME_BYTES || name.chars().any(char::is_control) {
        let text = format!(
            "the name of a grid must have 1 to {MAX_NAME_BYTES} bytes and no control characters, got {name:?}"
        );
        return Err(Error::invalid_argument(text));
    }
    Ok(())
}

/// Rows that have come so far.
#[derive(Default)]
pub(super) struct Incoming {
    finished: Vec<RecordBatch>,
    open: Vec<RecordBatch>,
    open_rows: usize,
    open_bytes: u64,
    bytes: u64,
}

impl Incoming {
    /// Takes a batch.
    ///
    /// # Errors
    /// `ResourcesExhausted` past the limit.
    pub(super) async fn add(&mut self, batch: RecordBatch, most: u64) -> Result<()> {
        let bytes = slice_bytes(&batch);
        self.bytes += bytes;
        if self.bytes > most {
            let text = format!("an upload may have {most} bytes, got more");
            return Err(Error::new(ErrorKind::ResourcesExhausted, text)
                .with_hint("send it in parts that are appended, or ask the administrator to raise limits.upload_bytes"));
        }
        if batch.num_rows() == 0 {
            return Ok(());
        }
        self.open_rows += batch.num_rows();
        self.open_bytes += bytes;
        self.open.push(batch);
        if self.open_rows >= TILE_ROWS || self.open_bytes >= TILE_BYTES {
            self.finish().await?;
        }
        Ok(())
    }

    /// Makes one batch of those that are open: what is many messages becomes one tile.
    async fn finish(&mut self) -> Result<()> {
        let open = std::mem::take(&mut self.open);
        (self.open_rows, self.open_bytes) = (0, 0);
        let joined = tokio::task::spawn_blocking(move || join(&open)).await;
        let joined = joined.map_err(|error| {
            Error::internal("a thread that joined rows ended").with_source(error)
        })?;
        self.finished.extend(joined?);
        Ok(())
    }

    /// The grid of all.
    ///
    /// # Errors
    /// `InvalidArgument` for columns that no grid has.
    pub(super) async fn grid(mut self, schema: SchemaRef) -> Result<PartitionGrid> {
        if !self.open.is_empty() {
            self.finish().await?;
        }
        PartitionGrid::try_from_batches(schema, &self.finished)
    }
}

fn join(batches: &[RecordBatch]) -> Result<Option<RecordBatch>> {
    match batches {
        [] => Ok(None),
        // It may be a slice of a larger message: nothing but its rows is to stay.
        [first, ..] => Ok(Some(concat_batches(&first.schema(), batches)?)),
    }
}

/// Puts a grid under the name of a target, at once, and kept where the server has a catalog and the client did not want memory alone. Nothing is done where the load that it came of has done so before.
///
/// # Errors
/// `Query` when there is, or is no, such table, as the target says; `InvalidArgument` when rows to append have other columns; `Unsupported` when they are to be in memory alone and the table is kept; whatever stands in the way of keeping it.
pub(super) async fn name(
    service: &Service,
    target: &Target,
    grid: PartitionGrid,
    load: Option<LoadMark>,
) -> Result<()> {
    let name = &target.name;
    let load = load.as_ref();
    let was_done =
        |before: &PartitionGrid| load.map_or(Ok(false), |load| again::was_done(load, before));
    if let Some(before) = service.session.named(name)?
        && was_done(&before)?
        && (!target.is_durable(service) || service.is_kept(&before))
    {
        return Ok(());
    }
    let grid = Arc::new(grid.with_loads(again::with(&[], load)));
    let grid = match target.if_there {
        // It is fitted to the table first.
        IfThere::Append => grid,
        _ if !target.is_kept => grid,
        _ => service.session.write_ahead(name, grid).await?,
    };
    let make = |before: Option<&Arc<PartitionGrid>>| match before {
        // It was done meanwhile.
        Some(before) if was_done(before)? => Ok(Arc::clone(before)),
        Some(_) if target.if_there == IfThere::Fail => {
            let error = wrong("the table exists already", name);
            Err(error.with_hint("append to it, or replace it"))
        }
        None if !target.if_missing => Err(wrong("there is no such table to append to", name)),
        Some(before) if target.if_there == IfThere::Append => {
            if !target.is_kept && service.is_kept(before) {
                return Err(is_kept_already(name));
            }
            let marks = again::with(before.loads(), load);
            Ok(Arc::new(appended(before, &grid)?.with_loads(marks)))
        }
        _ => Ok(grid),
    };
    let session = &service.session;
    if target.is_kept {
        return session.put(name, make).await.map(drop);
    }
    let make_here = |before: Option<&Arc<PartitionGrid>>| {
        let made = make(before)?;
        service.check_room(name, &made)?;
        Ok(made)
    };
    session.put_here(name, make_here).await.map(drop)
}

/// What is kept of a table would be forgotten, were the table in memory alone from now on.
fn is_kept_already(name: &str) -> Error {
    Error::unsupported("rows cannot be appended in memory alone to a table that is kept")
        .with_context("table", name)
        .with_hint("append them without ack, or put them into a table of their own")
}

fn wrong(text: &str, name: &str) -> Error {
    Error::new(ErrorKind::Query, text).with_context("table", name)
}

/// The rows of one grid below those of another, in the column bands of the first one; tiles are shared.
fn appended(before: &PartitionGrid, more: &PartitionGrid) -> Result<PartitionGrid> {
    let fitted = fitted(more, before.schema())?;
    let more = fitted.as_ref().unwrap_or(more);
    if before.schema().fields() != more.schema().fields() {
        let text = format!(
            "rows to append must have the columns of the table, got {} for {}",
            listed(more.schema()),
            listed(before.schema())
        );
        return Err(Error::invalid_argument(text));
    }
    if more.num_rows() == 0 {
        return Ok(before.clone());
    }
    let lengths = |grid: &PartitionGrid| {
        let intervals = grid.rows().intervals().map(|part| part.end - part.start);
        intervals.collect::<Vec<_>>()
    };
    let both = [lengths(before), lengths(more)].concat();
    let rows = Axis::try_from_lengths(both)?;
    let columns = before.columns().clone();
    let mut builder = GridBuilder::try_new(Arc::clone(before.schema()), rows, columns)?;
    for (position, tile) in before.geometry().positions().zip(before.tiles()) {
        builder.set(&position, tile.clone())?;
    }
    let num_before = before.rows().num_intervals();
    for row_band in 0..more.rows().num_intervals() {
        let batch = more.open_row_band(row_band)?;
        for (column_band, part) in before.columns().intervals().enumerate() {
            let numbers: Vec<usize> = part.filter_map(|at| usize::try_from(at).ok()).collect();
            let tile = Tile::try_from_batch(&batch.project(&numbers)?)?;
            builder.set(&[num_before + row_band, column_band], tile)?;
        }
    }
    builder.build()
}

/// The grid with the text, bytes and nullability of other columns, where nothing but the layout differs and no value is lost; `None` where that is not so, or not needed.
fn fitted(more: &PartitionGrid, wanted: &SchemaRef) -> Result<Option<PartitionGrid>> {
    let given = more.schema();
    if given.fields() == wanted.fields() || given.fields().len() != wanted.fields().len() {
        return Ok(None);
    }
    let is_alike = |(given, wanted): (&Arc<Field>, &Arc<Field>)| {
        given.name() == wanted.name() && same_values(given.data_type(), wanted.data_type())
    };
    if !given.fields().iter().zip(wanted.fields()).all(is_alike) {
        return Ok(None);
    }
    let mut batches = Vec::new();
    for row_band in 0..more.rows().num_intervals() {
        let batch = more.open_row_band(row_band)?;
        let columns = batch.columns().iter().zip(wanted.fields());
        let cast = columns.map(|(column, field)| cast(column, field.data_type()));
        let cast = cast.collect::<Result<Vec<_>, _>>()?;
        // A null where there may be none is refused.
        let fitted = RecordBatch::try_new(Arc::clone(wanted), cast).map_err(|error| {
            Error::invalid_argument(format!("rows to append must fit the columns: {error}"))
        })?;
        batches.push(fitted);
    }
    PartitionGrid::try_from_batches(Arc::clone(wanted), &batches).map(Some)
}

/// Whether two types have the same values in another layout.
fn same_values(one: &DataType, other: &DataType) -> bool {
    use DataType::{Binary, BinaryView, LargeBinary, LargeUtf8, Utf8, Utf8View};
    let is_text = |kind: &DataType| matches!(kind, Utf8 | LargeUtf8 | Utf8View);
    let is_bytes = |kind: &DataType| matches!(kind, Binary | LargeBinary | BinaryView);
    one == other || (is_text(one) && is_text(other)) || (is_bytes(one) && is_bytes(other))
}

fn listed(schema: &SchemaRef) -> String {
    let fields = schema.fields().iter().map(|field| {
        let null = if field.is_nullable() { "" } else { " not null" };
        format!("{} {}{null}", field.name(), field.data_type())
    });
    fields.collect::<Vec<_>>().join(", ")
}
