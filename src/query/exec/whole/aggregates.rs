//! Aggregates of all rows with equal keys, and what each row gets of them.
//!
//! Comes in: batches. Goes out: for each batch of the same rows in the same order the values beside them. Never here: keeping the rows.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions, UInt32Array};
use arrow::compute::{cast, take};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::common::{ScalarValue, internal_datafusion_err, internal_err};
use datafusion::error::Result;
use datafusion::logical_expr::{EmitTo, GroupsAccumulator};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use datafusion::physical_expr::window::{PlainAggregateWindowExpr, WindowExpr};
use datafusion::physical_plan::windows::WindowAggExec;

use crate::query::exec::groups::Groups;
use crate::query::exec::running::has_filter;

/// Whether an operator has only windows of whole partitions that can be worked out so.
pub(super) fn can_be_whole(windows: &WindowAggExec) -> bool {
    let Some((first, others)) = windows.window_expr().split_first() else {
        return false;
    };
    others
        .iter()
        .all(|other| other.partition_by() == first.partition_by())
        && windows
            .window_expr()
            .iter()
            .all(|window| aggregate_of(window).is_some())
}

/// The aggregate of a window, if that is of whole partitions, and its values are no longer than those of rows.
fn aggregate_of(window: &Arc<dyn WindowExpr>) -> Option<&AggregateFunctionExpr> {
    let plain = window.as_any().downcast_ref::<PlainAggregateWindowExpr>()?;
    let aggregate = plain.get_aggregate_expr();
    let frame = window.get_window_frame();
    let is_whole = frame.start_bound.is_unbounded() && frame.end_bound.is_unbounded();
    let is_plain = window.order_by().is_empty()
        && aggregate.order_bys().is_empty()
        && aggregate.groups_accumulator_supported()
        && !has_filter(plain);
    let field = aggregate.field();
    let is_short = match field.data_type() {
        DataType::Boolean => true,
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => {
            ["min", "max"].contains(&aggregate.fun().name())
        }
        kind => kind.is_primitive(),
    };
    (is_whole && is_plain && is_short).then_some(aggregate)
}

/// The aggregates so far.
pub(super) struct Aggregates {
    /// With the types by which they are grouped.
    keys: Vec<(Arc<dyn PhysicalExpr>, DataType)>,
    /// `None` without keys: there is one partition.
    groups: Option<Groups>,
    group_of_row: Vec<u32>,
    aggregates: Vec<Aggregate>,
}

struct Aggregate {
    arguments: Vec<Arc<dyn PhysicalExpr>>,
    accumulator: Box<dyn GroupsAccumulator>,
}

impl Aggregates {
    /// Of no rows.
    ///
    /// # Errors
    /// For keys of types that the engine does not group by.
    pub(super) fn try_new(windows: &[Arc<dyn WindowExpr>], input: &Schema) -> Result<Self> {
        let keys = windows.first().map(|window| window.partition_by().to_vec());
        let keys = keys.unwrap_or_default();
        let keys = keys.into_iter().map(|key| {
            let kind = long(&key.data_type(input)?);
            Ok((key, kind))
        });
        let keys: Vec<(Arc<dyn PhysicalExpr>, DataType)> = keys.collect::<Result<_>>()?;
        let fields = keys.iter().enumerate();
        let fields =
            fields.map(|(place, (_, kind))| Field::new(place.to_string(), kind.clone(), true));
        let fields: Vec<Field> = fields.collect();
        let aggregates = windows.iter().map(|window| {
            let Some(aggregate) = aggregate_of(window) else {
                return internal_err!("a window that is not of a whole partition");
            };
            Ok(Aggregate {
                arguments: aggregate.expressions(),
                accumulator: aggregate.create_groups_accumulator()?,
            })
        });
        Ok(Self {
            groups: match fields.is_empty() {
                true => None,
                false => Some(Groups::try_new(Schema::new(fields))?),
            },
            keys,
            group_of_row: Vec::new(),
            aggregates: aggregates.collect::<Result<_>>()?,
        })
    }

    /// Adds the rows of a batch, and says how many bytes all so far take.
    ///
    /// # Errors
    /// Those of the aggregates; `Internal` for more partitions than have numbers.
    pub(super) fn push(&mut self, batch: &RecordBatch) -> Result<usize> {
        let zeros;
        let (numbers, num_groups) = match &mut self.groups {
            None => {
                zeros = vec![0; batch.num_rows()];
                (zeros.as_slice(), 1)
            }
            Some(groups) => {
                let keys = self.keys.iter().map(|(key, kind)| {
                    let values = key.evaluate(batch)?.into_array(batch.num_rows())?;
                    Ok(cast(&values, kind)?)
                });
                let keys = keys.collect::<Result<Vec<ArrayRef>>>()?;
                groups.numbers(&keys)?;
                let num_groups = groups.len();
                let numbers = groups.last_numbers();
                for number in numbers {
                    let number = u32::try_from(*number);
                    let number =
                        number.map_err(|_| internal_datafusion_err!("too many partitions"))?;
                    self.group_of_row.push(number);
                }
                (numbers, num_groups)
            }
        };
        for aggregate in &mut self.aggregates {
            let arguments = aggregate.arguments.iter();
            let values =
                arguments.map(|argument| argument.evaluate(batch)?.into_array(batch.num_rows()));
            let values: Vec<ArrayRef> = values.collect::<Result<_>>()?;
            let accumulator = &mut aggregate.accumulator;
            accumulator.update_batch(&values, numbers, None, num_groups)?;
        }
        Ok(self.size())
    }

    fn size(&self) -> usize {
        let aggregates = self.aggregates.iter();
        let aggregates: usize = aggregates
            .map(|aggregate| aggregate.accumulator.size())
            .sum();
        let rows = self.group_of_row.capacity() * size_of::<u32>();
        aggregates + rows + self.groups.as_ref().map_or(0, Groups::size)
    }

    /// The values, once all rows have come.
    ///
    /// # Errors
    /// Those of the aggregates.
    pub(super) fn finish(mut self) -> Result<Values> {
        let aggregates = self.aggregates.iter_mut();
        let values = aggregates.map(|aggregate| aggregate.accumulator.evaluate(EmitTo::All));
        Ok(Values {
            of_groups: values.collect::<Result<_>>()?,
            group_of_row: self.groups.map(|_| UInt32Array::from(self.group_of_row)),
            next: 0,
        })
    }
}

/// Texts of all partitions together may be longer than an array of short ones.
fn long(kind: &DataType) -> DataType {
    match kind {
        DataType::Utf8 => DataType::LargeUtf8,
        DataType::Binary => DataType::LargeBinary,
        kind => kind.clone(),
    }
}

/// What rows get.
pub(super) struct Values {
    of_groups: Vec<ArrayRef>,
    /// `None` without keys.
    group_of_row: Option<UInt32Array>,
    next: usize,
}

impl Values {
    /// Puts them beside the rows of the batches, one after the other.
    pub(super) fn beside(
        mut self,
        schema: SchemaRef,
    ) -> impl FnMut(RecordBatch) -> Result<RecordBatch> {
        move |batch| {
            let num_rows = batch.num_rows();
            let groups = self.group_of_row.as_ref();
            let groups = groups.map(|groups| groups.slice(self.next, num_rows));
            self.next += num_rows;
            let values = self.of_groups.iter().map(|values| match &groups {
                Some(groups) => Ok(take(values, groups, None)?),
                None => ScalarValue::try_from_array(values, 0)?.to_array_of_size(num_rows),
            });
            let values = values.collect::<Result<Vec<ArrayRef>>>()?;
            let (_, mut columns, _) = batch.into_parts();
            columns.extend(values);
            let options = RecordBatchOptions::new().with_row_count(Some(num_rows));
            let batch = RecordBatch::try_new_with_options(Arc::clone(&schema), columns, &options);
            Ok(batch?)
        }
    }
}
