//! Columns of numbers -> one block of one type: the copy that an n-d array needs where the columns do not lie as it wants them.
//!
//! Comes in: batches, one below the other, and what is wanted of the block. Goes out: the block, or the refusal that names the column. Never here: a value that the wanted
//! type does not hold exactly.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Float64Array, Int64Array, RecordBatch, Scalar,
    UInt64Array,
};
use arrow::buffer::{Buffer, MutableBuffer};
use arrow::compute::kernels::cmp::distinct;
use arrow::compute::kernels::zip::zip;
use arrow::compute::{CastOptions, cast, cast_with_options, is_not_null};
use arrow::datatypes::{DataType, Field, Float64Type};
use arrow::util::display::array_value_to_string;

use crate::error::{Error, ErrorKind, Result};
use crate::grid::element::ElementType;
use crate::grid::numbers::{Numbers, element_of, refuse_nulls, value_bytes};

/// How the elements of a block follow each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Order {
    /// Row after row, as C has it.
    Rows,
    /// Column after column, as Fortran and Arrow have it.
    #[default]
    Columns,
}

impl Order {
    /// The order of a letter as numpy has it.
    ///
    /// # Errors
    /// `InvalidArgument` for other than `C` and `F`.
    pub fn from_letter(letter: &str) -> Result<Self> {
        match letter {
            "C" => Ok(Self::Rows),
            "F" => Ok(Self::Columns),
            other => Err(Error::invalid_argument(format!(
                "order must be 'C' (row after row) or 'F' (column after column), got '{other}'"
            ))),
        }
    }
}

/// What stands where a column has no value. It must be a value of the element type, exactly.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum FillValue {
    /// An integer.
    Int(i128),
    /// A float.
    Float(f64),
}

/// What a block shall be.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Gather {
    /// The type of the elements; without it the one that [`ElementType::promoted`] gives, `Float64` when there are no columns.
    pub element: Option<ElementType>,
    /// How the elements follow each other.
    pub order: Order,
    /// What stands for nulls; without it they are refused.
    pub fill: Option<FillValue>,
}

impl Gather {
    /// The type of the elements of the block that columns of these fields become.
    ///
    /// # Errors
    /// `Unsupported` when a column is no plain number.
    pub fn element_of<'a>(
        &self,
        fields: impl IntoIterator<Item = &'a Arc<Field>>,
    ) -> Result<ElementType> {
        let elements: Vec<ElementType> = fields
            .into_iter()
            .map(|field| element_of(field))
            .collect::<Result<_>>()?;
        Ok(self
            .element
            .or_else(|| ElementType::promoted(elements))
            .unwrap_or(ElementType::Float64))
    }

    /// Checks that the type holds what stands for nulls, whether there are some or not.
    ///
    /// # Errors
    /// `InvalidArgument` when it does not.
    pub fn check_fill(&self, element: ElementType) -> Result<()> {
        self.fill
            .map_or(Ok(()), |fill| fill.as_scalar(element).map(drop))
    }

    /// What stands for nulls as a value of `element`; without it the batches may have none.
    pub(super) fn check(
        &self,
        batches: &[RecordBatch],
        element: ElementType,
    ) -> Result<Option<Scalar<ArrayRef>>> {
        if let Some(fill) = self.fill {
            return fill.as_scalar(element).map(Some);
        }
        let schema = batches.first().map(RecordBatch::schema);
        let fields = schema.iter().flat_map(|schema| schema.fields().iter());
        for (number, field) in fields.enumerate() {
            let parts = batches
                .iter()
                .filter_map(|batch| batch.columns().get(number));
            refuse_nulls(field, parts.map(|part| part.null_count()))?;
        }
        Ok(None)
    }

    /// Writes the block of the batches into `block`, which must have exactly its bytes. All batches must have the same fields.
    ///
    /// # Errors
    /// `Unsupported` when a column is no plain number; `InvalidData` when it has nulls and no value for them is given, or a value that the type of the block does not
    /// hold; `InvalidArgument` when that type does not hold the value for nulls.
    pub fn write(&self, batches: &[RecordBatch], block: &mut [u8]) -> Result<()> {
        let Some(first) = batches.first() else {
            return Ok(());
        };
        let schema = first.schema();
        let element = self.element_of(schema.fields())?;
        let fill = self.check(batches, element)?;
        let num_rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
        let num_bytes = num_rows * schema.fields().len() * element.item_bytes();
        if block.len() != num_bytes {
            return Err(Error::internal(format!(
                "the block must have {num_bytes} bytes, it has {}",
                block.len()
            )));
        }
        let mut place = Place {
            order: self.order,
            first_row: 0,
            num_rows,
            item_bytes: element.item_bytes(),
        };
        for batch in batches {
            let parts = batch.columns().iter().zip(schema.fields());
            let parts = parts.map(|(column, field)| {
                let part = exactly(column, element, place.first_row);
                let part = part.map_err(|error| error.with_column(field.name()))?;
                let part = match &fill {
                    Some(fill) => replaced(&part, fill)?,
                    None => part,
                };
                Ok(value_bytes(&part, element))
            });
            place.write(&parts.collect::<Result<Vec<_>>>()?, block);
            place.first_row += batch.num_rows();
        }
        Ok(())
    }
}

impl Numbers {
    /// The rows of all batches, one below the other, copied into one block of two dimensions. All batches must have the same fields.
    ///
    /// # Errors
    /// As [`Gather::write`]; `ResourcesExhausted` for a block larger than memory can be.
    pub fn gathered(batches: &[RecordBatch], gather: &Gather) -> Result<Self> {
        let fields = batches.first().map(RecordBatch::schema);
        let fields = fields.iter().flat_map(|schema| schema.fields().iter());
        let element = gather.element_of(fields)?;
        let num_columns = batches.first().map_or(0, RecordBatch::num_columns);
        let num_rows = batches.iter().map(RecordBatch::num_rows).sum::<usize>();
        let too_large = || {
            Error::new(
                ErrorKind::ResourcesExhausted,
                format!("{num_rows} x {num_columns} elements of {element} do not fit in memory"),
            )
        };
        let num_bytes = num_rows.checked_mul(num_columns);
        let num_bytes = num_bytes
            .and_then(|count| count.checked_mul(element.item_bytes()))
            .filter(|bytes| isize::try_from(*bytes).is_ok())
            .ok_or_else(too_large)?;
        let mut block = MutableBuffer::from_len_zeroed(num_bytes);
        gather.write(batches, block.as_slice_mut())?;
        Ok(Self::packed(
            block.into(),
            element,
            [num_rows, num_columns],
            gather.order,
        ))
    }
}

impl Numbers {
    /// The batches as one view without copying, where the block that `gather` describes needs none: one batch of columns without nulls that lie as
    /// [`Numbers::try_from_batch`] wants them, in the wanted type, and for [`Order::Rows`] row after row.
    ///
    /// # Errors
    /// `Unsupported` when a column is no plain number.
    pub fn over(batches: &[RecordBatch], gather: &Gather) -> Result<Option<Self>> {
        let [batch] = batches else {
            return Ok(None);
        };
        let element = gather.element_of(batch.schema_ref().fields())?;
        let fits = |column: &ArrayRef| {
            column.null_count() == 0 && *column.data_type() == element.arrow_type()
        };
        if !batch.columns().iter().all(fits) {
            return Ok(None);
        }
        let view = Self::try_from_batch(batch, None).ok();
        Ok(view.filter(|view| gather.order == Order::Columns || view.is_c_contiguous()))
    }
}

impl FillValue {
    fn as_scalar(self, element: ElementType) -> Result<Scalar<ArrayRef>> {
        let widest: Option<ArrayRef> = match self {
            Self::Float(value) => Some(Arc::new(Float64Array::from(vec![value]))),
            Self::Int(value) => match (i64::try_from(value), u64::try_from(value)) {
                (Ok(value), _) => Some(Arc::new(Int64Array::from(vec![value]))),
                (_, Ok(value)) => Some(Arc::new(UInt64Array::from(vec![value]))),
                _ => None,
            },
        };
        let exact = widest.and_then(|value| exactly(&value, element, 0).ok());
        let exact = exact.ok_or_else(|| {
            let text = match self {
                Self::Int(value) => value.to_string(),
                Self::Float(value) => format!("{value:?}"),
            };
            Error::invalid_argument(format!(
                "fill_null must be a value of {element}, got {text}"
            ))
            .with_hint("give a value that the type holds exactly")
        })?;
        Ok(Scalar::new(exact))
    }
}

/// The column of numbers with `fill` in the place of its nulls: itself when it has none.
pub(super) fn filled(field: &Field, column: &ArrayRef, fill: FillValue) -> Result<ArrayRef> {
    let value = fill.as_scalar(element_of(field)?);
    let value = value.map_err(|error| error.with_column(field.name()))?;
    replaced(column, &value)
}

fn replaced(column: &ArrayRef, fill: &Scalar<ArrayRef>) -> Result<ArrayRef> {
    if column.null_count() == 0 {
        return Ok(Arc::clone(column));
    }
    Ok(zip(&is_not_null(column)?, column, fill)?)
}

/// The column as `element`; refused when a value would not come back from there. `first_row` is the number of its first row in messages.
pub(crate) fn exactly(
    column: &ArrayRef,
    element: ElementType,
    first_row: usize,
) -> Result<ArrayRef> {
    let (from, to) = (column.data_type(), element.arrow_type());
    if *from == to {
        return Ok(Arc::clone(column));
    }
    // A value that the type cannot hold at all becomes null, which differs from it.
    let lenient = CastOptions {
        safe: true,
        ..Default::default()
    };
    let there = cast_with_options(column, &to, &lenient)?;
    let back = cast_with_options(&there, from, &lenient)?;
    let changed = distinct(column, &back)?;
    match first_lost(column, &back, &changed)? {
        None => Ok(there),
        Some(row) => {
            let value = array_value_to_string(column, row)?;
            Err(Error::invalid_data(format!(
                "{element} does not hold the value {value} of row {} exactly",
                first_row + row
            ))
            .with_hint("choose a type that holds it, or round it in SQL"))
        }
    }
}

/// The first row whose value did not come back. Arrow takes 0.0 and -0.0 for different, and NaN of different bits.
fn first_lost(column: &ArrayRef, back: &ArrayRef, changed: &BooleanArray) -> Result<Option<usize>> {
    if changed.true_count() == 0 {
        return Ok(None);
    }
    let rows = changed.values().set_indices();
    if !matches!(
        column.data_type(),
        DataType::Float16 | DataType::Float32 | DataType::Float64
    ) {
        return Ok(rows.min());
    }
    let (before, after) = (
        cast(column, &DataType::Float64)?,
        cast(back, &DataType::Float64)?,
    );
    let (before, after) = (
        before.as_primitive::<Float64Type>(),
        after.as_primitive::<Float64Type>(),
    );
    let same = |row: usize| {
        let (one, other) = (before.value(row), after.value(row));
        after.is_valid(row) && (one == other || one.is_nan() && other.is_nan())
    };
    Ok(changed.values().set_indices().find(|row| !same(*row)))
}

/// Where the next rows come into a block.
struct Place {
    order: Order,
    first_row: usize,
    num_rows: usize,
    item_bytes: usize,
}

impl Place {
    /// Writes columns of equal length from `first_row` on.
    fn write(&self, columns: &[Buffer], block: &mut [u8]) {
        match (self.order, self.item_bytes) {
            (Order::Columns, _) => self.write_columns(columns, block),
            (Order::Rows, 1) => self.write_rows::<1>(columns, block),
            (Order::Rows, 2) => self.write_rows::<2>(columns, block),
            (Order::Rows, 4) => self.write_rows::<4>(columns, block),
            (Order::Rows, _) => self.write_rows::<8>(columns, block),
        }
    }

    fn write_columns(&self, columns: &[Buffer], block: &mut [u8]) {
        for (number, column) in columns.iter().enumerate() {
            let start = (number * self.num_rows + self.first_row) * self.item_bytes;
            if let Some(target) = block.get_mut(start..start + column.len()) {
                target.copy_from_slice(column.as_slice());
            }
        }
    }

    /// Some rows of all columns at a time, so that the lines of the block stay in the cache.
    fn write_rows<const N: usize>(&self, columns: &[Buffer], block: &mut [u8]) {
        const ROWS_AT_A_TIME: usize = 256;
        let width = columns.len();
        let (items, _) = block.as_chunks_mut::<N>();
        let sources: Vec<&[[u8; N]]> = columns
            .iter()
            .map(|column| column.as_slice().as_chunks::<N>().0)
            .collect();
        let length = sources.first().map_or(0, |source| source.len());
        for start in (0..length).step_by(ROWS_AT_A_TIME) {
            let stop = length.min(start + ROWS_AT_A_TIME);
            for (number, source) in sources.iter().enumerate() {
                let from = (self.first_row + start) * width + number;
                let targets = items
                    .get_mut(from..)
                    .unwrap_or_default()
                    .iter_mut()
                    .step_by(width);
                for (target, value) in targets.zip(source.get(start..stop).unwrap_or_default()) {
                    *target = *value;
                }
            }
        }
    }
}
