//! Windows that are the same.
//!
//! Comes in: a plan that is optimized. Goes out: the same, in which a value over a window that has two names, such as `avg(i)` and `avg(i::DOUBLE)` once their types are settled, is worked out once. The engine makes one expression of both as well, in a place where no window can stand. Never here: what two queries have in common (`repeated/`).

use std::sync::Arc;

use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, Result};
use datafusion::logical_expr::{Expr, LogicalPlan, Projection, Window};
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};

/// Works out each window once.
#[derive(Debug)]
pub(in crate::query) struct TwinWindows;

impl OptimizerRule for TwinWindows {
    fn name(&self) -> &'static str {
        "twin_windows"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::TopDown)
    }

    fn supports_rewrite(&self) -> bool {
        true
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        _: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        match plan {
            LogicalPlan::Window(window) => once(window),
            plan => Ok(Transformed::no(plan)),
        }
    }
}

fn once(window: Window) -> Result<Transformed<LogicalPlan>> {
    let mut values: Vec<&Expr> = Vec::with_capacity(window.window_expr.len());
    // Which of them each is.
    let mut places = Vec::with_capacity(window.window_expr.len());
    let mut firsts = Vec::with_capacity(window.window_expr.len());
    for value in &window.window_expr {
        let bare = without_name(value);
        let known = values
            .iter()
            .position(|known| *known == bare && !bare.is_volatile());
        places.push(known.unwrap_or(values.len()));
        if known.is_none() {
            values.push(bare);
            firsts.push(value.clone());
        }
    }
    if firsts.len() == window.window_expr.len() {
        return Ok(Transformed::no(LogicalPlan::Window(window)));
    }
    let schema = Arc::clone(&window.schema);
    let num_columns = window.input.schema().fields().len();
    let windows = LogicalPlan::Window(Window::try_new(firsts, window.input)?);
    let found: Vec<Column> = windows.schema().columns();
    let columns = schema.columns().into_iter().enumerate();
    let columns = columns.map(|(number, column)| {
        let place = number.checked_sub(num_columns);
        let place = place.and_then(|window| places.get(window));
        match place.and_then(|place| found.get(num_columns + place)) {
            Some(value) if value.name != column.name => {
                Expr::Column(value.clone()).alias(column.name)
            }
            _ => Expr::Column(column),
        }
    });
    let projection = Projection::try_new(columns.collect(), Arc::new(windows))?;
    Ok(Transformed::yes(LogicalPlan::Projection(projection)))
}

fn without_name(value: &Expr) -> &Expr {
    match value {
        Expr::Alias(named) => without_name(&named.expr),
        value => value,
    }
}
