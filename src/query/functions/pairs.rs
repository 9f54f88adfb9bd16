//! Correlations, covariances and regressions of pairs of numbers: `corr`, `covar_pop`, `covar_samp`, `regr_…`.
//!
//! Comes in: these functions of the engine. Goes out: the same functions, which of DISTINCT pairs take each once, as in DuckDB: the engine's do not look at that word. Pairs of which one is null are none. Never here: what pairs come to.

use std::collections::HashSet;
use std::mem::size_of_val;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Float64Array};
use arrow::datatypes::{DataType, Field, FieldRef, Float64Type};
use datafusion::common::{ScalarValue, internal_err};
use datafusion::error::Result;
use datafusion::functions_aggregate::correlation::corr_udaf;
use datafusion::functions_aggregate::covariance::{covar_pop_udaf, covar_samp_udaf};
use datafusion::functions_aggregate::regr;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::{AggregateOrderSensitivity, format_state_name};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Documentation, GroupsAccumulator, ReversedUDAF,
    Signature,
};
use datafusion::prelude::SessionContext;

use super::passed_on::aggregate_called_as_inner;
use crate::error::Error;

/// Puts the functions in place of those of the engine.
pub(super) fn add_to(context: &SessionContext) {
    for inner in [
        corr_udaf(),
        covar_pop_udaf(),
        covar_samp_udaf(),
        regr::regr_avgx_udaf(),
        regr::regr_avgy_udaf(),
        regr::regr_count_udaf(),
        regr::regr_intercept_udaf(),
        regr::regr_r2_udaf(),
        regr::regr_slope_udaf(),
        regr::regr_sxx_udaf(),
        regr::regr_sxy_udaf(),
        regr::regr_syy_udaf(),
    ] {
        context.register_udaf(AggregateUDF::from(OfPairs { inner }));
    }
}

/// One of the functions.
#[derive(Debug, PartialEq, Eq, Hash)]
struct OfPairs {
    inner: Arc<AggregateUDF>,
}

impl AggregateUDFImpl for OfPairs {
    aggregate_called_as_inner!();

    fn is_nullable(&self) -> bool {
        self.inner.is_nullable()
    }

    fn default_value(&self, data_type: &DataType) -> Result<ScalarValue> {
        self.inner.default_value(data_type)
    }

    fn accumulator(&self, arguments: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        let is_distinct = arguments.is_distinct;
        let inner = self.inner.inner().accumulator(arguments)?;
        Ok(match is_distinct {
            true => Box::new(Distinct {
                seen: HashSet::new(),
                inner,
            }),
            false => inner,
        })
    }

    fn create_sliding_accumulator(
        &self,
        arguments: AccumulatorArgs<'_>,
    ) -> Result<Box<dyn Accumulator>> {
        if arguments.is_distinct {
            let text = format!(
                "{} of DISTINCT pairs is not supported over frames that slide",
                self.name()
            );
            let hint = "a frame that begins with the first row (UNBOUNDED PRECEDING) takes them";
            return Err(Error::unsupported(text).with_hint(hint).into());
        }
        self.inner.inner().create_sliding_accumulator(arguments)
    }

    fn state_fields(&self, arguments: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        if !arguments.is_distinct {
            return self.inner.inner().state_fields(arguments);
        }
        let numbers = DataType::new_list(DataType::Float64, true);
        let field = |of| {
            let name = format_state_name(arguments.name, of);
            Arc::new(Field::new(name, numbers.clone(), true))
        };
        Ok(vec![field("first"), field("second")])
    }

    fn groups_accumulator_supported(&self, arguments: AccumulatorArgs<'_>) -> bool {
        !arguments.is_distinct && self.inner.inner().groups_accumulator_supported(arguments)
    }

    fn create_groups_accumulator(
        &self,
        arguments: AccumulatorArgs<'_>,
    ) -> Result<Box<dyn GroupsAccumulator>> {
        self.inner.inner().create_groups_accumulator(arguments)
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        ReversedUDAF::Identical
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::Insensitive
    }
}

/// The bits of a number that is equal to others: -0.0 is 0.0, and there is one NaN.
fn bits(number: f64) -> u64 {
    match number.is_nan() {
        true => f64::NAN.to_bits(),
        false => (number + 0.0).to_bits(),
    }
}

/// The distinct pairs of a group.
#[derive(Debug)]
struct Distinct {
    seen: HashSet<(u64, u64)>,
    /// What they come to.
    inner: Box<dyn Accumulator>,
}

impl Accumulator for Distinct {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let [first, second] = values else {
            return internal_err!("pairs of {} columns", values.len());
        };
        let first = first.as_primitive::<Float64Type>().iter();
        let second = second.as_primitive::<Float64Type>().iter();
        let pairs = first.zip(second).filter_map(|(a, b)| a.zip(b));
        let new = pairs.filter(|(a, b)| self.seen.insert((bits(*a), bits(*b))));
        let (first, second): (Vec<f64>, Vec<f64>) = new.unzip();
        if first.is_empty() {
            return Ok(());
        }
        let columns = [first, second].map(|column| Arc::new(Float64Array::from(column)) as _);
        self.inner.update_batch(&columns)
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        self.inner.evaluate()
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.inner.size() + self.seen.capacity() * size_of::<(u64, u64)>()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        // Always the same ones first: what floats come to is a matter of their order.
        let mut pairs: Vec<&(u64, u64)> = self.seen.iter().collect();
        pairs.sort_unstable();
        let list = |of: fn(&(u64, u64)) -> u64| {
            let numbers = pairs.iter().map(|pair| f64::from_bits(of(pair)));
            let numbers: Vec<ScalarValue> = numbers.map(ScalarValue::from).collect();
            ScalarValue::List(ScalarValue::new_list_nullable(&numbers, &DataType::Float64))
        };
        Ok(vec![list(|pair| pair.0), list(|pair| pair.1)])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let [first, second] = states else {
            return internal_err!("pairs in {} columns", states.len());
        };
        let (first, second) = (first.as_list::<i32>(), second.as_list::<i32>());
        for (first, second) in first.iter().zip(second.iter()) {
            if let Some((first, second)) = first.zip(second) {
                self.update_batch(&[first, second])?;
            }
        }
        Ok(())
    }
}
