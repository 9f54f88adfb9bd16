//! The totals of all groups of a GROUP BY.
//!
//! Comes in: arrays of values with the group of each row. Goes out: one total for each group. Never here: which row belongs to which group.

use std::marker::PhantomData;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, PrimitiveArray};
use arrow::datatypes::Decimal128Type;
use datafusion::error::Result;
use datafusion::logical_expr::{EmitTo, GroupsAccumulator};
use datafusion_functions_aggregate_common::aggregate::groups_accumulator::accumulate::NullState;
use datafusion_functions_aggregate_common::aggregate::groups_accumulator::nulls::filtered_null_mask;

use super::outcome::Outcome;
use super::total::Summed;
use crate::error::Error;

/// The totals so far.
#[derive(Debug)]
pub(super) struct Groups<T> {
    totals: Vec<i128>,
    nulls: NullState,
    outcome: Outcome,
    of: PhantomData<T>,
}

impl<T: Summed> Groups<T> {
    pub(super) fn new(outcome: Outcome) -> Self {
        Self {
            totals: Vec::new(),
            nulls: NullState::new(),
            outcome,
            of: PhantomData,
        }
    }

    fn add<V: Summed>(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        num_groups: usize,
    ) -> Result<()> {
        let values = only::<V>(values)?;
        self.totals.resize(num_groups, 0);
        let totals = &mut self.totals;
        let mut is_over = false;
        let add = |group: usize, value: V::Native| {
            if let Some(total) = totals.get_mut(group) {
                let (sum, over) = total.overflowing_add(value.into());
                *total = sum;
                is_over |= over;
            }
        };
        self.nulls
            .accumulate(groups, values, filter, num_groups, add);
        match is_over {
            true => Err(self.outcome.beyond()),
            false => Ok(()),
        }
    }
}

fn only<V: Summed>(values: &[ArrayRef]) -> Result<&PrimitiveArray<V>> {
    let array = values.first().and_then(|array| array.as_primitive_opt());
    array.ok_or_else(|| Error::internal("sums of values of another type").into())
}

impl<T: Summed> GroupsAccumulator for Groups<T> {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        opt_filter: Option<&BooleanArray>,
        total_num_groups: usize,
    ) -> Result<()> {
        self.add::<T>(values, group_indices, opt_filter, total_num_groups)
    }

    fn merge_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        total_num_groups: usize,
    ) -> Result<()> {
        self.add::<Decimal128Type>(values, group_indices, None, total_num_groups)
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let totals = emit_to.take_needed(&mut self.totals);
        self.outcome.values(totals, self.nulls.build(emit_to))
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        let totals = emit_to.take_needed(&mut self.totals);
        Ok(vec![self.outcome.states(totals, self.nulls.build(emit_to))])
    }

    fn convert_to_state(
        &self,
        values: &[ArrayRef],
        opt_filter: Option<&BooleanArray>,
    ) -> Result<Vec<ArrayRef>> {
        let values = only::<T>(values)?;
        let totals = values
            .values()
            .iter()
            .map(|value| (*value).into())
            .collect();
        let nulls = match opt_filter {
            Some(filter) => filtered_null_mask(Some(filter), values),
            None => values.nulls().cloned(),
        };
        Ok(vec![self.outcome.states(totals, nulls)])
    }

    fn size(&self) -> usize {
        self.totals.capacity() * size_of::<i128>() + self.nulls.size()
    }
}
