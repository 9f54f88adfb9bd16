//! Where tiles of files come from, for other processes.
//!
//! Comes in: tiles of lazy grids, and such that another process has told of. Goes out: a message with what makes them: files by URL, size and etag, row groups, columns, values of folders. `read.rs` makes tiles of it in another process. Never here:
//! rows, keys of stores, who reads which tile.

mod loaded;
mod opened;
mod read;
#[cfg(test)]
mod told;

use loaded::LoadedTile;
pub(super) use loaded::remembering;
pub(crate) use read::{LineageReader, read_ahead};
use read::{LineageTile, of_other};

use std::any::Any;
use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow::datatypes::{DataType, Field, Schema};
use prost::Message;

use super::layout::{Plan, ReadTask};
use super::lazy::{LazyTile, SourceId};
use super::schema::Origin;
use super::source::{Place, SourceFile, check_source};
use crate::error::{Error, Result};
use crate::grid::{GridId, Tile};
use crate::share::ipc;

/// What the tiles of a lazy grid have in common.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Lineage {
    /// A number of the grid, 16 bytes.
    #[prost(bytes = "vec", tag = "1")]
    id: Vec<u8>,
    /// All columns, as an IPC file without rows.
    #[prost(bytes = "vec", tag = "2")]
    schema: Vec<u8>,
    /// Where the values of each come from: 0 files, 1 folders, 2 both.
    #[prost(uint32, repeated, tag = "3")]
    origins: Vec<u32>,
    /// What texts are read as: 0 as in the files, else [`TEXTS`].
    #[prost(uint32, tag = "4")]
    text: u32,
    #[prost(message, repeated, tag = "5")]
    files: Vec<FileLineage>,
}

/// The types that texts are read as, from 1 on.
const TEXTS: [DataType; 3] = [DataType::Utf8, DataType::LargeUtf8, DataType::Utf8View];

/// A file of a lazy grid.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct FileLineage {
    /// Its number in the grid.
    #[prost(uint32, tag = "1")]
    number: u32,
    /// The URL of its store; none for a path of the file system.
    #[prost(string, optional, tag = "2")]
    store: Option<String>,
    #[prost(string, tag = "3")]
    path: String,
    /// As messages name it.
    #[prost(string, tag = "4")]
    name: String,
    #[prost(uint64, tag = "5")]
    size_bytes: u64,
    #[prost(string, optional, tag = "6")]
    stamp: Option<String>,
    /// Whether it was written long enough before it was listed for its stamp to tell it from what is written later.
    #[prost(bool, tag = "10")]
    is_settled: bool,
    /// The folders above it.
    #[prost(message, repeated, tag = "7")]
    folders: Vec<Folder>,
    /// One row with the values of the columns that folders give, as an IPC file.
    #[prost(bytes = "vec", tag = "8")]
    values: Vec<u8>,
    /// All row bands of it that the grid has.
    #[prost(message, repeated, tag = "9")]
    tasks: Vec<Task>,
}

#[derive(Clone, PartialEq, Eq, Message)]
struct Folder {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(string, optional, tag = "2")]
    value: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
struct Task {
    #[prost(uint64, tag = "1")]
    first_row_group: u64,
    #[prost(uint64, tag = "2")]
    num_row_groups: u64,
    #[prost(uint64, tag = "3")]
    skip_rows: u64,
    #[prost(uint64, tag = "4")]
    num_rows: u64,
}

fn lazy(tile: &Tile) -> Option<&LazyTile> {
    let data: &dyn Any = tile.data().as_ref();
    data.downcast_ref()
}

/// From where this process reads a tile, or has read it.
struct OfPlan<'a> {
    plan: &'a Plan,
    id: SourceId,
    task: usize,
    first_column: usize,
}

fn of_plan(tile: &Tile) -> Option<OfPlan<'_>> {
    let data: &dyn Any = tile.data().as_ref();
    if let Some(tile) = data.downcast_ref::<LoadedTile>() {
        return Some(OfPlan {
            plan: &tile.from.plan,
            id: tile.from.id,
            task: tile.task,
            first_column: tile.first_column,
        });
    }
    lazy(tile).map(|tile| OfPlan {
        plan: tile.source.plan(),
        id: tile.source.id(),
        task: tile.task,
        first_column: tile.columns.first().copied().unwrap_or_default(),
    })
}

/// The grid and file of a tile of a lazy grid, of this process or of another one, if other processes can be told where it lies: no store that the caller built or gave settings for, and no file without a stamp, which might be another when they read it.
pub(crate) fn task_place(tile: &Tile) -> Option<(u128, usize)> {
    if let Some(LineageTile { of, .. }) = of_other(tile) {
        let (grid, number) = of.id;
        let number = usize::try_from(number).ok();
        return Some((grid.bits(), number.filter(|_| of.file.stamp.is_some())?));
    }
    if !lazy(tile)?.source.is_plain() {
        return None;
    }
    place_of(&of_plan(tile)?)
}

/// The same also of tiles that this process has read of files, and has in memory.
pub(crate) fn source_place(tile: &Tile) -> Option<(u128, usize)> {
    let data: &dyn Any = tile.data().as_ref();
    match data.is::<LoadedTile>() {
        true => place_of(&of_plan(tile)?),
        false => task_place(tile),
    }
}

fn place_of(of: &OfPlan<'_>) -> Option<(u128, usize)> {
    let task = of.plan.tasks.get(of.task)?;
    let has_stamp = of.plan.files.get(task.file)?.stamp.is_some();
    has_stamp.then_some((of.id.0.bits(), task.file))
}

/// The bytes of a tile of a lazy grid in its file, as loads count them; 0 of other tiles.
pub(crate) fn file_bytes(tile: &Tile) -> u64 {
    let Some(tile) = lazy(tile) else {
        return 0;
    };
    let plan = tile.source.plan();
    let task = plan.tasks.get(tile.task);
    let columns = task
        .into_iter()
        .flat_map(|task| tile.columns.iter().map(move |column| (task, *column)));
    columns
        .map(|(task, column)| plan.sizes(task, column).file_bytes)
        .sum()
}

/// Whether the file of a tile lies below one of these places.
pub(crate) fn is_below(tile: &Tile, places: &[String]) -> bool {
    if let Some(tile) = of_other(tile) {
        return check_source(places, &full_name(&tile.of.file)).is_ok();
    }
    let of = of_plan(tile);
    let file = of.and_then(|of| of.plan.files.get(of.plan.tasks.get(of.task)?.file));
    file.is_some_and(|file| check_source(places, &full_name(file)).is_ok())
}

/// Whether a source of a load lies below one of these places.
pub(crate) fn is_allowed(places: &[String], source: &str) -> bool {
    check_source(places, source).is_ok()
}

/// The absolute path, or the URL.
fn full_name(file: &SourceFile) -> String {
    match &file.place {
        Place::Local(path) => path.display().to_string(),
        Place::Remote { .. } => file.name.clone(),
    }
}

/// Lineages that are being written down, each grid and file once.
#[derive(Default)]
pub(crate) struct Lineages {
    pub(crate) all: Vec<Lineage>,
    places: HashMap<GridId, u32>,
    files: HashMap<(GridId, usize), u32>,
}

/// The name of a tile in [`Lineages`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LineagePlace {
    pub(crate) lineage: u32,
    pub(crate) file: u32,
    pub(crate) task: u64,
    pub(crate) first_column: u64,
}

fn broken(what: &str) -> Error {
    Error::invalid_data(format!("the lineage of a tile is damaged: {what}"))
}

impl Lineages {
    /// The place of a tile, whose grid and file are written down if they are not yet; `None` for other tiles than those of lazy grids, of this process or of others, and such that were loaded and know from where.
    ///
    /// # Errors
    /// `Internal` where numbers do not fit.
    pub(crate) fn place(&mut self, tile: &Tile) -> Result<Option<LineagePlace>> {
        if let Some(tile) = of_other(tile) {
            return self.place_again(tile).map(Some);
        }
        let Some(of) = of_plan(tile) else {
            return Ok(None);
        };
        let (plan, id) = (of.plan, of.id);
        let task = plan.tasks.get(of.task).ok_or_else(|| broken("a task"))?;
        let lineage = self.lineage(id.0, || Lineage::of(plan, id))?;
        let file = self.file((id.0, task.file), lineage, || {
            FileLineage::of(plan, task.file)
        })?;
        let before = plan.tasks.get(..of.task).unwrap_or_default();
        let same = before.iter().rev().take_while(|one| one.file == task.file);
        Ok(Some(LineagePlace {
            lineage,
            file,
            task: same.count() as u64,
            first_column: of.first_column as u64,
        }))
    }

    /// The place of a tile that another process has told of, which is told as it was.
    fn place_again(&mut self, tile: &LineageTile) -> Result<LineagePlace> {
        let (of, (grid, number)) = (&tile.of, tile.of.id);
        let number = usize::try_from(number).map_err(|_| broken("too many files"))?;
        let lineage = self.lineage(grid, || Ok(Lineage::clone(&of.of_all)))?;
        let file = self.file((grid, number), lineage, || Ok(of.told.clone()))?;
        Ok(LineagePlace {
            lineage,
            file,
            task: tile.task as u64,
            first_column: tile.columns.first().copied().unwrap_or_default() as u64,
        })
    }

    /// The place of the lineage of a grid.
    fn lineage(&mut self, grid: GridId, told: impl FnOnce() -> Result<Lineage>) -> Result<u32> {
        if let Some(place) = self.places.get(&grid) {
            return Ok(*place);
        }
        let place = u32::try_from(self.all.len()).map_err(|_| broken("too many"))?;
        self.all.push(told()?);
        self.places.insert(grid, place);
        Ok(place)
    }

    /// The place of a file in the lineage of its grid.
    fn file(
        &mut self,
        file: (GridId, usize),
        lineage: u32,
        told: impl FnOnce() -> Result<FileLineage>,
    ) -> Result<u32> {
        if let Some(place) = self.files.get(&file) {
            return Ok(*place);
        }
        let files = self.all.get_mut(lineage as usize);
        let files = &mut files.ok_or_else(|| broken("a place"))?.files;
        let place = u32::try_from(files.len()).map_err(|_| broken("too many"))?;
        files.push(told()?);
        self.files.insert(file, place);
        Ok(place)
    }
}

fn written(batch: &RecordBatch) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    ipc::write(batch, &[], &mut bytes)?;
    Ok(bytes)
}

impl Lineage {
    fn of(plan: &Plan, (grid, _): SourceId) -> Result<Self> {
        let origins = plan.columns.origins.iter().map(|origin| match origin {
            Origin::File => 0,
            Origin::Folder(_) => 1,
            Origin::Both(_) => 2,
        });
        let text = plan.text.as_ref();
        let text = text.and_then(|text| TEXTS.iter().position(|known| known == text));
        Ok(Self {
            id: grid.bits().to_le_bytes().to_vec(),
            schema: written(&RecordBatch::new_empty(Arc::clone(&plan.columns.schema)))?,
            origins: origins.collect(),
            text: text
                .map_or(Ok(0), |text| u32::try_from(text + 1))
                .unwrap_or(0),
            files: Vec::new(),
        })
    }
}

impl FileLineage {
    fn of(plan: &Plan, number: usize) -> Result<Self> {
        let file = plan.files.get(number).ok_or_else(|| broken("a file"))?;
        let (store, path) = match &file.place {
            Place::Local(path) => (None, path.display().to_string()),
            Place::Remote { remote, path } => (Some(remote.root().to_owned()), path.to_string()),
        };
        let of_file = |task: &&ReadTask| task.file == number;
        let tasks = plan.tasks.iter().filter(of_file).map(|task| Task {
            first_row_group: task.row_groups.start as u64,
            num_row_groups: task.row_groups.len() as u64,
            skip_rows: task.skip_rows,
            num_rows: task.num_rows,
        });
        let folders = file.hive.iter().map(|key| Folder {
            key: key.key.clone(),
            value: key.value.clone(),
        });
        Ok(Self {
            number: u32::try_from(number).map_err(|_| broken("too many files"))?,
            store,
            path,
            name: file.name.clone(),
            size_bytes: file.size_bytes,
            stamp: file.stamp.clone(),
            is_settled: file.settled,
            folders: folders.collect(),
            values: written(&folder_values(plan, number)?)?,
            tasks: tasks.collect(),
        })
    }
}

/// What the folders above a file say, a column for each column of the grid that they give.
fn folder_values(plan: &Plan, number: usize) -> Result<RecordBatch> {
    let hives = plan
        .columns
        .origins
        .iter()
        .filter_map(|origin| match origin {
            Origin::File => None,
            Origin::Folder(hive) | Origin::Both(hive) => Some(hive),
        });
    let (mut fields, mut values) = (Vec::new(), Vec::new());
    for hive in hives {
        let value: &ArrayRef = hive.values.get(number).ok_or_else(|| broken("a folder"))?;
        let field = Field::new(hive.field.name(), value.data_type().clone(), true);
        fields.push(field);
        values.push(Arc::clone(value));
    }
    let options = RecordBatchOptions::new().with_row_count(Some(1));
    let schema = Arc::new(Schema::new(fields));
    Ok(RecordBatch::try_new_with_options(schema, values, &options)?)
}
