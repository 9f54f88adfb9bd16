//! Inner joins in the order that carries the fewest rows.
//!
//! Comes in: a logical plan. Goes out: the same plan, with each tree of inner joins in the order that `join_search` finds, where that is much better than the order
//! of the text. Equalities that follow from others (a = b and b = c, so a = c) are used as well. Never here: how rows are counted, which side is built.

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, DFSchema, ExprSchema, JoinConstraint, JoinType, NullEquality};
use datafusion::error::Result;
use datafusion::logical_expr::utils::{conjunction, split_conjunction};
use datafusion::logical_expr::{Expr, Join, LogicalPlan, LogicalPlanBuilder};
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};

use super::join_search::{Class, MAX_RELATIONS, Relations, Tree, cost, search};
use super::statistics::cardinality::{distinct_of, rows_of};

/// A tree is changed when it costs this much less.
const GAIN: f64 = 0.9;

/// Puts inner joins in a good order.
#[derive(Debug)]
pub(in crate::query) struct JoinOrder {
    /// How many processes run the joins, each of which builds the smaller side.
    pub(in crate::query) copies: usize,
}

impl Default for JoinOrder {
    fn default() -> Self {
        Self { copies: 1 }
    }
}

impl OptimizerRule for JoinOrder {
    fn name(&self) -> &'static str {
        "join_order"
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        _: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        reordered(plan, self.copies)
    }
}

fn reordered(plan: LogicalPlan, copies: usize) -> Result<Transformed<LogicalPlan>> {
    let better = match &plan {
        LogicalPlan::Join(join) if is_plain(join) => {
            Joins::of(&plan, copies).and_then(|joins| joins.better())
        }
        _ => return plan.map_children(|plan| reordered(plan, copies)),
    };
    // A plan that cannot be built, such as one in which two columns have one name, stays as it is.
    match better.map(|(joins, tree)| rebuilt(joins, &tree, plan.schema())) {
        Some(Ok(joined)) => Ok(Transformed::yes(joined)),
        _ => plan.map_children(|plan| reordered(plan, copies)),
    }
}

fn rebuilt(joins: Joins, tree: &Tree, schema: &DFSchema) -> Result<LogicalPlan> {
    let columns = schema.columns().into_iter().map(Expr::Column);
    let joined = joins.build(tree)?;
    LogicalPlanBuilder::from(joined).project(columns)?.build()
}

fn is_plain(join: &Join) -> bool {
    join.join_type == JoinType::Inner
        && join.null_equality == NullEquality::NullEqualsNothing
        && !join.filter.as_ref().is_some_and(Expr::is_volatile)
}

/// A tree of inner joins, taken apart.
struct Joins {
    relations: Vec<LogicalPlan>,
    /// Sets of columns that are equal in every row, with the numbers of their relations.
    classes: Vec<Vec<(usize, Column)>>,
    /// All other conditions.
    conditions: Vec<Expr>,
    /// The order of the text.
    tree: Tree,
    copies: usize,
}

impl Joins {
    /// `None` for a plan that cannot be put together in another order.
    fn of(plan: &LogicalPlan, copies: usize) -> Option<Self> {
        let mut joins = Self {
            relations: Vec::new(),
            classes: Vec::new(),
            conditions: Vec::new(),
            tree: Tree::Relation(0),
            copies,
        };
        let mut pairs = Vec::new();
        joins.tree = joins.take_apart(plan, &mut pairs)?;
        if !(3..=MAX_RELATIONS).contains(&joins.relations.len()) {
            return None;
        }
        for (left, right) in pairs {
            joins.hold_equal(left, right)?;
        }
        Some(joins)
    }

    fn take_apart(&mut self, plan: &LogicalPlan, pairs: &mut Vec<(Expr, Expr)>) -> Option<Tree> {
        match plan {
            LogicalPlan::Join(join) if is_plain(join) => {
                pairs.extend(join.on.iter().cloned());
                let filters = join.filter.iter().flat_map(split_conjunction);
                self.conditions.extend(filters.cloned());
                let left = self.take_apart(&join.left, pairs)?;
                let right = self.take_apart(&join.right, pairs)?;
                Some(Tree::Join(Box::new(left), Box::new(right)))
            }
            // One that only leaves columns out: the joins above name none of those.
            LogicalPlan::Projection(projection)
                if projection
                    .expr
                    .iter()
                    .all(|expr| matches!(expr, Expr::Column(_)))
                    && matches!(projection.input.as_ref(), LogicalPlan::Join(join) if is_plain(join)) =>
            {
                self.take_apart(&projection.input, pairs)
            }
            _ => {
                self.relations.push(plan.clone());
                Some(Tree::Relation(self.relations.len() - 1))
            }
        }
    }

    /// The relation of a column; `None` when none or several have it.
    fn relation_of(&self, column: &Column) -> Option<usize> {
        let mut with = self.relations.iter().enumerate();
        let mut with = with
            .by_ref()
            .filter(|(_, plan)| plan.schema().has_column(column));
        let (number, _) = with.next()?;
        with.next().is_none().then_some(number)
    }

    fn hold_equal(&mut self, left: Expr, right: Expr) -> Option<()> {
        let (Expr::Column(one), Expr::Column(other)) = (&left, &right) else {
            self.conditions.push(left.eq(right));
            return Some(());
        };
        let (one, other) = (
            (self.relation_of(one)?, one.clone()),
            (self.relation_of(other)?, other.clone()),
        );
        let kind = |(relation, column): &(usize, Column)| {
            let schema = self.relations.get(*relation)?.schema();
            schema
                .field_from_column(column)
                .ok()
                .map(|field| field.data_type().clone())
        };
        let kind = (kind(&one)?, kind(&other)?);
        if kind.0 != kind.1 || kind.0.is_floating() || kind.0.is_nested() {
            self.conditions.push(left.eq(right));
            return Some(());
        }
        let place =
            |member: &(usize, Column)| self.classes.iter().position(|class| class.contains(member));
        let (known, also) = (place(&one), place(&other));
        if known.is_some() && known == also {
            return Some(());
        }
        let members = |place: Option<usize>, alone: &(usize, Column)| {
            let class = place.and_then(|place| self.classes.get(place));
            class.cloned().unwrap_or_else(|| vec![alone.clone()])
        };
        let (class, more) = (members(known, &one), members(also, &other));
        let has = |relation: usize| class.iter().any(|(known, _)| *known == relation);
        if more.iter().any(|(relation, _)| has(*relation)) {
            // A class stands for one equality between two parts of a tree, and for none within a relation.
            self.conditions.push(left.eq(right));
            return Some(());
        }
        for gone in [known, also].into_iter().flatten() {
            self.classes.get_mut(gone)?.clear();
        }
        self.classes.push([class, more].concat());
        Some(())
    }

    /// The best tree, when it is much better than that of the text.
    fn better(self) -> Option<(Self, Tree)> {
        let rows: Vec<f64> = self.relations.iter().map(rows_of).collect::<Option<_>>()?;
        let classes: Option<Vec<Class>> = self
            .classes
            .iter()
            .map(|class| self.counted(class, &rows))
            .collect();
        let classes = classes?;
        #[expect(clippy::cast_precision_loss, reason = "a few thousand at most")]
        let relations = Relations {
            rows: &rows,
            classes: &classes,
            copies: self.copies as f64,
        };
        let best = search(relations)?;
        let found = cost(&best, relations)?;
        // The text may ask for a cross join, or for one by a condition.
        let known = cost(&self.tree, relations).unwrap_or(f64::INFINITY);
        (found < GAIN * known).then_some((self, best))
    }

    /// How many values the columns of a class have.
    fn counted(&self, class: &[(usize, Column)], rows: &[f64]) -> Option<Class> {
        let distinct = class.iter().map(|(relation, column)| {
            let rows = *rows.get(*relation)?;
            let values = distinct_of(self.relations.get(*relation)?, column);
            Some((*relation, values.unwrap_or(rows).max(1.0)))
        });
        Some(Class {
            distinct: distinct.collect::<Option<_>>()?,
        })
    }

    fn build(self, tree: &Tree) -> Result<LogicalPlan> {
        let mut conditions = self.conditions.clone();
        let joined = self.build_part(tree, &mut conditions)?;
        let plan = joined.1;
        match conjunction(conditions) {
            None => Ok(plan),
            Some(rest) => LogicalPlanBuilder::from(plan).filter(rest)?.build(),
        }
    }

    /// The relations of a part of the tree, and its plan. Conditions are tested as soon as all their columns are there.
    fn build_part(&self, tree: &Tree, conditions: &mut Vec<Expr>) -> Result<(usize, LogicalPlan)> {
        let (left, right) = match tree {
            Tree::Relation(number) => {
                let plan = self.relations.get(*number).cloned();
                let plan = plan.map_or_else(
                    || datafusion::common::internal_err!("no relation {number}"),
                    Ok,
                )?;
                return Ok((1 << number, reordered(plan, self.copies)?.data));
            }
            Tree::Join(left, right) => (
                self.build_part(left, conditions)?,
                self.build_part(right, conditions)?,
            ),
        };
        let member = |class: &[(usize, Column)], set: usize| {
            let mut within = class
                .iter()
                .filter(move |(relation, _)| set & (1 << relation) != 0);
            within
                .next()
                .map(|(_, column)| Expr::Column(column.clone()))
        };
        let pairs = self.classes.iter();
        let on = pairs.filter_map(|class| Some((member(class, left.0)?, member(class, right.0)?)));
        let schema = left.1.schema().join(right.1.schema())?;
        let is_ready = |condition: &mut Expr| has_all(&schema, condition);
        let ready: Vec<Expr> = conditions.extract_if(.., is_ready).collect();
        let join = Join::try_new(
            left.1.into(),
            right.1.into(),
            on.collect(),
            conjunction(ready),
            JoinType::Inner,
            JoinConstraint::On,
            NullEquality::NullEqualsNothing,
            false,
        )?;
        Ok((left.0 | right.0, LogicalPlan::Join(join)))
    }
}

fn has_all(schema: &DFSchema, condition: &Expr) -> bool {
    condition
        .column_refs()
        .iter()
        .all(|column| schema.has_column(column))
}
