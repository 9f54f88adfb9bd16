//! Values of a group, one after the other.
//!
//! Comes in: `array_agg` and `string_agg` of the engine. Goes out: the same functions, which several times in one SELECT may have another ORDER BY each: they order what they have gathered themselves, so that the order of
//! the rows is a help and no condition. Over windows they see the rows as the window has them: the engine would turn a window around whose rows are there in the opposite order, and what they gather with it.
//! Texts in frames that slide are joined by `sliding`. Never here: what is gathered.

use std::sync::Arc;

use arrow::datatypes::{DataType, FieldRef};
use datafusion::error::Result;
use datafusion::functions_aggregate::array_agg::array_agg_udaf;
use datafusion::functions_aggregate::string_agg::string_agg_udaf;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Documentation, GroupsAccumulator, ReversedUDAF,
    Signature,
};
use datafusion::prelude::SessionContext;

use super::passed_on::aggregate_as_inner;
use super::sliding::Texts;

/// Puts the functions in place of those of the engine.
pub(super) fn add_to(context: &SessionContext) {
    for inner in [array_agg_udaf(), string_agg_udaf()] {
        context.register_udaf(AggregateUDF::from(Gathered { inner }));
    }
}

/// `array_agg`.
pub(in crate::query) fn array_agg() -> Arc<AggregateUDF> {
    let inner = array_agg_udaf();
    Arc::new(AggregateUDF::from(Gathered { inner }))
}

/// `array_agg` or `string_agg`.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Gathered {
    inner: Arc<AggregateUDF>,
}

impl AggregateUDFImpl for Gathered {
    aggregate_as_inner!();

    fn create_sliding_accumulator(
        &self,
        arguments: AccumulatorArgs<'_>,
    ) -> Result<Box<dyn Accumulator>> {
        if self.name() == "string_agg"
            && !arguments.is_distinct
            && let Some(texts) = Texts::of(&arguments)
        {
            return Ok(Box::new(texts));
        }
        self.inner.inner().create_sliding_accumulator(arguments)
    }

    /// It orders what it has gathered whether the rows came in order or not.
    fn with_beneficial_ordering(
        self: Arc<Self>,
        _: bool,
    ) -> Result<Option<Arc<dyn AggregateUDFImpl>>> {
        Ok(Some(self))
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::SoftRequirement
    }

    /// The engine's own would be put in its place, and what it gathers over a window that is turned around stays so.
    fn reverse_expr(&self) -> ReversedUDAF {
        ReversedUDAF::NotSupported
    }

    fn supports_null_handling_clause(&self) -> bool {
        self.inner.supports_null_handling_clause()
    }
}
