//! What the names of a session stand for.
//!
//! Comes in: grids, views, prepared statements, functions. Goes out: a catalog for the planner, which sees every change at once. Kept in an atomic pointer, so that a fork at any
//! moment is harmless: the child mounts the same names in an engine of its own. Never here: planning, running.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, OnceLock, Weak};

use arc_swap::ArcSwap;
use arrow::datatypes::DataType;
use datafusion::catalog::{CatalogProvider, SchemaProvider, TableProvider};
use datafusion::datasource::{TableType, ViewTable};
use datafusion::error::{DataFusionError, Result as PlanResult};
use datafusion::execution::SessionState;
use datafusion::logical_expr::{DdlStatement, LogicalPlan, LogicalPlanBuilder};
use datafusion::sql::parser::Statement;
use futures::future::{BoxFuture, ready};

use super::cache::PlanCache;
use super::function::Function;
use super::table::GridTable;
use crate::error::{Error, ErrorKind};
use crate::grid::PartitionGrid;
use crate::query::rewrite::asof;
use crate::query::rewrite::one_value;
use crate::query::rewrite::same_names;

/// The catalog and the schema of all grids and views, as SQL names them.
pub const CATALOG: &str = "partgrid";
/// See [`CATALOG`].
pub const SCHEMA: &str = "public";

/// How many views one statement may expand, views of views included.
const MAX_VIEWS: usize = 200;

/// How deep views may stand in one another.
const MAX_VIEW_DEPTH: usize = 16;

/// What a name of a table stands for.
#[derive(Debug, Clone)]
pub(super) enum Table {
    Grid(Arc<GridTable>),
    View(Arc<View>),
}

/// A query under a name; it is planned anew each time, so that it follows the names that it uses.
#[derive(Debug)]
pub(super) struct View {
    /// `CREATE VIEW`, with the names that it gives to columns.
    pub(super) statement: Statement,
    /// Whether values of it differ in a cast alone, so that it is planned with all casts marked.
    pub(super) has_twins: bool,
}

/// A statement with parameters under a name.
#[derive(Debug, Clone)]
pub(super) struct PreparedStatement {
    pub(super) text: Arc<str>,
    pub(super) statement: Statement,
    /// As declared; none says that values keep their types.
    pub(super) types: Vec<DataType>,
}

/// Those who see some names, each with what they see.
type SeenNames = Vec<(Weak<Seen>, Arc<Known>)>;

/// All names at one moment.
#[derive(Debug, Clone, Default)]
pub(super) struct Known {
    pub(super) tables: BTreeMap<String, Table>,
    /// Names of tables that cannot be had.
    pub(super) damaged: BTreeSet<String>,
    /// Names of grids of several processes that are not there, or not whole, and why.
    pub(super) lacking: BTreeMap<String, Error>,
    pub(super) prepared: BTreeMap<String, Arc<PreparedStatement>>,
    pub(super) functions: BTreeMap<String, Function>,
    /// Plans over exactly these names; a changed picture begins without any.
    pub(super) plans: Arc<PlanCache>,
    /// What is seen of exactly these names by those who see some of them: it goes with them.
    seen: Arc<ArcSwap<SeenNames>>,
}

impl Known {
    /// The same names, of which nothing was made yet.
    fn changed(&self) -> Self {
        Self {
            plans: Arc::default(),
            seen: Arc::default(),
            ..self.clone()
        }
    }

    /// The table of a name: exactly that one, or else the only one that differs in case.
    pub(super) fn table(&self, name: &str) -> Option<(&str, &Table)> {
        if let Some((name, table)) = self.tables.get_key_value(name) {
            return Some((name, table));
        }
        if self.damaged.contains(name) || self.lacking.contains_key(name) {
            return None;
        }
        let folded = name.to_lowercase();
        let mut alike = self
            .tables
            .iter()
            .filter(|(known, _)| known.to_lowercase() == folded);
        let (name, table) = alike.next()?;
        alike.next().is_none().then_some((name, table))
    }

    /// The name of a table that cannot be had: exactly that one, or else one that differs in case.
    pub(super) fn left_out(&self, name: &str) -> Option<&str> {
        let folded = name.to_lowercase();
        let exact = self.damaged.get(name);
        let alike = || {
            let mut damaged = self.damaged.iter();
            damaged.find(|known| known.to_lowercase() == folded)
        };
        exact.or_else(alike).map(String::as_str)
    }

    /// Why a grid of several processes is not there: that of exactly this name, or else of one that differs in case.
    pub(super) fn lacking(&self, name: &str) -> Option<(&str, &Error)> {
        let folded = name.to_lowercase();
        let exact = self.lacking.get_key_value(name);
        let alike = || {
            let mut lacking = self.lacking.iter();
            lacking.find(|(known, _)| known.to_lowercase() == folded)
        };
        let found = exact.or_else(alike);
        found.map(|(known, error)| (known.as_str(), error))
    }
}

/// The names of a session, or those of them that somebody may see.
#[derive(Debug, Clone, Default)]
pub(super) struct Names {
    all: Arc<ArcSwap<Known>>,
    seen: Option<Arc<Seen>>,
}

/// Which names of tables are seen.
struct Seen {
    may_see: Box<dyn Fn(&str) -> bool + Send + Sync>,
}

impl fmt::Debug for Seen {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Seen")
    }
}

impl Names {
    /// Those of the names of tables for which `may_see` holds, as they are at each moment.
    pub(super) fn seeing(&self, may_see: impl Fn(&str) -> bool + Send + Sync + 'static) -> Self {
        let seen = Seen {
            may_see: Box::new(may_see),
        };
        Self {
            all: Arc::clone(&self.all),
            seen: Some(Arc::new(seen)),
        }
    }

    /// Those of one moment, for good.
    pub(super) fn of(known: &Arc<Known>) -> Self {
        Self {
            all: Arc::new(ArcSwap::from(Arc::clone(known))),
            seen: None,
        }
    }

    /// Whether a table may be seen, or made, under the name.
    pub(super) fn may_see(&self, name: &str) -> bool {
        self.seen.as_ref().is_none_or(|seen| (seen.may_see)(name))
    }

    pub(super) fn now(&self) -> Arc<Known> {
        let all = self.all.load_full();
        let Some(seen) = &self.seen else {
            return all;
        };
        let is_ours = |of: &Weak<Seen>| Weak::as_ptr(of) == Arc::as_ptr(seen);
        if let Some((_, known)) = all.seen.load().iter().find(|(of, _)| is_ours(of)) {
            return Arc::clone(known);
        }
        let mut known = all.changed();
        known.tables.retain(|name, _| (seen.may_see)(name));
        known.damaged.retain(|name| (seen.may_see)(name));
        known.lacking.retain(|name, _| (seen.may_see)(name));
        let made = Arc::new(known);
        let mut known = Arc::clone(&made);
        all.seen.rcu(|others| {
            // Another thread may have made it meanwhile: all go by one.
            if let Some((_, theirs)) = others.iter().find(|(of, _)| is_ours(of)) {
                known = Arc::clone(theirs);
                return Arc::clone(others);
            }
            known = Arc::clone(&made);
            let others = others.iter().filter(|(of, _)| of.strong_count() > 0);
            let ours = (Arc::downgrade(seen), Arc::clone(&made));
            Arc::new(others.cloned().chain([ours]).collect())
        });
        known
    }

    /// Those that the plan which this thread makes goes by, so that all its tables and views are of one moment; elsewhere those of now.
    pub(super) fn planned(&self) -> Arc<Known> {
        let planned = PLANNED_WITH.with_borrow(Weak::upgrade);
        planned.unwrap_or_else(|| self.now())
    }

    /// Changes all names, also those that are not seen: whoever changes one asks [`Names::may_see`] first.
    pub(super) fn change<T>(&self, change: impl Fn(&mut Known) -> T) -> T {
        let mut outcome = None;
        self.all.rcu(|known| {
            let mut known = known.changed();
            outcome = Some(change(&mut known));
            known
        });
        // `rcu` calls its closure at least once.
        outcome.unwrap_or_else(|| change(&mut Known::default()))
    }

    pub(super) fn grid(&self, name: &str) -> Option<Arc<PartitionGrid>> {
        match self.now().table(name) {
            Some((_, Table::Grid(table))) => Some(Arc::clone(table.grid())),
            _ => None,
        }
    }
}

/// The catalog that one engine plans with.
pub(super) struct Catalog {
    schema: Arc<NamedTables>,
}

impl Catalog {
    pub(super) fn new(names: Names) -> Self {
        let state = OnceLock::new();
        Self {
            schema: Arc::new(NamedTables { names, state }),
        }
    }

    /// Says what views are planned with.
    pub(super) fn plan_views_with(
        &self,
        state: Box<dyn Fn() -> Option<SessionState> + Send + Sync>,
    ) {
        drop(self.schema.state.set(state));
    }
}

impl fmt::Debug for Catalog {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_tuple("Catalog")
            .field(&self.schema.names)
            .finish()
    }
}

impl CatalogProvider for Catalog {
    fn schema_names(&self) -> Vec<String> {
        vec![SCHEMA.to_owned()]
    }

    fn schema(&self, name: &str) -> Option<Arc<dyn SchemaProvider>> {
        (name == SCHEMA).then(|| Arc::clone(&self.schema) as _)
    }
}

struct NamedTables {
    names: Names,
    state: OnceLock<Box<dyn Fn() -> Option<SessionState> + Send + Sync>>,
}

impl fmt::Debug for NamedTables {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.names.fmt(formatter)
    }
}

thread_local! {
    /// Views that the plan of this thread expanded so far, and how deep it is in them. Each plan is made on a thread of its own.
    static VIEWS: Cell<(usize, usize)> = const { Cell::new((0, 0)) };
    /// Whether this thread makes a plan. `information_schema` asks for tables as well, while a query runs.
    static PLANNING: Cell<bool> = const { Cell::new(false) };
    /// The names that the plan of this thread is made with. They are those of the planner: a thread that ends a little later than the plan is there keeps no grid.
    static PLANNED_WITH: RefCell<Weak<Known>> = const { RefCell::new(Weak::new()) };
}

/// Says which names the plan of this thread is made with, to its end, whatever they stand for meanwhile.
pub(super) fn plans_with(known: &Arc<Known>) {
    PLANNED_WITH.set(Arc::downgrade(known));
}

/// The names that the plan of this thread is made with; none on a thread that makes none.
pub(super) fn planning_with() -> Arc<Known> {
    let known = PLANNED_WITH.with_borrow(Weak::upgrade);
    known.unwrap_or_default()
}

/// Says that this thread makes a plan, to its end.
pub(super) fn plans_here() {
    PLANNING.set(true);
}

impl NamedTables {
    async fn expand(&self, name: &str, view: &View) -> PlanResult<Arc<dyn TableProvider>> {
        if !PLANNING.get() && VIEWS.get().1 == 0 {
            VIEWS.set((0, 0));
        }
        let (expanded, depth) = VIEWS.get();
        if depth >= MAX_VIEW_DEPTH || expanded >= MAX_VIEWS {
            let text = format!(
                "the view `{name}` needs more than {MAX_VIEWS} views, or {MAX_VIEW_DEPTH} within one another; it may need itself"
            );
            return Err(Error::new(ErrorKind::ResourcesExhausted, text)
                .with_context("table", name)
                .into());
        }
        let state = self.state.get().and_then(|state| state());
        let state =
            state.ok_or_else(|| DataFusionError::from(Error::internal("the engine is gone")))?;
        VIEWS.set((expanded + 1, depth + 1));
        let checked = one_value::check(&view.statement, &self.names.planned());
        let plan = match checked {
            Ok(()) => Box::pin(same_names::view_planned(&state, view)).await,
            Err(error) => Err(error.into()),
        };
        VIEWS.set((VIEWS.get().0, depth));
        let named = |error: DataFusionError| error.context(format!("view {name}"));
        let plan = match plan {
            // A list of all tables goes on: this one is without columns, since what it needs is gone, or not for this caller.
            Err(_) if !PLANNING.get() => {
                let nothing = LogicalPlanBuilder::empty(false).build()?;
                let definition = Some(asof::as_written(&view.statement));
                return Ok(Arc::new(ViewTable::new(nothing, definition)));
            }
            plan => plan.map_err(named)?,
        };
        let LogicalPlan::Ddl(DdlStatement::CreateView(create)) = plan else {
            return Err(Error::internal("CREATE VIEW was planned as something else").into());
        };
        let plan = Arc::unwrap_or_clone(create.input);
        Ok(Arc::new(ViewTable::new(
            plan,
            Some(asof::as_written(&view.statement)),
        )))
    }
}

impl NamedTables {
    fn found<'a>(
        &'a self,
        name: &'a str,
    ) -> BoxFuture<'a, PlanResult<Option<Arc<dyn TableProvider>>>> {
        Box::pin(async move {
            let known = self.names.planned();
            Ok(match known.table(name) {
                Some((_, Table::Grid(grid))) => Some(Arc::clone(grid) as _),
                Some((name, Table::View(view))) => Some(self.expand(name, view).await?),
                None => None,
            })
        })
    }

    fn kind(&self, name: &str) -> BoxFuture<'static, PlanResult<Option<TableType>>> {
        let known = self.names.planned();
        let kind = known.table(name).map(|(_, table)| match table {
            Table::Grid(_) => TableType::Base,
            Table::View(_) => TableType::View,
        });
        Box::pin(ready(Ok(kind)))
    }
}

// Written out, and not by the attribute, for the reason that src/serve/methods.rs has.
impl SchemaProvider for NamedTables {
    fn table_names(&self) -> Vec<String> {
        self.names.planned().tables.keys().cloned().collect()
    }

    fn table<'a, 'b, 'w>(
        &'a self,
        name: &'b str,
    ) -> BoxFuture<'w, PlanResult<Option<Arc<dyn TableProvider>>>>
    where
        'a: 'w,
        'b: 'w,
    {
        self.found(name)
    }

    fn table_type<'a, 'b, 'w>(
        &'a self,
        name: &'b str,
    ) -> BoxFuture<'w, PlanResult<Option<TableType>>>
    where
        'a: 'w,
        'b: 'w,
    {
        self.kind(name)
    }

    fn table_exist(&self, name: &str) -> bool {
        self.names.planned().table(name).is_some()
    }
}

/// What [`Catalog::plan_views_with`] takes, for the state behind a context.
pub(super) fn state_of<L: Send + Sync + 'static>(
    state: Weak<L>,
    read: impl Fn(&L) -> SessionState + Send + Sync + 'static,
) -> Box<dyn Fn() -> Option<SessionState> + Send + Sync> {
    Box::new(move || state.upgrade().map(|state| read(&state)))
}
