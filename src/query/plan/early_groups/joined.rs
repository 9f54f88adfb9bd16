//! Groups, joined with the tables that name them.
//!
//! Comes in: groups by early keys, and tables one after the other. Goes out: a plan of the joins; expressions over what was there before, over its columns. Never here: which tables, and whether it pays.

use std::collections::BTreeMap;
use std::sync::Arc;

use datafusion::common::JoinType;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::error::Result;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::joins::HashJoinExecBuilder;

use super::{Expr, Named, TABLE};

/// The groups, joined with some of the tables.
pub(super) struct Joined {
    pub(super) plan: Arc<dyn ExecutionPlan>,
    /// Where the columns of the groups begin.
    pub(super) groups_at: usize,
    /// Where those of each table begin that is joined.
    tables_at: BTreeMap<usize, usize>,
    pub(super) early_keys: Vec<Expr>,
}

impl Joined {
    pub(super) fn new(groups: Arc<dyn ExecutionPlan>, early_keys: Vec<Expr>) -> Self {
        Self {
            plan: groups,
            groups_at: 0,
            tables_at: BTreeMap::new(),
            early_keys,
        }
    }

    /// Joins the table of this number.
    pub(super) fn join(&mut self, number: usize, named: &Named) -> Result<()> {
        let on = named.on.iter().map(|(own, value)| {
            let value = self.over(value)?;
            Ok(match named.is_left {
                true => (Arc::clone(own), value),
                false => (value, Arc::clone(own)),
            })
        });
        let on = on.collect::<Result<Vec<_>>>()?;
        let (plan, table) = (Arc::clone(&self.plan), Arc::clone(&named.table));
        let (before, width) = (plan.schema().fields().len(), table.schema().fields().len());
        let (left, right) = if named.is_left {
            (table, plan)
        } else {
            (plan, table)
        };
        self.plan = HashJoinExecBuilder::new(left, right, on, JoinType::Inner)
            .with_null_equality(named.nulls)
            .build_exec()?;
        if named.is_left {
            self.groups_at += width;
            self.tables_at.values_mut().for_each(|at| *at += width);
        }
        let at = if named.is_left { 0 } else { before };
        self.tables_at.insert(number, at);
        Ok(())
    }

    /// The expression over the columns that are here.
    pub(super) fn over(&self, expression: &Expr) -> Result<Expr> {
        let known = self.early_keys.iter().position(|key| key.eq(expression));
        if let Some(place) = known {
            return Ok(self.column(self.groups_at + place));
        }
        replaced(expression, &|column| {
            let (table, place) = (column.index() / TABLE, column.index() % TABLE);
            Some(self.column(self.tables_at.get(&table)? + place))
        })
    }

    pub(super) fn column(&self, place: usize) -> Expr {
        let schema = self.plan.schema();
        Arc::new(Column::new(schema.field(place).name(), place))
    }
}

/// The expression with others in place of columns of what is left.
pub(super) fn replaced(expression: &Expr, new: &dyn Fn(&Column) -> Option<Expr>) -> Result<Expr> {
    Arc::clone(expression)
        .transform_up(|part| {
            let column = part.downcast_ref::<Column>();
            Ok(match column.and_then(new) {
                Some(new) => Transformed::yes(new),
                None => Transformed::no(part),
            })
        })
        .data()
}
