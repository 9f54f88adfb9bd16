//! Arrays whose values lie in their rows, without those below nulls.
//!
//! Comes in: an array and which of its rows are shown. Goes out: the same with nothing where rows are not shown, or that there is nothing to take out. Never here: arrays that lead elsewhere.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, ArrayData, ArrayRef, BooleanArray, GenericByteArray, make_array};
use arrow::buffer::{Buffer, MutableBuffer, NullBuffer};
use arrow::datatypes::{ByteArrayType, DataType};

use super::{closed_up, hidden, hides, led_to};

/// Bytes of each value of a type, or of each key.
fn width(data_type: &DataType) -> Option<usize> {
    match data_type {
        DataType::FixedSizeBinary(size) => usize::try_from(*size).ok(),
        DataType::Dictionary(key, _) => key.primitive_width(),
        other => other.primitive_width(),
    }
}

/// Numbers, times, bytes of a fixed length, and the keys of dictionaries.
pub(super) fn of_fixed_width(array: &ArrayRef, shown: &NullBuffer) -> Option<ArrayRef> {
    let width = width(array.data_type())?;
    let data = array.to_data();
    let values = data.buffers().first()?.as_slice();
    let values = values.get(data.offset() * width..(data.offset() + data.len()) * width)?;
    let gap_of = |rows: Range<usize>| rows.start * width..rows.end * width;
    let is_blank = |bytes: &[u8]| bytes.iter().all(|byte| *byte == 0);
    if hidden(shown).all(|rows| values.get(gap_of(rows)).is_some_and(is_blank)) {
        return None;
    }
    let mut own = MutableBuffer::with_capacity(values.len());
    own.extend_from_slice(values);
    for rows in hidden(shown) {
        own.as_slice_mut().get_mut(gap_of(rows))?.fill(0);
    }
    let own = ArrayData::builder(array.data_type().clone())
        .len(array.len())
        .nulls(array.nulls().cloned())
        .add_buffer(own.into())
        .child_data(data.child_data().to_vec());
    Some(make_array(own.build().ok()?))
}

pub(super) fn of_booleans(array: &BooleanArray, shown: &NullBuffer) -> Option<ArrayRef> {
    let own = array.values() & shown.inner();
    let has_more = own != *array.values();
    has_more.then(|| Arc::new(BooleanArray::new(own, array.nulls().cloned())) as ArrayRef)
}

/// Texts and bytes that lie one behind the other.
pub(super) fn of_bytes<T: ByteArrayType>(
    array: &GenericByteArray<T>,
    shown: &NullBuffer,
) -> Option<ArrayRef> {
    let offsets = array.offsets();
    if !hides(offsets, shown) {
        return None;
    }
    let mut values = Vec::new();
    for range in led_to(offsets, shown)? {
        values.extend_from_slice(array.values().get(range)?);
    }
    let offsets = closed_up(offsets, shown);
    let nulls = array.nulls().cloned();
    let own = GenericByteArray::<T>::try_new(offsets, Buffer::from_vec(values), nulls).ok()?;
    Some(Arc::new(own))
}
