//! One condition on rows, what it costs and what it saves.
//!
//! Comes in: a physical expression without AND at its top, a batch and either a run of its rows or their numbers. Goes out: which of them pass; null counts as no.
//! Never here: the order of conditions.

use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, RecordBatchOptions, UInt32Array};
use arrow::buffer::BooleanBuffer;
use arrow::compute::take;
use arrow::datatypes::SchemaRef;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{ScalarValue, internal_err};
use datafusion::error::Result;
use datafusion::logical_expr::{ColumnarValue, Operator};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{BinaryExpr, Column, LikeExpr, Literal};
use datafusion::physical_expr::utils::collect_columns;

use crate::grid::compact;
use crate::query::exec::guarded::{can_fail, guarded};

/// What one row that does not leave the scan saves at least: a copy of its columns and a look into a hash table, in nanoseconds.
const SAVED_BY_A_ROW: f64 = 15.0;

/// A condition that takes away more than this share of rows always pays: whoever made it does the same work on each row that is left, and more.
const SHARE_THAT_PAYS: f64 = 0.4;

/// Copying one value of a column that a condition reads, in nanoseconds.
const COST_OF_A_COPY: f64 = 1.5;

/// Before so many rows nothing is concluded.
const ROWS_TO_JUDGE: f64 = 30_000.0;

/// A condition that does not pay is tried again after so many windows.
const WINDOWS_ASLEEP: usize = 64;

/// What a condition says of a run of rows.
pub(super) enum Outcome {
    All,
    None,
    /// A bit for each row.
    Mask(BooleanBuffer),
}

#[derive(Debug)]
pub(super) struct Condition {
    /// Over `columns` only, in their order.
    expression: Arc<dyn PhysicalExpr>,
    columns: Vec<usize>,
    schema: SchemaRef,
    /// Whether rows that do not pass may leave the scan all the same.
    is_optional: bool,
    /// Whether some values make it fail, such as a division by zero.
    can_fail: bool,
    /// Whether the rows come in the order of the column that it compares: if the first and the last of a window pass, all between them do, and if neither passes, none does.
    goes_by_order: bool,
    /// Rows that were tested, those that passed, and the time it took; with a guess to begin with.
    tested: f64,
    passed: f64,
    nanoseconds: f64,
    asleep: usize,
}

impl Condition {
    /// `schema` is that of the batches, whose rows ascend by each of the columns `ascending`, without nulls; the expression names its columns by number.
    pub(super) fn try_new(
        expression: &Arc<dyn PhysicalExpr>,
        schema: &SchemaRef,
        ascending: &[usize],
        is_optional: bool,
    ) -> Result<Self> {
        let mut columns: Vec<usize> = collect_columns(expression)
            .iter()
            .map(Column::index)
            .collect();
        columns.sort_unstable();
        columns.dedup();
        let own = schema.project(&columns)?;
        Ok(Self {
            can_fail: !is_optional && can_fail(expression)?,
            goes_by_order: compared(expression).is_some_and(|at| ascending.contains(&at)),
            nanoseconds: guessed_cost(expression),
            expression: guarded(renumbered(expression, &columns)?)?.data,
            schema: Arc::new(own),
            columns,
            is_optional,
            tested: 1.0,
            passed: 0.5,
            asleep: 0,
        })
    }

    /// The numbers of the columns that it reads, in order.
    pub(super) fn columns(&self) -> &[usize] {
        &self.columns
    }

    pub(super) fn is_optional(&self) -> bool {
        self.is_optional
    }

    /// Whether it does not pay to test it now.
    pub(super) fn is_asleep(&mut self) -> bool {
        if self.asleep > 0 {
            self.asleep -= 1;
            return true;
        }
        let gone = self.tested - self.passed;
        let pays = gone > SHARE_THAT_PAYS * self.tested || gone * SAVED_BY_A_ROW > self.nanoseconds;
        if self.is_optional && self.tested > ROWS_TO_JUDGE && !pays {
            self.asleep = WINDOWS_ASLEEP;
            // When it wakes, it is judged by what it finds then.
            (self.nanoseconds, self.passed) = (self.cost(), self.passed / self.tested);
            self.tested = 1.0;
            return true;
        }
        false
    }

    /// Nanoseconds for each row that it takes away; those that can fail come last.
    pub(super) fn rank(&self) -> f64 {
        if self.can_fail {
            return f64::INFINITY;
        }
        self.nanoseconds / (self.tested - self.passed).max(1e-3)
    }

    fn cost(&self) -> f64 {
        self.nanoseconds / self.tested
    }

    /// Whether testing all rows of a window is cheaper than gathering the `count` that are left. One that can fail never sees rows that are out already.
    pub(super) fn prefers_windows(&self, count: usize, window: usize) -> bool {
        #[expect(clippy::cast_precision_loss, reason = "windows are small")]
        let (count, window) = (count as f64, window as f64);
        let copies = COST_OF_A_COPY * self.columns_f64();
        !self.can_fail && self.cost() * window < (self.cost() + copies) * count
    }

    fn columns_f64(&self) -> f64 {
        u32::try_from(self.columns.len()).map_or(f64::MAX, f64::from)
    }

    /// Tests the rows of a window.
    pub(super) fn test_window(
        &mut self,
        batch: &RecordBatch,
        rows: &Range<usize>,
    ) -> Result<Outcome> {
        if self.goes_by_order && rows.len() > 2 {
            let start = Instant::now();
            if let Some(passes) = self.ends_agree(batch, rows)? {
                let passed = if passes { rows.len() } else { 0 };
                self.learn(rows.len(), passed, start);
                return Ok(if passes { Outcome::All } else { Outcome::None });
            }
        }
        let columns = self.columns.iter();
        let columns = columns.map(|column| batch.column(*column).slice(rows.start, rows.len()));
        let columns = columns.collect();
        self.test(columns, rows.len())
    }

    /// Tests the rows of these numbers.
    pub(super) fn test_rows(&mut self, batch: &RecordBatch, rows: &UInt32Array) -> Result<Outcome> {
        self.test(self.taken(batch, rows)?, rows.len())
    }

    fn test(&mut self, columns: Vec<ArrayRef>, num_rows: usize) -> Result<Outcome> {
        let start = Instant::now();
        let outcome = self.evaluate(columns, num_rows)?;
        let passed = match &outcome {
            Outcome::All => num_rows,
            Outcome::None => 0,
            Outcome::Mask(mask) => mask.count_set_bits(),
        };
        self.learn(num_rows, passed, start);
        Ok(outcome)
    }

    /// Whether the first and the last row of a window pass; `None` if one does and the other does not, or nobody can tell.
    fn ends_agree(&self, batch: &RecordBatch, rows: &Range<usize>) -> Result<Option<bool>> {
        let ends = [rows.start, rows.end - 1].map(u32::try_from);
        let [Ok(first), Ok(last)] = ends else {
            return Ok(None);
        };
        let ends = self.taken(batch, &UInt32Array::from(vec![first, last]))?;
        Ok(match self.evaluate(ends, 2)? {
            Outcome::All => Some(true),
            Outcome::None => Some(false),
            Outcome::Mask(mask) => (mask.value(0) == mask.value(1)).then(|| mask.value(0)),
        })
    }

    /// Its columns of the rows of these numbers.
    fn taken(&self, batch: &RecordBatch, rows: &UInt32Array) -> Result<Vec<ArrayRef>> {
        let columns = self.columns.iter();
        let columns = columns.map(|column| take(batch.column(*column), rows, None));
        Ok(columns.collect::<Result<_, _>>()?)
    }

    fn evaluate(&self, columns: Vec<ArrayRef>, num_rows: usize) -> Result<Outcome> {
        let options = RecordBatchOptions::new().with_row_count(Some(num_rows));
        let batch = RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options)?;
        Ok(match self.expression.evaluate(&compact(&batch)?)? {
            ColumnarValue::Array(array) => mask_of(&array)?,
            ColumnarValue::Scalar(ScalarValue::Boolean(Some(true))) => Outcome::All,
            ColumnarValue::Scalar(_) => Outcome::None,
        })
    }

    /// Takes note of what a test cost, and how many rows passed.
    fn learn(&mut self, num_rows: usize, passed: usize, start: Instant) {
        #[expect(clippy::cast_precision_loss, reason = "an estimate")]
        {
            self.tested += num_rows as f64;
            self.passed += passed as f64;
            self.nanoseconds += start.elapsed().as_nanos() as f64;
        }
    }
}

/// The column that an expression compares with a value, to be less or greater; of values that are in order as arrow orders them.
fn compared(expression: &Arc<dyn PhysicalExpr>) -> Option<usize> {
    let binary = expression.downcast_ref::<BinaryExpr>()?;
    let is_order = matches!(
        binary.op(),
        Operator::Lt | Operator::LtEq | Operator::Gt | Operator::GtEq
    );
    let column = |side: &Arc<dyn PhysicalExpr>| Some(side.downcast_ref::<Column>()?.index());
    let (left, right) = (binary.left(), binary.right());
    let found = match (left.is::<Literal>(), right.is::<Literal>()) {
        (false, true) => column(left),
        (true, false) => column(right),
        _ => None,
    };
    found.filter(|_| is_order)
}

fn mask_of(array: &ArrayRef) -> Result<Outcome> {
    let Some(array) = array.as_boolean_opt() else {
        return internal_err!("a condition gave {}", array.data_type());
    };
    Ok(Outcome::Mask(match array.nulls() {
        None => array.values().clone(),
        Some(nulls) => array.values() & nulls.inner(),
    }))
}

/// The expression over a batch of `columns` only.
fn renumbered(
    expression: &Arc<dyn PhysicalExpr>,
    columns: &[usize],
) -> Result<Arc<dyn PhysicalExpr>> {
    let expression = Arc::clone(expression);
    let expression = expression.transform_up(|node| {
        let Some(column) = node.downcast_ref::<Column>() else {
            return Ok(Transformed::no(node));
        };
        let place = columns.binary_search(&column.index()).unwrap_or(usize::MAX);
        Ok(Transformed::yes(
            Arc::new(Column::new(column.name(), place)) as _,
        ))
    });
    expression.data()
}

/// Nanoseconds for a row, before anything is measured.
fn guessed_cost(expression: &Arc<dyn PhysicalExpr>) -> f64 {
    if expression.is::<BinaryExpr>() {
        return 1.0;
    }
    if expression.is::<LikeExpr>() {
        20.0
    } else {
        5.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{Int32Array, StringArray};
    use arrow::datatypes::{DataType, Field, Schema};
    use datafusion::physical_expr::expressions::{binary, col, lit};

    fn batch() -> RecordBatch {
        let numbers = Int32Array::from(vec![Some(4), None, Some(0), Some(2)]);
        let schema = Schema::new(vec![
            Field::new("name", DataType::Utf8, false),
            Field::new("n", DataType::Int32, true),
        ]);
        let names = StringArray::from(vec!["a", "b", "c", "d"]);
        RecordBatch::try_new(Arc::new(schema), vec![Arc::new(names), Arc::new(numbers)]).unwrap()
    }

    #[test]
    fn null_does_not_pass() {
        let batch = batch();
        let schema = batch.schema();
        let less = binary(col("n", &schema).unwrap(), Operator::Lt, lit(3), &schema).unwrap();
        let mut condition = Condition::try_new(&less, &schema, &[], false).unwrap();
        let Outcome::Mask(mask) = condition.test_window(&batch, &(1..4)).unwrap() else {
            panic!("a mask");
        };
        assert_eq!(mask.iter().collect::<Vec<_>>(), [false, true, true]);
        let rows = UInt32Array::from(vec![3, 0]);
        let Outcome::Mask(mask) = condition.test_rows(&batch, &rows).unwrap() else {
            panic!("a mask");
        };
        assert_eq!(mask.iter().collect::<Vec<_>>(), [true, false]);
    }

    #[test]
    fn of_rows_in_order_the_ends_of_a_window_tell() {
        let schema = Arc::new(Schema::new(vec![Field::new("n", DataType::Int32, true)]));
        let numbers = Int32Array::from_iter_values((0..1000).map(|number| number / 2));
        let batch = RecordBatch::try_new(Arc::clone(&schema), vec![Arc::new(numbers)]).unwrap();
        let n = || col("n", &schema).unwrap();
        // What passes in rows 100..900, of the values 50 to 449.
        let count = |operator, value: i32, is_left: bool| {
            let comparison = match is_left {
                true => binary(n(), operator, lit(value), &schema),
                false => binary(lit(value), operator, n(), &schema),
            };
            let counts = [&[0][..], &[]].map(|ascending| {
                let comparison = comparison.as_ref().unwrap();
                let condition = Condition::try_new(comparison, &schema, ascending, false);
                let mut condition = condition.unwrap();
                assert_eq!(
                    condition.goes_by_order,
                    !ascending.is_empty() && operator != Operator::Eq
                );
                match condition.test_window(&batch, &(100..900)).unwrap() {
                    Outcome::All => 800,
                    Outcome::None => 0,
                    Outcome::Mask(mask) => mask.count_set_bits(),
                }
            });
            assert_eq!(counts[0], counts[1], "{operator} {value}");
            counts[0]
        };
        assert_eq!(count(Operator::GtEq, 50, true), 800);
        assert_eq!(count(Operator::Gt, 50, true), 798);
        assert_eq!(count(Operator::Gt, 449, true), 0);
        assert_eq!(count(Operator::Lt, 450, true), 800);
        assert_eq!(count(Operator::Lt, 50, true), 0);
        assert_eq!(count(Operator::LtEq, 50, true), 2);
        assert_eq!(count(Operator::LtEq, 50, false), 800);
        assert_eq!(count(Operator::Gt, 51, false), 2);
        // Neither end is equal, and rows between them are.
        assert_eq!(count(Operator::Eq, 60, true), 2);
    }

    #[test]
    fn a_division_can_fail_and_comes_last() {
        let schema = batch().schema();
        let n = || col("n", &schema).unwrap();
        let quotient = binary(lit(12), Operator::Divide, n(), &schema).unwrap();
        let risky = binary(quotient, Operator::Gt, lit(2), &schema).unwrap();
        let safe = binary(n(), Operator::NotEq, lit(0), &schema).unwrap();
        let rank = |part| {
            Condition::try_new(part, &schema, &[], false)
                .unwrap()
                .rank()
        };
        assert!(rank(&risky) > rank(&safe));
        assert!(
            !Condition::try_new(&risky, &schema, &[], false)
                .unwrap()
                .prefers_windows(1, 1)
        );
    }
}
