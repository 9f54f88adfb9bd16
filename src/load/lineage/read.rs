//! Tiles of files of grids of other processes.
//!
//! Comes in: the lineage of tiles. Goes out: tiles that read the same from the same files, or say that a file has changed. What several queries read is kept, up to a limit for all. Never here: what a
//! lineage says.

use std::any::Any;
use std::collections::HashMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::buffer::{Buffer, MutableBuffer};
use arrow::datatypes::{DataType, SchemaRef};
use async_trait::async_trait;
use object_store::path::Path as ObjectPath;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::OnceCell;

use super::opened::OPENED;
use super::{FileLineage, Lineage, LineagePlace, TEXTS, broken};
use crate::error::{Error, ErrorKind, Result};
use crate::grid::{GridId, Tile, TileData};
use crate::load::footer;
use crate::load::hive::{HiveColumn, HiveKey};
use crate::load::layout::{Plan, ReadTask};
use crate::load::lazy::{LazyTile, Source, SourceId};
use crate::load::progress::Counters;
use crate::load::schema::{Columns, Origin};
use crate::load::source::{Place, SourceFile, check_files, check_source, named, remote_of};
use crate::location::Location;
use crate::share::ipc;

/// How many columns of a tile are decoded at a time.
const AT_ONCE: usize = 4;

fn read(bytes: &[u8]) -> Result<RecordBatch> {
    let mut aligned = MutableBuffer::with_capacity(bytes.len());
    aligned.extend_from_slice(bytes);
    let read = ipc::read(&Buffer::from(aligned));
    Ok(read.map_err(|error| broken(&error.to_string()))?.0)
}

impl Lineage {
    fn grid(&self) -> Result<GridId> {
        let bytes: [u8; 16] = self
            .id
            .as_slice()
            .try_into()
            .map_err(|_| broken("its id"))?;
        Ok(GridId::from_bits(u128::from_le_bytes(bytes)))
    }

    /// The columns of one file.
    fn columns(&self, schema: &SchemaRef, file: &FileLineage) -> Result<Columns> {
        let values = read(&file.values)?;
        let mut values = values.columns().iter().zip(
            values
                .schema()
                .fields()
                .clone()
                .iter()
                .cloned()
                .collect::<Vec<_>>(),
        );
        let origins = self.origins.iter().map(|origin| {
            if *origin == 0 {
                return Ok(Origin::File);
            }
            let (value, field) = values.next().ok_or_else(|| broken("a value of a folder"))?;
            let hive = HiveColumn {
                field,
                values: vec![Arc::clone(value)],
            };
            match origin {
                1 => Ok(Origin::Folder(hive)),
                2 => Ok(Origin::Both(hive)),
                _ => Err(broken("where a column comes from")),
            }
        });
        let origins: Vec<Origin> = origins.collect::<Result<_>>()?;
        if origins.len() != schema.fields().len() {
            return Err(broken("its columns"));
        }
        Ok(Columns {
            schema: Arc::clone(schema),
            num_visible: origins.len(),
            origins,
        })
    }
}

/// A refusal with the setting that says what members read.
fn of_members(error: Error) -> Error {
    match error.kind() {
        ErrorKind::PermissionDenied => error.with_hint(
            "start all members of the cluster with the same cluster.shared, which has the place of this file in it",
        ),
        _ => error,
    }
}

impl FileLineage {
    /// The file.
    ///
    /// # Errors
    /// `PermissionDenied` for one that is not below one of the places; as of stores.
    fn source(&self, places: &[String]) -> Result<SourceFile> {
        let place = match &self.store {
            None => {
                check_source(places, &self.path).map_err(of_members)?;
                Place::Local(Arc::from(Path::new(&self.path)))
            }
            Some(store) => {
                let path = ObjectPath::parse(&self.path).map_err(|_| broken("a path"))?;
                // What is checked must be what is read.
                if named(store, &path) != self.name {
                    return Err(broken("the name of a file"));
                }
                check_source(places, &self.name).map_err(of_members)?;
                let remote = remote_of(store)?;
                if remote.root() != store {
                    return Err(broken("the URL of a store"));
                }
                Place::Remote { remote, path }
            }
        };
        let folders = self.folders.iter().map(|folder| HiveKey {
            key: folder.key.clone(),
            value: folder.value.clone(),
        });
        Ok(SourceFile {
            place,
            name: self.name.clone(),
            size_bytes: self.size_bytes,
            stamp: self.stamp.clone(),
            settled: self.is_settled,
            hive: folders.collect(),
        })
    }

    fn tasks(&self) -> Result<Vec<ReadTask>> {
        let place = |number: u64| usize::try_from(number).map_err(|_| broken("a row group"));
        let tasks = self.tasks.iter().map(|task| {
            let end = task.first_row_group.checked_add(task.num_row_groups);
            Ok(ReadTask {
                file: 0,
                row_groups: place(task.first_row_group)?
                    ..place(end.ok_or_else(|| broken("a row group"))?)?,
                skip_rows: task.skip_rows,
                num_rows: task.num_rows,
            })
        });
        tasks.collect()
    }
}

/// A file of a grid of another process, whose footer is read when somebody reads a tile.
pub(super) struct OfFile {
    pub(super) id: SourceId,
    pub(super) file: SourceFile,
    /// What was told of its grid, without files, and of the file: for other processes yet.
    pub(super) of_all: Arc<Lineage>,
    pub(super) told: FileLineage,
    columns: Columns,
    text: Option<DataType>,
    tasks: Vec<ReadTask>,
    /// Below which of these it must lie, also by way of links.
    places: Arc<[String]>,
    opened: OnceCell<Arc<Source>>,
}

impl OfFile {
    async fn source(&self) -> Result<&Arc<Source>> {
        self.opened.get_or_try_init(|| self.open()).await
    }

    async fn open(&self) -> Result<Arc<Source>> {
        if let Some(known) = OPENED.sources.get(&self.id) {
            return Ok(known);
        }
        let files = vec![self.file.clone()];
        let (linked, places) = (files.clone(), Arc::clone(&self.places));
        let checked = tokio::task::spawn_blocking(move || check_files(&places, &linked)).await;
        let checked = checked.map_err(|error| {
            Error::internal("a thread that followed links ended").with_source(error)
        })?;
        checked.map_err(of_members)?;
        let footers = footer::read_all(&files, 1, &Counters::new()).await?;
        let footers = match &self.text {
            Some(text) => footer::with_text(footers, text, &files)?,
            None => footers,
        };
        self.check(&footers)?;
        let plan = Plan {
            files,
            footers,
            columns: self.columns.clone(),
            bands: Vec::new(),
            tasks: self.tasks.clone(),
            filter: None,
            text: self.text.clone(),
        };
        let bounds = (OPENED.limit_bytes, AT_ONCE);
        let source = Arc::new(Source::new(plan, self.id, bounds, OPENED.room.clone()));
        OPENED.sources.insert(self.id, Arc::clone(&source));
        Ok(source)
    }

    /// Sees that the file has the row groups that are to be read.
    fn check(&self, footers: &[footer::Footer]) -> Result<()> {
        let groups = footers.first().map_or(&[][..], |footer| &footer.row_groups);
        for task in &self.tasks {
            let held = groups.get(task.row_groups.clone());
            let held = held.map(|groups| groups.iter().sum::<u64>());
            let wanted = task.skip_rows.saturating_add(task.num_rows);
            if held.is_none_or(|held| held < wanted) {
                return Err(
                    broken("the file has fewer rows than it says").with_file(&self.file.name)
                );
            }
        }
        Ok(())
    }
}

/// A tile of a file of a grid of another process.
pub(super) struct LineageTile {
    pub(super) of: Arc<OfFile>,
    schema: SchemaRef,
    /// Among those of the file.
    pub(super) task: usize,
    pub(super) columns: Vec<usize>,
    num_rows: u64,
    memory_bytes: u64,
}

impl fmt::Debug for LineageTile {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "LineageTile({} of {})",
            self.task, self.of.file.name
        )
    }
}

impl LineageTile {
    async fn lazy(&self) -> Result<LazyTile> {
        Ok(LazyTile {
            source: Arc::clone(self.of.source().await?),
            schema: Arc::clone(&self.schema),
            task: self.task,
            columns: self.columns.clone(),
        })
    }
}

/// The tile, if it is of a file of a grid of another process.
pub(super) fn of_other(tile: &Tile) -> Option<&LineageTile> {
    let data: &dyn Any = tile.data().as_ref();
    data.downcast_ref()
}

/// Reads a tile of a file before anybody asks for it, to be kept for those who do, unless that would take the place of others; says whether it is kept now. Tiles that are of no file are left alone.
///
/// # Errors
/// As reading it.
pub(crate) async fn read_ahead(tile: &Tile) -> Result<bool> {
    let data: &dyn Any = tile.data().as_ref();
    if let Some(tile) = of_other(tile) {
        let source = Arc::clone(tile.of.source().await?);
        return source.read_ahead(tile.task, &tile.columns).await;
    }
    match data.downcast_ref::<LazyTile>() {
        Some(tile) => {
            let source = Arc::clone(&tile.source);
            source.read_ahead(tile.task, &tile.columns).await
        }
        None => Ok(true),
    }
}

/// What reads the tiles of a lineage, each file opened once.
pub(crate) struct LineageReader<'a> {
    lineage: &'a Lineage,
    /// The same without files.
    of_all: Arc<Lineage>,
    schema: SchemaRef,
    places: Arc<[String]>,
    files: HashMap<u32, Arc<OfFile>>,
}

impl<'a> LineageReader<'a> {
    /// For a lineage whose files must lie below one of these places.
    ///
    /// # Errors
    /// `InvalidData` for a message that cannot be.
    pub(crate) fn try_new(lineage: &'a Lineage, places: &[String]) -> Result<Self> {
        Ok(Self {
            schema: read(&lineage.schema)?.schema(),
            of_all: Arc::new(Lineage {
                id: lineage.id.clone(),
                schema: lineage.schema.clone(),
                origins: lineage.origins.clone(),
                text: lineage.text,
                files: Vec::new(),
            }),
            lineage,
            places: Arc::from(places),
            files: HashMap::new(),
        })
    }

    fn file(&mut self, place: u32) -> Result<Arc<OfFile>> {
        if let Some(known) = self.files.get(&place) {
            return Ok(Arc::clone(known));
        }
        let file = self.lineage.files.get(place as usize);
        let file = file.ok_or_else(|| broken("the place of a file"))?;
        let text = match self.lineage.text as usize {
            0 => None,
            text => Some(
                TEXTS
                    .get(text - 1)
                    .ok_or_else(|| broken("a type of texts"))?
                    .clone(),
            ),
        };
        let of = Arc::new(OfFile {
            id: (self.lineage.grid()?, file.number),
            file: file.source(&self.places)?,
            of_all: Arc::clone(&self.of_all),
            told: file.clone(),
            columns: self.lineage.columns(&self.schema, file)?,
            text,
            tasks: file.tasks()?,
            places: Arc::clone(&self.places),
            opened: OnceCell::new(),
        });
        self.files.insert(place, Arc::clone(&of));
        Ok(of)
    }

    /// A tile with these columns, of about so many bytes.
    ///
    /// # Errors
    /// `InvalidData` for a place that is none, and for other columns; `PermissionDenied` for a file elsewhere than allowed.
    pub(crate) fn tile(
        &mut self,
        at: LineagePlace,
        schema: &SchemaRef,
        memory_bytes: u64,
    ) -> Result<Tile> {
        let of = self.file(at.file)?;
        let first = usize::try_from(at.first_column).map_err(|_| broken("a column"))?;
        let columns: Vec<usize> = (first..first.saturating_add(schema.fields().len())).collect();
        let own = self
            .schema
            .fields()
            .get(first..first.saturating_add(columns.len()));
        if own != Some(schema.fields().as_ref()) {
            return Err(broken("the columns of a tile"));
        }
        let task = usize::try_from(at.task).map_err(|_| broken("a row band"))?;
        let num_rows = of
            .tasks
            .get(task)
            .ok_or_else(|| broken("a row band"))?
            .num_rows;
        Ok(Tile::new(Arc::new(LineageTile {
            of,
            schema: Arc::clone(schema),
            task,
            columns,
            num_rows,
            memory_bytes,
        })))
    }
}

#[async_trait]
impl TileData for LineageTile {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn num_rows(&self) -> u64 {
        self.num_rows
    }

    fn memory_bytes(&self) -> u64 {
        self.memory_bytes
    }

    fn locations(&self) -> Vec<Location> {
        vec![Location::here()]
    }

    fn is_lazy(&self) -> bool {
        true
    }

    fn open(&self) -> Result<RecordBatch> {
        let runtime = Handle::try_current();
        match runtime {
            Ok(runtime) if runtime.runtime_flavor() != RuntimeFlavor::CurrentThread => {
                tokio::task::block_in_place(|| runtime.block_on(self.lazy()))?.open()
            }
            _ => Err(Error::unsupported(
                "a tile of a file of another process cannot be waited for outside of a runtime of several threads",
            )
            .with_hint("await fetch() instead")),
        }
    }

    async fn fetch(&self, columns: &[usize]) -> Result<RecordBatch> {
        self.lazy().await?.fetch(columns).await
    }

    async fn may_hold(&self, column: usize, values: &ArrayRef) -> Result<bool> {
        self.lazy().await?.may_hold(column, values).await
    }
}
