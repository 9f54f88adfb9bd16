//! Rows with the values of windows beside them.
//!
//! Comes in: batches in the order of the keys. Goes out: the same with a column for each window. Where rows with equal keys have one value, that of the last of them, they go out once others have come. Never here: what the values are (`values.rs`).

use std::collections::VecDeque;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, UInt32Array};
use arrow::buffer::BooleanBuffer;
use arrow::compute::take;
use arrow::datatypes::{Schema, SchemaRef};
use datafusion::common::internal_err;
use datafusion::error::Result;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::window::WindowExpr;

use super::peers::Keys;
use super::values::{Finish, Function, Running};

/// The rows of one partition of the plan.
pub(super) struct Rows {
    schema: SchemaRef,
    partition_by: Vec<Arc<dyn PhysicalExpr>>,
    order_by: Vec<Arc<dyn PhysicalExpr>>,
    windows: Vec<Window>,
    partitions: Keys,
    peers: Keys,
    /// Rows with the keys of the last one, whose values are not known yet.
    waiting: Vec<Waiting>,
    ready: VecDeque<RecordBatch>,
    is_over: bool,
}

/// One window.
struct Window {
    arguments: Vec<Arc<dyn PhysicalExpr>>,
    running: Running,
    finish: Option<Finish>,
    /// Whether rows with equal keys have the value of the last of them.
    is_of_peers: bool,
}

/// Rows with what their values are made of if no more come.
struct Waiting {
    rows: RecordBatch,
    values: Vec<ArrayRef>,
}

impl Rows {
    /// # Errors
    /// `Internal` for windows that are not worked out here.
    pub(super) fn try_new(
        windows: &[Arc<dyn WindowExpr>],
        input: &Schema,
        schema: SchemaRef,
    ) -> Result<Self> {
        let Some(first) = windows.first() else {
            return internal_err!("no windows");
        };
        let (partition_by, order_by) = (first.partition_by().to_vec(), first.order_by());
        let windows = windows
            .iter()
            .map(|window| match Function::of(window, input) {
                Some(function) => Ok(Window {
                    arguments: window.expressions(),
                    is_of_peers: function.is_of_peers,
                    running: function.running,
                    finish: function.finish,
                }),
                None => internal_err!("the window {}", window.name()),
            });
        Ok(Self {
            schema,
            partition_by,
            order_by: order_by.iter().map(|key| Arc::clone(&key.expr)).collect(),
            windows: windows.collect::<Result<_>>()?,
            partitions: Keys::default(),
            peers: Keys::default(),
            waiting: Vec::new(),
            ready: VecDeque::new(),
            is_over: false,
        })
    }

    pub(super) fn next_ready(&mut self) -> Option<RecordBatch> {
        self.ready.pop_front()
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }

    /// No more rows come.
    pub(super) fn end(&mut self) -> Result<()> {
        self.is_over = true;
        let last = self.waiting.last();
        let ends = last.map(|waiting| last_of(&waiting.values, waiting.rows.num_rows()));
        match ends {
            Some(ends) => self.let_go(&ends),
            None => Ok(()),
        }
    }

    /// Takes the next rows.
    pub(super) fn push(&mut self, rows: RecordBatch) -> Result<()> {
        let num_rows = rows.num_rows();
        if num_rows == 0 {
            return Ok(());
        }
        let evaluate = |expr: &Arc<dyn PhysicalExpr>| expr.evaluate(&rows)?.into_array(num_rows);
        let keys = self.partition_by.iter().map(evaluate);
        let keys: Vec<ArrayRef> = keys.collect::<Result<_>>()?;
        let order = self.order_by.iter().map(evaluate);
        let order: Vec<ArrayRef> = order.collect::<Result<_>>()?;
        let partitions = self.partitions.begins(&keys, num_rows)?;
        // Others begin with each partition.
        let peers = match order.is_empty() {
            true => partitions.clone(),
            false => &self.peers.begins(&order, num_rows)? | &partitions,
        };
        let mut values = Vec::with_capacity(self.windows.len());
        for window in &mut self.windows {
            let arguments = window.arguments.iter().map(evaluate);
            let arguments: Vec<ArrayRef> = arguments.collect::<Result<_>>()?;
            values.push((window.running)(&arguments, &partitions, &peers)?);
        }
        if !self.windows.iter().any(|window| window.is_of_peers) {
            return self.make_ready(&rows, values);
        }
        self.push_peers(rows, values, &peers)
    }

    /// Rows of which those with equal keys have one value.
    fn push_peers(
        &mut self,
        rows: RecordBatch,
        values: Vec<ArrayRef>,
        peers: &BooleanBuffer,
    ) -> Result<()> {
        let num_rows = rows.num_rows();
        let mut begins = peers.set_indices();
        let Some(first) = begins.next() else {
            self.waiting.push(Waiting { rows, values });
            return Ok(());
        };
        // Those that wait end just before it.
        if first > 0 {
            let ends = last_of(&values, first);
            self.waiting.push(slice(&rows, &values, 0, first));
            self.let_go(&ends)?;
        } else if let Some(last) = self.waiting.last() {
            let ends = last_of(&last.values, last.rows.num_rows());
            self.let_go(&ends)?;
        }
        let last = begins.last().unwrap_or(first);
        if last > first {
            let between = slice(&rows, &values, first, last - first);
            let ends = ends_of(&peers.slice(first, last - first));
            let with_ends = self.windows.iter().zip(between.values);
            let with_ends = with_ends.map(|(window, values)| match &ends {
                Some(ends) if window.is_of_peers => Ok(take(&values, ends, None)?),
                _ => Ok(values),
            });
            let with_ends: Vec<ArrayRef> = with_ends.collect::<Result<_>>()?;
            self.make_ready(&between.rows, with_ends)?;
        }
        self.waiting
            .push(slice(&rows, &values, last, num_rows - last));
        Ok(())
    }

    /// Rows that waited have these values.
    fn let_go(&mut self, ends: &[ArrayRef]) -> Result<()> {
        for Waiting { rows, values } in std::mem::take(&mut self.waiting) {
            let first = UInt32Array::from(vec![0; rows.num_rows()]);
            let windows = self.windows.iter().zip(values).zip(ends);
            let values = windows.map(|((window, values), end)| match window.is_of_peers {
                true => Ok(take(end, &first, None)?),
                false => Ok(values),
            });
            let values: Vec<ArrayRef> = values.collect::<Result<_>>()?;
            self.make_ready(&rows, values)?;
        }
        Ok(())
    }

    fn make_ready(&mut self, rows: &RecordBatch, values: Vec<ArrayRef>) -> Result<()> {
        let mut columns = rows.columns().to_vec();
        for (window, values) in self.windows.iter().zip(values) {
            columns.push(match &window.finish {
                Some(finish) => finish(&values)?,
                None => values,
            });
        }
        let batch = RecordBatch::try_new(Arc::clone(&self.schema), columns)?;
        self.ready.push_back(batch);
        Ok(())
    }
}

fn slice(rows: &RecordBatch, values: &[ArrayRef], begin: usize, count: usize) -> Waiting {
    let values = values.iter().map(|values| values.slice(begin, count));
    Waiting {
        rows: rows.slice(begin, count),
        values: values.collect(),
    }
}

/// The values of the last of so many rows.
fn last_of(values: &[ArrayRef], num_rows: usize) -> Vec<ArrayRef> {
    let last = num_rows.saturating_sub(1);
    let values = values.iter().map(|values| values.slice(last, 1));
    values.collect()
}

/// The last row with the keys of each, where rows begin that have others; nothing where all do.
fn ends_of(begins: &BooleanBuffer) -> Option<UInt32Array> {
    if begins.count_set_bits() == begins.len() {
        return None;
    }
    let mut ends = vec![0; begins.len()];
    let mut end = begins.len().saturating_sub(1);
    for (row, place) in ends.iter_mut().enumerate().rev() {
        *place = u32::try_from(end).unwrap_or(u32::MAX);
        if begins.value(row) {
            end = row.saturating_sub(1);
        }
    }
    Some(ends.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_with_equal_keys_end_together() {
        let begins = BooleanBuffer::from(vec![true, false, false, true, true, false]);
        let ends = ends_of(&begins).unwrap();
        assert_eq!(ends.values(), &[2, 2, 2, 3, 5, 5]);
        assert!(ends_of(&BooleanBuffer::new_set(3)).is_none());
    }
}
