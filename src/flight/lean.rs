//! Batches without the values of rows that are elsewhere.
//!
//! Comes in: a batch, perhaps a slice of a larger one. Goes out: the same rows. Arrow IPC sends all that views lead into, of list views the whole child, also what belongs to rows that are not sent: where that is more than twice of what
//! the rows need, they get buffers of their own, at any depth. Nothing else is copied. Never here: messages.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, FixedSizeListArray, GenericByteViewArray, GenericListArray,
    GenericListViewArray, MapArray, OffsetSizeTrait, RecordBatch, RecordBatchOptions, StructArray,
    UInt64Array, UnionArray,
};
use arrow::buffer::{Buffer, OffsetBuffer, ScalarBuffer};
use arrow::compute::take;
use arrow::datatypes::{ByteViewType, DataType};

/// So many bytes or elements of others are not worth looking at.
const SMALL: usize = 4096;

/// The batch without what belongs to other rows.
pub(super) fn lean(batch: RecordBatch) -> RecordBatch {
    let Some(columns) = own_all(batch.columns()) else {
        return batch;
    };
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(batch.schema(), columns, &options).unwrap_or(batch)
}

/// The arrays, those that lead to values of others replaced; `None` where none does.
fn own_all(arrays: &[ArrayRef]) -> Option<Vec<ArrayRef>> {
    let own: Vec<Option<ArrayRef>> = arrays.iter().map(own).collect();
    if own.iter().all(Option::is_none) {
        return None;
    }
    let each = own.into_iter().zip(arrays);
    Some(
        each.map(|(own, array)| own.unwrap_or_else(|| Arc::clone(array)))
            .collect(),
    )
}

/// The array without values of others; `None` where it has few of them. What lies in dictionaries and runs stays as it is.
fn own(array: &ArrayRef) -> Option<ArrayRef> {
    match array.data_type() {
        DataType::Utf8View => of_views(array.as_string_view()),
        DataType::BinaryView => of_views(array.as_binary_view()),
        DataType::Struct(_) => Some(Arc::new(of_struct(array.as_struct())?)),
        DataType::List(_) => of_list(array.as_list::<i32>()),
        DataType::LargeList(_) => of_list(array.as_list::<i64>()),
        DataType::ListView(_) => of_list_view(array.as_list_view::<i32>()),
        DataType::LargeListView(_) => of_list_view(array.as_list_view::<i64>()),
        DataType::Map(_, _) => of_map(array.as_map()),
        DataType::FixedSizeList(_, _) => of_fixed_list(array.as_fixed_size_list()),
        DataType::Union(_, _) => of_union(array.as_union()),
        _ => None,
    }
}

fn of_views<T: ByteViewType>(views: &GenericByteViewArray<T>) -> Option<ArrayRef> {
    let held: usize = views.data_buffers().iter().map(Buffer::len).sum();
    let is_of_others = held > SMALL && held / 2 > views.total_buffer_bytes_used();
    is_of_others.then(|| Arc::new(views.gc()) as ArrayRef)
}

fn of_struct(array: &StructArray) -> Option<StructArray> {
    let columns = own_all(array.columns())?;
    StructArray::try_new(array.fields().clone(), columns, array.nulls().cloned()).ok()
}

/// Offsets that begin at 0, and the part of the child that they lead to.
fn whole<O: OffsetSizeTrait>(offsets: &OffsetBuffer<O>) -> (OffsetBuffer<O>, usize, usize) {
    let zero = O::usize_as(0);
    let first = offsets.first().copied().unwrap_or(zero);
    let last = offsets.last().copied().unwrap_or(first);
    let moved: ScalarBuffer<O> = offsets.iter().map(|offset| *offset - first).collect();
    let length = (last - first).as_usize();
    (OffsetBuffer::new(moved), first.as_usize(), length)
}

fn of_list<O: OffsetSizeTrait>(list: &GenericListArray<O>) -> Option<ArrayRef> {
    let (DataType::List(field) | DataType::LargeList(field)) = list.data_type() else {
        return None;
    };
    if !may_lead_away(field.data_type()) {
        return None;
    }
    let (offsets, start, length) = whole(list.offsets());
    let values = own(&list.values().slice(start, length))?;
    let nulls = list.nulls().cloned();
    let own = GenericListArray::try_new(Arc::clone(field), offsets, values, nulls).ok()?;
    Some(Arc::new(own))
}

fn of_map(map: &MapArray) -> Option<ArrayRef> {
    let DataType::Map(field, is_ordered) = map.data_type() else {
        return None;
    };
    let (offsets, start, length) = whole(map.offsets());
    let entries = of_struct(&map.entries().slice(start, length))?;
    let nulls = map.nulls().cloned();
    let own = MapArray::try_new(Arc::clone(field), offsets, entries, nulls, *is_ordered).ok()?;
    Some(Arc::new(own))
}

fn of_fixed_list(list: &FixedSizeListArray) -> Option<ArrayRef> {
    let DataType::FixedSizeList(field, size) = list.data_type() else {
        return None;
    };
    let values = own(list.values())?;
    let nulls = list.nulls().cloned();
    let own = FixedSizeListArray::try_new(Arc::clone(field), *size, values, nulls).ok()?;
    Some(Arc::new(own))
}

fn of_union(union: &UnionArray) -> Option<ArrayRef> {
    let (fields, type_ids, offsets, children) = union.clone().into_parts();
    let children = own_all(&children)?;
    let own = UnionArray::try_new(fields, type_ids, offsets, children).ok()?;
    Some(Arc::new(own))
}

fn of_list_view<O: OffsetSizeTrait>(list: &GenericListViewArray<O>) -> Option<ArrayRef> {
    let (DataType::ListView(field) | DataType::LargeListView(field)) = list.data_type() else {
        return None;
    };
    let child = list.values();
    let needed: usize = list.value_sizes().iter().map(|size| size.as_usize()).sum();
    let is_of_others = child.len() > SMALL && child.len() / 2 > needed;
    let (offsets, sizes, values) = match is_of_others {
        false => (
            list.value_offsets().iter().copied().collect(),
            list.value_sizes().iter().copied().collect(),
            own(child)?,
        ),
        true => {
            let (offsets, sizes, values) = gathered(list)?;
            let own = own(&values);
            (offsets, sizes, own.unwrap_or(values))
        }
    };
    let nulls = list.nulls().cloned();
    let own =
        GenericListViewArray::try_new(Arc::clone(field), offsets, sizes, values, nulls).ok()?;
    Some(Arc::new(own))
}

/// Where the rows of a list view begin once their elements lie one behind the other, how many each has, and the elements.
type Gathered<O> = (ScalarBuffer<O>, ScalarBuffer<O>, ArrayRef);

fn gathered<O: OffsetSizeTrait>(list: &GenericListViewArray<O>) -> Option<Gathered<O>> {
    let (mut offsets, mut sizes) = (Vec::new(), Vec::new());
    let mut elements: Vec<u64> = Vec::new();
    let rows = list.value_offsets().iter().zip(list.value_sizes());
    for (row, (start, size)) in rows.enumerate() {
        let size = if list.is_null(row) {
            O::usize_as(0)
        } else {
            *size
        };
        offsets.push(O::from_usize(elements.len())?);
        sizes.push(size);
        let start = start.as_usize() as u64;
        elements.extend(start..start + size.as_usize() as u64);
    }
    let values = take(list.values(), &UInt64Array::from(elements), None).ok()?;
    Some((offsets.into(), sizes.into(), values))
}

/// Whether values of a type can lie elsewhere than their rows.
fn may_lead_away(data_type: &DataType) -> bool {
    data_type.is_nested() || matches!(data_type, DataType::Utf8View | DataType::BinaryView)
}

#[cfg(test)]
mod tests {
    use arrow::array::{Int32Array, ListArray, ListViewArray, StringViewArray};
    use arrow::datatypes::{Field, Fields, UnionFields};
    use arrow::util::display::{ArrayFormatter, FormatOptions};

    use super::*;

    const ROWS: usize = 5_000;

    /// Two texts for each row, too long to lie in their views.
    fn texts() -> ArrayRef {
        let texts = (0..2 * ROWS).map(|number| Some(format!("{number:060}")));
        Arc::new(texts.collect::<StringViewArray>())
    }

    fn item(array: &ArrayRef) -> Arc<Field> {
        Arc::new(Field::new("item", array.data_type().clone(), true))
    }

    fn list_view(values: ArrayRef) -> ArrayRef {
        // From the last element to the first.
        let starts = (0..ROWS).map(|row| i32::try_from(2 * (ROWS - 1 - row)).unwrap());
        let sizes = ScalarBuffer::from(vec![2; ROWS]);
        let field = item(&values);
        Arc::new(ListViewArray::new(
            field,
            starts.collect(),
            sizes,
            values,
            None,
        ))
    }

    fn samples() -> Vec<ArrayRef> {
        let texts = texts();
        let item = item(&texts);
        let key = Arc::new(Field::new("key", DataType::Utf8View, false));
        let pairs = Fields::from(vec![key, Arc::clone(&item)]);
        let both = vec![Arc::clone(&texts), Arc::clone(&texts)];
        let entries = StructArray::new(pairs, both, None);
        let entry = Arc::new(Field::new("entries", entries.data_type().clone(), false));
        let one = UnionFields::from_fields([Arc::clone(&item)]);
        let union = UnionArray::try_new(
            one,
            vec![0; 2 * ROWS].into(),
            None,
            vec![Arc::clone(&texts)],
        );
        let list = |length: usize| -> ArrayRef {
            let offsets = OffsetBuffer::from_repeated_length(length, 2 * ROWS / length);
            Arc::new(ListArray::new(
                Arc::clone(&item),
                offsets,
                Arc::clone(&texts),
                None,
            ))
        };
        let fixed = FixedSizeListArray::new(Arc::clone(&item), 2, Arc::clone(&texts), None);
        let offsets = OffsetBuffer::from_repeated_length(2, ROWS);
        vec![
            Arc::clone(&texts),
            Arc::new(entries.clone()),
            Arc::new(MapArray::new(entry, offsets, entries, None, false)),
            Arc::new(fixed),
            Arc::new(union.unwrap()),
            list(2),
            list_view(list(1)),
            list_view(texts),
        ]
    }

    #[test]
    fn few_rows_keep_their_values_and_let_go_of_the_others() {
        for all in samples() {
            let few = all.slice(100, 3);
            let own = own(&few).unwrap();
            let kind = all.data_type();
            assert_eq!(own.data_type(), kind);
            let bytes = own.get_buffer_memory_size();
            assert!(bytes < 20_000, "{kind}: {bytes} bytes");
            assert_eq!(shown(&own), shown(&few), "{kind}");
        }
    }

    #[test]
    fn what_is_needed_anyway_is_not_copied() {
        for all in samples() {
            assert!(own(&all).is_none(), "{}", all.data_type());
        }
        let numbers: ArrayRef = Arc::new(Int32Array::from_iter_values(0..10_000));
        assert!(own(&numbers.slice(5, 2)).is_none());
    }

    fn shown(array: &ArrayRef) -> String {
        let options = FormatOptions::new();
        let shown = ArrayFormatter::try_new(array.as_ref(), &options).unwrap();
        (0..array.len())
            .map(|row| format!("{}\n", shown.value(row)))
            .collect()
    }
}
