//! Strided memory of another library -> Arrow columns.
//!
//! Comes in: an address, what lies there, shape and strides. Goes out: one column for a single dimension, or one for each index of the second: over the same memory where
//! the elements of a column are neighbours, else copied. Never here: who owns the memory (the owner that comes along is kept until the last column is gone).

#![expect(
    unsafe_code,
    reason = "reads memory that another library describes by address and strides"
)]

use std::ptr::NonNull;
use std::sync::Arc;

use arrow::alloc::Allocation;
use arrow::array::{
    ArrayData, ArrayRef, BooleanArray, Date32Array, Int64Array, StringBuilder, make_array,
};
use arrow::buffer::{BooleanBuffer, Buffer, NullBuffer, ScalarBuffer};
use arrow::datatypes::{ArrowNativeType, DataType, TimeUnit};

use crate::device::guard::contain;
use crate::device::node::{broken, refused};
use crate::error::{Error, ErrorKind, Result};
use crate::grid::ElementType;
use crate::memory::default_memory_limit_bytes;

/// More columns than this are no dataframe.
const MAX_COLUMNS: usize = 1 << 20;

/// What lies in strided memory, and how it becomes Arrow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ElementKind {
    /// Numbers in the byte order of this machine.
    Number(ElementType),
    /// Bytes, of which 0 is false; they become bits.
    Bool,
    /// 64-bit counts since 1970; the smallest number is no time and becomes null.
    Timestamp(TimeUnit),
    /// 64-bit counts; the smallest number is no duration and becomes null.
    Duration(TimeUnit),
    /// 64-bit days since 1970, which become 32-bit dates; the smallest number becomes null.
    Days,
    /// Texts of this many code points of 32 bits, filled up with zeros; they become strings.
    Text(usize),
}

impl ElementKind {
    /// The kind of a type string of the array interface (version 3), for instance `<f8` or `<M8[ns]`.
    ///
    /// # Errors
    /// `Unsupported` for what has no Arrow type of the same values, with the remedy.
    pub fn try_from_type_string(text: &str) -> Result<Self> {
        let hint = |hint: &str| unsupported(text).with_hint(hint);
        let mut signs = text.chars();
        let order = signs.next().ok_or_else(|| unsupported(text))?;
        let native = if cfg!(target_endian = "little") {
            '<'
        } else {
            '>'
        };
        // Of texts of any length, which numpy keeps elsewhere, it says no more.
        if text.starts_with("StringDType") {
            return Err(hint(
                "texts of any length are made ones of one: array.astype('U')",
            ));
        }
        if order != '|' && order != native {
            return Err(hint(
                "change the byte order: array.astype(array.dtype.newbyteorder('='))",
            ));
        }
        let kind = signs.next().ok_or_else(|| unsupported(text))?;
        let (size, unit) = match signs.as_str().split_once('[') {
            Some((size, unit)) => (size, unit.trim_end_matches(']')),
            None => (signs.as_str(), ""),
        };
        // Objects have none.
        let size = if size.is_empty() { "0" } else { size };
        let size = size.parse::<usize>().map_err(|_| unsupported(text))?;
        match (kind, size) {
            ('i' | 'u' | 'f', _) => ElementType::of_kind(kind, size)
                .map(Self::Number)
                .ok_or_else(|| hint("convert it first: array.astype('float64')")),
            ('b', 1) => Ok(Self::Bool),
            ('M', 8) if unit == "D" => Ok(Self::Days),
            ('M', 8) => time_unit(unit).map(Self::Timestamp).ok_or_else(|| {
                hint("Arrow has s, ms, us, ns and days: array.astype('datetime64[s]')")
            }),
            ('m', 8) => time_unit(unit)
                .map(Self::Duration)
                .ok_or_else(|| hint("Arrow has s, ms, us and ns: array.astype('timedelta64[s]')")),
            ('U', _) => Ok(Self::Text(size)),
            ('O', _) => Err(hint(
                "objects have no one type: make columns of them with pyarrow.array, or array.astype(...)",
            )),
            ('c', _) => Err(hint(
                "pass array.real and array.imag as columns of their own",
            )),
            ('S' | 'T', _) => Err(hint("texts are unicode: array.astype('U')")),
            _ => Err(unsupported(text)),
        }
    }

    /// The bytes of one element; `None` when they do not fit this machine.
    fn item_bytes(self) -> Option<usize> {
        match self {
            Self::Number(element) => Some(element.item_bytes()),
            Self::Bool => Some(1),
            Self::Timestamp(_) | Self::Duration(_) | Self::Days => Some(8),
            Self::Text(num_chars) => num_chars.checked_mul(4),
        }
    }
}

fn unsupported(text: &str) -> Error {
    Error::unsupported(format!(
        "columns are made of booleans, integers, floats up to float64, datetime64, timedelta64 and unicode texts, got an array of '{text}'"
    ))
}

fn time_unit(unit: &str) -> Option<TimeUnit> {
    match unit {
        "s" => Some(TimeUnit::Second),
        "ms" => Some(TimeUnit::Millisecond),
        "us" => Some(TimeUnit::Microsecond),
        "ns" => Some(TimeUnit::Nanosecond),
        _ => None,
    }
}

/// Memory of another library, in one or two dimensions.
#[derive(Debug, Clone)]
pub struct Strided {
    /// Where the element with all indices 0 is. May be null when there are no elements.
    pub address: *const u8,
    /// What the elements are.
    pub kind: ElementKind,
    /// The number of elements along each dimension.
    pub shape: Vec<usize>,
    /// Bytes from one element to the next along each dimension.
    pub strides: Vec<isize>,
}

/// The columns of strided memory; those whose elements are neighbours and aligned share it and keep `owner` alive, the others are copied.
///
/// # Errors
/// `InvalidArgument` for other than one or two dimensions; `InvalidData` when the description contradicts itself, a text is no unicode or a day is past 32 bits;
/// `ResourcesExhausted` when a copy or the number of columns is too large.
///
/// # Safety
/// All bytes from the first to the last element that `memory` describes must be readable and stay unchanged until `owner` is dropped.
pub unsafe fn import_strided(
    memory: &Strided,
    owner: Arc<dyn Allocation>,
) -> Result<Vec<ArrayRef>> {
    contain(ErrorKind::InvalidData, "importing an array", || {
        let frame = Frame::try_new(memory)?;
        let block = frame.shared(owner);
        if block.is_none() {
            frame.check_copy()?;
        }
        (0..frame.columns)
            .map(|column| frame.column(column, block.as_ref()))
            .collect()
    })
}

/// A checked description: every element lies within the address space.
struct Frame {
    address: *const u8,
    kind: ElementKind,
    item_bytes: usize,
    rows: usize,
    columns: usize,
    row_stride: isize,
    column_stride: isize,
}

impl Frame {
    fn try_new(memory: &Strided) -> Result<Self> {
        let too_large = || broken("the elements of an array must fit the address space");
        let (rows, columns, row_stride, column_stride) =
            match (memory.shape.as_slice(), memory.strides.as_slice()) {
                ([rows], [stride]) => (*rows, 1, *stride, 0),
                ([rows, columns], [down, across]) => (*rows, *columns, *down, *across),
                (shape, strides) if shape.len() != strides.len() => {
                    return Err(broken(format!(
                        "{} lengths and {} strides",
                        shape.len(),
                        strides.len()
                    )));
                }
                (shape, _) => return Err(wrong_dimensions(shape.len() as u64)),
            };
        if columns > MAX_COLUMNS {
            return Err(Error::new(
                ErrorKind::ResourcesExhausted,
                format!("an array may become at most {MAX_COLUMNS} columns, got {columns}"),
            ));
        }
        let item_bytes = memory.kind.item_bytes().ok_or_else(too_large)?;
        let frame = Self {
            address: memory.address,
            kind: memory.kind,
            item_bytes,
            rows,
            columns,
            row_stride,
            column_stride,
        };
        if rows == 0 || columns == 0 {
            return Ok(frame);
        }
        if memory.address.is_null() {
            return Err(broken(format!(
                "an array of {rows} x {columns} elements has no data: its address is null"
            )));
        }
        let reach = |length: usize, stride: isize| (length - 1).checked_mul(stride.unsigned_abs());
        let span = reach(rows, row_stride)
            .and_then(|down| {
                down.checked_add(reach(columns, column_stride)?)?
                    .checked_add(item_bytes)
            })
            .filter(|span| isize::try_from(*span).is_ok());
        let copied = rows
            .checked_mul(item_bytes)
            .filter(|bytes| isize::try_from(*bytes).is_ok());
        match (span, copied) {
            (Some(_), Some(_)) => Ok(frame),
            _ => Err(too_large()),
        }
    }

    /// An array may say an element many times over (stride 0) and so be larger than all memory.
    fn check_copy(&self) -> Result<()> {
        let elements = self.rows.checked_mul(self.columns);
        let bytes = elements.and_then(|elements| elements.checked_mul(self.item_bytes));
        let limit = default_memory_limit_bytes();
        match bytes {
            Some(bytes) if bytes <= limit => Ok(()),
            _ => Err(Error::new(
                ErrorKind::ResourcesExhausted,
                format!(
                    "a copy of {} x {} elements needs more than the {limit} bytes of memory that may be used",
                    self.rows, self.columns
                ),
            )),
        }
    }

    /// One buffer over all columns, when each is contiguous, aligned, and starts behind the one before.
    fn shared(&self, owner: Arc<dyn Allocation>) -> Option<Buffer> {
        let packed = self.rows <= 1 || isize::try_from(self.item_bytes) == Ok(self.row_stride);
        let aligned = match self.kind {
            ElementKind::Number(element) => element.item_bytes(),
            ElementKind::Timestamp(_) | ElementKind::Duration(_) => 8,
            ElementKind::Bool | ElementKind::Days | ElementKind::Text(_) => return None,
        };
        let across = usize::try_from(self.column_stride).ok()?;
        let even = self.address.addr().is_multiple_of(aligned) && across.is_multiple_of(aligned);
        if !packed || !even || self.rows == 0 || self.columns == 0 {
            return None;
        }
        let num_bytes = (self.columns - 1) * across + self.rows * self.item_bytes;
        let pointer = NonNull::new(self.address.cast_mut())?;
        // SAFETY: these are the bytes from the first to the last element (strides are not negative), which the caller of `import_strided` vouches for until `owner` is dropped.
        Some(unsafe { Buffer::from_custom_allocation(pointer, num_bytes, owner) })
    }

    fn column(&self, number: usize, block: Option<&Buffer>) -> Result<ArrayRef> {
        match self.kind {
            ElementKind::Number(element) => match element.item_bytes() {
                1 => self.primitive::<u8>(number, block, element.arrow_type()),
                2 => self.primitive::<u16>(number, block, element.arrow_type()),
                4 => self.primitive::<u32>(number, block, element.arrow_type()),
                _ => self.primitive::<u64>(number, block, element.arrow_type()),
            },
            ElementKind::Timestamp(unit) => {
                self.times(number, block, DataType::Timestamp(unit, None))
            }
            ElementKind::Duration(unit) => self.times(number, block, DataType::Duration(unit)),
            ElementKind::Bool => {
                let bytes = self.gathered::<u8>(number, 1)?;
                let bits = BooleanBuffer::from_iter(bytes.iter().map(|byte| *byte != 0));
                Ok(Arc::new(BooleanArray::new(bits, None)))
            }
            ElementKind::Days => self.dates(number),
            ElementKind::Text(num_chars) => self.texts(number, num_chars),
        }
    }

    fn primitive<T: ArrowNativeType>(
        &self,
        number: usize,
        block: Option<&Buffer>,
        data_type: DataType,
    ) -> Result<ArrayRef> {
        let values = self.values::<T>(number, block)?;
        let data = ArrayData::builder(data_type)
            .len(self.rows)
            .add_buffer(values);
        Ok(make_array(data.build().map_err(refused)?))
    }

    fn times(
        &self,
        number: usize,
        block: Option<&Buffer>,
        data_type: DataType,
    ) -> Result<ArrayRef> {
        let values = self.values::<i64>(number, block)?;
        let nulls = no_times(&ScalarBuffer::new(values.clone(), 0, self.rows));
        let data = ArrayData::builder(data_type)
            .len(self.rows)
            .add_buffer(values)
            .nulls(nulls);
        Ok(make_array(data.build().map_err(refused)?))
    }

    fn dates(&self, number: usize) -> Result<ArrayRef> {
        let days = ScalarBuffer::<i64>::from(self.gathered::<i64>(number, 1)?);
        let days = Int64Array::new(days.clone(), no_times(&days));
        let dates: Result<Date32Array> = days
            .iter()
            .enumerate()
            .map(|(row, day)| match day.map(i32::try_from) {
                None => Ok(None),
                Some(Ok(day)) => Ok(Some(day)),
                Some(Err(_)) => Err(broken(format!(
                    "the date of row {row} must be within 32-bit days of 1970, got {}",
                    days.value(row)
                ))),
            })
            .collect();
        Ok(Arc::new(dates?))
    }

    fn texts(&self, number: usize, num_chars: usize) -> Result<ArrayRef> {
        let points = self.gathered::<u32>(number, num_chars)?;
        let mut texts = StringBuilder::with_capacity(self.rows, 0);
        let mut text = String::new();
        for row in 0..self.rows {
            let points = points
                .get(row * num_chars..(row + 1) * num_chars)
                .unwrap_or_default();
            let length = points
                .iter()
                .rposition(|point| *point != 0)
                .map_or(0, |last| last + 1);
            text.clear();
            for point in points.iter().take(length) {
                let sign = char::from_u32(*point);
                text.push(sign.ok_or_else(|| {
                    broken(format!(
                        "the text of row {row} has the code point {point:#x}, which is no unicode"
                    ))
                })?);
            }
            texts.append_value(&text);
        }
        Ok(Arc::new(texts.finish()))
    }

    /// The values of a column: a part of the shared block, or a copy.
    fn values<T: ArrowNativeType>(&self, number: usize, block: Option<&Buffer>) -> Result<Buffer> {
        match block {
            Some(block) => {
                let start = number * self.column_stride.unsigned_abs();
                Ok(block.slice_with_length(start, self.rows * self.item_bytes))
            }
            None => Ok(Buffer::from_vec(self.gathered::<T>(number, 1)?)),
        }
    }

    /// A copy of the values of a column, each made of `per_element` neighbours.
    fn gathered<T: ArrowNativeType>(&self, number: usize, per_element: usize) -> Result<Vec<T>> {
        let mut values: Vec<T> = Vec::new();
        let count = self.rows * per_element;
        values.try_reserve_exact(count).map_err(|error| {
            Error::new(
                ErrorKind::ResourcesExhausted,
                format!("a copy of {count} values does not fit in memory"),
            )
            .with_source(error)
        })?;
        let across = isize::try_from(number)
            .unwrap_or(0)
            .wrapping_mul(self.column_stride);
        for row in 0..self.rows {
            let down = isize::try_from(row)
                .unwrap_or(0)
                .wrapping_mul(self.row_stride);
            let start = self
                .address
                .wrapping_offset(across.wrapping_add(down))
                .cast::<T>();
            for part in 0..per_element {
                // SAFETY: an element within the checked shape, whose bytes the caller of `import_strided` vouches for; any bits are a value of `T`.
                values.push(unsafe { start.wrapping_add(part).read_unaligned() });
            }
        }
        Ok(values)
    }
}

/// The smallest number stands for "not a time".
fn no_times(values: &ScalarBuffer<i64>) -> Option<NullBuffer> {
    let nulls = NullBuffer::from_iter(values.iter().map(|value| *value != i64::MIN));
    (nulls.null_count() > 0).then_some(nulls)
}

pub(super) fn wrong_dimensions(got: u64) -> Error {
    Error::invalid_argument(format!(
        "an array must have one or two dimensions to become columns, got {got}"
    ))
    .with_hint(match got {
        0 => "reshape it: array.reshape(1)",
        _ => "reshape it: array.reshape(len(array), -1)",
    })
}
