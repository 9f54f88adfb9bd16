//! What names stand for from now on.
//!
//! Comes in: grids for names, statements that name something. Goes out: the name stands for the grid, and outlives the process where a [`Keeper`] sees to that. One change of grids at a time, so that what was
//! kept and what is named are the same. Never here: planning, files.

#[cfg(feature = "serve")]
use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use arrow::array::RecordBatch;
use datafusion::prelude::SessionConfig;
use futures::future::BoxFuture;
use tokio::sync::{Mutex, OwnedMutexGuard};

use super::error::is_a_view;
use super::error::no_table;
use super::exec::own::own;
use super::names::{Names, Table, View};
use super::options::QueryOptions;
use super::session::Session;
use super::statement::{Change, constant, nothing_to_drop};
use super::table::GridTable;
use crate::error::{Error, ErrorKind, Result};
use crate::grid::PartitionGrid;
use crate::query::running::answer::Query;

/// Makes grids under names outlive the process.
pub trait Keeper: Debug + Send + Sync {
    /// Sees that a grid or view can have a name, and, for what is to be kept, that something can be at this moment, before anything is done for it.
    ///
    /// # Errors
    /// Why not.
    fn check<'a>(&'a self, name: &'a str, is_kept: bool) -> BoxFuture<'a, Result<()>>;

    /// Writes what a grid is made of, which is to be kept under a name, so that keeping it takes no time; gives the same grid.
    ///
    /// # Errors
    /// Whatever stands in the way.
    fn write<'a>(
        &'a self,
        name: &'a str,
        grid: Arc<PartitionGrid>,
    ) -> BoxFuture<'a, Result<Arc<PartitionGrid>>>;

    /// Whether it keeps a grid.
    fn keeps(&self, grid: &PartitionGrid) -> bool;

    /// Keeps a grid under a name, in place of one that has it; gives the same grid.
    ///
    /// # Errors
    /// Whatever stands in the way; then the name keeps what it had.
    fn keep<'a>(
        &'a self,
        name: &'a str,
        grid: &'a Arc<PartitionGrid>,
    ) -> BoxFuture<'a, Result<Arc<PartitionGrid>>>;

    /// Forgets what is kept under a name.
    ///
    /// # Errors
    /// Whatever stands in the way; then the name keeps what it had.
    fn forget<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<()>>;

    /// Sees that others who go by what is kept know what was kept and forgotten. Called once the names stand for that here and others may change names again, and done to its end also if nobody waits for it: whoever changed
    /// something hears of it afterwards.
    fn announce(&self) -> BoxFuture<'_, ()>;
}

/// What a statement did.
pub(super) struct Done {
    /// In words.
    pub(super) said: String,
    /// How many rows of tables it wrote.
    pub(super) written_rows: u64,
}

impl Done {
    /// Of one that wrote no rows.
    fn said(said: String) -> Self {
        Self {
            said,
            written_rows: 0,
        }
    }
}

/// How names are changed; shared by all sessions over them.
#[derive(Debug, Clone, Default)]
pub(super) struct Naming {
    /// Held while a grid gets a name.
    turn: Arc<Mutex<()>>,
    keeper: Arc<ArcSwapOption<Arc<dyn Keeper>>>,
}

/// Does it to the end, also when nobody waits for it any more: what was kept is named, too.
async fn finished<T: Send + 'static>(
    work: impl Future<Output = Result<T>> + Send + 'static,
) -> Result<T> {
    let done = tokio::spawn(work).await;
    done.map_err(|error| Error::internal("a task that named a grid ended").with_source(error))?
}

/// Has what a name stands for forgotten, if it is kept: a view or grid of this process alone may hide a grid that others keep under its name. Gives the keeper then.
async fn forget<'a>(
    keeper: Option<&'a dyn Keeper>,
    names: &Names,
    name: &str,
) -> Result<Option<&'a dyn Keeper>> {
    let kept = match (keeper, names.now().tables.get(name)) {
        (Some(keeper), Some(Table::Grid(table))) => keeper.keeps(table.grid()).then_some(keeper),
        _ => None,
    };
    if let Some(keeper) = kept {
        keeper.forget(name).await?;
    }
    Ok(kept)
}

/// Takes a name away, and has whoever asks for it from then on told this, if anything.
fn take_away(names: &Names, name: &str, told: Option<&Error>) -> bool {
    let removed = names.change(|known| {
        if let Some(error) = told {
            known.lacking.insert(name.to_owned(), error.clone());
        }
        known.tables.remove(name)
    });
    removed.is_some()
}

/// Has a change announced, if there was one. Gives the turn to others before: two processes that each wait until the other one has heard of a change hear it in a turn of theirs.
async fn announced(turn: OwnedMutexGuard<()>, changed: Option<&dyn Keeper>) {
    drop(turn);
    if let Some(keeper) = changed {
        keeper.announce().await;
    }
}

/// Makes a grid of what has a name, unless that is a view.
fn of_grids(
    name: &str,
    make: impl FnOnce(Option<&Arc<PartitionGrid>>) -> Result<Arc<PartitionGrid>> + Send,
) -> impl FnOnce(Option<&Table>) -> Result<Arc<PartitionGrid>> + Send {
    move |before| match before {
        None => make(None),
        Some(Table::Grid(table)) => make(Some(table.grid())),
        Some(Table::View(_)) => Err(is_a_view(name)),
    }
}

impl Session {
    /// Has grids that statements and [`Session::put`] name kept from now on. [`Session::register`] keeps nothing.
    pub fn keep_with(&self, keeper: Arc<dyn Keeper>) {
        self.naming.keeper.store(Some(Arc::new(keeper)));
    }

    /// Says which names are those of tables that are damaged: whoever asks for one is told so.
    #[cfg(feature = "serve")]
    pub(crate) fn leave_out(&self, damaged: &BTreeSet<String>) {
        if self.names.now().damaged != *damaged {
            self.names.change(|known| known.damaged.clone_from(damaged));
        }
    }

    /// Says which names are those of grids that are not there, or not whole, and why: whoever asks for one that is not there is told so.
    #[cfg(feature = "distributed")]
    pub(crate) fn lack(&self, lacking: &std::collections::BTreeMap<String, Error>) {
        let known = self.names.now();
        let said = |(name, error): (&String, &Error)| (name.clone(), error.to_string());
        // Plans are kept as long as names stay as they are.
        if !known.lacking.iter().map(said).eq(lacking.iter().map(said)) {
            self.names.change(|known| known.lacking.clone_from(lacking));
        }
    }

    /// Waits until nobody gives names to grids; until the guard is dropped nobody else does, but [`Session::register`] and [`Session::deregister`].
    #[cfg(feature = "serve")]
    pub(crate) async fn naming_turn(&self) -> OwnedMutexGuard<()> {
        Arc::clone(&self.naming.turn).lock_owned().await
    }

    /// Writes a grid that [`Session::put`] is to put under a name to where it is kept: others may change names meanwhile.
    ///
    /// # Errors
    /// That of the keeper.
    pub async fn write_ahead(
        &self,
        name: &str,
        grid: Arc<PartitionGrid>,
    ) -> Result<Arc<PartitionGrid>> {
        match self.naming.keeper.load_full() {
            Some(keeper) => keeper.write(name, grid).await,
            None => Ok(grid),
        }
    }

    /// Puts a grid under exactly this name: the one that `make` makes of what has the name, which nobody changes meanwhile. It is kept first, where there is a keeper.
    ///
    /// # Errors
    /// That of `make` and of the keeper; `Query` when it is the name of a view.
    pub async fn put(
        &self,
        name: &str,
        make: impl FnOnce(Option<&Arc<PartitionGrid>>) -> Result<Arc<PartitionGrid>> + Send,
    ) -> Result<Arc<PartitionGrid>> {
        self.put_table(name, true, of_grids(name, make)).await
    }

    /// As [`Session::put`], but for this process alone: a grid that is kept under the name is forgotten, since it would have the name again.
    ///
    /// # Errors
    /// As [`Session::put`].
    #[cfg(feature = "serve")]
    pub(crate) async fn put_here(
        &self,
        name: &str,
        make: impl FnOnce(Option<&Arc<PartitionGrid>>) -> Result<Arc<PartitionGrid>> + Send,
    ) -> Result<Arc<PartitionGrid>> {
        self.put_table(name, false, of_grids(name, make)).await
    }

    async fn put_table(
        &self,
        name: &str,
        is_kept: bool,
        make: impl FnOnce(Option<&Table>) -> Result<Arc<PartitionGrid>> + Send,
    ) -> Result<Arc<PartitionGrid>> {
        let turn = Arc::clone(&self.naming.turn).lock_owned().await;
        let made = make(self.names.now().tables.get(name))?;
        let (names, name) = (self.names.clone(), name.to_owned());
        let keeper = self.naming.keeper.load_full();
        finished(async move {
            let keeper: Option<&dyn Keeper> = keeper.as_deref().map(AsRef::as_ref);
            let (grid, changed) = match keeper {
                Some(keeper) if is_kept => (keeper.keep(&name, &made).await?, Some(keeper)),
                keeper => (made, forget(keeper, &names, &name).await?),
            };
            let table = Table::Grid(Arc::new(GridTable::new(Arc::clone(&grid))));
            names.change(|known| known.tables.insert(name.clone(), table.clone()));
            announced(turn, changed).await;
            Ok(grid)
        })
        .await
    }

    /// Puts a view under a name. A grid that had it is forgotten, since views are not kept: it would have the name again.
    async fn put_view(&self, name: String, view: Arc<View>) -> Result<()> {
        let turn = Arc::clone(&self.naming.turn).lock_owned().await;
        let names = self.names.clone();
        let keeper = self.naming.keeper.load_full();
        finished(async move {
            let keeper: Option<&dyn Keeper> = keeper.as_deref().map(AsRef::as_ref);
            let changed = forget(keeper, &names, &name).await?;
            let view = Table::View(view);
            names.change(|known| known.tables.insert(name.clone(), view.clone()));
            announced(turn, changed).await;
            Ok(())
        })
        .await
    }

    /// Takes the name of a grid or view away, also from what is kept; says whether there was one.
    ///
    /// # Errors
    /// That of the keeper; then the name stays.
    pub async fn drop_table(&self, name: &str) -> Result<bool> {
        let turn = Arc::clone(&self.naming.turn).lock_owned().await;
        let (names, name) = (self.names.clone(), name.to_owned());
        let keeper = self.naming.keeper.load_full();
        let spreader = self.spreader.clone();
        finished(async move {
            let keeper: Option<&dyn Keeper> = keeper.as_deref().map(AsRef::as_ref);
            let changed = forget(keeper, &names, &name).await?;
            let spread = spreader.now();
            let told = spread.and_then(|spread| spread.dropping(&name));
            let was_there = take_away(&names, &name, told.as_ref());
            announced(turn, changed).await;
            Ok(was_there)
        })
        .await
    }

    /// As [`Session::deregister`], and has whoever asks for the name from then on told this, if anything.
    #[cfg(feature = "distributed")]
    pub(crate) fn deregister_telling(&self, name: &str, told: Option<&Error>) -> bool {
        take_away(&self.names, name, told)
    }

    /// Does it, and says what was done.
    pub(super) async fn change(
        &self,
        change: Change,
        config: &SessionConfig,
        options: &QueryOptions,
    ) -> Result<Done> {
        if let Some(name) = change.table().filter(|name| !self.names.may_see(name)) {
            let text = "there is no right to make or drop a table of this name";
            let error = Error::new(ErrorKind::PermissionDenied, text).with_context("table", name);
            return Err(error.with_hint("the token is for some names only (`grids` of its entry): take one of these, or ask the administrator for another token"));
        }
        match change {
            Change::Nothing(why) => Ok(Done::said(why)),
            Change::View { name, view } => {
                self.check_name(&name, false).await?;
                let said = format!("view {name}");
                self.put_view(name, view).await?;
                Ok(Done::said(said))
            }
            Change::Drop { name, if_exists } => match self.drop_table(&name).await? {
                true => Ok(Done::said(format!("dropped {name}"))),
                // Somebody else was there first.
                false if if_exists => Ok(Done::said(nothing_to_drop(&name))),
                false => Err(no_table(&name, &self.names.now())),
            },
            Change::Prepare { name, statement } => {
                self.names
                    .change(|known| known.prepared.insert(name.clone(), Arc::clone(&statement)));
                Ok(Done::said(format!("prepared {name}")))
            }
            Change::Deallocate { name } => {
                self.names.change(|known| known.prepared.remove(&name));
                Ok(Done::said(format!("deallocated {name}")))
            }
            Change::Table {
                name,
                plan,
                or_replace,
            } => {
                self.check_name(&name, true).await?;
                let query = self.query(&self.names.now(), plan.into(), config.clone(), options);
                let watched = options.watch.as_ref().map(|watch| watch.begun(&query));
                let made = self.make_table(&name, &query, or_replace).await;
                if let Some(watched) = watched {
                    watched.end(made.as_ref().err());
                }
                let written_rows = made?;
                let counted = crate::grid::picture::counted(written_rows, "row");
                Ok(Done {
                    said: format!("table {name}, {counted}"),
                    written_rows,
                })
            }
        }
    }

    /// # Errors
    /// That of the keeper, where nothing can have the name or be kept.
    async fn check_name(&self, name: &str, is_kept: bool) -> Result<()> {
        match self.naming.keeper.load_full() {
            Some(keeper) => keeper.check(name, is_kept).await,
            None => Ok(()),
        }
    }

    /// The query of what a statement said that was done already.
    ///
    /// # Errors
    /// `Internal` when the engine does not take the rows.
    pub(crate) fn query_of_said(&self, said: RecordBatch, options: &QueryOptions) -> Result<Query> {
        let config = self.state(options).config().clone();
        let query = self.query(&self.names.now(), constant(&said)?.into(), config, options);
        Ok(query.that_said(said))
    }

    /// Runs a query, and puts its answer under a name; gives the number of its rows.
    async fn make_table(&self, name: &str, query: &Query, or_replace: bool) -> Result<u64> {
        let mut batches = query.collect().await?;
        if self.spreader.now().is_some() {
            // Tiles of other members would be there as long as the table is, for a few of their rows.
            let copied: Result<_, _> = batches.iter().map(own).collect();
            batches = copied?;
        }
        let grid = PartitionGrid::try_from_batches(query.schema(), &batches)?;
        let rows = grid.num_rows();
        let grid = self.write_ahead(name, Arc::new(grid)).await?;
        let named = self.put_table(name, true, |before| match before {
            Some(_) if !or_replace => {
                let text = format!("somebody else made a table `{name}` meanwhile");
                Err(Error::new(ErrorKind::Query, text).with_context("table", name))
            }
            _ => Ok(grid),
        });
        named.await?;
        Ok(rows)
    }
}
