//! Keys of GROUP BY with several sets of keys (ROLLUP, CUBE, GROUPING SETS), which are null in the groups of sets without them. The engine takes for granted of such keys what is known of the rows below: that they are
//! constant (a literal always is), equal to others, or in order. Then it leaves out sorts, and takes groups for done that are not.
//!
//! Comes in: a physical plan before its sorts are settled. Goes out: the same, in which nothing is known of a key that some set leaves out; sets of no keys at all, `GROUP BY ()`, which the engine loses on the way to
//! other processes, are groups of all rows. Never here: keys that all sets have, of which it is true.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::datatypes::Schema;
use datafusion::common::ScalarValue;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::error::Result;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{BinaryExpr, CaseExpr, Column, Literal};
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateInputMode, PhysicalGroupBy};
use datafusion::physical_plan::placeholder_row::PlaceholderRowExec;
use datafusion::physical_plan::projection::{ProjectionExec, ProjectionExpr};
use datafusion::physical_plan::union::UnionExec;

/// Hides what is not true of keys.
#[derive(Debug)]
pub(in crate::query) struct SetKeys;

impl PhysicalOptimizerRule for SetKeys {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_up(|node| {
            let changed = match node.downcast_ref::<AggregateExec>() {
                Some(groups) if !is_first_of_sets(groups) => None,
                Some(groups) if groups.group_expr().expr().is_empty() => Some(of_all_rows(groups)?),
                Some(groups) => hidden(groups)?,
                None => None,
            };
            Ok(changed.map_or_else(|| Transformed::no(node), Transformed::yes))
        })
        .data()
    }

    fn name(&self) -> &'static str {
        "set_keys"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// Whether these are the groups of several sets as they come of rows.
fn is_first_of_sets(groups: &AggregateExec) -> bool {
    groups.mode().input_mode() == AggregateInputMode::Raw && groups.group_expr().has_grouping_set()
}

/// The groups of sets without keys: for each, all rows, and the number of the set.
fn of_all_rows(groups: &AggregateExec) -> Result<Arc<dyn ExecutionPlan>> {
    let schema = groups.schema();
    let all: Arc<dyn ExecutionPlan> = match groups.aggr_expr() {
        // A group of which nothing is asked is there, whatever the rows are.
        [] => Arc::new(PlaceholderRowExec::new(Arc::new(Schema::empty()))),
        values => Arc::new(AggregateExec::try_new(
            *groups.mode(),
            PhysicalGroupBy::new_single(Vec::new()),
            values.to_vec(),
            groups.filter_expr().to_vec(),
            Arc::clone(groups.input()),
            groups.input_schema(),
        )?),
    };
    let sets = (0..groups.group_expr().groups().len()).map(|again| {
        let columns = schema.fields().iter().enumerate().map(|(place, field)| {
            let expr: Arc<dyn PhysicalExpr> = match place.checked_sub(1) {
                None => {
                    let number = ScalarValue::UInt64(Some(again as u64));
                    Arc::new(Literal::new(number.cast_to(field.data_type())?))
                }
                Some(place) => Arc::new(Column::new(field.name(), place)),
            };
            let alias = field.name().clone();
            Ok(ProjectionExpr { expr, alias })
        });
        let columns = columns.collect::<Result<Vec<_>>>()?;
        Ok(Arc::new(ProjectionExec::try_new(columns, Arc::clone(&all))?) as _)
    });
    UnionExec::try_new(sets.collect::<Result<_>>()?)
}

/// The groups, of whose keys nothing is known that is not true; `None` where all is true.
fn hidden(groups: &AggregateExec) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let keys = groups.group_expr();
    let known = known(groups);
    let is_left_out = |place: usize| {
        let mut sets = keys.groups().iter();
        sets.any(|set| set.get(place) == Some(&true))
    };
    let keys = keys.expr().len();
    let hidden: BTreeSet<usize> = known
        .into_iter()
        .filter(|place| *place < keys && is_left_out(*place))
        .collect();
    if hidden.is_empty() {
        return Ok(None);
    }
    let schema = groups.schema();
    let columns = schema.fields().iter().enumerate().map(|(place, field)| {
        let column = Arc::new(Column::new(field.name(), place)) as Arc<dyn PhysicalExpr>;
        let expr = match hidden.contains(&place) {
            false => column,
            true => null_where_left_out(groups, column, place)?,
        };
        let alias = field.name().clone();
        Ok(ProjectionExpr { expr, alias })
    });
    let columns = columns.collect::<Result<Vec<_>>>()?;
    let groups = Arc::new(groups.clone());
    Ok(Some(Arc::new(ProjectionExec::try_new(columns, groups)?)))
}

/// The columns of which something is known.
fn known(groups: &AggregateExec) -> BTreeSet<usize> {
    let properties = groups.properties().equivalence_properties();
    let equal = properties.eq_group().iter().flat_map(|class| class.iter());
    let orders = properties.oeq_class().iter();
    let ordered = orders.flat_map(|order| order.iter().map(|key| &key.expr));
    let columns = equal.chain(ordered).flat_map(collect_columns);
    columns.map(|column| column.index()).collect()
}

/// The key, said to be null where the number of the set says so: the last key has the lowest bit.
fn null_where_left_out(
    groups: &AggregateExec,
    key: Arc<dyn PhysicalExpr>,
    place: usize,
) -> Result<Arc<dyn PhysicalExpr>> {
    let schema = groups.schema();
    let keys = groups.group_expr().expr().len();
    let number = schema.field(keys);
    let literal = |value: u64| -> Result<Arc<dyn PhysicalExpr>> {
        let value = ScalarValue::UInt64(Some(value)).cast_to(number.data_type())?;
        Ok(Arc::new(Literal::new(value)))
    };
    let bit = literal(1 << (keys - 1 - place))?;
    let number = Arc::new(Column::new(number.name(), keys));
    let bit = Arc::new(BinaryExpr::new(number, Operator::BitwiseAnd, bit));
    let is_left_out = Arc::new(BinaryExpr::new(bit, Operator::NotEq, literal(0)?));
    let none = ScalarValue::try_new_null(schema.field(place).data_type())?;
    let when = vec![(is_left_out as _, Arc::new(Literal::new(none)) as _)];
    Ok(Arc::new(CaseExpr::try_new(None, when, Some(key))?))
}
