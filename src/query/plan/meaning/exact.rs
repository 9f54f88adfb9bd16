//! Gives conditions their meaning for nulls where the engine's own rules lose it.
//!
//! Comes in: an expression or a plan whose types are settled, or the engine's list of rules. Goes out: the same expression with `IN` lists that keep nulls apart, calls about fields of structs as [`super::fields`] has them, rules that keep `=`
//! and `IS NOT DISTINCT FROM` apart. Never here: what makes plans faster.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{NullEquality, Result, ScalarValue};
use datafusion::logical_expr::expr::InList;
use datafusion::logical_expr::utils::conjunction;
use datafusion::logical_expr::{Expr, JoinType, LogicalPlan, lit};
use datafusion::optimizer::eliminate_cross_join::EliminateCrossJoin;
use datafusion::optimizer::extract_equijoin_predicate::ExtractEquijoinPredicate;
use datafusion::optimizer::optimizer::Optimizer;
use datafusion::optimizer::push_down_filter::PushDownFilter;
use datafusion::optimizer::replace_distinct_aggregate::ReplaceDistinctWithAggregate;
use datafusion::optimizer::simplify_expressions::SimplifyExpressions;
use datafusion::optimizer::single_distinct_to_groupby::SingleDistinctToGroupBy;
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};

use super::fields::of_fields;
use super::units::Simplifier;
use crate::query::plan::asof::AsofLeft;
use crate::query::plan::dependencies::{Dependencies, Distincts};
use crate::query::plan::stay::Staying;
use crate::query::plan::twin_windows::TwinWindows;
use crate::query::plan::unions::{NamesOfParts, WithoutRows};

/// Rewrites one `IN` list that holds null, or one call about fields of structs.
pub(super) fn exact(expression: Expr) -> Transformed<Expr> {
    match expression {
        Expr::InList(list) => without_nulls(list),
        Expr::ScalarFunction(call) => of_fields(call).update_data(Expr::ScalarFunction),
        other => Transformed::no(other),
    }
}

/// `x IN (1, NULL)` is `x IN (1) OR NULL`, and with NOT `x NOT IN (1) AND NULL`. The simplifier merges lists of two conditions as if null were a value.
fn without_nulls(list: InList) -> Transformed<Expr> {
    if !list.list.iter().any(is_null_literal) || list.list.iter().all(is_null_literal) {
        return Transformed::no(Expr::InList(list));
    }
    let values = list
        .list
        .into_iter()
        .filter(|value| !is_null_literal(value))
        .collect();
    let negated = list.negated;
    let rest = Expr::InList(InList::new(list.expr, values, negated));
    let unknown = lit(ScalarValue::Boolean(None));
    Transformed::yes(match negated {
        true => rest.and(unknown),
        false => rest.or(unknown),
    })
}

fn is_null_literal(value: &Expr) -> bool {
    match value {
        Expr::Literal(value, _) => value.is_null(),
        // What gives the list one type puts casts around its values.
        Expr::Cast(cast) => is_null_literal(&cast.expr),
        _ => false,
    }
}

/// The rules that look at what determines what, or come right before others that do.
const LOOK_AT_DEPENDENCIES: [&str; 3] = [
    "eliminate_join",
    "eliminate_duplicated_expr",
    "optimize_projections",
];

/// The engine's rules, of which none mixes `=` and `IS NOT DISTINCT FROM`, or moves a condition to where it means something else.
pub(in crate::query) fn rules() -> Vec<Arc<dyn OptimizerRule + Send + Sync>> {
    let careful = |rule: Arc<dyn OptimizerRule + Send + Sync>| match rule.name() {
        "eliminate_cross_join" => Arc::new(CrossJoins(EliminateCrossJoin::new())) as _,
        "replace_distinct_aggregate" => {
            Arc::new(Distincts(ReplaceDistinctWithAggregate::new())) as _
        }
        "single_distinct_aggregation_to_group_by" => {
            Arc::new(SameTypes(SingleDistinctToGroupBy::new())) as _
        }
        "propagate_empty_relation" => Arc::new(WithoutRows::default()) as _,
        "simplify_expressions" => Arc::new(Simplifier(SimplifyExpressions::new())) as _,
        "push_down_filter" => Arc::new(Staying(PushDownFilter::new())) as _,
        "extract_equijoin_predicate" => Arc::new(Keys(ExtractEquijoinPredicate::new())) as _,
        _ => rule,
    };
    let mut rules = Vec::new();
    for rule in Optimizer::new().rules {
        if LOOK_AT_DEPENDENCIES.contains(&rule.name()) {
            rules.push(Arc::new(Dependencies) as _);
        }
        if rule.name() == "optimize_unions" {
            rules.push(Arc::new(NamesOfParts) as _);
        }
        if rule.name() == "common_sub_expression_eliminate" {
            rules.push(Arc::new(TwinWindows) as _);
        }
        // Where conditions are next to what they can go below, before columns are left out in between.
        let is_pushed = rule.name() == "push_down_filter";
        rules.push(careful(rule));
        if is_pushed {
            rules.push(Arc::new(AsofLeft) as _);
        }
    }
    rules
}

/// Takes inner joins apart and puts them together again, unless one of them takes null for a value: the engine's rule would then have all do so, or none; and unless one has a key of several
/// of the parts, which the engine's rule loses.
#[derive(Debug)]
struct CrossJoins(EliminateCrossJoin);

impl CrossJoins {
    /// Whether the engine's rule would change what a join means.
    fn loses(node: &LogicalPlan) -> bool {
        match node {
            LogicalPlan::Join(join) if join.join_type == JoinType::Inner => {
                let of_one = |(left, right): &(Expr, Expr)| {
                    is_of_one_part(left, &join.left) && is_of_one_part(right, &join.right)
                };
                join.null_equality == NullEquality::NullEqualsNull || !join.on.iter().all(of_one)
            }
            _ => false,
        }
    }
}

/// Whether all columns of an expression are of one part, when the inner joins of a plan are taken apart.
fn is_of_one_part(key: &Expr, plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Join(join) if join.join_type == JoinType::Inner => {
            let columns = key.column_refs();
            let mut sides = [&join.left, &join.right].into_iter();
            let has_all = |side: &&Arc<LogicalPlan>| {
                let schema = side.schema();
                columns.iter().all(|column| schema.has_column(column))
            };
            let side = sides.find(has_all);
            side.is_some_and(|side| is_of_one_part(key, side))
        }
        _ => true,
    }
}

impl OptimizerRule for CrossJoins {
    fn name(&self) -> &'static str {
        "eliminate_cross_join"
    }

    fn supports_rewrite(&self) -> bool {
        true
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        config: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        let lost = plan.exists(|node| Ok(Self::loses(node)))?;
        match lost {
            true => Ok(Transformed::no(plan)),
            false => self.0.rewrite(plan, config),
        }
    }
}

/// Makes keys of the conditions of joins. In a join that takes null for a value, a condition `=` becomes a key and another condition: that it is not null.
#[derive(Debug)]
struct Keys(ExtractEquijoinPredicate);

impl OptimizerRule for Keys {
    fn name(&self) -> &'static str {
        "extract_equijoin_predicate"
    }

    fn supports_rewrite(&self) -> bool {
        true
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        self.0.apply_order()
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        config: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        let known = match &plan {
            LogicalPlan::Join(join) if join.null_equality == NullEquality::NullEqualsNull => {
                join.on.len()
            }
            _ => return self.0.rewrite(plan, config),
        };
        let mut done = self.0.rewrite(plan, config)?;
        if let LogicalPlan::Join(join) = &mut done.data {
            let found = join.on.iter().skip(known);
            let is_known = found.map(|(key, _)| key.clone().is_not_null());
            join.filter = conjunction(join.filter.take().into_iter().chain(is_known));
        }
        Ok(done)
    }
}

/// Makes groups of what aggregates take the distinct values of, unless that gives others of them another type: a sum of sums of decimals has more digits than a sum, and what it is compared with has its type already.
#[derive(Debug)]
struct SameTypes(SingleDistinctToGroupBy);

/// Whether an aggregate has several arguments: the rule takes two that are equal for one, and fails.
fn is_of_pairs(value: &Expr) -> bool {
    match value {
        Expr::AggregateFunction(call) => call.params.args.len() > 1,
        _ => false,
    }
}

impl OptimizerRule for SameTypes {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn supports_rewrite(&self) -> bool {
        true
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        self.0.apply_order()
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        config: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        match &plan {
            LogicalPlan::Aggregate(aggregate) if !aggregate.aggr_expr.iter().any(is_of_pairs) => {}
            _ => return Ok(Transformed::no(plan)),
        }
        let done = self.0.rewrite(plan.clone(), config)?;
        let fields = plan.schema().fields().iter();
        let mut fields = fields.zip(done.data.schema().fields());
        match fields.all(|(before, after)| before.data_type() == after.data_type()) {
            true => Ok(done),
            false => Ok(Transformed::no(plan)),
        }
    }
}
