//! What windows so far are worked out by.
//!
//! Comes in: a window as the engine has it. Goes out: what makes its values of batches; nothing for what is not worked out so. Never here: sums and extremes themselves (`functions/sums/`, `functions/extremes/`).

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, Int64Array};
use arrow::buffer::BooleanBuffer;
use arrow::datatypes::Schema;
use datafusion::error::Result;
use datafusion::functions_aggregate::count::Count;
use datafusion::logical_expr::{WindowFrame, WindowFrameBound, WindowFrameUnits};
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use datafusion::physical_expr::expressions::Literal;
use datafusion::physical_expr::window::{PlainAggregateWindowExpr, StandardWindowExpr, WindowExpr};
use datafusion::physical_plan::windows::WindowUDFExpr;

use crate::query::functions::{extremes, ranks, sums};

/// Makes the values of a batch of its arguments, and of where partitions and other keys begin.
pub(super) type Running =
    Box<dyn FnMut(&[ArrayRef], &BooleanBuffer, &BooleanBuffer) -> Result<ArrayRef> + Send>;

/// A function over the rows so far.
pub(super) struct Function {
    pub(super) running: Running,
    /// Whether rows with equal keys have the value of the last of them.
    pub(super) is_of_peers: bool,
}

impl Function {
    pub(super) fn of(window: &Arc<dyn WindowExpr>, input: &Schema) -> Option<Self> {
        let any = window.as_any();
        if let Some(numbers) = any.downcast_ref::<StandardWindowExpr>() {
            let function = numbers.get_standard_func_expr().as_any();
            let function = function.downcast_ref::<WindowUDFExpr>()?.fun();
            let running = match ranks::is_ours(function).then(|| function.name())? {
                "row_number" => row_numbers(),
                "rank" => ranks_of(),
                "dense_rank" => dense_ranks(),
                _ => return None,
            };
            return Some(Self {
                running,
                is_of_peers: false,
            });
        }
        let plain = any.downcast_ref::<PlainAggregateWindowExpr>()?;
        let is_of_peers = is_so_far(window.get_window_frame())?;
        if is_of_peers && window.order_by().is_empty() {
            return None;
        }
        // The engine does not tell it in another way.
        let has_filter = !format!("{plain:?}").ends_with("filter: None }");
        let aggregate = plain.get_aggregate_expr();
        let is_plain = !has_filter
            && !aggregate.is_distinct()
            && !aggregate.ignore_nulls()
            && aggregate.order_bys().is_empty();
        Some(Self {
            running: is_plain.then(|| of_aggregate(aggregate, input))??,
            is_of_peers,
        })
    }
}

/// Whether rows with equal keys are within a frame from the first row to the row itself; nothing for another frame.
fn is_so_far(frame: &WindowFrame) -> Option<bool> {
    let begins =
        matches!(&frame.start_bound, WindowFrameBound::Preceding(bound) if bound.is_null());
    let ends = matches!(frame.end_bound, WindowFrameBound::CurrentRow);
    (begins && ends).then_some(frame.units != WindowFrameUnits::Rows)
}

fn of_aggregate(aggregate: &AggregateFunctionExpr, schema: &Schema) -> Option<Running> {
    let function = aggregate.fun();
    let arguments = aggregate.expressions();
    let [argument] = arguments.as_slice() else {
        return None;
    };
    if function.inner().is::<Count>() {
        let literal = argument.downcast_ref::<Literal>();
        let is_of_rows = literal.is_some_and(|literal| !literal.value().is_null());
        return Some(counts(is_of_rows));
    }
    let output = aggregate.field().data_type().clone();
    let input = argument.data_type(schema).ok()?;
    let mut run = sums::running(function, aggregate.name(), (&input, &output))
        .or_else(|| extremes::running(function, (&input, &output)))?;
    Some(Box::new(move |arguments, partitions, _| match arguments {
        [values] => run(values, partitions),
        _ => datafusion::common::internal_err!("a window of {} columns", arguments.len()),
    }))
}

fn counts(is_of_rows: bool) -> Running {
    let mut count = 0;
    Box::new(move |arguments, partitions, _| {
        let nulls = arguments.first().and_then(|values| values.logical_nulls());
        let nulls = nulls.filter(|_| !is_of_rows);
        let counts = (0..partitions.len()).map(|row| {
            if partitions.value(row) {
                count = 0;
            }
            count += i64::from(nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row)));
            count
        });
        Ok(Arc::new(Int64Array::from_iter_values(counts)))
    })
}

fn row_numbers() -> Running {
    let mut number = 0;
    Box::new(move |_, partitions, _| {
        let numbers = partitions.iter().map(|is_first| {
            number = if is_first { 1 } else { number + 1 };
            number
        });
        Ok(Arc::new(Int64Array::from_iter_values(numbers)))
    })
}

fn ranks_of() -> Running {
    let (mut number, mut rank) = (0, 0);
    Box::new(move |_, partitions, peers| {
        let rows = partitions.iter().zip(peers);
        let ranks = rows.map(|(is_first, is_other)| {
            number = if is_first { 1 } else { number + 1 };
            if is_other {
                rank = number;
            }
            rank
        });
        Ok(Arc::new(Int64Array::from_iter_values(ranks)))
    })
}

fn dense_ranks() -> Running {
    let mut rank = 0;
    Box::new(move |_, partitions, peers| {
        let rows = partitions.iter().zip(peers);
        let ranks = rows.map(|(is_first, is_other)| {
            rank = if is_first {
                1
            } else {
                rank + i64::from(is_other)
            };
            rank
        });
        Ok(Arc::new(Int64Array::from_iter_values(ranks)))
    })
}
