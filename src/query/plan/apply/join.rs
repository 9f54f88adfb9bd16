//! The same for joins within a subquery: which of their sides get the keys.
//!
//! Comes in: a join in the plan of a subquery. Goes out: the join for each row of the table of what it sees outside. Never here: other operators.

use std::sync::Arc;

use datafusion::common::{Column, DFSchema, JoinType, Result};
use datafusion::functions::core::expr_fn::coalesce;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{Expr, Join, JoinConstraint, LogicalPlan, Projection};

use super::domain::Keyed;
use super::push::{Push, refused};
use super::reach::{inside, is_lateral, renamed};

impl Push<'_> {
    pub(super) fn join(self, plan: &LogicalPlan, node: &Join) -> Result<Keyed> {
        let reach = (self.reaches(&node.left)?, self.reaches(&node.right)?);
        if is_lateral(node)? {
            let left = self.push(&node.left)?;
            let mut replaced = self.domain.replaced(&left.keys);
            replaced.retain(|column, _| !node.left.schema().has_column(column));
            let right = renamed(LogicalPlan::clone(&node.right), &replaced)?;
            return self.joined((plan, node), (left.plan, right), (left.keys, None));
        }
        let (left, right) = match (node.join_type, reach) {
            (JoinType::Inner, (false, true)) | (JoinType::Right, (false, _)) => (false, true),
            (JoinType::Inner, reach) => (true, reach.1),
            (JoinType::Right, _) | (JoinType::Full, _) => (true, true),
            (
                JoinType::Left | JoinType::LeftSemi | JoinType::LeftAnti | JoinType::LeftMark,
                (_, right),
            ) => (true, right),
            _ => return Err(refused("with a join of this form")),
        };
        let plain = |plan: &Arc<LogicalPlan>| LogicalPlan::clone(plan);
        match (left, right) {
            (true, true) => {
                let (left, right) = (self.push(&node.left)?, self.push(&node.right)?);
                let keys = (left.keys, Some(right.keys));
                self.joined((plan, node), (left.plan, right.plan), keys)
            }
            (true, false) => {
                let left = self.push(&node.left)?;
                let sides = (left.plan, plain(&node.right));
                self.joined((plan, node), sides, (left.keys, None))
            }
            _ => {
                let right = self.push(&node.right)?;
                let sides = (plain(&node.left), right.plan);
                self.joined((plan, node), sides, (right.keys, None))
            }
        }
    }

    /// The join of the sides, of which one has the keys, or both.
    fn joined(
        self,
        (plan, node): (&LogicalPlan, &Join),
        (left, right): (LogicalPlan, LogicalPlan),
        (keys, right_keys): (Vec<Column>, Option<Vec<Column>>),
    ) -> Result<Keyed> {
        let replaced = self.domain.replaced(match (&right_keys, node.join_type) {
            (Some(right_keys), JoinType::Right) => right_keys,
            _ => &keys,
        });
        let own = merge_schema(&plan.inputs());
        let change = |expression: &Expr| inside(expression.clone(), &replaced, &own);
        let pairs = node.on.iter();
        let pairs = pairs.map(|(left, right)| Ok((change(left)?, change(right)?)));
        let mut on = pairs.collect::<Result<Vec<_>>>()?;
        let mut filter = node.filter.as_ref().map(change).transpose()?;
        let mut null_equality = node.null_equality;
        if let Some(right_keys) = &right_keys {
            let same = self.domain.same(&keys, right_keys);
            same.beside(&mut on, &mut filter, &mut null_equality);
        }
        let done = LogicalPlan::Join(Join::try_new(
            Arc::new(left),
            Arc::new(right),
            on,
            filter,
            node.join_type,
            JoinConstraint::On,
            null_equality,
            node.null_aware,
        )?);
        match (node.join_type, right_keys) {
            (JoinType::Full, Some(right_keys)) => {
                self.of_either(&node.schema, done, (&keys, &right_keys))
            }
            (JoinType::Right, Some(right_keys)) => Ok(Keyed {
                plan: done,
                keys: right_keys,
            }),
            _ => Ok(Keyed { plan: done, keys }),
        }
    }

    /// A full join has its keys on the one side or on the other.
    fn of_either(
        self,
        schema: &DFSchema,
        joined: LogicalPlan,
        (left, right): (&[Column], &[Column]),
    ) -> Result<Keyed> {
        let keys = self.domain.fresh_keys();
        let mut columns: Vec<Expr> = schema.columns().into_iter().map(Expr::Column).collect();
        for ((left, right), key) in left.iter().zip(right).zip(&keys) {
            let sides = vec![Expr::Column(left.clone()), Expr::Column(right.clone())];
            columns.push(coalesce(sides).alias(&key.name));
        }
        let done = Projection::try_new(columns, Arc::new(joined))?;
        Ok(Keyed {
            plan: LogicalPlan::Projection(done),
            keys,
        })
    }
}
