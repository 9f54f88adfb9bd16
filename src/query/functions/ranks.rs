//! Numbers of rows in windows, with a sign.
//!
//! Comes in: `row_number`, `rank`, `dense_rank` and `ntile` of the engine, which have none: the difference of two has no room below 0. Goes out: the same functions with BIGINT, as PostgreSQL and DuckDB have them. A cast would be
//! another operator of the plan, between the windows and what is made of them. Plans of our own number rows with them, too: other processes know a function by its name. Never here: how rows are numbered.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int64Array};
use arrow::compute::SortOptions;
use arrow::datatypes::{DataType, FieldRef, UInt64Type};
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::functions_window::{ntile, rank, row_number};
use datafusion::logical_expr::expr::WindowFunction;
use datafusion::logical_expr::function::{
    ExpressionArgs, PartitionEvaluatorArgs, WindowUDFFieldArgs,
};
use datafusion::logical_expr::window_state::WindowAggState;
use datafusion::logical_expr::{
    Documentation, Expr, LimitEffect, PartitionEvaluator, Signature, WindowUDF, WindowUDFImpl,
};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::prelude::SessionContext;

use super::passed_on::window_as_inner;

/// Puts the functions in place of those of the engine.
pub(super) fn add_to(context: &SessionContext) {
    for inner in [
        row_number::row_number_udwf(),
        rank::rank_udwf(),
        rank::dense_rank_udwf(),
        ntile::ntile_udwf(),
    ] {
        context.register_udwf(WindowUDF::from(Ranked { inner }));
    }
}

/// The call of `row_number` in plans of our own.
pub(in crate::query) fn row_number() -> Expr {
    let inner = row_number::row_number_udwf();
    let function = Arc::new(WindowUDF::from(Ranked { inner }));
    Expr::from(WindowFunction::new(function, Vec::new()))
}

/// Whether a function is one of these.
pub(in crate::query) fn is_ours(function: &WindowUDF) -> bool {
    function.inner().is::<Ranked>()
}

/// One of the functions.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Ranked {
    inner: Arc<WindowUDF>,
}

impl WindowUDFImpl for Ranked {
    window_as_inner!();

    fn partition_evaluator(
        &self,
        arguments: PartitionEvaluatorArgs,
    ) -> Result<Box<dyn PartitionEvaluator>> {
        let inner = self.inner.partition_evaluator_factory(arguments)?;
        Ok(Box::new(Numbers { inner }))
    }

    fn field(&self, arguments: WindowUDFFieldArgs) -> Result<FieldRef> {
        let field = self.inner.field(arguments)?;
        let field = Arc::unwrap_or_clone(field).with_data_type(DataType::Int64);
        Ok(Arc::new(field))
    }

    fn sort_options(&self) -> Option<SortOptions> {
        self.inner.sort_options()
    }
}

/// The numbers of the engine, of which none is beyond those that have a sign.
#[derive(Debug)]
struct Numbers {
    inner: Box<dyn PartitionEvaluator>,
}

/// The same bytes.
fn with_sign(numbers: &ArrayRef) -> ArrayRef {
    let numbers = numbers.as_primitive::<UInt64Type>();
    let values = numbers.values().inner().clone().into();
    Arc::new(Int64Array::new(values, numbers.nulls().cloned()))
}

impl PartitionEvaluator for Numbers {
    fn memoize(&mut self, state: &mut WindowAggState) -> Result<()> {
        self.inner.memoize(state)
    }

    fn get_range(&self, row: usize, num_rows: usize) -> Result<Range<usize>> {
        self.inner.get_range(row, num_rows)
    }

    fn is_causal(&self) -> bool {
        self.inner.is_causal()
    }

    fn evaluate_all(&mut self, values: &[ArrayRef], num_rows: usize) -> Result<ArrayRef> {
        Ok(with_sign(&self.inner.evaluate_all(values, num_rows)?))
    }

    fn evaluate(&mut self, values: &[ArrayRef], range: &Range<usize>) -> Result<ScalarValue> {
        match self.inner.evaluate(values, range)? {
            // A cast by way of arrays would take most of the time.
            ScalarValue::UInt64(number) => {
                let number = number.and_then(|number| i64::try_from(number).ok());
                Ok(ScalarValue::Int64(number))
            }
            other => other.cast_to(&DataType::Int64),
        }
    }

    fn evaluate_all_with_rank(&self, num_rows: usize, ranks: &[Range<usize>]) -> Result<ArrayRef> {
        Ok(with_sign(
            &self.inner.evaluate_all_with_rank(num_rows, ranks)?,
        ))
    }

    fn supports_bounded_execution(&self) -> bool {
        self.inner.supports_bounded_execution()
    }

    fn uses_window_frame(&self) -> bool {
        self.inner.uses_window_frame()
    }

    fn include_rank(&self) -> bool {
        self.inner.include_rank()
    }
}
