//! Totals of 128 bits as values of SQL.
//!
//! Comes in: totals, and how many values each is of. Goes out: arrays of the type that SQL promised, or the error for the first total that has no room in it. Never here: adding up.

use std::sync::Arc;

use arrow::array::{ArrayRef, Decimal128Array, PrimitiveArray};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{
    ArrowPrimitiveType, DataType, Decimal128Type, DecimalType, DurationMicrosecondType,
    DurationMillisecondType, DurationNanosecondType, DurationSecondType, Int64Type,
    Time64MicrosecondType, Time64NanosecondType, TimeUnit, TimestampMicrosecondType,
    TimestampNanosecondType, UInt64Type,
};
use datafusion::error::{DataFusionError, Result};

use crate::error::{Error, ErrorKind};

/// What a function makes of a total.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Gives {
    Sum,
    Mean,
}

/// What the totals of one call come to.
#[derive(Debug, Clone)]
pub(super) struct Outcome {
    /// The call, as SQL names it.
    pub(super) name: String,
    pub(super) gives: Gives,
    /// The type that SQL promised.
    pub(super) data_type: DataType,
    /// The type of totals between threads.
    pub(super) state: DataType,
}

impl Outcome {
    /// Totals in the type of states.
    pub(super) fn states(&self, totals: Vec<i128>, nulls: Option<NullBuffer>) -> ArrayRef {
        let array = Decimal128Array::new(totals.into(), nulls);
        Arc::new(array.with_data_type(self.state.clone()))
    }

    /// Totals in the type that SQL promised.
    pub(super) fn values(&self, totals: Vec<i128>, nulls: Option<NullBuffer>) -> Result<ArrayRef> {
        match &self.data_type {
            DataType::Int64 => self.narrowed::<Int64Type>(&totals, nulls),
            DataType::UInt64 => self.narrowed::<UInt64Type>(&totals, nulls),
            DataType::Duration(TimeUnit::Second) => {
                self.narrowed::<DurationSecondType>(&totals, nulls)
            }
            DataType::Duration(TimeUnit::Millisecond) => {
                self.narrowed::<DurationMillisecondType>(&totals, nulls)
            }
            DataType::Duration(TimeUnit::Microsecond) => {
                self.narrowed::<DurationMicrosecondType>(&totals, nulls)
            }
            DataType::Duration(TimeUnit::Nanosecond) => {
                self.narrowed::<DurationNanosecondType>(&totals, nulls)
            }
            DataType::Timestamp(TimeUnit::Microsecond, _) => {
                self.narrowed::<TimestampMicrosecondType>(&totals, nulls)
            }
            DataType::Timestamp(TimeUnit::Nanosecond, _) => {
                self.narrowed::<TimestampNanosecondType>(&totals, nulls)
            }
            DataType::Time64(TimeUnit::Microsecond) => {
                self.narrowed::<Time64MicrosecondType>(&totals, nulls)
            }
            DataType::Time64(TimeUnit::Nanosecond) => {
                self.narrowed::<Time64NanosecondType>(&totals, nulls)
            }
            DataType::Decimal128(precision, scale) => {
                let fits =
                    |total: &&i128| Decimal128Type::is_valid_decimal_precision(**total, *precision);
                if let Some(total) = totals.iter().find(|total| !fits(total)) {
                    let total = Decimal128Type::format_decimal(*total, u8::MAX, *scale);
                    return Err(self.no_room(&total));
                }
                let array = Decimal128Array::new(totals.into(), nulls);
                Ok(Arc::new(array.with_data_type(self.data_type.clone())))
            }
            other => Err(Error::internal(format!("sums of {other}")).into()),
        }
    }

    fn narrowed<T>(&self, totals: &[i128], nulls: Option<NullBuffer>) -> Result<ArrayRef>
    where
        T: ArrowPrimitiveType,
        T::Native: TryFrom<i128>,
    {
        let narrow = |total: &i128| {
            T::Native::try_from(*total).map_err(|_| self.no_room(&total.to_string()))
        };
        let values: Vec<T::Native> = totals.iter().map(narrow).collect::<Result<_>>()?;
        let values = PrimitiveArray::<T>::new(values.into(), nulls);
        // With the zone.
        Ok(Arc::new(values.with_data_type(self.data_type.clone())))
    }

    /// The error for a total that no 128 bits hold.
    pub(super) fn beyond(&self) -> DataFusionError {
        self.no_room("more than 38 digits long")
    }

    fn no_room(&self, total: &str) -> DataFusionError {
        let data_type = &self.data_type;
        // The engine's own name for distinct values.
        let name = match self.name.contains("(alias") {
            true => "a sum",
            false => &self.name,
        };
        let text = format!("{name} is {total} and has no room in its type, {data_type}");
        let hint = match data_type {
            DataType::Decimal128(..) => "cast the values: sum(cast(… AS DOUBLE))",
            DataType::Duration(_) => {
                "cast the values to whole numbers, and these: sum(cast(… AS DECIMAL(38, 0)))"
            }
            _ => "cast the values: sum(cast(… AS DECIMAL(38, 0)))",
        };
        Error::new(ErrorKind::Query, text).with_hint(hint).into()
    }
}
