//! Aggregates of truth values, bits and texts over frames whose first row moves.
//!
//! Comes in: `bool_and`, `bool_or`, `bit_and` and `bit_or` of the engine, which forget what they have seen and cannot take a value out again, and `bit_xor`, which takes a frame without values for one of zero. Goes out: the same functions, which count over such frames how often each
//! truth value, and each bit, is there; the texts of such a frame for `string_agg`. Never here: groups and other frames, which stay the engine's.

use std::collections::VecDeque;
use std::mem::size_of_val;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, FieldRef, Int64Type, UInt64Type};
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::functions_aggregate::bit_and_or_xor::{bit_and_udaf, bit_or_udaf, bit_xor_udaf};
use datafusion::functions_aggregate::bool_and_or::{bool_and_udaf, bool_or_udaf};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Documentation, GroupsAccumulator, ReversedUDAF,
    Signature,
};
use datafusion::physical_expr::expressions::Literal;
use datafusion::prelude::SessionContext;

use super::passed_on::aggregate_as_inner;

/// Puts the functions in place of those of the engine.
pub(super) fn add_to(context: &SessionContext) {
    for (inner, kind) in [
        (bool_and_udaf(), Kind::And),
        (bool_or_udaf(), Kind::Or),
        (bit_and_udaf(), Kind::And),
        (bit_or_udaf(), Kind::Or),
        (bit_xor_udaf(), Kind::Xor),
    ] {
        context.register_udaf(AggregateUDF::from(Sliding { inner, kind }));
    }
}

/// How bits become one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Kind {
    And,
    Or,
    Xor,
}

impl Kind {
    /// Whether a bit is there that so many of the values have.
    fn holds(self, count: u64, num_values: u64) -> bool {
        match self {
            Self::And => count == num_values,
            Self::Or => count > 0,
            Self::Xor => count % 2 == 1,
        }
    }
}

/// One of the functions.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Sliding {
    inner: Arc<AggregateUDF>,
    kind: Kind,
}

impl AggregateUDFImpl for Sliding {
    aggregate_as_inner!();

    fn create_sliding_accumulator(
        &self,
        arguments: AccumulatorArgs<'_>,
    ) -> Result<Box<dyn Accumulator>> {
        Ok(Box::new(Bits {
            kind: self.kind,
            data_type: arguments.return_field.data_type().clone(),
            num_values: 0,
            counts: [0; 64],
        }))
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        self.inner.inner().order_sensitivity()
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        self.inner.inner().reverse_expr()
    }
}

/// How many values of a frame have each bit. A truth value has one.
#[derive(Debug)]
struct Bits {
    kind: Kind,
    data_type: DataType,
    num_values: u64,
    counts: [u64; 64],
}

impl Bits {
    /// The bits of each value that is none null; those of a negative number go on to the left.
    fn of(array: &ArrayRef) -> Result<Vec<u64>> {
        let array = match array.data_type() {
            DataType::UInt64 => Arc::clone(array),
            _ => cast(array, &DataType::Int64)?,
        };
        Ok(match array.data_type() {
            DataType::UInt64 => array
                .as_primitive::<UInt64Type>()
                .iter()
                .flatten()
                .collect(),
            _ => {
                let values = array.as_primitive::<Int64Type>().iter().flatten();
                values
                    .map(|value| u64::from_ne_bytes(value.to_ne_bytes()))
                    .collect()
            }
        })
    }

    fn count(&mut self, array: &ArrayRef, change: impl Fn(&mut u64)) -> Result<()> {
        for mut bits in Self::of(array)? {
            change(&mut self.num_values);
            while bits != 0 {
                if let Some(count) = self.counts.get_mut(bits.trailing_zeros() as usize) {
                    change(count);
                }
                bits &= bits - 1;
            }
        }
        Ok(())
    }
}

impl Accumulator for Bits {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        match values {
            [values, ..] => self.count(values, |count| *count += 1),
            [] => Ok(()),
        }
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        match values {
            [values, ..] => self.count(values, |count| *count = count.saturating_sub(1)),
            [] => Ok(()),
        }
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        if self.num_values == 0 {
            return ScalarValue::try_new_null(&self.data_type);
        }
        let set = self.counts.iter().enumerate();
        let bits = set.filter(|(_, count)| self.kind.holds(**count, self.num_values));
        let bits = bits.fold(0_u64, |bits, (place, _)| bits | 1 << place);
        match &self.data_type {
            DataType::Boolean => Ok(ScalarValue::Boolean(Some(bits & 1 == 1))),
            DataType::UInt64 => Ok(ScalarValue::UInt64(Some(bits))),
            other => {
                let value = i64::from_ne_bytes(bits.to_ne_bytes());
                ScalarValue::Int64(Some(value)).cast_to(other)
            }
        }
    }

    fn size(&self) -> usize {
        size_of_val(self)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        without_parts()
    }

    fn merge_batch(&mut self, _: &[ArrayRef]) -> Result<()> {
        without_parts()
    }
}

fn without_parts<T>() -> Result<T> {
    datafusion::common::internal_err!("a frame that slides has no parts")
}

/// The texts of a frame, one after the other.
#[derive(Debug)]
pub(super) struct Texts {
    data_type: DataType,
    delimiter: String,
    texts: VecDeque<String>,
    num_bytes: usize,
}

impl Texts {
    /// For `string_agg`; `None` where what stands between texts is not known.
    pub(super) fn of(arguments: &AccumulatorArgs<'_>) -> Option<Self> {
        let [_, delimiter] = arguments.exprs else {
            return None;
        };
        let delimiter = delimiter.downcast_ref::<Literal>()?.value();
        Some(Self {
            data_type: arguments.return_field.data_type().clone(),
            delimiter: delimiter.try_as_str()?.unwrap_or_default().to_owned(),
            texts: VecDeque::new(),
            num_bytes: 0,
        })
    }
}

fn texts_of(values: &[ArrayRef]) -> Result<ArrayRef> {
    match values {
        [texts, ..] => Ok(cast(texts, &DataType::Utf8View)?),
        [] => datafusion::common::internal_err!("texts of nothing"),
    }
}

impl Accumulator for Texts {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        for text in texts_of(values)?.as_string_view().iter().flatten() {
            self.num_bytes += text.len();
            self.texts.push_back(text.to_owned());
        }
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        for _ in texts_of(values)?.as_string_view().iter().flatten() {
            let gone = self.texts.pop_front().unwrap_or_default();
            self.num_bytes = self.num_bytes.saturating_sub(gone.len());
        }
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        if self.texts.is_empty() {
            return ScalarValue::try_new_null(&self.data_type);
        }
        let mut joined =
            String::with_capacity(self.num_bytes + self.texts.len() * self.delimiter.len());
        for (place, text) in self.texts.iter().enumerate() {
            if place > 0 {
                joined.push_str(&self.delimiter);
            }
            joined.push_str(text);
        }
        ScalarValue::Utf8(Some(joined)).cast_to(&self.data_type)
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.num_bytes + self.texts.capacity() * size_of::<String>()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        without_parts()
    }

    fn merge_batch(&mut self, _: &[ArrayRef]) -> Result<()> {
        without_parts()
    }
}
