//! What windows so far, and of the last rows, are worked out by.
//!
//! Comes in: a window as the engine has it. Goes out: what makes its values of batches; nothing for what is not worked out so. Never here: sums and extremes themselves (`functions/sums/`, `functions/extremes/`).

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, Int64Array};
use arrow::buffer::BooleanBuffer;
use arrow::datatypes::Schema;
use datafusion::common::{ScalarValue, internal_err};
use datafusion::error::Result;
use datafusion::functions_aggregate::count::Count;
use datafusion::logical_expr::{WindowFrame, WindowFrameBound, WindowFrameUnits};
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use datafusion::physical_expr::expressions::Literal;
use datafusion::physical_expr::window::{
    PlainAggregateWindowExpr, SlidingAggregateWindowExpr, StandardWindowExpr, WindowExpr,
};
use datafusion::physical_plan::windows::WindowUDFExpr;

use crate::query::functions::{extremes, ranks, sums};

/// Frames of more rows are left to the engine: the values of all their rows are held.
const MOST_BEFORE: usize = 100_000;

/// Makes what values are made of, of the arguments of a batch, and of where partitions and other keys begin.
pub(super) type Running =
    Box<dyn FnMut(&[ArrayRef], &BooleanBuffer, &BooleanBuffer) -> Result<ArrayRef> + Send>;

/// Makes values of it, for the rows that have them.
pub(super) type Finish = Box<dyn Fn(&ArrayRef) -> Result<ArrayRef> + Send>;

/// A function over the rows so far, or the last ones.
pub(super) struct Function {
    pub(super) running: Running,
    pub(super) finish: Option<Finish>,
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
                finish: None,
                is_of_peers: false,
            });
        }
        let (aggregate, has_filter) = match any.downcast_ref::<PlainAggregateWindowExpr>() {
            Some(plain) => (plain.get_aggregate_expr(), has_filter(plain)),
            None => {
                let sliding = any.downcast_ref::<SlidingAggregateWindowExpr>()?;
                (sliding.get_aggregate_expr(), has_filter(sliding))
            }
        };
        let frame = Frame::of(window.get_window_frame())?;
        if frame.is_of_peers && window.order_by().is_empty() {
            return None;
        }
        let is_plain = !has_filter
            && !aggregate.is_distinct()
            && !aggregate.ignore_nulls()
            && aggregate.order_bys().is_empty();
        let (running, finish) =
            is_plain.then(|| of_aggregate(aggregate, input, frame.before))??;
        Some(Self {
            running,
            finish,
            is_of_peers: frame.is_of_peers,
        })
    }
}

/// Whether a window of the engine has a filter, which it does not tell in another way: it is what it shows last.
pub(in crate::query::exec) fn has_filter(window: &impl fmt::Debug) -> bool {
    !format!("{window:?}").ends_with("filter: None }")
}

/// A frame that ends with the row itself.
struct Frame {
    /// How many rows before it there are; `None` are all.
    before: Option<usize>,
    /// Whether rows with equal keys are in it, too.
    is_of_peers: bool,
}

impl Frame {
    fn of(frame: &WindowFrame) -> Option<Self> {
        let is_of_rows = frame.units == WindowFrameUnits::Rows;
        let before = match &frame.start_bound {
            WindowFrameBound::Preceding(bound) if bound.is_null() => None,
            WindowFrameBound::Preceding(ScalarValue::UInt64(Some(rows))) if is_of_rows => {
                let rows = usize::try_from(*rows).ok();
                Some(rows.filter(|rows| *rows <= MOST_BEFORE)?)
            }
            WindowFrameBound::CurrentRow if is_of_rows => Some(0),
            _ => return None,
        };
        matches!(frame.end_bound, WindowFrameBound::CurrentRow).then_some(Self {
            before,
            is_of_peers: !is_of_rows,
        })
    }
}

fn of_aggregate(
    aggregate: &AggregateFunctionExpr,
    schema: &Schema,
    before: Option<usize>,
) -> Option<(Running, Option<Finish>)> {
    let function = aggregate.fun();
    let arguments = aggregate.expressions();
    let [argument] = arguments.as_slice() else {
        return None;
    };
    if function.inner().is::<Count>() {
        let literal = argument.downcast_ref::<Literal>();
        let is_of_rows = literal.is_some_and(|literal| !literal.value().is_null());
        return Some((counts(is_of_rows, before), None));
    }
    let output = aggregate.field().data_type().clone();
    let input = argument.data_type(schema).ok()?;
    let types = (&input, &output);
    let found = sums::running(function, aggregate.name(), types, before)
        .or_else(|| extremes::running(function, types, before))?;
    let mut run = found.run;
    let running: Running = Box::new(move |arguments, partitions, _| match arguments {
        [values] => run(values, partitions),
        _ => internal_err!("a window of {} columns", arguments.len()),
    });
    Some((running, found.finish))
}

fn counts(is_of_rows: bool, before: Option<usize>) -> Running {
    let mut count = 0;
    let mut frame = VecDeque::new();
    Box::new(move |arguments, partitions, _| {
        let nulls = arguments.first().and_then(|values| values.logical_nulls());
        let nulls = nulls.filter(|_| !is_of_rows);
        let counts = (0..partitions.len()).map(|row| {
            if partitions.value(row) {
                count = 0;
                frame.clear();
            }
            let one = i64::from(nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row)));
            count += one;
            if let Some(before) = before {
                frame.push_back(one);
                if frame.len() > before + 1 {
                    count -= frame.pop_front().unwrap_or_default();
                }
            }
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
