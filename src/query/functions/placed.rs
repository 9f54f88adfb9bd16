//! The value of a group that stands at a place in the order of its values: `mode`, the one that is there most often, `percentile_disc` (`quantile_disc`), the first one that so large a share of them is not greater than, and `percentile_cont` (`quantile_cont`), between two of them.
//!
//! Comes in: `array_agg` of the engine, which gathers the values. Goes out: the functions, of which it has the last one only, with six digits of where between two values it is. Never here: `median`.

use std::sync::{Arc, LazyLock};

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, ListArray, UInt64Array, new_null_array,
};
use arrow::compute::{SortOptions, partition, sort_to_indices, take};
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{ScalarValue, internal_err};
use datafusion::error::Result;
use datafusion::functions_aggregate::array_agg::array_agg_udaf;
use datafusion::functions_aggregate::percentile_cont::percentile_cont_udaf;
use datafusion::logical_expr::aggregate_doc_sections::DOC_SECTION_GENERAL;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Documentation, EmitTo, GroupsAccumulator,
    ReversedUDAF, Signature, Volatility,
};
use datafusion::physical_expr::expressions::Literal;
use datafusion::prelude::SessionContext;

use super::percentiles::{self, Numbers};
use crate::error::{Error, ErrorKind};

/// That of values that are there most often, the least one.
pub(in crate::query) const MODE: &str = "mode";

const PERCENTILE: &str = "percentile_disc";

const BETWEEN: &str = "percentile_cont";

/// Gives SQL the functions.
pub(super) fn add_to(context: &SessionContext) {
    let any = |count| Signature::any(count, Volatility::Immutable);
    let floats = percentile_cont_udaf().signature().clone();
    for (name, aliases, signature) in [
        (MODE, Vec::new(), any(1)),
        (PERCENTILE, vec!["quantile_disc".to_owned()], any(2)),
        (BETWEEN, vec!["quantile_cont".to_owned()], floats),
    ] {
        context.register_udaf(AggregateUDF::from(Placed {
            name,
            aliases,
            signature,
            gathering: array_agg_udaf(),
        }));
    }
}

static MODE_DOCUMENTATION: LazyLock<Documentation> = LazyLock::new(|| {
    let text = "The value that is there most often; of several the least. Nulls do not count.";
    Documentation::builder(DOC_SECTION_GENERAL, text, "mode(value)")
        .with_argument(
            "value",
            "Anything that has an order, but for lists, structs and maps.",
        )
        .with_sql_example("SELECT mode(x) FROM (VALUES (1), (2), (2)) AS t(x) -- 2")
        .build()
});

static PERCENTILE_DOCUMENTATION: LazyLock<Documentation> = LazyLock::new(|| {
    let text = "The first value, in their order, that so large a share of the values is not greater than. Nulls do not count.";
    let syntax = "percentile_disc(share) WITHIN GROUP (ORDER BY value)";
    Documentation::builder(DOC_SECTION_GENERAL, text, syntax)
        .with_argument("share", "A number from 0 to 1 that is written.")
        .with_argument(
            "value",
            "Anything that has an order, but for lists, structs and maps.",
        )
        .with_alternative_syntax("quantile_disc(value, share)")
        .build()
});

static BETWEEN_DOCUMENTATION: LazyLock<Documentation> = LazyLock::new(|| {
    let text = "The number that so large a share of the numbers is not greater than, between two of them where it falls there. Nulls do not count.";
    let syntax = "percentile_cont(share) WITHIN GROUP (ORDER BY number)";
    Documentation::builder(DOC_SECTION_GENERAL, text, syntax)
        .with_argument("share", "A number from 0 to 1 that is written.")
        .with_argument("number", "A number.")
        .with_alternative_syntax("quantile_cont(number, share)")
        .build()
});

/// One of the functions.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Placed {
    name: &'static str,
    aliases: Vec<String>,
    signature: Signature,
    gathering: Arc<AggregateUDF>,
}

impl Placed {
    /// Which place it is.
    fn place(&self, arguments: &AccumulatorArgs<'_>) -> Result<Place> {
        let [_, share] = arguments.exprs else {
            return Ok(Place::Mode);
        };
        let share = share.downcast_ref::<Literal>().map(Literal::value);
        let share = share.and_then(|share| share.cast_to(&DataType::Float64).ok());
        match share {
            Some(ScalarValue::Float64(Some(share))) if (0.0..=1.0).contains(&share) => {
                let mut orders = arguments.order_bys.iter();
                let descending = orders.next().is_some_and(|by| by.options.descending);
                Ok(match self.name {
                    BETWEEN if descending => Place::Between { share: 1.0 - share },
                    BETWEEN => Place::Between { share },
                    _ => Place::Share { share, descending },
                })
            }
            _ => {
                let text = format!("{} takes a number from 0 to 1 that is written", self.name);
                let hint = format!("such as {}(0.9) WITHIN GROUP (ORDER BY x)", self.name);
                Err(Error::new(ErrorKind::Query, text).with_hint(hint).into())
            }
        }
    }
}

/// The arguments of what gathers the values: all that are not null.
fn gathering<'a>(arguments: AccumulatorArgs<'a>) -> Result<AccumulatorArgs<'a>> {
    let (Some((value, _)), Some((field, _))) = (
        arguments.exprs.split_first_chunk::<1>(),
        arguments.expr_fields.split_first_chunk::<1>(),
    ) else {
        return internal_err!("{} of nothing", arguments.name);
    };
    let [of] = field;
    let list = DataType::new_list(of.data_type().clone(), true);
    Ok(AccumulatorArgs {
        return_field: Arc::new(Field::new(arguments.name, list, true)),
        ignore_nulls: true,
        order_bys: &[],
        exprs: value,
        expr_fields: field,
        ..arguments
    })
}

impl AggregateUDFImpl for Placed {
    fn name(&self) -> &str {
        self.name
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types {
            [DataType::Null, ..] if self.name == BETWEEN => Ok(DataType::Float64),
            [value, ..] if !value.is_nested() => Ok(value.clone()),
            [value, ..] => {
                let text = format!("{} of {value} is not supported", self.name);
                let hint = "it takes numbers, texts, times, bytes and truth values";
                Err(Error::unsupported(text).with_hint(hint).into())
            }
            [] => internal_err!("{} of nothing", self.name),
        }
    }

    fn state_fields(&self, arguments: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        let gathered = self.gathering.inner();
        gathered.state_fields(StateFieldsArgs {
            ordering_fields: &[],
            ..arguments
        })
    }

    fn accumulator(&self, arguments: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        let place = self.place(&arguments)?;
        if let Some(numbers) = place.of_numbers(&arguments) {
            return Ok(Box::new(numbers));
        }
        let inner = self.gathering.inner().accumulator(gathering(arguments)?)?;
        Ok(Box::new(OfOne { place, inner }))
    }

    fn create_sliding_accumulator(
        &self,
        arguments: AccumulatorArgs<'_>,
    ) -> Result<Box<dyn Accumulator>> {
        let place = self.place(&arguments)?;
        if let Some(numbers) = place.of_numbers(&arguments) {
            return Ok(Box::new(numbers));
        }
        let gathered = self.gathering.inner();
        let inner = gathered.create_sliding_accumulator(gathering(arguments)?)?;
        Ok(Box::new(OfOne { place, inner }))
    }

    fn groups_accumulator_supported(&self, arguments: AccumulatorArgs<'_>) -> bool {
        !arguments.is_distinct
    }

    fn create_groups_accumulator(
        &self,
        arguments: AccumulatorArgs<'_>,
    ) -> Result<Box<dyn GroupsAccumulator>> {
        let place = self.place(&arguments)?;
        let gathered = self.gathering.inner();
        let inner = gathered.create_groups_accumulator(gathering(arguments)?)?;
        Ok(Box::new(OfGroups { place, inner }))
    }

    /// The order of the rows is nothing to them. But only the order of what is said to be sensitive goes to other processes, and ASC or DESC is in it.
    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        match self.name {
            MODE => AggregateOrderSensitivity::Insensitive,
            _ => AggregateOrderSensitivity::SoftRequirement,
        }
    }

    fn with_beneficial_ordering(
        self: Arc<Self>,
        _: bool,
    ) -> Result<Option<Arc<dyn AggregateUDFImpl>>> {
        Ok(Some(self))
    }

    /// It would be about the other end of the values.
    fn reverse_expr(&self) -> ReversedUDAF {
        ReversedUDAF::NotSupported
    }

    fn supports_within_group_clause(&self) -> bool {
        true
    }

    fn documentation(&self) -> Option<&Documentation> {
        Some(match self.name {
            MODE => &MODE_DOCUMENTATION,
            BETWEEN => &BETWEEN_DOCUMENTATION,
            _ => &PERCENTILE_DOCUMENTATION,
        })
    }
}

/// Which of the values of a group.
#[derive(Debug, Clone, Copy)]
enum Place {
    Mode,
    Share { share: f64, descending: bool },
    Between { share: f64 },
}

impl Place {
    /// What gathers the numbers of one group or frame, each as often as it is there, where a number between two is asked for.
    fn of_numbers(self, arguments: &AccumulatorArgs<'_>) -> Option<Numbers> {
        let Self::Between { share } = self else {
            return None;
        };
        let data_type = arguments.return_field.data_type();
        (!arguments.is_distinct).then(|| Numbers::new(share, data_type))
    }

    /// The value of each list; null of one without values.
    fn of(self, lists: &ListArray) -> Result<ArrayRef> {
        let data_type = lists.value_type();
        if let Self::Between { share } = self {
            return percentiles::of_lists(lists, share);
        }
        if data_type.is_null() {
            return Ok(new_null_array(&data_type, lists.len()));
        }
        let places = lists.offsets().windows(2).enumerate().map(|(row, ends)| {
            let [begin, end] = ends else { return Ok(None) };
            if begin == end || lists.is_null(row) {
                return Ok(None);
            }
            let place = self.within(&lists.value(row))?;
            Ok(Some(u64::try_from(*begin).unwrap_or_default() + place))
        });
        let places: UInt64Array = places.collect::<Result<Vec<_>>>()?.into();
        Ok(take(lists.values(), &places, None)?)
    }

    /// Where it is among values, of which there is at least one.
    fn within(self, values: &ArrayRef) -> Result<u64> {
        let by = |descending| SortOptions {
            descending,
            nulls_first: false,
        };
        let place = match self {
            Self::Mode => {
                let order = sort_to_indices(values, Some(by(false)), None)?;
                let sorted = take(values, &order, None)?;
                let ranges = partition(&[sorted])?.ranges();
                // The first of the longest: the least value.
                let longest = ranges.iter().rev().max_by_key(|range| range.len());
                longest.map(|range| order.value(range.start))
            }
            Self::Share { share, descending } => {
                let count = values.len();
                let number = (share * count as f64).ceil();
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "a number from 0 to that of the values"
                )]
                let number = (number as usize).clamp(1, count);
                let order = sort_to_indices(values, Some(by(descending)), Some(number))?;
                Some(order.value(number - 1))
            }
            Self::Between { .. } => None,
        };
        match place {
            Some(place) => Ok(u64::from(place)),
            None => internal_err!("a place among no values"),
        }
    }
}

/// What is gathered of one group.
#[derive(Debug)]
struct OfOne {
    place: Place,
    inner: Box<dyn Accumulator>,
}

impl Accumulator for OfOne {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.inner.update_batch(values.get(..1).unwrap_or_default())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.inner
            .retract_batch(values.get(..1).unwrap_or_default())
    }

    fn supports_retract_batch(&self) -> bool {
        self.inner.supports_retract_batch()
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        match self.inner.evaluate()? {
            ScalarValue::List(list) => ScalarValue::try_from_array(&self.place.of(&list)?, 0),
            other => internal_err!("values gathered as {}", other.data_type()),
        }
    }

    fn size(&self) -> usize {
        size_of_val(self) - size_of_val(&self.inner) + self.inner.size()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        self.inner.state()
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.inner.merge_batch(states)
    }
}

/// What is gathered of many groups.
struct OfGroups {
    place: Place,
    inner: Box<dyn GroupsAccumulator>,
}

impl GroupsAccumulator for OfGroups {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        num_groups: usize,
    ) -> Result<()> {
        let values = values.get(..1).unwrap_or_default();
        self.inner.update_batch(values, groups, filter, num_groups)
    }

    fn evaluate(&mut self, emitted: EmitTo) -> Result<ArrayRef> {
        self.place.of(self.inner.evaluate(emitted)?.as_list())
    }

    fn state(&mut self, emitted: EmitTo) -> Result<Vec<ArrayRef>> {
        self.inner.state(emitted)
    }

    fn merge_batch(
        &mut self,
        states: &[ArrayRef],
        groups: &[usize],
        num_groups: usize,
    ) -> Result<()> {
        self.inner.merge_batch(states, groups, num_groups)
    }

    fn convert_to_state(
        &self,
        values: &[ArrayRef],
        filter: Option<&BooleanArray>,
    ) -> Result<Vec<ArrayRef>> {
        self.inner
            .convert_to_state(values.get(..1).unwrap_or_default(), filter)
    }

    fn size(&self) -> usize {
        self.inner.size()
    }
}
