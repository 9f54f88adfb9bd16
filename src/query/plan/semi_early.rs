//! Semi joins below inner joins.
//!
//! Comes in: a logical plan. Goes out: the same plan, in which a semi join whose keys are of one input of an inner join is done on that input: in one process where that input has far fewer rows than the join. In one process the join tells the scans
//! below which rows it wants; between processes nobody does, and all rows would be joined, and sent, before most of them are dropped. Never here: anti joins, which drop little.

use std::sync::Arc;

use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, JoinType, Result};
use datafusion::logical_expr::{Expr, Join, LogicalPlan, Projection};
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};

use super::statistics::cardinality::rows_of;

/// An input is small that has so small a share of the rows of the join.
const SMALL: f64 = 0.25;

/// Does semi joins early.
#[derive(Debug)]
pub(in crate::query) enum SemiEarly {
    /// On any input, in clusters.
    #[cfg(feature = "distributed")]
    Anywhere,
    /// On inputs that are small beside the join.
    OnSmall,
}

impl OptimizerRule for SemiEarly {
    fn name(&self) -> &'static str {
        "semi_early"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::TopDown)
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        _: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        let LogicalPlan::Join(semi) = &plan else {
            return Ok(Transformed::no(plan));
        };
        match self.early(semi)? {
            Some(early) => Ok(Transformed::yes(early)),
            None => Ok(Transformed::no(plan)),
        }
    }
}

impl SemiEarly {
    /// The plan with the semi join below the inner join on its left; `None` where it stays.
    fn early(&self, semi: &Join) -> Result<Option<LogicalPlan>> {
        let is_plain = semi.join_type == JoinType::LeftSemi && semi.filter.is_none();
        let keys = semi.on.iter().map(|(left, _)| match left {
            Expr::Column(column) => Some(column.clone()),
            _ => None,
        });
        let Some(keys) = keys.collect::<Option<Vec<Column>>>().filter(|_| is_plain) else {
            return Ok(None);
        };
        let most_rows = match self {
            #[cfg(feature = "distributed")]
            Self::Anywhere => f64::INFINITY,
            Self::OnSmall => match rows_of(&semi.left) {
                Some(rows) => rows * SMALL,
                None => return Ok(None),
            },
        };
        Early { semi, most_rows }.below(&semi.left, &keys)
    }
}

/// A semi join that is done early.
struct Early<'a> {
    semi: &'a Join,
    /// On inputs of so many rows at most.
    most_rows: f64,
}

impl Early<'_> {
    /// A plan with the semi join as far down as its keys come from one side of inner joins.
    fn below(&self, plan: &LogicalPlan, keys: &[Column]) -> Result<Option<LogicalPlan>> {
        match plan {
            LogicalPlan::Projection(projection) => {
                let inner = keys.iter().map(|key| through(projection, key));
                let Some(inner) = inner.collect::<Option<Vec<Column>>>() else {
                    return Ok(None);
                };
                let Some(input) = self.below(&projection.input, &inner)? else {
                    return Ok(None);
                };
                let expressions = projection.expr.clone();
                let projection = Projection::try_new(expressions, Arc::new(input))?;
                Ok(Some(LogicalPlan::Projection(projection)))
            }
            LogicalPlan::Join(join) if join.join_type == JoinType::Inner => {
                let has_all =
                    |side: &LogicalPlan| keys.iter().all(|key| side.schema().has_column(key));
                let is_left = has_all(&join.left);
                if is_left == has_all(&join.right) {
                    return Ok(None);
                }
                let side = if is_left { &join.left } else { &join.right };
                let joined = match self.below(side, keys)? {
                    Some(deeper) => deeper,
                    None if self.is_worth_it(side) => on_input(side, keys, self.semi)?,
                    None => return Ok(None),
                };
                let mut join = join.clone();
                match is_left {
                    true => join.left = Arc::new(joined),
                    false => join.right = Arc::new(joined),
                }
                Ok(Some(LogicalPlan::Join(join)))
            }
            _ => Ok(None),
        }
    }

    fn is_worth_it(&self, input: &LogicalPlan) -> bool {
        self.most_rows.is_infinite() || rows_of(input).is_some_and(|rows| rows < self.most_rows)
    }
}

/// The column of the input that a projection gives on as it is.
fn through(projection: &Projection, key: &Column) -> Option<Column> {
    let place = projection.schema.maybe_index_of_column(key)?;
    match projection.expr.get(place)? {
        Expr::Column(column) => Some(column.clone()),
        _ => None,
    }
}

fn on_input(input: &Arc<LogicalPlan>, keys: &[Column], semi: &Join) -> Result<LogicalPlan> {
    let wanted = semi.on.iter().map(|(_, right)| right.clone());
    let on = keys.iter().cloned().map(Expr::Column).zip(wanted).collect();
    let join = Join::try_new(
        Arc::clone(input),
        Arc::clone(&semi.right),
        on,
        None,
        JoinType::LeftSemi,
        semi.join_constraint,
        semi.null_equality,
        semi.null_aware,
    )?;
    Ok(LogicalPlan::Join(join))
}
