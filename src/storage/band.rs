//! Storages as dense bands of grids, and dense bands as storages.
//!
//! Comes in: a storage of one or two dimensions, or the numbers of a tile. Goes out: columns over the memory of the storage, which is frozen; or a storage over that of the tile, which
//! cannot be written. Never here: copies.

#![expect(
    unsafe_code,
    reason = "an Arrow buffer over memory of ours is made of its address"
)]

use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

use arrow::array::{ArrayData, ArrayRef, make_array};
use arrow::buffer::{Buffer, MutableBuffer};

use super::Storage;
use super::access::Access;
use super::dims::Dims;
use super::item::Item;
use super::memory::Memory;
use super::plan::Plan;
use crate::error::{Error, ErrorKind, Result};
use crate::grid::{ElementType, Numbers, PartitionGrid};
use crate::location::Device;

/// Where the columns of dense bands begin; see `grid::dense`.
const BAND_ALIGNMENT_BYTES: usize = 64;

/// Arrow memory that a storage lies in, and the grid does too.
#[derive(Debug)]
struct Shared(Numbers);

impl Memory for Shared {
    fn as_ptr(&self) -> *mut u8 {
        self.0.as_ptr().cast_mut()
    }

    fn num_bytes(&self) -> usize {
        self.0.num_bytes()
    }

    fn device(&self) -> Device {
        Device::CPU
    }

    fn fill(&mut self, _: Range<usize>, _: &[u8]) -> Result<()> {
        Err(Error::invalid_argument("memory of a grid never changes"))
    }
}

/// Columns at even distances.
struct Columns {
    rows: usize,
    count: usize,
    /// Bytes from one to the next.
    across: usize,
}

impl Storage {
    /// The numbers of a tile as a storage over the same memory, frozen from the start. It is aligned to 64 bytes where the columns are, else to nothing.
    ///
    /// # Errors
    /// `InvalidArgument` when there are more or fewer labels than dimensions.
    pub fn try_over(numbers: Numbers, dims: Option<Dims>) -> Result<Self> {
        let is_even = |bytes: usize| bytes.is_multiple_of(BAND_ALIGNMENT_BYTES);
        let starts_even = is_even(numbers.as_ptr().addr());
        let across = numbers.strides().get(1..).unwrap_or_default();
        let alignment_size = match starts_even && across.iter().all(|stride| is_even(*stride)) {
            true => BAND_ALIGNMENT_BYTES,
            false => 1,
        };
        let element = numbers.element();
        let plan = Plan::of_existing(
            numbers.shape(),
            numbers.strides(),
            element.item_bytes(),
            alignment_size,
        );
        Ok(Self {
            item: Item::Number(element),
            plan: Arc::new(plan.with_dims(dims)?),
            offset: 0,
            memory: Box::new(Shared(numbers)),
            access: Access::frozen(),
        })
    }

    /// A grid of one tile over the same memory: of one column for a single dimension, or of one for each index of the second. From then on nothing can write to the storage.
    ///
    /// # Errors
    /// `Unsupported` for elements that Arrow has not as they lie; `InvalidArgument` for other than one or two dimensions, for columns whose elements are not neighbours, for names that do
    /// not fit, and while somebody may write.
    pub fn try_into_grid(self: &Arc<Self>, names: Option<Vec<String>>) -> Result<PartitionGrid> {
        let (element, columns) = self.columns()?;
        self.frozen_for(|| {
            let columns = self.arrays(element, &columns)?;
            PartitionGrid::try_from_columns(columns, names)
        })
    }

    /// How the elements are columns, if they are.
    fn columns(&self) -> Result<(ElementType, Columns)> {
        if self.device() != Device::CPU {
            return Err(Error::new(
                ErrorKind::NotLocal,
                format!(
                    "a storage becomes columns when it is in memory of the host, this one is on {}",
                    self.device()
                ),
            )
            .with_hint("copy it to the host first"));
        }
        let item_bytes = self.item.item_bytes();
        let element = self.item.element().ok_or_else(|| {
            Error::unsupported(format!(
                "columns over the memory of a storage hold int8 to int64, uint8 to uint64 or float16 to float64, got {}",
                self.item
            ))
            .with_hint("copy it: pg.from_numpy(numpy.array(storage)) converts where Arrow has the values in another form")
        })?;
        let columns = |rows, count, across| Columns {
            rows,
            count,
            across,
        };
        match (self.plan.shape(), self.plan.strides()) {
            ([rows], _) => Ok((element, columns(*rows, 1, 0))),
            ([rows, count], [down, across]) if *down == item_bytes || *rows <= 1 => {
                Ok((element, columns(*rows, *count, *across)))
            }
            ([_, _], _) => Err(Error::invalid_argument(
                "a storage becomes columns without copying when the elements along its first dimension are neighbours, those along the second are",
            )
            .with_hint("make it with layout=(1, 0), or copy it: pg.from_numpy(numpy.array(storage, order=\"F\"))")),
            (shape, _) => Err(Error::invalid_argument(format!(
                "a storage of one or two dimensions becomes columns, got {}",
                shape.len()
            ))
            .with_hint("copy it: pg.from_numpy(numpy.array(storage).reshape(rows, columns))")),
        }
    }

    fn arrays(self: &Arc<Self>, element: ElementType, columns: &Columns) -> Result<Vec<ArrayRef>> {
        let column_bytes = columns.rows * element.item_bytes();
        let block = self.block(columns, column_bytes);
        let column = |number: usize| {
            let start = if columns.rows == 0 {
                0
            } else {
                number * columns.across
            };
            let data = ArrayData::builder(element.arrow_type())
                .len(columns.rows)
                .add_buffer(block.slice_with_length(start, column_bytes));
            Ok(make_array(data.build()?))
        };
        (0..columns.count).map(column).collect()
    }

    /// All bytes from the first element to the last.
    fn block(self: &Arc<Self>, columns: &Columns, column_bytes: usize) -> Buffer {
        let num_bytes = match (columns.rows, columns.count) {
            (0, _) | (_, 0) => 0,
            (_, count) => (count - 1) * columns.across + column_bytes,
        };
        match NonNull::new(self.as_ptr()) {
            Some(start) if num_bytes > 0 => {
                // SAFETY: the plan has all these bytes within the memory, which this storage keeps, and which nobody may write any more.
                unsafe { Buffer::from_custom_allocation(start, num_bytes, Arc::clone(self) as _) }
            }
            // Arrow wants an aligned address of nothing, too.
            _ => MutableBuffer::new(0).into(),
        }
    }
}
