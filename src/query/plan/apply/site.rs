//! Values of subqueries beside the rows that they are worked out for.
//!
//! Comes in: the rows of a node, and a subquery in one of its expressions. Goes out: the rows joined with what the subquery gives for each, and an expression over them in its place. Never here: how a subquery is worked
//! out for all rows at once.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{
    Column, ExprSchema, JoinType, NullEquality, Result, ScalarValue, internal_err,
};
use datafusion::functions_aggregate::expr_fn::{array_agg, count, first_value, max, min};
use datafusion::functions_nested::expr_fn::array_has;
use datafusion::logical_expr::expr::{InSubquery, SetComparison, SetQuantifier};
use datafusion::logical_expr::{
    Aggregate, Expr, ExprSchemable, Join, JoinConstraint, LogicalPlan, LogicalPlanBuilder,
    Operator, Projection, ScalarUDF, Subquery, binary_expr, lit, when,
};

use super::domain::{Domain, Keyed, Matched, Names};
use super::push::pushed;
use super::reach::{outside, subquery_of};
use super::steady::is_steady;
use super::suited::may_be_null;
use crate::error::Error;
use crate::query::plan::only::Only;

/// The rows that the expressions of a node are over.
#[derive(Debug)]
pub(super) struct Site<'a> {
    pub(super) rows: LogicalPlan,
    pub(super) names: &'a Names,
}

impl Site<'_> {
    /// What stands in the place of a subquery. `wanted` says that unknown may be false.
    pub(super) fn value(&mut self, part: Expr, wanted: bool) -> Result<Expr> {
        match part {
            Expr::Exists(exists) => {
                let found = self.exists(&exists.subquery.subquery)?;
                Ok(match exists.negated {
                    true => !found,
                    false => found,
                })
            }
            Expr::InSubquery(found) => self.membership(&found, wanted && !found.negated),
            Expr::ScalarSubquery(subquery) => self.scalar(subquery),
            Expr::SetComparison(compared) => self.comparison(compared, wanted),
            other => Ok(other),
        }
    }

    /// The subquery for each combination of the columns that it names; as it is, if it names none.
    fn for_all(&self, plan: &LogicalPlan) -> Result<(Keyed, Vec<Column>)> {
        let columns: Vec<Column> = outside(plan)?.into_keys().collect();
        if columns.is_empty() {
            let keys = Vec::new();
            let plan = plan.clone();
            return Ok((Keyed { plan, keys }, columns));
        }
        let domain = Domain::try_new(&self.rows, columns, self.names)?;
        let keyed = pushed(&domain, plan)?;
        Ok((keyed, domain.columns))
    }

    /// Puts columns beside the rows, null where there are none for a row.
    pub(super) fn put_beside(
        &mut self,
        beside: LogicalPlan,
        columns: &[Column],
        keys: &[Column],
    ) -> Result<()> {
        let rows = self.rows.clone();
        self.rows = match columns.is_empty() {
            true => LogicalPlanBuilder::from(rows).cross_join(beside)?.build()?,
            false => self
                .same(columns, keys)
                .join(rows, beside, JoinType::Left)?,
        };
        Ok(())
    }

    fn same(&self, columns: &[Column], keys: &[Column]) -> Matched {
        Matched::of(&self.rows, columns, keys)
    }

    pub(super) fn fresh(&self, what: &str) -> Column {
        Column::from_name(format!("__{what}_{}", self.names.next()))
    }

    fn exists(&mut self, plan: &LogicalPlan) -> Result<Expr> {
        let (found, columns) = self.for_all(plan)?;
        if columns.is_empty() {
            return any_row(plan);
        }
        let seen = self.fresh("seen");
        let keys = expressions(&found.keys);
        let plan = LogicalPlanBuilder::from(found.plan)
            .project(keys.clone())?
            .distinct()?
            .project(keys.into_iter().chain([lit(true).alias(&seen.name)]))?
            .build()?;
        self.put_beside(plan, &columns, &found.keys)?;
        Ok(Expr::Column(seen).is_not_null())
    }

    /// The one value, null without a row.
    fn scalar(&mut self, subquery: Subquery) -> Result<Expr> {
        let plan = &subquery.subquery;
        if let Some(value) = self.of_groups(plan)? {
            return Ok(value);
        }
        let column = first_column(plan)?;
        let (found, columns) = self.for_all(plan)?;
        if columns.is_empty() {
            return Ok(Expr::ScalarSubquery(subquery));
        }
        let value = self.fresh("value");
        let keys = expressions(&found.keys);
        let builder = LogicalPlanBuilder::from(found.plan);
        let beside = if plan.max_rows().is_some_and(|most| most <= 1) {
            let own = Expr::Column(column).alias(&value.name);
            builder.project(keys.into_iter().chain([own]))?
        } else {
            self.the_only(builder, keys, column, &value)?
        };
        self.put_beside(beside.build()?, &columns, &found.keys)?;
        Ok(Expr::Column(value))
    }

    /// For each combination of keys the one value of a column, under a name of its own; an error where there are several. Without keys there is one row, null where there was none.
    fn the_only(
        &self,
        rows: LogicalPlanBuilder,
        keys: Vec<Expr>,
        column: Column,
        value: &Column,
    ) -> Result<LogicalPlanBuilder> {
        let (first, count_of) = (self.fresh("first"), self.fresh("rows"));
        let only = ScalarUDF::from(Only::new());
        let only = only.call(vec![
            Expr::Column(first.clone()),
            Expr::Column(count_of.clone()),
        ]);
        let value_type = rows.schema().data_type(&column)?;
        let has_order = value_type.is_primitive() || value_type.is_string();
        // The largest of one value is that one, and unlike the first of several it is the same each time.
        let found = match keys.is_empty() && has_order {
            true => max(Expr::Column(column)),
            false => first_value(Expr::Column(column), Vec::new()),
        };
        let values = [
            found.alias(&first.name),
            count(lit(1_i64)).alias(&count_of.name),
        ];
        rows.aggregate(keys.clone(), values)?
            .project(keys.into_iter().chain([only.alias(&value.name)]))
    }

    /// The expression with columns in place of all subqueries, also of those that the engine can do elsewhere: what a join compares, and the conditions of joins that keep rows without a partner, may have none.
    pub(super) fn in_columns(&mut self, expression: Expr) -> Result<Expr> {
        let done = expression.transform_up(|part| {
            if subquery_of(&part).is_none() {
                return Ok(Transformed::no(part));
            }
            let value = self.value(part, false)?;
            let value = value.transform_up(|part| match part {
                Expr::ScalarSubquery(subquery) => Ok(Transformed::yes(self.once(&subquery)?)),
                other => Ok(Transformed::no(other)),
            })?;
            Ok(Transformed::yes(value.data))
        })?;
        Ok(done.data)
    }

    /// The column of a value that is one for all rows.
    fn once(&mut self, subquery: &Subquery) -> Result<Expr> {
        let plan = LogicalPlan::clone(&subquery.subquery);
        let (column, value) = (first_column(&plan)?, self.fresh("value"));
        let rows = LogicalPlanBuilder::from(plan);
        let beside = self.the_only(rows, Vec::new(), column, &value)?;
        self.put_beside(beside.build()?, &[], &[])?;
        Ok(Expr::Column(value))
    }

    /// Whether a value is among those of the subquery: unknown if it is not, and it or one of them is null.
    fn membership(&mut self, found: &InSubquery, wanted: bool) -> Result<Expr> {
        let is_certain = wanted || !may_be_null(found, &self.rows);
        let plan = &found.subquery.subquery;
        let (members, columns) = self.for_all(plan)?;
        let own = own_column(plan)?;
        let value = self.in_columns(found.expr.as_ref().clone())?;
        let is_member = if is_certain {
            self.is_member(members, &columns, (own, value))?
        } else if is_steady(plan, std::iter::empty())? {
            let again = self.under_other_keys(members.clone())?;
            let is_member = self.is_member(members, &columns, (own.clone(), value.clone()))?;
            let counts = self.counts(again, &columns, own, Vec::new())?;
            counts.or_unknown(is_member, value)?
        } else {
            // Rows that may be others the next time are looked at once.
            let list = self.fresh("members");
            let all = array_agg(own.clone()).alias(&list.name);
            let counts = self.counts(members, &columns, own, vec![all])?;
            let is_member = array_has(Expr::Column(list), value.clone());
            counts.or_unknown(is_member, value)?
        };
        Ok(match found.negated {
            true => !is_member,
            false => is_member,
        })
    }

    /// Whether a value is among those of the subquery; false where that is unknown.
    fn is_member(
        &mut self,
        members: Keyed,
        columns: &[Column],
        (own, value): (Expr, Expr),
    ) -> Result<Expr> {
        let (seen, member) = (self.fresh("seen"), self.fresh("member"));
        let mut distinct = expressions(&members.keys);
        distinct.push(own.clone().alias(&member.name));
        let mut marked = expressions(&members.keys);
        marked.push(Expr::Column(member.clone()));
        marked.push(lit(true).alias(&seen.name));
        let values = LogicalPlanBuilder::from(members.plan)
            .filter(own.is_not_null())?
            .project(distinct)?
            .distinct()?
            .project(marked)?
            .build()?;
        let mut matched = self.same(columns, &members.keys);
        // No member is null, so that a null finds none, whether nulls are equal or not.
        matched.on.push((value, Expr::Column(member)));
        self.rows = matched.join(self.rows.clone(), values, JoinType::Left)?;
        Ok(Expr::Column(seen).is_not_null())
    }

    /// The same rows beside which the first may stand.
    fn under_other_keys(&self, keyed: Keyed) -> Result<Keyed> {
        let fresh: Vec<Column> = keyed.keys.iter().map(|_| self.fresh("outer")).collect();
        let columns = keyed.plan.schema().columns().into_iter();
        let columns = columns.map(|column| {
            let place = keyed.keys.iter().position(|key| *key == column);
            match place.and_then(|place| fresh.get(place)) {
                Some(key) => Expr::Column(column).alias(&key.name),
                None => Expr::Column(column),
            }
        });
        let columns = columns.collect();
        let plan = Projection::try_new(columns, Arc::new(keyed.plan))?;
        Ok(Keyed {
            plan: LogicalPlan::Projection(plan),
            keys: fresh,
        })
    }

    /// How many rows the subquery has for each row, how many of them are not null, and other aggregates.
    fn counts(
        &mut self,
        members: Keyed,
        columns: &[Column],
        value: Expr,
        others: Vec<Expr>,
    ) -> Result<Counts> {
        let (rows, known) = (self.fresh("rows"), self.fresh("known"));
        let mut values = vec![
            count(lit(1_i64)).alias(&rows.name),
            count(value).alias(&known.name),
        ];
        values.extend(others);
        let keys = expressions(&members.keys);
        let counted =
            LogicalPlan::Aggregate(Aggregate::try_new(Arc::new(members.plan), keys, values)?);
        self.put_beside(counted, columns, &members.keys)?;
        Ok(Counts { rows, known })
    }

    /// A comparison with all values of the subquery, by the least and the greatest of them.
    fn comparison(&mut self, compared: SetComparison, wanted: bool) -> Result<Expr> {
        let SetComparison {
            expr,
            subquery,
            op,
            quantifier,
        } = compared;
        match (op, &quantifier) {
            (Operator::Eq, SetQuantifier::Any) => {
                return self.membership(&InSubquery::new(expr, subquery, false), wanted);
            }
            (Operator::NotEq, SetQuantifier::All) => {
                return self.membership(&InSubquery::new(expr, subquery, true), false);
            }
            _ => {}
        }
        let expr = self.in_columns(*expr)?;
        let column = own_column(&subquery.subquery)?;
        let (members, columns) = self.for_all(&subquery.subquery)?;
        let (least, greatest) = (self.fresh("least"), self.fresh("greatest"));
        let extremes = vec![
            min(column.clone()).alias(&least.name),
            max(column.clone()).alias(&greatest.name),
        ];
        let counts = self.counts(members, &columns, column, extremes)?;
        let with = |op: Operator, extreme: &Column| {
            binary_expr(expr.clone(), op, Expr::Column(extreme.clone()))
        };
        let equals_all = || with(Operator::Eq, &least).and(with(Operator::Eq, &greatest));
        let is_all = quantifier == SetQuantifier::All;
        let holds = match op {
            Operator::Gt | Operator::GtEq => with(op, if is_all { &greatest } else { &least }),
            Operator::Lt | Operator::LtEq => with(op, if is_all { &least } else { &greatest }),
            Operator::Eq => equals_all(),
            Operator::NotEq => !equals_all(),
            other => {
                let text = format!("`{other}` with ANY or ALL is not supported");
                return Err(Error::unsupported(text)
                    .with_hint("the comparisons are =, <>, <, <=, > and >=")
                    .into());
            }
        };
        let decisive = if is_all { !holds } else { holds };
        when(counts.is_empty(), lit(is_all))
            .when(decisive, lit(!is_all))
            .when(expr.clone().is_null().or(counts.has_null()), unknown())
            .otherwise(lit(is_all))
    }

    /// The join of rows with those of a subquery for each of them.
    pub(super) fn beside(join: &Join, names: &Names) -> Result<LogicalPlan> {
        let columns: Vec<Column> = outside(&join.right)?.into_keys().collect();
        let domain = Domain::try_new(&join.left, columns, names)?;
        let found = pushed(&domain, &join.right)?;
        let (mut on, mut filter) = (join.on.clone(), join.filter.clone());
        // A condition that says nothing keeps the keys from being those of the join.
        filter = filter.filter(|filter| *filter != lit(true));
        let mut null_equality = NullEquality::NullEqualsNothing;
        let matched = Matched::of(&join.left, &domain.columns, &found.keys);
        matched.beside(&mut on, &mut filter, &mut null_equality);
        let joined = Join::try_new(
            Arc::clone(&join.left),
            Arc::new(found.plan),
            on,
            filter,
            join.join_type,
            JoinConstraint::On,
            null_equality,
            false,
        )?;
        let columns = join.schema.columns().into_iter().map(Expr::Column);
        let done = Projection::try_new(columns.collect(), Arc::new(LogicalPlan::Join(joined)))?;
        Ok(LogicalPlan::Projection(done))
    }
}

/// How many rows there are for a row, and how many are known.
#[derive(Debug)]
struct Counts {
    rows: Column,
    known: Column,
}

impl Counts {
    fn is_empty(&self) -> Expr {
        let rows = Expr::Column(self.rows.clone());
        rows.clone().is_null().or(rows.eq(lit(0_i64)))
    }

    fn has_null(&self) -> Expr {
        Expr::Column(self.known.clone()).lt(Expr::Column(self.rows.clone()))
    }

    /// Unknown instead of false, where a null may be what is looked for.
    fn or_unknown(&self, is_member: Expr, value: Expr) -> Result<Expr> {
        when(self.is_empty(), lit(false))
            .when(is_member, lit(true))
            .when(value.is_null().or(self.has_null()), unknown())
            .otherwise(lit(false))
    }
}

fn unknown() -> Expr {
    lit(ScalarValue::Boolean(None))
}

fn expressions(columns: &[Column]) -> Vec<Expr> {
    columns.iter().cloned().map(Expr::Column).collect()
}

pub(super) fn first_column(plan: &LogicalPlan) -> Result<Column> {
    match plan.schema().columns().into_iter().next() {
        Some(column) => Ok(column),
        None => internal_err!("a subquery in place of a value without a column"),
    }
}

fn own_column(plan: &LogicalPlan) -> Result<Expr> {
    Ok(Expr::Column(first_column(plan)?))
}

/// Whether a subquery that names nothing from outside has rows.
fn any_row(plan: &LogicalPlan) -> Result<Expr> {
    let rows = Column::from_name("rows");
    let plan = LogicalPlanBuilder::from(plan.clone())
        .limit(0, Some(1))?
        .aggregate(Vec::<Expr>::new(), [count(lit(1_i64)).alias(&rows.name)])?
        .project([Expr::Column(rows).gt(lit(0_i64)).alias("has_rows")])?
        .build()?;
    Ok(Expr::ScalarSubquery(Subquery {
        subquery: Arc::new(plan),
        outer_ref_columns: Vec::new(),
        spans: datafusion::common::Spans::new(),
    }))
}

/// Whether values of a type have a least and a greatest.
pub(super) fn is_ordered(compared: &SetComparison) -> bool {
    let plan = &compared.subquery.subquery;
    let found = own_column(plan).and_then(|column| column.get_type(plan.schema()));
    found.is_ok_and(|found| !found.is_nested())
}
