//! The totals of all groups of a GROUP BY.
//!
//! Comes in: arrays of values with the group of each row. Goes out: one total for each group. Never here: which row belongs to which group.

use std::collections::BTreeMap;

use arrow::array::{Array, ArrayRef, BooleanArray};
use arrow::datatypes::{ArrowPrimitiveType, Decimal128Type};
use datafusion::error::Result;
use datafusion::logical_expr::{EmitTo, GroupsAccumulator};
use datafusion_functions_aggregate_common::aggregate::groups_accumulator::accumulate::NullState;
use datafusion_functions_aggregate_common::aggregate::groups_accumulator::nulls::filtered_null_mask;

use super::outcome::Outcome;
use super::total::{Low, Summed, Wide, only};

/// The lower part of totals of a type.
type LowOf<T> = <<T as ArrowPrimitiveType>::Native as Wide>::Low;

/// The totals so far, as wide as the values: hardly any of them ever wraps around.
#[derive(Debug)]
pub(super) struct Groups<T: Summed> {
    lows: Vec<LowOf<T>>,
    /// How often totals wrapped around, of those groups whose totals did.
    wraps: BTreeMap<usize, i64>,
    nulls: NullState,
    outcome: Outcome,
}

impl<T: Summed> Groups<T> {
    pub(super) fn new(outcome: Outcome) -> Self {
        Self {
            lows: Vec::new(),
            wraps: BTreeMap::new(),
            nulls: NullState::new(),
            outcome,
        }
    }

    /// Adds each value to the total of its group.
    fn add<V: Summed>(
        &mut self,
        values: &[ArrayRef],
        (groups, num_groups): (&[usize], usize),
        filter: Option<&BooleanArray>,
        split: impl Fn(V::Native) -> (LowOf<T>, i64) + Send + Sync,
    ) -> Result<()> {
        let values = only::<V>(values)?;
        self.lows.resize(num_groups, Default::default());
        let (lows, wraps) = (&mut self.lows, &mut self.wraps);
        let add = |group: usize, value: V::Native| {
            let (more, more_wraps) = split(value);
            if let Some(low) = lows.get_mut(group) {
                let (sum, wrap) = low.plus(more);
                *low = sum;
                if wrap + more_wraps != 0 {
                    *wraps.entry(group).or_default() += wrap + more_wraps;
                }
            }
        };
        self.nulls
            .accumulate(groups, values, filter, num_groups, add);
        Ok(())
    }

    /// The totals of the first groups, which are taken out.
    fn take(&mut self, emit_to: EmitTo) -> Result<Vec<i128>> {
        let lows = emit_to.take_needed(&mut self.lows);
        let rest = self.wraps.split_off(&lows.len());
        let wraps = std::mem::take(&mut self.wraps);
        let moved = rest
            .into_iter()
            .map(|(group, wraps)| (group - lows.len(), wraps));
        self.wraps = moved.collect();
        let total = |(group, low): (usize, &LowOf<T>)| {
            // Nearly always there is none to be looked up.
            let wraps = (!wraps.is_empty()).then(|| wraps.get(&group).copied());
            low.join(wraps.flatten().unwrap_or_default())
        };
        let totals: Option<Vec<i128>> = lows.iter().enumerate().map(total).collect();
        totals.ok_or_else(|| self.outcome.beyond())
    }
}

impl<T: Summed> GroupsAccumulator for Groups<T> {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        opt_filter: Option<&BooleanArray>,
        total_num_groups: usize,
    ) -> Result<()> {
        let groups = (group_indices, total_num_groups);
        self.add::<T>(values, groups, opt_filter, |value| (value.low(), 0))
    }

    fn merge_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        total_num_groups: usize,
    ) -> Result<()> {
        let groups = (group_indices, total_num_groups);
        self.add::<Decimal128Type>(values, groups, None, LowOf::<T>::split)
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let totals = self.take(emit_to)?;
        self.outcome.values(totals, self.nulls.build(emit_to))
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        let totals = self.take(emit_to)?;
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
        let lows = self.lows.capacity() * size_of::<LowOf<T>>();
        lows + self.wraps.len() * size_of::<(usize, i64)>() + self.nulls.size()
    }
}
