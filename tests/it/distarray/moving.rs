//! Redistribution of bytes: every element arrives, halos hold what their owners have, and nothing else is touched.

use partgrid::distarray::redistribute::{Layout, MAX_MESSAGE_BYTES, Plan, Source, Target};
use partgrid::distarray::{Distribution, Map};
use partgrid::error::{Error, ErrorKind, Result};
use partgrid::grid::Axis;
use proptest::prelude::*;

use super::redistribute::{global, local_shape, pair, places};

/// What elements that are not owned hold before: it must never arrive.
const STALE: u8 = 0xee;

/// The bytes that belong to a global element.
fn value(index: &[i64], item_bytes: usize) -> Vec<u8> {
    let seed = index.iter().fold(7_u64, |seed, at| {
        (seed ^ *at as u64)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .rotate_left(29)
    });
    (0..item_bytes)
        .map(|byte| seed.wrapping_mul(2 * byte as u64 + 1).to_be_bytes()[0] & 0x7f)
        .collect()
}

/// A section in memory.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Buffer {
    pub(super) bytes: Vec<u8>,
    layout: Layout,
}

impl Buffer {
    /// A layout with gaps, in C or Fortran order, some dimensions backwards; every byte is stale.
    pub(super) fn new(shape: &[usize], item_bytes: usize, style: u32) -> Self {
        let gap = [0, 0, 1, item_bytes, 3 * item_bytes][style as usize % 5];
        let mut order: Vec<usize> = (0..shape.len()).collect();
        if style & 8 > 0 {
            order.reverse();
        }
        let mut strides = vec![0_isize; shape.len()];
        let mut step = item_bytes + if style & 16 > 0 { gap } else { 0 };
        for dimension in order.into_iter().rev() {
            strides[dimension] = step as isize;
            step = step * shape[dimension].max(1) + gap;
        }
        let mut offset = style as usize % 3;
        for (number, stride) in strides.iter_mut().enumerate() {
            if style & (32 << number) > 0 && shape[number] > 0 {
                offset += *stride as usize * (shape[number] - 1);
                *stride = -*stride;
            }
        }
        let layout = Layout::try_new(shape.to_vec(), strides, offset, item_bytes).unwrap();
        Self {
            bytes: vec![STALE; layout.num_bytes() + 5],
            layout,
        }
    }

    fn range(&self, place: &[usize]) -> std::ops::Range<usize> {
        let sides = place.iter().zip(self.layout.strides());
        let start = sides.fold(self.layout.offset() as isize, |sum, (at, stride)| {
            sum + *at as isize * stride
        });
        start as usize..start as usize + self.layout.item_bytes()
    }

    fn source(&self) -> Source<'_> {
        Source {
            bytes: &self.bytes,
            layout: self.layout.clone(),
        }
    }

    fn target(&mut self) -> Target<'_> {
        Target {
            bytes: &mut self.bytes,
            layout: self.layout.clone(),
        }
    }
}

/// The buffers of all ranks, in various layouts; `full` also fills what is not owned.
pub(super) fn buffers(
    distribution: &Distribution,
    item_bytes: usize,
    style: u32,
    full: bool,
) -> Vec<Buffer> {
    let ranks = 0..distribution.num_ranks();
    ranks
        .map(|rank| {
            let shape = local_shape(distribution, rank);
            let mut buffer = Buffer::new(&shape, item_bytes, style.rotate_right(rank as u32));
            let owned = distribution.owned(rank).unwrap();
            for place in places(&shape) {
                let mut sides = owned.iter().zip(&place);
                let inside = sides
                    .all(|(part, at)| (part.local..part.local + part.indices.len()).contains(at));
                if inside || full {
                    let range = buffer.range(&place);
                    buffer.bytes[range]
                        .copy_from_slice(&value(&global(distribution, rank, &place), item_bytes));
                }
            }
            buffer
        })
        .collect()
}

fn empty(distribution: &Distribution, item_bytes: usize, style: u32) -> Vec<Buffer> {
    let ranks = 0..distribution.num_ranks();
    ranks
        .map(|rank| {
            Buffer::new(
                &local_shape(distribution, rank),
                item_bytes,
                style.rotate_right(rank as u32),
            )
        })
        .collect()
}

fn sources(buffers: &[Buffer]) -> Vec<Source<'_>> {
    buffers.iter().map(Buffer::source).collect()
}

pub(super) fn targets(buffers: &mut [Buffer]) -> Vec<Target<'_>> {
    buffers.iter_mut().map(Buffer::target).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn every_element_arrives_and_nothing_else_is_touched(
        (from, to) in pair(), item_bytes in 1_usize..=20, styles in [any::<u32>(), any::<u32>()],
    ) {
        let plan = Plan::try_new(&from, &to).unwrap();
        let before = buffers(&from, item_bytes, styles[0], false);
        let expected = buffers(&to, item_bytes, styles[1], true);
        let mut after = empty(&to, item_bytes, styles[1]);
        plan.execute_into(&sources(&before), &mut targets(&mut after)).unwrap();
        prop_assert_eq!(&after, &expected);
        for (rank, bytes) in plan.execute(&sources(&before)).unwrap().into_iter().enumerate() {
            let shape = local_shape(&to, rank);
            let values = places(&shape).into_iter().flat_map(|place| value(&global(&to, rank, &place), item_bytes));
            prop_assert_eq!(bytes, values.collect::<Vec<u8>>());
        }
    }

    #[test]
    fn packed_messages_bring_what_execution_brings(
        (from, to) in pair(), item_bytes in 1_usize..=9, styles in [any::<u32>(), any::<u32>()], room in 1_usize..7,
    ) {
        let plan = Plan::try_new(&from, &to).unwrap();
        let before = buffers(&from, item_bytes, styles[0], false);
        let expected = buffers(&to, item_bytes, styles[1], true);
        let [mut whole, mut pieces] = [(); 2].map(|()| empty(&to, item_bytes, styles[1]));
        let (mut message, mut joined) = (Vec::new(), Vec::new());
        for transfer in plan.transfers() {
            let source = before[transfer.from_rank()].source();
            transfer.pack(&source, &mut message).unwrap();
            prop_assert_eq!(message.len(), transfer.num_elements() * item_bytes);
            transfer.unpack(&message, &mut whole[transfer.to_rank()].target()).unwrap();
            let mut piece_bytes = Vec::new();
            joined.clear();
            for piece in transfer.pieces(item_bytes, room * item_bytes + item_bytes / 2).unwrap() {
                piece.pack(&source, &mut piece_bytes).unwrap();
                prop_assert!(piece_bytes.len() <= room * item_bytes);
                piece.unpack(&piece_bytes, &mut pieces[piece.to_rank()].target()).unwrap();
                joined.extend_from_slice(&piece_bytes);
            }
            prop_assert_eq!(&joined, &message);
        }
        prop_assert_eq!(&whole, &expected);
        prop_assert_eq!(&pieces, &expected);
    }
}

/// Large enough for the squares of a transposition, and for units of every width.
#[test]
fn large_sections_in_crossed_orders_arrive() {
    let plane = |rows: Map, columns: Map| Distribution::try_new(vec![rows, columns]).unwrap();
    let from = plane(
        Map::block(&Axis::try_even(131, 2).unwrap()),
        Map::block(&Axis::uncut(97)),
    );
    for block in [1, 2, 3, 40] {
        let to = plane(
            Map::block(&Axis::uncut(131)),
            Map::try_cyclic(97, 2, block).unwrap(),
        );
        let plan = Plan::try_new(&from, &to).unwrap();
        for item_bytes in [1, 2, 3, 4, 5, 6, 7, 8, 11, 12, 16, 24, 32, 40, 48, 64] {
            for styles in [[0, 0], [0, 8], [8, 0], [16 + 3, 32], [64, 8 + 3]] {
                let before = buffers(&from, item_bytes, styles[0], false);
                let mut after = empty(&to, item_bytes, styles[1]);
                plan.execute_into(&sources(&before), &mut targets(&mut after))
                    .unwrap();
                assert!(
                    after == buffers(&to, item_bytes, styles[1], true),
                    "{block} {item_bytes} {styles:?}"
                );
            }
        }
    }
}

/// Two ranks with 3 and 2 elements of 4 bytes become one rank.
fn line() -> (Plan, Vec<Buffer>, Vec<Buffer>) {
    let blocks = |cuts: &[u64]| {
        Distribution::try_new(vec![Map::block(&Axis::try_new(cuts.to_vec()).unwrap())]).unwrap()
    };
    let (from, to) = (blocks(&[0, 3, 5]), blocks(&[0, 5, 5]));
    let plan = Plan::try_new(&from, &to).unwrap();
    (plan, buffers(&from, 4, 0, false), empty(&to, 4, 0))
}

fn failed(result: Result<()>, rank: usize, side: &str, text: &str) -> Error {
    let error = result.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    assert_eq!(
        error.context("rank"),
        Some(rank.to_string().as_str()),
        "{error}"
    );
    assert_eq!(error.context("side"), Some(side), "{error}");
    assert!(
        error.message().contains(text),
        "{error} does not say {text}"
    );
    error
}

#[test]
fn buffers_that_do_not_fit_are_named_and_nothing_is_written() {
    let (plan, before, mut after) = line();
    let untouched = after.clone();
    let mut short = before.clone();
    short[1].bytes.truncate(7);
    let result = plan.execute_into(&sources(&short), &mut targets(&mut after));
    failed(result, 1, "source", "at least 8 bytes, got 7");
    failed(
        plan.execute(&sources(&short)).map(|_| ()),
        1,
        "source",
        "at least 8 bytes, got 7",
    );
    let mut other = before.clone();
    other[1] = Buffer::new(&[3], 4, 0);
    failed(
        plan.execute(&sources(&other)).map(|_| ()),
        1,
        "source",
        "shape [2], got [3]",
    );
    other[1] = Buffer::new(&[2], 8, 0);
    failed(
        plan.execute(&sources(&other)).map(|_| ()),
        1,
        "source",
        "one size, got 8 bytes and 4",
    );
    let mut narrow = after.clone();
    narrow[0].bytes.truncate(19);
    let result = plan.execute_into(&sources(&before), &mut targets(&mut narrow));
    failed(result, 0, "destination", "at least 20 bytes, got 19");
    narrow[0] = Buffer::new(&[5, 1], 4, 0);
    let result = plan.execute_into(&sources(&before), &mut targets(&mut narrow));
    failed(result, 0, "destination", "shape [5], got [5, 1]");
    narrow[0].layout = Layout::try_new(vec![5], vec![2], 0, 4).unwrap();
    let result = plan.execute_into(&sources(&before), &mut targets(&mut narrow));
    failed(result, 0, "destination", "must not overlap");
    assert_eq!(after, untouched);
    let error = plan.execute(&sources(&before[..1])).unwrap_err();
    assert!(
        error.message().contains("each of the 2 ranks, got 1"),
        "{error}"
    );
    let error = plan.execute_into(&sources(&before), &mut []).unwrap_err();
    assert!(
        error.message().contains("each of the 2 ranks, got 0"),
        "{error}"
    );
}

#[test]
fn messages_that_do_not_fit_are_refused() {
    let (plan, before, mut after) = line();
    let transfer = plan.transfer(1, 0).unwrap();
    let mut message = Vec::new();
    transfer.pack(&before[1].source(), &mut message).unwrap();
    failed(
        transfer.pack(&Buffer::new(&[1], 4, 0).source(), &mut message),
        1,
        "source",
        "shape [2], got [1]",
    );
    let result = transfer.unpack(&message[1..], &mut after[0].target());
    failed(
        result,
        0,
        "destination",
        "must have 8 bytes, for [2] elements of 4, got 7",
    );
    let mut small = Buffer::new(&[4], 4, 0);
    failed(
        transfer.unpack(&message, &mut small.target()),
        0,
        "destination",
        "shape [5], got [4]",
    );
    for (item_bytes, limit) in [(0, 10), (11, 10)] {
        let error = transfer.pieces(item_bytes, limit).map(|_| ()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    }
}

#[test]
fn a_message_of_gibibytes_is_cut_below_the_limit() {
    let axis = Axis::try_even(3 << 31, 2).unwrap();
    let [from, to] = [Map::block(&axis), Map::block(&Axis::uncut(3 << 31))]
        .map(|map| Distribution::try_new(vec![map]).unwrap());
    let transfer = Plan::try_new(&from, &to).unwrap().transfer(1, 0).unwrap();
    let pieces = transfer.pieces(8, MAX_MESSAGE_BYTES).unwrap();
    let sizes: Vec<usize> = pieces.map(|piece| piece.num_elements() * 8).collect();
    assert_eq!(sizes.len(), 13);
    assert!(sizes.iter().all(|size| *size <= MAX_MESSAGE_BYTES));
    assert_eq!(sizes.iter().sum::<usize>(), 3 << 33);
}

#[test]
fn layouts_that_leave_the_memory_are_refused() {
    let huge = usize::MAX / 2;
    for (shape, strides, offset, item_bytes) in [
        (vec![2], vec![-4], 3, 4),
        (vec![3], vec![isize::MAX / 2 + 1], 0, 4),
        (vec![huge], vec![2], 0, 1),
        (vec![1], vec![1], huge, 4),
        (vec![usize::MAX], vec![1], 0, 1),
        (vec![2, 2], vec![1], 0, 1),
        (vec![2], vec![1], 0, 0),
    ] {
        let error = Layout::try_new(shape, strides, offset, item_bytes).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    }
    assert!(Layout::try_c_order(&[huge, 4], 4).is_err());
    assert_eq!(Layout::try_c_order(&[huge, 0], 4).unwrap().num_bytes(), 0);
}
