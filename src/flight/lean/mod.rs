//! Batches with nothing but their rows.
//!
//! Comes in: a batch, perhaps a slice of a larger one. Goes out: the same rows. Arrow leaves in buffers what no row shows: values below nulls (`CASE` makes such), and what views, list views and dense unions do not lead into, also what
//! belongs to rows that are elsewhere. Whoever gets the batch could read it: a table that was made of a part of another one has the rest of it, too. Here it is taken out, at any depth; columns that show all that they have are not copied.
//! Dictionaries and the values of runs stay whole. Read on in `flat.rs` (values of rows) and `views.rs`; `used.rs`: which places rows lead to. Never here: messages.

mod flat;
#[cfg(test)]
mod tests;
mod used;
mod views;

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, FixedSizeListArray, GenericListArray, GenericListViewArray, MapArray,
    OffsetSizeTrait, RecordBatch, RecordBatchOptions, StructArray, UInt64Array, UnionArray,
};
use arrow::buffer::{BooleanBuffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow::compute::take;
use arrow::datatypes::{BinaryType, DataType, LargeBinaryType, LargeUtf8Type, Utf8Type};

use self::flat::{of_booleans, of_bytes, of_fixed_width};
use self::used::Used;
use self::views::of_views;

/// The batch with nothing but its rows.
pub(super) fn lean(batch: RecordBatch) -> RecordBatch {
    let Some(columns) = own_all(batch.columns(), None) else {
        return batch;
    };
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(batch.schema(), columns, &options).unwrap_or(batch)
}

/// The arrays, those that have more than they show replaced; `None` where none has.
fn own_all(arrays: &[ArrayRef], around: Option<&NullBuffer>) -> Option<Vec<ArrayRef>> {
    let own: Vec<Option<ArrayRef>> = arrays.iter().map(|array| own(array, around)).collect();
    if own.iter().all(Option::is_none) {
        return None;
    }
    let each = own.into_iter().zip(arrays);
    Some(
        each.map(|(own, array)| own.unwrap_or_else(|| Arc::clone(array)))
            .collect(),
    )
}

/// The array with what it shows alone, where what is around it shows it too; `None` where it has no more. Its nulls stay as they are.
fn own(array: &ArrayRef, around: Option<&NullBuffer>) -> Option<ArrayRef> {
    let shown = NullBuffer::union(array.nulls(), around);
    let shown = shown.as_ref().filter(|shown| shown.null_count() > 0);
    match array.data_type() {
        DataType::Null | DataType::RunEndEncoded(_, _) => None,
        DataType::Boolean => of_booleans(array.as_boolean(), shown?),
        DataType::Utf8 => of_bytes::<Utf8Type>(array.as_bytes(), shown?),
        DataType::LargeUtf8 => of_bytes::<LargeUtf8Type>(array.as_bytes(), shown?),
        DataType::Binary => of_bytes::<BinaryType>(array.as_bytes(), shown?),
        DataType::LargeBinary => of_bytes::<LargeBinaryType>(array.as_bytes(), shown?),
        DataType::Utf8View => of_views(array.as_string_view(), shown),
        DataType::BinaryView => of_views(array.as_binary_view(), shown),
        DataType::Struct(_) => of_struct(array.as_struct(), shown),
        DataType::List(_) => of_list(array.as_list::<i32>(), shown),
        DataType::LargeList(_) => of_list(array.as_list::<i64>(), shown),
        DataType::ListView(_) => of_list_view(array.as_list_view::<i32>(), shown),
        DataType::LargeListView(_) => of_list_view(array.as_list_view::<i64>(), shown),
        DataType::Map(_, _) => of_map(array.as_map(), shown),
        DataType::FixedSizeList(_, _) => of_fixed_list(array.as_fixed_size_list(), shown),
        DataType::Union(_, _) => of_union(array.as_union(), shown),
        _ => of_fixed_width(array, shown?),
    }
}

fn is_shown(shown: Option<&NullBuffer>, row: usize) -> bool {
    shown.is_none_or(|shown| shown.is_valid(row))
}

/// The runs of rows that are not shown.
fn hidden(shown: &NullBuffer) -> impl Iterator<Item = Range<usize>> {
    let runs = shown.valid_slices().chain([(shown.len(), shown.len())]);
    let mut end = 0;
    runs.filter_map(move |(from, to)| {
        let gap = end..from;
        end = to;
        (!gap.is_empty()).then_some(gap)
    })
}

/// Whether rows that are not shown lead somewhere.
fn hides<O: OffsetSizeTrait>(offsets: &[O], shown: &NullBuffer) -> bool {
    hidden(shown).any(|rows| offsets.get(rows.start) != offsets.get(rows.end))
}

/// Offsets of the same rows, those that are not shown empty, once the others lie one behind the other.
fn closed_up<O: OffsetSizeTrait>(offsets: &[O], shown: &NullBuffer) -> OffsetBuffer<O> {
    let rows = offsets.windows(2).enumerate();
    OffsetBuffer::from_lengths(rows.map(|(row, pair)| match pair {
        [start, end] if shown.is_valid(row) => end.as_usize() - start.as_usize(),
        _ => 0,
    }))
}

/// Where the rows that are shown lead.
fn led_to<O: OffsetSizeTrait>(offsets: &[O], shown: &NullBuffer) -> Option<Vec<Range<usize>>> {
    let runs = shown.valid_slices();
    let each =
        runs.map(|(from, to)| Some(offsets.get(from)?.as_usize()..offsets.get(to)?.as_usize()));
    each.collect()
}

fn of_struct(array: &StructArray, shown: Option<&NullBuffer>) -> Option<ArrayRef> {
    let columns = own_all(array.columns(), shown)?;
    let nulls = array.nulls().cloned();
    let own = StructArray::try_new(array.fields().clone(), columns, nulls).ok()?;
    Some(Arc::new(own))
}

/// The elements of a list or map that its rows show, with new offsets; `None` where it has no others.
fn elements<O: OffsetSizeTrait>(
    offsets: &OffsetBuffer<O>,
    child: &ArrayRef,
    shown: Option<&NullBuffer>,
) -> Option<(OffsetBuffer<O>, ArrayRef)> {
    if let Some(shown) = shown.filter(|shown| hides(offsets, shown)) {
        let used = Used::of(led_to(offsets, shown)?);
        let values = gathered(child, &used)?;
        let own = own(&values, None);
        return Some((closed_up(offsets, shown), own.unwrap_or(values)));
    }
    let zero = O::usize_as(0);
    let first = offsets.first().copied().unwrap_or(zero);
    let last = offsets.last().copied().unwrap_or(first);
    let values = child.slice(first.as_usize(), (last - first).as_usize());
    let values = own(&values, None)?;
    let moved: ScalarBuffer<O> = offsets.iter().map(|offset| *offset - first).collect();
    Some((OffsetBuffer::new(moved), values))
}

/// The elements of these places, one behind the other.
fn gathered(child: &ArrayRef, used: &Used) -> Option<ArrayRef> {
    match used.ranges() {
        [] => Some(child.slice(0, 0)),
        [one] => Some(child.slice(one.start, one.len())),
        many => {
            let places = many.iter().cloned().flatten();
            let places = UInt64Array::from_iter_values(places.map(|place| place as u64));
            take(child, &places, None).ok()
        }
    }
}

fn of_list<O: OffsetSizeTrait>(
    list: &GenericListArray<O>,
    shown: Option<&NullBuffer>,
) -> Option<ArrayRef> {
    let (DataType::List(field) | DataType::LargeList(field)) = list.data_type() else {
        return None;
    };
    let (offsets, values) = elements(list.offsets(), list.values(), shown)?;
    let nulls = list.nulls().cloned();
    let own = GenericListArray::try_new(Arc::clone(field), offsets, values, nulls).ok()?;
    Some(Arc::new(own))
}

fn of_map(map: &MapArray, shown: Option<&NullBuffer>) -> Option<ArrayRef> {
    let DataType::Map(field, is_ordered) = map.data_type() else {
        return None;
    };
    let entries: ArrayRef = Arc::new(map.entries().clone());
    let (offsets, entries) = elements(map.offsets(), &entries, shown)?;
    let entries = entries.as_struct().clone();
    let nulls = map.nulls().cloned();
    let own = MapArray::try_new(Arc::clone(field), offsets, entries, nulls, *is_ordered).ok()?;
    Some(Arc::new(own))
}

fn of_fixed_list(list: &FixedSizeListArray, shown: Option<&NullBuffer>) -> Option<ArrayRef> {
    let DataType::FixedSizeList(field, size) = list.data_type() else {
        return None;
    };
    let each = usize::try_from(*size).ok()?;
    let shown = shown.map(|shown| shown.expand(each));
    let values = own(list.values(), shown.as_ref())?;
    let nulls = list.nulls().cloned();
    let own = FixedSizeListArray::try_new(Arc::clone(field), *size, values, nulls).ok()?;
    Some(Arc::new(own))
}

fn of_list_view<O: OffsetSizeTrait>(
    list: &GenericListViewArray<O>,
    shown: Option<&NullBuffer>,
) -> Option<ArrayRef> {
    let (DataType::ListView(field) | DataType::LargeListView(field)) = list.data_type() else {
        return None;
    };
    let rows = list.value_offsets().iter().zip(list.value_sizes());
    let rows = rows.enumerate().map(|(row, (offset, size))| {
        let size = match is_shown(shown, row) {
            true => size.as_usize(),
            false => 0,
        };
        offset.as_usize()..offset.as_usize() + size
    });
    let rows: Vec<Range<usize>> = rows.collect();
    let used = Used::of(rows.clone());
    let child = list.values();
    let values = match used.len() == child.len() {
        true => own(child, None)?,
        false => {
            let values = gathered(child, &used)?;
            own(&values, None).unwrap_or(values)
        }
    };
    let mut near = 0;
    let offsets = rows.iter().map(|range| match range.is_empty() {
        true => Some(O::usize_as(0)),
        false => used.moved(range.start, &mut near).map(O::usize_as),
    });
    let offsets: ScalarBuffer<O> = offsets.collect::<Option<Vec<O>>>()?.into();
    let sizes: ScalarBuffer<O> = rows.iter().map(|range| O::usize_as(range.len())).collect();
    let nulls = list.nulls().cloned();
    let own =
        GenericListViewArray::try_new(Arc::clone(field), offsets, sizes, values, nulls).ok()?;
    Some(Arc::new(own))
}

fn of_union(union: &UnionArray, shown: Option<&NullBuffer>) -> Option<ArrayRef> {
    let (fields, type_ids, mut offsets, children) = union.clone().into_parts();
    let mut own_children = Vec::with_capacity(children.len());
    let mut has_more = false;
    for ((id, _), child) in fields.iter().zip(&children) {
        let is_of_child = |row: usize| type_ids.get(row) == Some(&id);
        let own = match &mut offsets {
            None => {
                let is_led_to = |row| is_of_child(row) && is_shown(shown, row);
                let rows = BooleanBuffer::collect_bool(union.len(), is_led_to);
                own(child, Some(&NullBuffer::new(rows)))
            }
            Some(offsets) => {
                let rows = (0..union.len()).filter(|row| is_of_child(*row));
                of_dense(child, &rows.collect::<Vec<_>>(), offsets, shown)?
            }
        };
        has_more |= own.is_some();
        own_children.push(own.unwrap_or_else(|| Arc::clone(child)));
    }
    if !has_more {
        return None;
    }
    let own = UnionArray::try_new(fields, type_ids, offsets, own_children).ok()?;
    Some(Arc::new(own))
}

/// The values of a child of a dense union that its rows lead to, and their offsets set anew; `None` within where it has no others.
fn of_dense(
    child: &ArrayRef,
    rows: &[usize],
    offsets: &mut ScalarBuffer<i32>,
    shown: Option<&NullBuffer>,
) -> Option<Option<ArrayRef>> {
    let places = rows.iter().map(|row| {
        let place = offsets.get(*row)?;
        usize::try_from(*place).ok()
    });
    let places = places.collect::<Option<Vec<usize>>>()?;
    let used = Used::of(places.iter().map(|place| *place..place + 1).collect());
    let mut moved = offsets.to_vec();
    let mut is_shown_there = vec![false; used.len()];
    let mut near = 0;
    for (row, place) in rows.iter().zip(places) {
        let place = used.moved(place, &mut near)?;
        *moved.get_mut(*row)? = i32::try_from(place).ok()?;
        *is_shown_there.get_mut(place)? |= is_shown(shown, *row);
    }
    let around = NullBuffer::from(is_shown_there);
    if used.len() == child.len() {
        return Some(own(child, Some(&around)));
    }
    let values = gathered(child, &used)?;
    *offsets = moved.into();
    Some(Some(own(&values, Some(&around)).unwrap_or(values)))
}
