//! Answers whose columns share a name: `SELECT x, x`, `SELECT *, x`, `SELECT sum(x), sum(x)`.
//!
//! Comes in: a statement that the planner refuses, since it wants a name of its own for every expression. Goes out: the same statement with such names, and those to put back on the
//! answer. Where expressions differ in a cast only, which the planner's names leave out, or in what a subquery of IN or EXISTS says, each of these is marked until they are told apart. Never here: statements that are
//! planned as they are, and names within subqueries.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::error::{DataFusionError, Result as PlanResult};
use datafusion::execution::{FunctionRegistry, SessionState};
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::{
    ColumnarValue, Expr, LogicalPlan, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature, Volatility,
};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::projection::{ProjectionExec, ProjectionExpr};
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast;
use datafusion::sql::sqlparser::ast::{SelectItem, SetExpr};

use super::aliased;
use super::called::called;
use super::using::{self, folded};
use crate::query::messages::group_keys;
use crate::query::names::View;

/// The function that marks a cast or a condition. Only statements that are planned again know it, and the optimizer takes it out.
const MARK: &str = "partgrid_cast";

/// The names that columns of an answer have for the planner, and shall have.
pub(in crate::query) type Wanted = BTreeMap<String, String>;

/// The logical plan of a statement, and the names to put back on its answer.
pub(in crate::query) async fn planned(
    state: &SessionState,
    statement: Statement,
) -> PlanResult<(LogicalPlan, Wanted)> {
    let slip = group_keys::slip_of_name(&statement, state);
    let planned = planned_again(state, statement).await;
    planned.map_err(|error| match slip {
        Some(slip) if is_about_names(&error) => slip.into(),
        _ => error,
    })
}

/// The same, with items that have names of their own where the engine refuses those that they have.
async fn planned_again(
    state: &SessionState,
    mut statement: Statement,
) -> PlanResult<(LogicalPlan, Wanted)> {
    let refused = match aliased::planned(state, &mut statement).await {
        Ok(plan) => return Ok((plan, Wanted::new())),
        Err(error) if is_about_names(&error) => error,
        Err(error) => return Err(error),
    };
    let mut again = statement;
    let Some(items) = rename(&mut again) else {
        return Err(refused);
    };
    let planned = match using::planned(state, &again).await {
        Err(error) if is_about_names(&error) => marked(state, again).await,
        planned => planned,
    };
    // What is wrong is said in the words of the user.
    let plan = planned.map_err(|_| refused)?;
    let wanted = wanted(&plan, items)?;
    Ok((plan, wanted))
}

/// The plan of a statement that names something, CREATE or PREPARE, in which values with names of their own may differ in a cast only, and whether some do. What it makes has the names of the text.
pub(in crate::query) async fn planned_apart(
    state: &SessionState,
    statement: &mut Statement,
) -> PlanResult<(LogicalPlan, bool)> {
    let refused = match aliased::planned(state, statement).await {
        Err(error) if is_about_names(&error) => error,
        planned => return planned.map(|plan| (plan, false)),
    };
    let planned = apart(state, statement).await;
    planned.map(|plan| (plan, true)).map_err(|_| refused)
}

/// The plan of a view, as [`planned_apart`].
pub(in crate::query) async fn view_planned(
    state: &SessionState,
    view: &View,
) -> PlanResult<LogicalPlan> {
    match view.has_twins {
        true => apart(state, &view.statement).await,
        false => using::planned(state, &view.statement).await,
    }
}

/// The plan of such a statement with its casts marked.
///
/// # Errors
/// As the engine says, and where a mark would be part of a name.
async fn apart(state: &SessionState, statement: &Statement) -> PlanResult<LogicalPlan> {
    let mut again = statement.clone();
    if let Statement::Statement(inner) = &mut again
        && let ast::Statement::Prepare { statement, .. } = inner.as_mut()
        && let ast::Statement::Query(query) = statement.as_mut()
    {
        // Its own columns are named when it runs.
        let mut items = Vec::new();
        rename_query(query, &mut items).ok_or_else(no_argument)?;
    }
    let plan = marked(state, again).await?;
    let made = match &plan {
        LogicalPlan::Ddl(made) => made.inputs().into_iter().next(),
        _ => None,
    };
    let mut names = made.into_iter().flat_map(|made| made.schema().fields());
    match names.any(|field| field.name().contains(MARK)) {
        true => Err(no_argument()),
        false => Ok(plan),
    }
}

/// The plan of a statement with all casts marked.
async fn marked(state: &SessionState, mut statement: Statement) -> PlanResult<LogicalPlan> {
    let mut state = state.clone();
    state.register_udf(Arc::new(ScalarUDF::from(Mark::new())))?;
    mark(&mut statement);
    using::planned(&state, &statement).await
}

/// The plan with the names that its columns shall have.
pub(in crate::query) fn restored(
    plan: Arc<dyn ExecutionPlan>,
    wanted: &Wanted,
) -> PlanResult<Arc<dyn ExecutionPlan>> {
    let schema = plan.schema();
    let mut fields = schema.fields().iter();
    if !fields.any(|field| wanted.contains_key(field.name())) {
        return Ok(plan);
    }
    let columns = schema.fields().iter().enumerate().map(|(place, field)| {
        let alias = wanted.get(field.name()).unwrap_or(field.name()).clone();
        let expr = Arc::new(Column::new(field.name(), place));
        ProjectionExpr { expr, alias }
    });
    Ok(Arc::new(ProjectionExec::try_new(columns, plan)?))
}

fn is_about_names(error: &DataFusionError) -> bool {
    let text = error.strip_backtrace();
    [
        "require unique expression names",
        "duplicate unqualified field name",
        "duplicate qualified field name",
        "mbiguous reference to unqualified field",
        "which would be ambiguous",
    ]
    .iter()
    .any(|part| text.contains(part))
}

/// An item of a select list that got a name for the planner.
struct Item {
    name: String,
    /// What it is called, if the text says so.
    said: Option<String>,
    /// As it is written.
    text: String,
}

/// Gives the items of the outermost select lists names of their own; `None` where that could change what the statement means.
fn rename(statement: &mut Statement) -> Option<Vec<Item>> {
    match statement {
        Statement::Explain(explain) => rename(&mut explain.statement),
        Statement::Statement(statement) => match statement.as_mut() {
            ast::Statement::Query(query) => {
                let mut items = Vec::new();
                rename_query(query, &mut items)?;
                Some(items)
            }
            _ => None,
        },
        _ => None,
    }
}

/// The names in an ORDER BY.
#[derive(Default)]
struct Ordered {
    /// Those of columns of the answer.
    bare: BTreeSet<String>,
    /// Those of columns of tables, which are named with them.
    of_tables: BTreeSet<String>,
}

fn rename_query(query: &mut ast::Query, items: &mut Vec<Item>) -> Option<()> {
    let mut ordered = Ordered::default();
    if let Some(order) = &query.order_by
        && let ast::OrderByKind::Expressions(expressions) = &order.kind
    {
        for by in expressions {
            if let ast::Expr::Identifier(name) = &by.expr {
                ordered.bare.insert(folded(name));
            }
        }
        let visited: ControlFlow<()> = ast::visit_expressions(expressions, |expression| {
            if let ast::Expr::CompoundIdentifier(names) = expression {
                ordered.of_tables.extend(names.last().map(folded));
            }
            ControlFlow::Continue(())
        });
        debug_assert!(visited.is_continue());
    }
    rename_body(&mut query.body, &ordered, items)
}

fn rename_body(body: &mut SetExpr, ordered: &Ordered, items: &mut Vec<Item>) -> Option<()> {
    match body {
        SetExpr::Select(select) => rename_select(select, ordered, items),
        SetExpr::Query(query) => rename_query(query, items),
        SetExpr::SetOperation { left, right, .. } => {
            rename_body(left, ordered, items)?;
            rename_body(right, ordered, items)
        }
        _ => Some(()),
    }
}

fn rename_select(select: &mut ast::Select, ordered: &Ordered, items: &mut Vec<Item>) -> Option<()> {
    let is_all = |item: &SelectItem| {
        matches!(
            item,
            SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..)
        )
    };
    let has_all = select.projection.iter().any(is_all);
    let mut seen = HashSet::new();
    for (place, item) in select.projection.iter_mut().enumerate() {
        let (expression, said) = match item {
            SelectItem::UnnamedExpr(expression) => (expression.clone(), None),
            SelectItem::ExprWithAlias { expr, alias } => (expr.clone(), Some(folded(alias))),
            _ => continue,
        };
        let column = match &expression {
            ast::Expr::Identifier(name) => Some(folded(name)),
            ast::Expr::CompoundIdentifier(names) => names.last().map(folded),
            _ => None,
        };
        let name = said.clone().or(column);
        if let Some(name) = &name {
            // ORDER BY may ask for the column of a table that is called so.
            let hides = said.is_some() && ordered.of_tables.contains(name);
            if seen.insert(name.clone()) && !has_all && !hides {
                continue;
            }
            // It would mean another column.
            if said.is_some() && ordered.bare.contains(name) {
                return None;
            }
        }
        let text = expression.to_string();
        let ours = format!("{}:{place}", name.as_ref().unwrap_or(&text));
        items.push(Item {
            name: ours.clone(),
            said: name,
            text,
        });
        *item = SelectItem::ExprWithAlias {
            expr: expression,
            alias: ast::Ident::with_quote('"', ours),
        };
    }
    Some(())
}

/// The names that the items would have had, one by one.
fn wanted(plan: &LogicalPlan, items: Vec<Item>) -> PlanResult<Wanted> {
    let mut planned = BTreeMap::new();
    plan.apply(|node| {
        if let LogicalPlan::Projection(projection) = node {
            for expression in &projection.expr {
                if let Expr::Alias(alias) = expression {
                    let name = alias.expr.schema_name().to_string();
                    planned.entry(alias.name.clone()).or_insert(name);
                }
            }
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    let of_item = |item: Item| {
        let name = planned.remove(&item.name);
        let name = name.filter(|name| !name.contains(MARK));
        let shown = item.said.or(name).unwrap_or(item.text);
        (item.name, shown)
    };
    Ok(items.into_iter().map(of_item).collect())
}

/// Puts every cast of a statement into a call that says its type, and every condition on a subquery into one that says all of it, so that it is part of the names that the planner makes.
fn mark(statement: &mut Statement) {
    let target = match statement {
        Statement::Explain(explain) => return mark(&mut explain.statement),
        Statement::Statement(statement) => statement.as_mut(),
        _ => return,
    };
    let visited: ControlFlow<()> = ast::visit_expressions_mut(target, |expression| {
        let kind = match expression {
            ast::Expr::Cast { data_type, .. } => data_type.to_string(),
            ast::Expr::InSubquery { .. } | ast::Expr::Exists { .. } | ast::Expr::Subquery(_) => {
                expression.to_string()
            }
            ast::Expr::AnyOp { right, .. } | ast::Expr::AllOp { right, .. } => {
                unmark(right);
                match right.as_ref() {
                    ast::Expr::Subquery(_) => expression.to_string(),
                    _ => return ControlFlow::Continue(()),
                }
            }
            _ => return ControlFlow::Continue(()),
        };
        let kind = ast::Value::SingleQuotedString(kind);
        *expression = called(MARK, [expression.clone(), ast::Expr::value(kind)]);
        ControlFlow::Continue(())
    });
    debug_assert!(visited.is_continue());
}

/// The query of ANY and ALL is no value, and stands there itself.
fn unmark(right: &mut ast::Expr) {
    let ast::Expr::Function(marked) = right else {
        return;
    };
    let is_mark = marked.name.to_string() == MARK;
    let ast::FunctionArguments::List(list) = &mut marked.args else {
        return;
    };
    if let [
        ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(first)),
        _,
    ] = list.args.as_mut_slice()
        && is_mark
        && matches!(first, ast::Expr::Subquery(_))
    {
        *right = first.clone();
    }
}

/// Gives its first argument.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Mark {
    signature: Signature,
}

impl Mark {
    fn new() -> Self {
        Self {
            signature: Signature::any(2, Volatility::Immutable),
        }
    }
}

fn no_argument() -> DataFusionError {
    DataFusionError::Internal(format!("{MARK} takes two arguments"))
}

impl ScalarUDFImpl for Mark {
    fn name(&self) -> &'static str {
        MARK
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> PlanResult<DataType> {
        types.first().cloned().ok_or_else(no_argument)
    }

    fn return_field_from_args(&self, arguments: ReturnFieldArgs<'_>) -> PlanResult<FieldRef> {
        let first = arguments.arg_fields.first();
        first.map(Arc::clone).ok_or_else(no_argument)
    }

    fn simplify(
        &self,
        arguments: Vec<Expr>,
        _: &SimplifyContext,
    ) -> PlanResult<ExprSimplifyResult> {
        let first = arguments.into_iter().next().ok_or_else(no_argument)?;
        Ok(ExprSimplifyResult::Simplified(first))
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> PlanResult<ColumnarValue> {
        arguments.args.into_iter().next().ok_or_else(no_argument)
    }
}
