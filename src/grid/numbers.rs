//! Columns of numbers as an n-d array over the same memory.
//!
//! Comes in: columns of numbers without nulls. Goes out: [`Numbers`]: where the first element is, what the elements are, shape and strides, and the buffers that keep
//! the memory alive. Never here: copies of values (`gather.rs`), except on request; protocols that hand the array out; reading through addresses.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch};
use arrow::buffer::{Buffer, MutableBuffer};
use arrow::datatypes::Field;

use crate::error::{Error, Result};
use crate::grid::dense::dense_stride;
use crate::grid::element::ElementType;
use crate::grid::gather::{FillValue, Gather, Order, filled};

/// A read-only view of numbers of one type, in one or two dimensions. Cheap to clone; keeps its memory alive.
#[derive(Debug, Clone)]
pub struct Numbers {
    /// The first begins with the first element. One buffer holds everything, or there is one for each column, at even distances: then only the bytes of elements
    /// belong to the buffers, what lies between may not.
    buffers: Vec<Buffer>,
    element: ElementType,
    shape: Vec<usize>,
    /// Bytes from one element to the next along each dimension.
    strides: Vec<usize>,
}

impl Numbers {
    /// A column in one dimension, without copying; only when it has nulls and `fill` stands for them, it is copied.
    ///
    /// # Errors
    /// `Unsupported` when the column is no plain number; `InvalidData` when it has nulls and nothing stands for them; `InvalidArgument` when its type does not hold `fill`
    /// exactly, whether there are nulls or not.
    pub fn try_from_column(
        field: &Field,
        column: &ArrayRef,
        fill: Option<FillValue>,
    ) -> Result<Self> {
        let element = element_of(field)?;
        let column = match fill {
            Some(fill) => filled(field, column, fill)?,
            None => Arc::clone(column),
        };
        refuse_nulls(field, [column.null_count()])?;
        Ok(Self::from_bytes(value_bytes(&column, element), element))
    }

    /// The elements of a buffer that holds nothing else, in one dimension.
    #[must_use]
    pub fn from_bytes(buffer: Buffer, element: ElementType) -> Self {
        Self {
            shape: vec![buffer.len() / element.item_bytes()],
            buffers: vec![buffer],
            element,
            strides: vec![element.item_bytes()],
        }
    }

    /// All columns of a batch in two dimensions, rows and columns, without copying; each column is contiguous. The batch must have one column, or columns that lie as
    /// [`crate::grid::dense`] puts them. Only when one has nulls and `fill` stands for them, all are copied.
    ///
    /// # Errors
    /// `Unsupported` when a column is no plain number, or when types or places of the columns do not make one array; `InvalidData` when one has nulls and nothing stands
    /// for them; `InvalidArgument` when the type does not hold `fill` exactly.
    pub fn try_from_batch(batch: &RecordBatch, fill: Option<FillValue>) -> Result<Self> {
        let schema = batch.schema_ref();
        let fields = schema.fields().iter();
        let elements: Vec<ElementType> = fields
            .map(|field| element_of(field))
            .collect::<Result<_>>()?;
        let first = elements.first().copied();
        let element = first.ok_or_else(|| not_one_array("a batch without columns".to_owned()))?;
        if let Some(other) = elements.iter().find(|other| **other != element) {
            return Err(not_one_array(format!("columns of {element} and {other}")));
        }
        let item_bytes = element.item_bytes();
        let column_stride = match batch.columns() {
            [single] => Some(single.len() * item_bytes),
            columns => dense_stride(columns).filter(|stride| stride % item_bytes == 0),
        };
        let column_stride = column_stride.ok_or_else(|| {
            not_one_array("columns at uneven distances or in several allocations".to_owned())
        })?;
        let has_nulls = batch.columns().iter().any(|column| column.null_count() > 0);
        if has_nulls || fill.is_some() {
            let gather = Gather {
                fill,
                ..Gather::default()
            };
            gather.check(std::slice::from_ref(batch), element)?;
            if has_nulls {
                return Self::gathered(std::slice::from_ref(batch), &gather);
            }
        }
        let columns = batch.columns().iter();
        Ok(Self {
            buffers: columns.map(|column| value_bytes(column, element)).collect(),
            element,
            shape: vec![batch.num_rows(), batch.num_columns()],
            strides: vec![item_bytes, column_stride],
        })
    }

    /// Elements of any number of dimensions that lie in one buffer without gaps, the last dimension fastest.
    ///
    /// # Errors
    /// `InvalidArgument` unless the buffer has exactly the bytes of the elements.
    pub fn try_in_c_order(buffer: Buffer, element: ElementType, shape: Vec<usize>) -> Result<Self> {
        let count = shape.iter().try_fold(element.item_bytes(), |product, len| {
            product.checked_mul(*len)
        });
        if count != Some(buffer.len()) {
            return Err(Error::invalid_argument(format!(
                "the buffer must have the bytes of {shape:?} elements of {element}, got {}",
                buffer.len()
            )));
        }
        let mut strides = vec![0; shape.len()];
        let mut next = element.item_bytes();
        for (stride, len) in strides.iter_mut().zip(&shape).rev() {
            *stride = next;
            next *= (*len).max(1);
        }
        Ok(Self {
            buffers: vec![buffer],
            element,
            shape,
            strides,
        })
    }

    /// An array of one column in one dimension, over the same memory; any other as it is.
    #[must_use]
    pub fn flattened(mut self) -> Self {
        if let ([rows, 1], [stride, _]) = (self.shape.as_slice(), self.strides.as_slice()) {
            (self.shape, self.strides) = (vec![*rows], vec![*stride]);
        }
        self
    }

    /// Elements that lie in one buffer without gaps, the last dimension (`Rows`) or the first one fastest.
    pub(super) fn packed(
        buffer: Buffer,
        element: ElementType,
        shape: [usize; 2],
        order: Order,
    ) -> Self {
        let item_bytes = element.item_bytes();
        let [rows, columns] = shape;
        let strides = match order {
            Order::Rows => vec![columns * item_bytes, item_bytes],
            Order::Columns => vec![item_bytes, rows * item_bytes],
        };
        Self {
            buffers: vec![buffer],
            element,
            shape: shape.to_vec(),
            strides,
        }
    }

    /// What the elements are.
    #[must_use]
    pub fn element(&self) -> ElementType {
        self.element
    }

    /// The number of elements along each dimension.
    #[must_use]
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Bytes from one element to the next along each dimension.
    #[must_use]
    pub fn strides(&self) -> &[usize] {
        &self.strides
    }

    /// The number of elements.
    #[must_use]
    pub fn num_elements(&self) -> usize {
        self.shape.iter().product()
    }

    /// The bytes of the elements, without what lies between them.
    #[must_use]
    pub fn num_bytes(&self) -> usize {
        self.num_elements() * self.element.item_bytes()
    }

    /// Where the first element is. Valid for reading while this value or a clone of it lives, the elements at their strides and nothing else.
    #[must_use]
    pub fn as_ptr(&self) -> *const u8 {
        self.buffers
            .first()
            .map_or(std::ptr::null(), |buffer| buffer.as_ptr())
    }

    /// The bytes of all elements, where they lie in one buffer without gaps; `None` otherwise.
    #[must_use]
    pub fn bytes(&self) -> Option<&[u8]> {
        match self.buffers.as_slice() {
            [buffer] => buffer.get(..self.num_bytes()),
            _ => None,
        }
    }

    /// The bytes from the first element to the last, where one buffer holds them; `None` where each column has its own.
    #[must_use]
    pub fn span(&self) -> Option<&[u8]> {
        match self.buffers.as_slice() {
            [buffer] => Some(buffer.as_slice()),
            _ => None,
        }
    }

    /// Whether the elements lie without gaps, those of the last dimension next to each other. Dimensions of one element do not count.
    #[must_use]
    pub fn is_c_contiguous(&self) -> bool {
        let item_bytes = self.element.item_bytes();
        is_packed(&self.shape, &self.strides, item_bytes, Order::Rows)
    }

    /// Whether the elements lie without gaps, those of the first dimension next to each other. Dimensions of one element do not count.
    #[must_use]
    pub fn is_f_contiguous(&self) -> bool {
        let item_bytes = self.element.item_bytes();
        is_packed(&self.shape, &self.strides, item_bytes, Order::Columns)
    }

    /// The same numbers in memory of their own, without gaps; the order of the elements stays.
    #[must_use]
    pub fn copied(&self) -> Self {
        let item_bytes = self.element.item_bytes();
        let num_bytes = self.num_bytes();
        let mut block = MutableBuffer::new(num_bytes);
        if self.is_c_contiguous() || self.is_f_contiguous() {
            for buffer in &self.buffers {
                let wanted = buffer.len().min(num_bytes - block.len());
                block.extend_from_slice(buffer.get(..wanted).unwrap_or_default());
            }
            return Self {
                buffers: vec![block.into()],
                ..self.clone()
            };
        }
        for buffer in &self.buffers {
            block.extend_from_slice(buffer.as_slice());
        }
        let rows = self.shape.first().copied().unwrap_or(0);
        Self {
            buffers: vec![block.into()],
            strides: vec![item_bytes, rows * item_bytes],
            ..self.clone()
        }
    }
}

/// Whether elements at these strides, in bytes, lie without gaps: those of the last dimension (`Rows`) or of the first one next to each other. Dimensions of one element do not
/// count.
#[must_use]
pub fn is_packed(shape: &[usize], strides: &[usize], item_bytes: usize, order: Order) -> bool {
    if shape.contains(&0) {
        return true;
    }
    let mut expected = item_bytes;
    let mut next = |(length, stride): (&usize, &usize)| {
        let fits = *length == 1 || *stride == expected;
        expected *= length;
        fits
    };
    let mut dimensions = shape.iter().zip(strides);
    match order {
        Order::Rows => dimensions.rev().all(&mut next),
        Order::Columns => dimensions.all(&mut next),
    }
}

/// The element type of a column, or the refusal that names it.
pub(super) fn element_of(field: &Field) -> Result<ElementType> {
    ElementType::try_from_arrow(field.data_type()).map_err(|error| error.with_column(field.name()))
}

/// Refuses a column with nulls; the counts are those of its parts.
pub(super) fn refuse_nulls(field: &Field, counts: impl IntoIterator<Item = usize>) -> Result<()> {
    match counts.into_iter().sum::<usize>() {
        0 => Ok(()),
        count => Err(
            Error::invalid_data(format!("an array has no nulls, the column has {count}"))
                .with_column(field.name())
                .with_hint("give a value for them with fill_null=, or filter them out in SQL"),
        ),
    }
}

fn not_one_array(got: String) -> Error {
    Error::unsupported(format!(
        "an array over the memory of a tile wants columns of one type at one distance in one allocation, got {got}"
    ))
    .with_hint("load the columns with dense=, or copy them with to_numpy()")
}

/// The bytes of the elements alone, also when the array is a slice of a longer one.
pub(super) fn value_bytes(values: &ArrayRef, element: ElementType) -> Buffer {
    let data = Arc::clone(values).to_data();
    let width = element.item_bytes();
    match data.buffers().first() {
        Some(buffer) => buffer.slice_with_length(data.offset() * width, data.len() * width),
        None => Buffer::from(Vec::<u8>::new()),
    }
}
