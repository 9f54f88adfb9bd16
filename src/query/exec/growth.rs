//! How much an operator makes of a row: of lists that become rows, of windows whose values are lists, of long values that are the same in each row.
//!
//! Comes in: operators, batches of their input. Goes out: bytes that the operator will make of each row, estimated before it does. Never here: what is done about it (`portion.rs`).

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::datatypes::DataType;
use arrow::row::{RowConverter, SortField};
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::logical_expr::{WindowFrame, WindowFrameBound, WindowFrameUnits};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Literal;
use datafusion::physical_expr::window::{
    PlainAggregateWindowExpr, SlidingAggregateWindowExpr, WindowExpr,
};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::unnest::UnnestExec;
use datafusion::physical_plan::windows::{BoundedWindowAggExec, WindowAggExec};

use crate::grid::slice_bytes;
use crate::query::functions::growing::said_bytes;

/// From this size on it matters how often a value is written out.
const WIDE_BYTES: u64 = 4096;

/// Aggregates whose values hold all rows that they have seen.
pub(super) const COLLECTING: [&str; 2] = ["array_agg", "string_agg"];

/// The rows of each partition of a window so far.
type Seen = HashMap<Box<[u8]>, u64>;

/// What an operator makes of its input.
#[derive(Debug, Clone)]
pub(super) enum Growth {
    /// A row for each element of the lists in these columns, which lie so many levels deep.
    Unnest(Arc<[(usize, usize)]>),
    /// A list for each row, of the rows of its window.
    Windows(Arc<[Window]>),
    /// Values of so many bytes that are written out for each row.
    Wide(u64),
}

/// One collecting aggregate of a window operator.
#[derive(Debug)]
pub(super) struct Window {
    name: String,
    arguments: Vec<Arc<dyn PhysicalExpr>>,
    partition_by: Vec<Arc<dyn PhysicalExpr>>,
    /// The most rows of a frame, if that is bounded.
    frame_rows: Option<u64>,
}

impl Growth {
    /// That of an operator that has any, and whether the operator keeps all that it makes until it has seen the end of its input.
    pub(super) fn of(node: &dyn ExecutionPlan) -> Option<(Self, bool)> {
        if let Some(unnest) = node.downcast_ref::<UnnestExec>() {
            let lists = unnest.list_column_indices().iter();
            let lists: Arc<[(usize, usize)]> = lists
                .map(|list| (list.index_in_input_schema, list.depth))
                .collect();
            return (!lists.is_empty()).then_some((Self::Unnest(lists), false));
        }
        if let Some(projection) = node.downcast_ref::<ProjectionExec>() {
            let parts = projection.expr().iter().map(|part| wide(&part.expr));
            let bytes: u64 = parts.sum();
            return (bytes > 0).then_some((Self::Wide(bytes), false));
        }
        let (windows, keeps) = if let Some(whole) = node.downcast_ref::<WindowAggExec>() {
            (whole.window_expr(), true)
        } else {
            let bounded = node.downcast_ref::<BoundedWindowAggExec>()?;
            (bounded.window_expr(), false)
        };
        let windows: Arc<[Window]> = windows.iter().filter_map(Window::of).collect();
        (!windows.is_empty()).then_some((Self::Windows(windows), keeps))
    }

    /// What makes that much, for errors.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Unnest(_) => "unnest".to_owned(),
            Self::Wide(_) => "a long value in each row".to_owned(),
            Self::Windows(windows) => {
                let names: Vec<&str> = windows.iter().map(|window| window.name.as_str()).collect();
                format!("{} over windows", names.join(", "))
            }
        }
    }
}

impl Window {
    /// Whether a value can hold all rows of the input.
    pub(super) fn gathers_all(&self) -> bool {
        self.partition_by.is_empty() && self.frame_rows.is_none()
    }

    fn of(window: &Arc<dyn WindowExpr>) -> Option<Self> {
        let any = window.as_any();
        let aggregate = match any.downcast_ref::<PlainAggregateWindowExpr>() {
            Some(plain) => plain.get_aggregate_expr(),
            None => any
                .downcast_ref::<SlidingAggregateWindowExpr>()?
                .get_aggregate_expr(),
        };
        let name = aggregate.fun().name();
        COLLECTING.contains(&name).then(|| Self {
            name: name.to_owned(),
            arguments: window.expressions(),
            partition_by: window.partition_by().to_vec(),
            frame_rows: frame_rows(window.get_window_frame()),
        })
    }
}

/// The bytes of the long values that an expression has in it.
fn wide(expression: &Arc<dyn PhysicalExpr>) -> u64 {
    of_long(expression, &|_| 0)
}

/// The same, with those of values that it makes of small ones, of a length that it says.
pub(super) fn wide_or_said(expression: &Arc<dyn PhysicalExpr>) -> u64 {
    of_long(expression, &said_bytes)
}

fn of_long(
    expression: &Arc<dyn PhysicalExpr>,
    said: &dyn Fn(&Arc<dyn PhysicalExpr>) -> u64,
) -> u64 {
    let own = match expression.downcast_ref::<Literal>() {
        Some(literal) => literal.value().size() as u64,
        None => said(expression),
    };
    let children = expression.children().into_iter();
    let children = children.map(|child| of_long(child, said));
    let own = if own < WIDE_BYTES { 0 } else { own };
    children.fold(own, u64::saturating_add)
}

/// The most rows of a frame between two counts of rows.
fn frame_rows(frame: &WindowFrame) -> Option<u64> {
    let count = |value: &ScalarValue| match value {
        ScalarValue::UInt64(count) => *count,
        _ => None,
    };
    if frame.units != WindowFrameUnits::Rows {
        return None;
    }
    let before = match &frame.start_bound {
        WindowFrameBound::Preceding(rows) => count(rows)?,
        WindowFrameBound::CurrentRow | WindowFrameBound::Following(_) => 0,
    };
    let after = match &frame.end_bound {
        WindowFrameBound::Following(rows) => count(rows)?,
        WindowFrameBound::CurrentRow | WindowFrameBound::Preceding(_) => 0,
    };
    before.checked_add(after)?.checked_add(1)
}

/// What was seen of the input so far.
pub(super) struct Meter {
    growth: Growth,
    /// For each window the rows of each of its partitions.
    seen: Vec<Seen>,
}

impl Meter {
    pub(super) fn new(growth: Growth) -> Self {
        let num_windows = match &growth {
            Growth::Unnest(_) | Growth::Wide(_) => 0,
            Growth::Windows(windows) => windows.len(),
        };
        Self {
            growth,
            seen: vec![HashMap::new(); num_windows],
        }
    }

    /// About the bytes that the operator will make of each row of the next batch.
    pub(super) fn bytes(&mut self, batch: &RecordBatch) -> Result<Vec<u64>> {
        let mut bytes = vec![0_u64; batch.num_rows()];
        match &self.growth {
            Growth::Unnest(lists) => unnested(batch, lists, &mut bytes),
            Growth::Wide(width) => bytes.fill(*width),
            Growth::Windows(windows) => {
                for (window, seen) in windows.iter().zip(&mut self.seen) {
                    collected(batch, window, seen, &mut bytes)?;
                }
            }
        }
        Ok(bytes)
    }
}

/// Bytes of one of so many rows, on average.
fn each(bytes: u64, num_rows: usize) -> u64 {
    bytes.checked_div(num_rows as u64).unwrap_or(0).max(1)
}

fn unnested(batch: &RecordBatch, lists: &[(usize, usize)], bytes: &mut [u64]) {
    let mut rows = vec![0_u64; batch.num_rows()];
    let mut width = 0_u64;
    let others = (0..batch.num_columns()).filter(|column| {
        let is_list = lists.iter().any(|(list, _)| list == column);
        !is_list
    });
    let others: Vec<usize> = others.collect();
    if let Ok(others) = batch.project(&others) {
        width += each(slice_bytes(&others), batch.num_rows());
    }
    for (column, depth) in lists {
        let Some(list) = batch.columns().get(*column) else {
            continue;
        };
        let counts = (0..list.len()).map(|row| leaves(list, row..row + 1, *depth));
        let mut elements = 0;
        for (most, count) in rows.iter_mut().zip(counts) {
            elements += count;
            *most = (*most).max(count);
        }
        let memory = list.to_data().get_slice_memory_size().unwrap_or_default();
        width += each(
            memory as u64,
            usize::try_from(elements).unwrap_or(usize::MAX),
        );
    }
    for (bytes, rows) in bytes.iter_mut().zip(&rows) {
        *bytes = bytes.saturating_add(rows.saturating_mul(width));
    }
}

/// The elements so many levels deep in some rows of a column of lists.
fn leaves(list: &ArrayRef, rows: Range<usize>, depth: usize) -> u64 {
    if depth == 0 || rows.is_empty() {
        return rows.len() as u64;
    }
    let number = |offset: i64| usize::try_from(offset).unwrap_or(0);
    match list.data_type() {
        DataType::List(_) => {
            let (offsets, values) = (
                list.as_list::<i32>().value_offsets(),
                list.as_list::<i32>().values(),
            );
            let at = |row: usize| number(offsets.get(row).copied().unwrap_or(0).into());
            leaves(values, at(rows.start)..at(rows.end), depth - 1)
        }
        DataType::LargeList(_) => {
            let (offsets, values) = (
                list.as_list::<i64>().value_offsets(),
                list.as_list::<i64>().values(),
            );
            let at = |row: usize| number(offsets.get(row).copied().unwrap_or(0));
            leaves(values, at(rows.start)..at(rows.end), depth - 1)
        }
        DataType::FixedSizeList(_, length) => {
            let length = usize::try_from(*length).unwrap_or(0);
            let values = list.as_fixed_size_list().values();
            leaves(values, rows.start * length..rows.end * length, depth - 1)
        }
        DataType::ListView(_) => {
            let views = list.as_list_view::<i32>();
            let sizes = views.value_sizes().get(rows).unwrap_or_default();
            sizes.iter().map(|size| number((*size).into()) as u64).sum()
        }
        DataType::LargeListView(_) => {
            let views = list.as_list_view::<i64>();
            let sizes = views.value_sizes().get(rows).unwrap_or_default();
            sizes.iter().map(|size| number(*size) as u64).sum()
        }
        _ => rows.len() as u64,
    }
}

fn collected(
    batch: &RecordBatch,
    window: &Window,
    seen: &mut Seen,
    bytes: &mut [u64],
) -> Result<()> {
    let num_rows = batch.num_rows();
    let evaluated = |parts: &[Arc<dyn PhysicalExpr>]| -> Result<Vec<ArrayRef>> {
        let values = parts
            .iter()
            .map(|part| part.evaluate(batch)?.into_array(num_rows));
        values.collect()
    };
    let arguments = evaluated(&window.arguments)?;
    let width = arguments.iter().map(|values| {
        let bytes = values.to_data().get_slice_memory_size().unwrap_or_default();
        let text = match values.data_type() {
            DataType::Utf8View => values.as_string_view().lengths().map(u64::from).sum(),
            DataType::BinaryView => values.as_binary_view().lengths().map(u64::from).sum(),
            _ => 0,
        };
        each(bytes as u64 + text, num_rows)
    });
    let width: u64 = width.sum();
    let keys = evaluated(&window.partition_by)?;
    let rows = match keys.is_empty() {
        true => None,
        false => {
            let fields = keys
                .iter()
                .map(|key| SortField::new(key.data_type().clone()));
            let converter = RowConverter::new(fields.collect())?;
            Some(converter.convert_columns(&keys)?)
        }
    };
    for (row, bytes) in bytes.iter_mut().enumerate() {
        let key = rows.as_ref().map(|rows| rows.row(row).data().into());
        let count = seen.entry(key.unwrap_or_default()).or_insert(0);
        *count += 1;
        let frame = window.frame_rows.map_or(*count, |most| most.min(*count));
        *bytes = bytes.saturating_add(frame.saturating_mul(width));
    }
    Ok(())
}
