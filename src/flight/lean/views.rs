//! Arrays of views, without bytes of others.
//!
//! Comes in: an array of views, and which of its rows are shown. Goes out: the same rows over buffers that have their bytes alone: pieces of the buffers of before where these are few, else a copy. Never here: views of lists.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, ByteView, GenericByteViewArray, MAX_INLINE_VIEW_LEN};
use arrow::buffer::{Buffer, NullBuffer, ScalarBuffer};
use arrow::datatypes::ByteViewType;

use super::is_shown;
use super::used::Used;

/// Up to so many pieces of buffers are sent as they lie; more are copied into one.
const FEW: usize = 16;

/// The array with the bytes that its views lead into alone, and without views of rows that are not shown; `None` where it has no others.
pub(super) fn of_views<T: ByteViewType>(
    array: &GenericByteViewArray<T>,
    shown: Option<&NullBuffer>,
) -> Option<ArrayRef> {
    let buffers = Buffers::of(array.data_buffers());
    let (mut ranges, mut has_more) = (Vec::new(), false);
    for (row, view) in array.views().iter().enumerate() {
        match is_shown(shown, row) {
            true => ranges.extend(buffers.place(ByteView::from(*view))),
            false => has_more |= *view != 0,
        }
    }
    let used = Used::of(ranges);
    if used.len() == buffers.num_bytes && !has_more {
        return None;
    }
    let as_they_lie = used.ranges().len() <= FEW || i32::try_from(used.len()).is_err();
    let mut near = 0;
    let mut moved = |view: ByteView| {
        let place = buffers.place(view)?.start;
        let (buffer, offset) = match as_they_lie {
            true => used.find(place, near)?,
            false => (0, used.moved(place, &mut near)?),
        };
        let (buffer_index, offset) = (u32::try_from(buffer).ok()?, u32::try_from(offset).ok()?);
        let view = ByteView {
            buffer_index,
            offset,
            ..view
        };
        Some(view.as_u128())
    };
    let views = array.views().iter().enumerate().map(|(row, view)| {
        let parts = ByteView::from(*view);
        match is_shown(shown, row) {
            false => Some(0),
            true if parts.length <= MAX_INLINE_VIEW_LEN => Some(*view),
            true => moved(parts),
        }
    });
    let views: ScalarBuffer<u128> = views.collect::<Option<Vec<u128>>>()?.into();
    let pieces = used.ranges().iter().map(|range| buffers.piece(range));
    let mut pieces = pieces.collect::<Option<Vec<Buffer>>>()?;
    if !as_they_lie {
        let mut all = Vec::with_capacity(used.len());
        for piece in &pieces {
            all.extend_from_slice(piece);
        }
        pieces = vec![Buffer::from_vec(all)];
    }
    let own = GenericByteViewArray::<T>::try_new(views, pieces, array.nulls().cloned()).ok()?;
    Some(Arc::new(own))
}

/// The buffers of an array of views, as if they were one with a gap between each two.
struct Buffers<'a> {
    all: &'a [Buffer],
    begins: Vec<usize>,
    num_bytes: usize,
}

impl<'a> Buffers<'a> {
    fn of(all: &'a [Buffer]) -> Self {
        let mut end = 0;
        let begins = all.iter().map(|buffer| {
            let begin = end;
            end += buffer.len() + 1;
            begin
        });
        Self {
            all,
            begins: begins.collect(),
            num_bytes: all.iter().map(Buffer::len).sum(),
        }
    }

    /// Where a view leads; `None` for one that has its value itself.
    fn place(&self, view: ByteView) -> Option<Range<usize>> {
        if view.length <= MAX_INLINE_VIEW_LEN {
            return None;
        }
        let start = self.begins.get(view.buffer_index as usize)? + view.offset as usize;
        Some(start..start + view.length as usize)
    }

    /// What is there, without a copy.
    fn piece(&self, range: &Range<usize>) -> Option<Buffer> {
        let after = self.begins.partition_point(|begin| *begin <= range.start);
        let number = after.checked_sub(1)?;
        let start = range.start - self.begins.get(number)?;
        let buffer = self.all.get(number)?;
        let is_within = start + range.len() <= buffer.len();
        is_within.then(|| buffer.slice_with_length(start, range.len()))
    }
}
