//! Products, and how the values of a group are spread: `product`, `geomean`, `skewness`, `kurtosis`, `kurtosis_pop`, as in DuckDB.
//!
//! Comes in: numbers, as floats of 64 bits. Goes out: one of them, null where there are too few values, or no two that differ. What parts of the rows come to is put together by the formulas of Pébay (Sandia report SAND2008-6212), which lose
//! no digits to large means. Never here: sums, variances (`functions/sums/`).

mod powers;

use std::collections::HashSet;
use std::mem::size_of_val;
use std::sync::{Arc, LazyLock};

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::{DataType, Field, FieldRef, Float64Type};
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::scalar_doc_sections::DOC_SECTION_MATH;
use datafusion::logical_expr::utils::{AggregateOrderSensitivity, format_state_name};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Documentation, ReversedUDAF, Signature, Volatility,
};
use datafusion::prelude::SessionContext;

use crate::error::Error;
use powers::{Moments, STATE};

/// Adds the functions.
pub(super) fn add_to(context: &SessionContext) {
    for gives in [
        Gives::Product,
        Gives::GeometricMean,
        Gives::Skewness,
        Gives::Kurtosis,
        Gives::KurtosisOfAll,
    ] {
        context.register_udaf(AggregateUDF::from(Function {
            signature: Signature::exact(vec![DataType::Float64], Volatility::Immutable),
            aliases: match gives {
                Gives::GeometricMean => vec!["geometric_mean".to_owned()],
                _ => Vec::new(),
            },
            gives,
        }));
    }
}

fn documented(about: &str, name: &str) -> Documentation {
    Documentation::builder(DOC_SECTION_MATH, about, format!("{name}(number)"))
        .with_argument("number", "A number, taken as a DOUBLE.")
        .build()
}

static PRODUCT: LazyLock<Documentation> =
    LazyLock::new(|| documented("The product of all values.", "product"));
static GEOMETRIC_MEAN: LazyLock<Documentation> = LazyLock::new(|| {
    documented(
        "The geometric mean of positive numbers: that root of their product.",
        "geomean",
    )
});
static SKEWNESS: LazyLock<Documentation> = LazyLock::new(|| {
    documented(
        "How far values lie on one side of their mean, of a sample: of three values or more.",
        "skewness",
    )
});
static KURTOSIS: LazyLock<Documentation> = LazyLock::new(|| {
    documented(
        "How much of the spread of values is of few far ones, beyond that of normally distributed ones, of a sample: of four values or more.",
        "kurtosis",
    )
});
static KURTOSIS_OF_ALL: LazyLock<Documentation> = LazyLock::new(|| {
    documented(
        "How much of the spread of values is of few far ones, beyond that of normally distributed ones, of all there are.",
        "kurtosis_pop",
    )
});

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Gives {
    Product,
    GeometricMean,
    Skewness,
    Kurtosis,
    KurtosisOfAll,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Function {
    signature: Signature,
    aliases: Vec<String>,
    gives: Gives,
}

impl AggregateUDFImpl for Function {
    fn name(&self) -> &'static str {
        match self.gives {
            Gives::Product => "product",
            Gives::GeometricMean => "geomean",
            Gives::Skewness => "skewness",
            Gives::Kurtosis => "kurtosis",
            Gives::KurtosisOfAll => "kurtosis_pop",
        }
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Float64)
    }

    fn accumulator(&self, arguments: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        let gives = self.gives;
        Ok(match arguments.is_distinct {
            true => Box::new(Distinct {
                gives,
                values: HashSet::new(),
                moments: Moments::default(),
            }),
            false => Box::new(Groups {
                gives,
                moments: Moments::default(),
            }),
        })
    }

    fn create_sliding_accumulator(
        &self,
        arguments: AccumulatorArgs<'_>,
    ) -> Result<Box<dyn Accumulator>> {
        if arguments.is_distinct {
            let text = format!(
                "{} of DISTINCT values is not supported over frames that slide",
                self.name()
            );
            let hint = "a frame that begins with the first row (UNBOUNDED PRECEDING) takes them";
            return Err(Error::unsupported(text).with_hint(hint).into());
        }
        Ok(Box::new(Sliding {
            gives: self.gives,
            before: Vec::new(),
            last: Vec::new(),
            of_last: Moments::default(),
        }))
    }

    fn state_fields(&self, arguments: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        let name = |of: &str| format_state_name(arguments.name, of);
        if arguments.is_distinct {
            let values = DataType::new_list(DataType::Float64, true);
            return Ok(vec![Arc::new(Field::new(name("values"), values, true))]);
        }
        let field = |of| Arc::new(Field::new(name(of), DataType::Float64, true));
        Ok(STATE.into_iter().map(field).collect())
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        ReversedUDAF::Identical
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::Insensitive
    }

    fn documentation(&self) -> Option<&Documentation> {
        Some(match self.gives {
            Gives::Product => &PRODUCT,
            Gives::GeometricMean => &GEOMETRIC_MEAN,
            Gives::Skewness => &SKEWNESS,
            Gives::Kurtosis => &KURTOSIS,
            Gives::KurtosisOfAll => &KURTOSIS_OF_ALL,
        })
    }
}

fn floats(values: &[ArrayRef]) -> Result<impl Iterator<Item = f64> + '_> {
    let [values] = values else {
        return datafusion::common::internal_err!("moments of {} columns", values.len());
    };
    Ok(values.as_primitive::<Float64Type>().iter().flatten())
}

/// The values of a group.
#[derive(Debug)]
struct Groups {
    gives: Gives,
    moments: Moments,
}

impl Accumulator for Groups {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        for value in floats(values)? {
            self.moments = self.moments.with(Moments::of(value));
        }
        Ok(())
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        Ok(ScalarValue::Float64(self.moments.value(self.gives)))
    }

    fn size(&self) -> usize {
        size_of_val(self)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(self.moments.state().map(ScalarValue::from).to_vec())
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let columns: Vec<_> = states
            .iter()
            .map(|column| column.as_primitive::<Float64Type>())
            .collect();
        let Ok(columns) = <[_; STATE.len()]>::try_from(columns) else {
            return datafusion::common::internal_err!("moments of {} columns", states.len());
        };
        for row in 0..columns.first().map_or(0, |column| column.len()) {
            let state = columns.map(|column| column.value(row));
            self.moments = self.moments.with(Moments::of_state(state));
        }
        Ok(())
    }
}

/// The distinct values of a group, where others are asked for all values beside them.
#[derive(Debug)]
struct Distinct {
    gives: Gives,
    values: HashSet<u64>,
    moments: Moments,
}

impl Distinct {
    fn add(&mut self, value: f64) {
        // -0.0 is 0.0.
        let value = value + 0.0;
        if self.values.insert(value.to_bits()) {
            self.moments = self.moments.with(Moments::of(value));
        }
    }
}

impl Accumulator for Distinct {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        floats(values)?.for_each(|value| self.add(value));
        Ok(())
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        Ok(ScalarValue::Float64(self.moments.value(self.gives)))
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.values.capacity() * size_of::<u64>()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let values = self.values.iter();
        let values: Vec<ScalarValue> = values
            .map(|bits| ScalarValue::from(f64::from_bits(*bits)))
            .collect();
        let list = ScalarValue::new_list_nullable(&values, &DataType::Float64);
        Ok(vec![ScalarValue::List(list)])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let [lists] = states else {
            return datafusion::common::internal_err!("values in {} columns", states.len());
        };
        for values in lists.as_list::<i32>().iter().flatten() {
            self.update_batch(&[values])?;
        }
        Ok(())
    }
}

/// The values of a frame that slides: nothing stays of those that have left it. Those that came last are added up; of those before, each has the moments of itself and all after it among them.
#[derive(Debug)]
struct Sliding {
    gives: Gives,
    /// The oldest last.
    before: Vec<Moments>,
    last: Vec<f64>,
    of_last: Moments,
}

impl Accumulator for Sliding {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        for value in floats(values)? {
            self.last.push(value);
            self.of_last = self.of_last.with(Moments::of(value));
        }
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        for _ in floats(values)? {
            if self.before.is_empty() {
                let mut after = Moments::default();
                for value in self.last.drain(..).rev() {
                    after = Moments::of(value).with(after);
                    self.before.push(after);
                }
                self.of_last = Moments::default();
            }
            self.before.pop();
        }
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let before = self.before.last().copied().unwrap_or_default();
        let moments = before.with(self.of_last);
        Ok(ScalarValue::Float64(moments.value(self.gives)))
    }

    fn size(&self) -> usize {
        size_of_val(self)
            + self.before.capacity() * size_of::<Moments>()
            + self.last.capacity() * size_of::<f64>()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        datafusion::common::internal_err!("the state of a frame that slides")
    }

    fn merge_batch(&mut self, _: &[ArrayRef]) -> Result<()> {
        datafusion::common::internal_err!("parts of a frame that slides")
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::Float64Array;

    use super::*;

    fn of(values: &[f64]) -> Moments {
        let each = values.iter().map(|value| Moments::of(*value));
        each.fold(Moments::default(), Moments::with)
    }

    #[test]
    fn a_frame_that_slides_has_what_is_in_it() {
        let floats =
            |values: &[f64]| vec![Arc::new(Float64Array::from(values.to_vec())) as ArrayRef];
        let values: Vec<f64> = (0..50)
            .map(|place| f64::from(place * place % 17) + 1.0)
            .collect();
        for width in [1, 2, 7, 50] {
            let mut sliding = Sliding {
                gives: Gives::KurtosisOfAll,
                before: Vec::new(),
                last: Vec::new(),
                of_last: Moments::default(),
            };
            for end in 1..=values.len() {
                sliding
                    .update_batch(&floats(&values[end - 1..end]))
                    .unwrap();
                if end > width {
                    sliding
                        .retract_batch(&floats(&values[end - width - 1..end - width]))
                        .unwrap();
                }
                let expected = of(&values[end.saturating_sub(width)..end]);
                let expected = expected.value(Gives::KurtosisOfAll).unwrap_or_default();
                let ScalarValue::Float64(found) = sliding.evaluate().unwrap() else {
                    panic!("no float");
                };
                assert!(
                    (found.unwrap_or_default() - expected).abs() < 1e-9,
                    "{width} {end}"
                );
            }
        }
    }
}
