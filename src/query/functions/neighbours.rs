//! The values of other rows, in windows.
//!
//! Comes in: `lag` and `lead` of the engine. Goes out: the same functions, which look at all rows of a partition where they pass nulls by to the second value or a later one: as rows come, the engine forgets some of
//! those that it has passed. Never here: what they give.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::datatypes::FieldRef;
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::functions_window::lead_lag::{lag_udwf, lead_udwf};
use datafusion::logical_expr::function::{
    ExpressionArgs, PartitionEvaluatorArgs, WindowUDFFieldArgs,
};
use datafusion::logical_expr::{
    Documentation, LimitEffect, PartitionEvaluator, ReversedUDWF, Signature, WindowUDF,
    WindowUDFImpl,
};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Literal;
use datafusion::prelude::SessionContext;

use super::passed_on::window_as_inner;

/// Puts the functions in place of those of the engine.
pub(super) fn add_to(context: &SessionContext) {
    for inner in [lag_udwf(), lead_udwf()] {
        context.register_udwf(WindowUDF::from(Neighbour { inner }));
    }
}

/// `lag` or `lead`.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Neighbour {
    inner: Arc<WindowUDF>,
}

impl WindowUDFImpl for Neighbour {
    window_as_inner!();

    fn partition_evaluator(
        &self,
        arguments: PartitionEvaluatorArgs,
    ) -> Result<Box<dyn PartitionEvaluator>> {
        let is_far = arguments.ignore_nulls() && !is_next(arguments.input_exprs());
        let inner = self.inner.partition_evaluator_factory(arguments)?;
        Ok(match is_far {
            true => Box::new(Whole { inner }),
            false => inner,
        })
    }

    fn field(&self, arguments: WindowUDFFieldArgs) -> Result<FieldRef> {
        self.inner.field(arguments)
    }

    fn reverse_expr(&self) -> ReversedUDWF {
        match self.inner.inner().reverse_expr() {
            ReversedUDWF::Reversed(inner) => {
                ReversedUDWF::Reversed(Arc::new(WindowUDF::from(Self { inner })))
            }
            other => other,
        }
    }
}

/// Whether the value is the next one, on either side.
fn is_next(arguments: &[Arc<dyn PhysicalExpr>]) -> bool {
    let Some(distance) = arguments.get(1) else {
        return true;
    };
    let distance = distance.downcast_ref::<Literal>();
    let distance = distance.and_then(|distance| match distance.value() {
        ScalarValue::Int64(distance) => *distance,
        _ => None,
    });
    distance.is_some_and(|distance| distance.unsigned_abs() < 2)
}

/// Looks at all rows of a partition at once.
#[derive(Debug)]
struct Whole {
    inner: Box<dyn PartitionEvaluator>,
}

impl PartitionEvaluator for Whole {
    fn get_range(&self, row: usize, num_rows: usize) -> Result<Range<usize>> {
        self.inner.get_range(row, num_rows)
    }

    fn evaluate_all(&mut self, values: &[ArrayRef], num_rows: usize) -> Result<ArrayRef> {
        self.inner.evaluate_all(values, num_rows)
    }

    fn supports_bounded_execution(&self) -> bool {
        false
    }
}
