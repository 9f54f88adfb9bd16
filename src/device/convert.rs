//! One C array and its type -> one typed array.
//!
//! Comes in: a [`Node`] and the data type from its schema. Goes out: the array, over the producer's buffers. Never here: raw pointers (`node.rs`), copying of
//! values.
//!
//! The rule that this file keeps (C Data interface, "ArrowArray.offset"): offset and length of a parent apply to its own buffers and, for struct, fixed-size
//! list and sparse union, to the children, which come whole. So children are converted whole and the typed child is sliced; where bytes are copied, only those are asked for that the rows need.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayData, ArrayRef, ArrowPrimitiveType, AsArray, DictionaryArray, FixedSizeListArray,
    GenericListArray, GenericListViewArray, NullArray, OffsetSizeTrait, StructArray, UnionArray,
    make_array, new_empty_array,
};
use arrow::buffer::{Buffer, OffsetBuffer};
use arrow::datatypes::{
    ArrowDictionaryKeyType, DataType, FieldRef, Fields, Int8Type, Int16Type, Int32Type, Int64Type,
    UInt8Type, UInt16Type, UInt32Type, UInt64Type, UnionFields, UnionMode,
};

use crate::device::node::{Node, assemble, broken, check_part, refused};
use crate::error::{Error, Result};

/// The array of `data_type` that `node` describes.
pub(super) fn convert(node: &Node<'_>, data_type: &DataType) -> Result<ArrayRef> {
    // Nothing is read of an array of length 0: producers may leave out its buffers, or give an offset that lies past them.
    if node.len() == 0 {
        return empty(node, data_type);
    }
    match data_type {
        DataType::Null => Ok(Arc::new(NullArray::new(node.len()))),
        DataType::Struct(fields) => convert_struct(node, fields),
        DataType::List(field) => convert_list::<i32>(node, field),
        DataType::LargeList(field) => convert_list::<i64>(node, field),
        DataType::ListView(field) => convert_list_view::<i32>(node, field),
        DataType::LargeListView(field) => convert_list_view::<i64>(node, field),
        DataType::FixedSizeList(field, size) => convert_fixed_size_list(node, field, *size),
        DataType::Map(entries, _) => convert_map(node, data_type, entries),
        DataType::Union(fields, mode) => convert_union(node, fields, *mode),
        DataType::RunEndEncoded(run_ends, values) => {
            convert_runs(node, data_type, [run_ends, values])
        }
        DataType::Dictionary(key, value) => convert_dictionary(node, key, value),
        _ => convert_leaf(node, data_type),
    }
}

/// An array of no values. Categories are kept, where the producer gives them.
fn empty(node: &Node<'_>, data_type: &DataType) -> Result<ArrayRef> {
    match data_type {
        DataType::Dictionary(key, value) => match node.dictionary() {
            Ok(dictionary) => keyed(&new_empty_array(key), convert(&dictionary, value)?, key),
            Err(_) => Ok(new_empty_array(data_type)),
        },
        DataType::Struct(fields) if node.expect(1, fields.len()).is_ok() => {
            let children = empty_fields(node, fields)?;
            let array = StructArray::try_new_with_length(fields.clone(), children, None, 0);
            Ok(Arc::new(array.map_err(refused)?))
        }
        _ => Ok(new_empty_array(data_type)),
    }
}

/// The children of a struct without rows, each as [`empty`].
pub(super) fn empty_fields(node: &Node<'_>, fields: &Fields) -> Result<Vec<ArrayRef>> {
    let children = fields.iter().enumerate().map(|(index, field)| {
        let child = match node.child(index) {
            Ok(child) => empty(&child, field.data_type()),
            Err(_) => Ok(new_empty_array(field.data_type())),
        };
        child.map_err(|error| error.with_column(field.name()))
    });
    children.collect()
}

/// Child number `index`, whole.
fn whole_child(node: &Node<'_>, index: usize, field: &FieldRef) -> Result<ArrayRef> {
    convert(&node.child(index)?, field.data_type())
}

/// `len` values from `start` on of child number `index`.
fn child_part(
    node: &Node<'_>,
    index: usize,
    field: &FieldRef,
    [start, len]: [usize; 2],
) -> Result<ArrayRef> {
    let child = node.child(index)?;
    if node.is_copied() {
        return convert(&child.part(start, len)?, field.data_type());
    }
    let child = convert(&child, field.data_type())?;
    check_part(start, len, child.len())?;
    Ok(child.slice(start, len))
}

/// The children of a struct, each cut to the rows of its parent.
pub(super) fn convert_fields(node: &Node<'_>, fields: &Fields) -> Result<Vec<ArrayRef>> {
    node.expect(1, fields.len())?;
    let children = fields.iter().enumerate().map(|(index, field)| {
        child_part(node, index, field, [node.offset(), node.len()])
            .map_err(|error| error.with_column(field.name()))
    });
    children.collect()
}

fn convert_struct(node: &Node<'_>, fields: &Fields) -> Result<ArrayRef> {
    let children = convert_fields(node, fields)?;
    let nulls = node.nulls()?;
    let array = StructArray::try_new_with_length(fields.clone(), children, nulls, node.len());
    Ok(Arc::new(array.map_err(refused)?))
}

fn convert_list<O: OffsetSizeTrait>(node: &Node<'_>, field: &FieldRef) -> Result<ArrayRef> {
    node.expect(2, 1)?;
    let (values, offsets) = listed::<O>(node, field)?;
    let array = GenericListArray::try_new(Arc::clone(field), offsets, values, node.nulls()?);
    Ok(Arc::new(array.map_err(refused)?))
}

/// The values of lists, and where those of each begin.
fn listed<O: OffsetSizeTrait>(
    node: &Node<'_>,
    field: &FieldRef,
) -> Result<(ArrayRef, OffsetBuffer<O>)> {
    let (offsets, values) = offsets::<O>(node)?;
    let values = match node.is_copied() {
        true => child_part(node, 0, field, [values.start, values.len()])?,
        false => whole_child(node, 0, field)?,
    };
    Ok((values, offsets))
}

fn convert_list_view<O: OffsetSizeTrait>(node: &Node<'_>, field: &FieldRef) -> Result<ArrayRef> {
    node.expect(3, 1)?;
    let values = whole_child(node, 0, field)?;
    let offsets = node.values::<O>(1, node.offset(), node.len())?;
    let sizes = node.values::<O>(2, node.offset(), node.len())?;
    let array =
        GenericListViewArray::try_new(Arc::clone(field), offsets, sizes, values, node.nulls()?);
    Ok(Arc::new(array.map_err(refused)?))
}

fn convert_fixed_size_list(node: &Node<'_>, field: &FieldRef, size: i32) -> Result<ArrayRef> {
    node.expect(1, 1)?;
    let bounds = usize::try_from(size).ok().and_then(|size| {
        Some((
            node.offset().checked_mul(size)?,
            node.len().checked_mul(size)?,
        ))
    });
    let (start, len) =
        bounds.ok_or_else(|| broken(format!("a fixed-size list of {size} values does not fit")))?;
    let values = child_part(node, 0, field, [start, len])?;
    let field = Arc::clone(field);
    let array =
        FixedSizeListArray::try_new_with_length(field, size, values, node.nulls()?, node.len());
    Ok(Arc::new(array.map_err(refused)?))
}

/// Through `ArrayData`, because `MapArray::try_new` refuses entries that are declared nullable and hold no null, as some producers declare them.
fn convert_map(node: &Node<'_>, data_type: &DataType, entries: &FieldRef) -> Result<ArrayRef> {
    node.expect(2, 1)?;
    let (children, offsets) = listed::<i32>(node, entries)?;
    if children.null_count() > 0 {
        return Err(broken("the entries of a map cannot be null"));
    }
    let parts = ArrayData::builder(data_type.clone())
        .len(node.len())
        .nulls(node.nulls()?)
        .add_buffer(offsets.into_inner().into_inner())
        .add_child_data(children.to_data());
    assemble(parts)
}

fn convert_union(node: &Node<'_>, fields: &UnionFields, mode: UnionMode) -> Result<ArrayRef> {
    let dense = mode == UnionMode::Dense;
    node.expect(if dense { 2 } else { 1 }, fields.len())?;
    let type_ids = node.values::<i8>(0, node.offset(), node.len())?;
    let offsets = match dense {
        true => Some(node.values::<i32>(1, node.offset(), node.len())?),
        false => None,
    };
    let rows = [node.offset(), node.len()];
    let children = fields.iter().map(|(_, field)| field).enumerate();
    let children = children.map(|(index, field)| match dense {
        true => whole_child(node, index, field),
        false => child_part(node, index, field, rows),
    });
    let children: Result<Vec<ArrayRef>> = children.collect();
    let array = UnionArray::try_new(fields.clone(), type_ids, offsets, children?);
    Ok(Arc::new(array.map_err(refused)?))
}

/// Offset and length of the parent count values, not runs. `build` checks that the runs rise and reach the end.
fn convert_runs(node: &Node<'_>, data_type: &DataType, fields: [&FieldRef; 2]) -> Result<ArrayRef> {
    node.expect(0, 2)?;
    let [run_ends, values] = fields;
    let parts = ArrayData::builder(data_type.clone())
        .len(node.len())
        .offset(node.offset())
        .add_child_data(whole_child(node, 0, run_ends)?.to_data())
        .add_child_data(whole_child(node, 1, values)?.to_data());
    Ok(make_array(parts.build().map_err(refused)?))
}

fn convert_dictionary(node: &Node<'_>, key: &DataType, value: &DataType) -> Result<ArrayRef> {
    let keys = convert_leaf(node, key)?;
    let values = convert(&node.dictionary()?, value)?;
    keyed(&keys, values, key)
}

fn keyed(keys: &ArrayRef, values: ArrayRef, key: &DataType) -> Result<ArrayRef> {
    match key {
        DataType::Int8 => join_dictionary::<Int8Type>(keys, values),
        DataType::Int16 => join_dictionary::<Int16Type>(keys, values),
        DataType::Int32 => join_dictionary::<Int32Type>(keys, values),
        DataType::Int64 => join_dictionary::<Int64Type>(keys, values),
        DataType::UInt8 => join_dictionary::<UInt8Type>(keys, values),
        DataType::UInt16 => join_dictionary::<UInt16Type>(keys, values),
        DataType::UInt32 => join_dictionary::<UInt32Type>(keys, values),
        DataType::UInt64 => join_dictionary::<UInt64Type>(keys, values),
        other => Err(broken(format!(
            "the keys of a dictionary must be integers, got {other}"
        ))),
    }
}

/// Checks that every key has its value.
fn join_dictionary<K>(keys: &ArrayRef, values: ArrayRef) -> Result<ArrayRef>
where
    K: ArrowDictionaryKeyType + ArrowPrimitiveType,
{
    let array = DictionaryArray::<K>::try_new(keys.as_primitive::<K>().clone(), values);
    Ok(Arc::new(array.map_err(refused)?))
}

/// An array without children: numbers, booleans, strings, bytes.
fn convert_leaf(node: &Node<'_>, data_type: &DataType) -> Result<ArrayRef> {
    let parts = ArrayData::builder(data_type.clone()).len(node.len());
    let parts = match data_type {
        DataType::Utf8 | DataType::Binary => parts.buffers(text_buffers::<i32>(node)?),
        DataType::LargeUtf8 | DataType::LargeBinary => parts.buffers(text_buffers::<i64>(node)?),
        DataType::Utf8View | DataType::BinaryView => {
            let left_out = node.left_out(node.offset());
            let buffers = view_buffers(node, left_out)?;
            parts.offset(node.offset() - left_out).buffers(buffers)
        }
        _ => {
            node.expect(2, 0)?;
            let left_out = node.left_out(match data_type {
                // Bits are cut where a byte begins.
                DataType::Boolean => node.offset() / 8 * 8,
                _ => node.offset(),
            });
            let bytes = |num_values| fixed_width_bytes(data_type, num_values);
            let buffer = node.buffer(1, bytes(left_out)?..bytes(node.end())?)?;
            parts.offset(node.offset() - left_out).add_buffer(buffer)
        }
    };
    assemble(parts.nulls(node.nulls()?))
}

/// Bytes of `num_values` values; the inner `None` when they do not fit the machine.
fn fixed_width_bytes(data_type: &DataType, num_values: usize) -> Result<Option<usize>> {
    let width = match data_type {
        DataType::Boolean => return Ok(Some(num_values.div_ceil(8))),
        DataType::FixedSizeBinary(width) => usize::try_from(*width).ok(),
        other => other.primitive_width(),
    };
    match width {
        Some(width) => Ok(num_values.checked_mul(width)),
        None => Err(Error::unsupported(format!(
            "cannot import Arrow C arrays of type {data_type}"
        ))),
    }
}

/// Offsets from the first value on, and the bytes up to the last offset.
fn text_buffers<O: OffsetSizeTrait>(node: &Node<'_>) -> Result<Vec<Buffer>> {
    node.expect(3, 0)?;
    let (offsets, bytes) = offsets::<O>(node)?;
    let bytes = node.buffer(2, Some(bytes.start)..Some(bytes.end))?;
    Ok(vec![offsets.into_inner().into_inner(), bytes])
}

/// The views but the first ones, which are left out, and the data buffers, whose lengths stand in the last C buffer.
fn view_buffers(node: &Node<'_>, left_out: usize) -> Result<Vec<Buffer>> {
    let num_buffers = node.num_buffers()?;
    let num_data = num_buffers.checked_sub(3).ok_or_else(|| {
        broken(format!(
            "a view array must have at least 3 buffers, got {num_buffers}"
        ))
    })?;
    node.expect(num_buffers, 0)?;
    let views = node.values::<u128>(1, left_out, node.end() - left_out)?;
    let mut buffers = vec![views.into_inner()];
    for (number, num_bytes) in node
        .values::<i64>(num_buffers - 1, 0, num_data)?
        .iter()
        .enumerate()
    {
        let bytes = Some(0)..usize::try_from(*num_bytes).ok();
        buffers.push(node.buffer(2 + number, bytes)?);
    }
    Ok(buffers)
}

/// The offsets of a list, map or string array, cut to its rows, and which values below they need: from the first of all on, but where bytes are copied from the first of the rows on, from which
/// the offsets count then. They may not decrease.
fn offsets<O: OffsetSizeTrait>(node: &Node<'_>) -> Result<(OffsetBuffer<O>, Range<usize>)> {
    let offsets = node.values::<O>(1, node.offset(), node.len() + 1)?;
    let (Some(first), Some(last)) = (offsets.first().copied(), offsets.last().copied()) else {
        return Err(Error::internal("offsets of rows are never none"));
    };
    if first < O::zero() || !offsets.is_sorted() {
        return Err(broken("offsets must start at 0 or more and not decrease"));
    }
    if !node.is_copied() {
        return Ok((OffsetBuffer::new(offsets), 0..last.as_usize()));
    }
    let moved: Vec<O> = offsets.iter().map(|offset| *offset - first).collect();
    let values = first.as_usize()..last.as_usize();
    Ok((OffsetBuffer::new(moved.into()), values))
}
