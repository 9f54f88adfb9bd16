//! The least and the greatest nested value.
//!
//! Comes in: lists, structs, maps, unions. Goes out: the first or the last of them in the order of `ORDER BY`, in which nulls inside come last. The engine's compare no values with nulls inside, and keep the one that came
//! first. Never here: other types.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::mem::size_of_val;

use arrow::array::{Array, ArrayRef};
use arrow::compute::SortOptions;
use arrow::datatypes::DataType;
use arrow::row::{RowConverter, SortField};
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::logical_expr::Accumulator;

/// Whether values of this type are compared here.
pub(super) fn takes(data_type: &DataType) -> bool {
    data_type.is_nested() && RowConverter::supports_fields(&[field(data_type)])
}

fn field(data_type: &DataType) -> SortField {
    SortField::new_with_options(data_type.clone(), SortOptions::new(false, false))
}

/// One of the values that may be wanted. The wanted one is the greatest.
#[derive(Debug, Clone)]
struct Candidate {
    key: Box<[u8]>,
    value: ScalarValue,
    is_max: bool,
}

impl PartialEq for Candidate {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}

impl PartialOrd for Candidate {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(match self.is_max {
            true => self.key.cmp(&other.key),
            false => other.key.cmp(&self.key),
        })
    }
}

impl Candidate {
    fn size(&self) -> usize {
        self.key.len() + self.value.size()
    }
}

/// How values are compared.
#[derive(Debug)]
struct Order {
    converter: RowConverter,
    nothing: ScalarValue,
    is_max: bool,
}

impl Order {
    fn try_new(data_type: &DataType, is_max: bool) -> Result<Self> {
        Ok(Self {
            converter: RowConverter::new(vec![field(data_type)])?,
            nothing: ScalarValue::try_from(data_type)?,
            is_max,
        })
    }

    /// Of the values that are not null the wanted one.
    fn best(&self, values: &ArrayRef) -> Result<Option<Candidate>> {
        let rows = self.converter.convert_columns(&[ArrayRef::clone(values)])?;
        let nulls = values.logical_nulls();
        let is_valid = |place: &usize| nulls.as_ref().is_none_or(|nulls| nulls.is_valid(*place));
        let valid = (0..values.len()).filter(is_valid);
        let best = match self.is_max {
            true => valid.max_by_key(|place| rows.row(*place)),
            false => valid.min_by_key(|place| rows.row(*place)),
        };
        best.map(|place| self.candidate(values, place, rows.row(place).data()))
            .transpose()
    }

    fn candidate(&self, values: &ArrayRef, place: usize, key: &[u8]) -> Result<Candidate> {
        let value = ScalarValue::try_from_array(values, place)?;
        Ok(Candidate {
            key: key.into(),
            // A slice would keep the whole batch.
            value: value.compacted(),
            is_max: self.is_max,
        })
    }
}

/// The best of all values.
#[derive(Debug)]
pub(super) struct Best {
    order: Order,
    best: Option<Candidate>,
}

impl Best {
    pub(super) fn try_new(data_type: &DataType, is_max: bool) -> Result<Self> {
        Ok(Self {
            order: Order::try_new(data_type, is_max)?,
            best: None,
        })
    }
}

impl Accumulator for Best {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        for values in values {
            if let Some(new) = self.order.best(values)?
                && self.best.as_ref().is_none_or(|best| new > *best)
            {
                self.best = Some(new);
            }
        }
        Ok(())
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.update_batch(states)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![self.evaluate()?])
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let best = self.best.as_ref();
        Ok(best.map_or_else(|| self.order.nothing.clone(), |best| best.value.clone()))
    }

    fn size(&self) -> usize {
        let best = self.best.as_ref().map_or(0, Candidate::size);
        size_of_val(self) + self.order.converter.size() + best
    }
}

/// The best of the values of a frame that moves.
#[derive(Debug)]
pub(super) struct Sliding {
    order: Order,
    /// Those that may be wanted yet, the wanted one first, with their numbers among all values that came.
    frame: VecDeque<(usize, Candidate)>,
    num_came: usize,
    num_gone: usize,
    bytes: usize,
}

impl Sliding {
    pub(super) fn try_new(data_type: &DataType, is_max: bool) -> Result<Self> {
        Ok(Self {
            order: Order::try_new(data_type, is_max)?,
            frame: VecDeque::new(),
            num_came: 0,
            num_gone: 0,
            bytes: 0,
        })
    }

    fn push(&mut self, new: Candidate) {
        while let Some((_, last)) = self.frame.pop_back_if(|(_, last)| *last <= new) {
            self.bytes -= last.size();
        }
        self.bytes += new.size();
        self.frame.push_back((self.num_came, new));
        self.num_came += 1;
    }
}

impl Accumulator for Sliding {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        for values in values {
            let columns = [ArrayRef::clone(values)];
            let rows = self.order.converter.convert_columns(&columns)?;
            let nulls = values.logical_nulls();
            for (place, row) in rows.iter().enumerate() {
                if nulls.as_ref().is_none_or(|nulls| nulls.is_valid(place)) {
                    let new = self.order.candidate(values, place, row.data())?;
                    self.push(new);
                }
            }
        }
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        for values in values {
            self.num_gone += values.len() - values.logical_null_count();
        }
        let num_gone = self.num_gone;
        while let Some((_, gone)) = self.frame.pop_front_if(|(number, _)| *number < num_gone) {
            self.bytes -= gone.size();
        }
        Ok(())
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.update_batch(states)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![self.evaluate()?])
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let best = self.frame.front().map(|(_, best)| best.value.clone());
        Ok(best.unwrap_or_else(|| self.order.nothing.clone()))
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.order.converter.size() + self.bytes
    }
}
