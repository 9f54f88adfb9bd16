//! What is taken out of batches, and what is not, type by type.
//!
//! Comes in: arrays that have more than their rows show. Goes out: nothing. Never here: servers.

use arrow::array::{
    BooleanArray, Decimal128Array, FixedSizeBinaryArray, Int32Array, LargeBinaryArray, ListArray,
    ListViewArray, StringArray, StringViewArray, make_array,
};
use arrow::datatypes::{Field, Fields, UnionFields};
use arrow::ipc::writer::StreamWriter;
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
        let own = own(&few, None).unwrap();
        let kind = all.data_type();
        assert_eq!(own.data_type(), kind);
        let bytes = sent(&own).len();
        assert!(bytes < 5_000, "{kind}: {bytes} bytes");
        assert_eq!(shown(&own), shown(&few), "{kind}");
    }
}

#[test]
fn what_is_needed_anyway_is_not_copied() {
    for all in samples() {
        assert!(own(&all, None).is_none(), "{}", all.data_type());
    }
    let numbers: ArrayRef = Arc::new(Int32Array::from_iter_values(0..10_000));
    assert!(own(&numbers.slice(5, 2), None).is_none());
    let nulls: ArrayRef = Arc::new(Int32Array::from(vec![Some(1), None, Some(3)]));
    assert!(own(&nulls, None).is_none());
}

/// Rows of a secret in turn with others, as arrays of many types.
fn secrets() -> Vec<ArrayRef> {
    let text = |row: usize| match row % 2 {
        0 => "what all may read",
        _ => SECRET,
    };
    let texts = (0..20).map(text);
    let number = i128::from_le_bytes(*b"SECRET that\0\0\0\0\0");
    let numbers = (0..20).map(|row| if row % 2 == 0 { 7 } else { number });
    let utf8: ArrayRef = Arc::new(StringArray::from_iter_values(texts.clone()));
    let field = item(&utf8);
    let fixed = FixedSizeBinaryArray::try_from_iter(texts.clone().map(|text| {
        let mut bytes = [0; 32];
        bytes[..text.len()].copy_from_slice(text.as_bytes());
        bytes
    }));
    let ones = || OffsetBuffer::<i32>::from_repeated_length(1, 20);
    let sizes = ScalarBuffer::from(vec![1; 20]);
    let entries = StructArray::new(
        vec![
            Arc::new(Field::new("key", DataType::Utf8, false)),
            Arc::clone(&field),
        ]
        .into(),
        vec![Arc::clone(&utf8), Arc::clone(&utf8)],
        None,
    );
    let entry = Arc::new(Field::new("entries", entries.data_type().clone(), false));
    vec![
        Arc::clone(&utf8),
        Arc::new(LargeBinaryArray::from_iter_values(texts.clone())),
        Arc::new(texts.map(Some).collect::<StringViewArray>()),
        Arc::new(Decimal128Array::from_iter_values(numbers)),
        Arc::new(fixed.unwrap()),
        Arc::new(entries.clone()),
        Arc::new(ListArray::new(
            Arc::clone(&field),
            ones(),
            Arc::clone(&utf8),
            None,
        )),
        Arc::new(ListViewArray::new(
            Arc::clone(&field),
            (0..20).collect(),
            sizes,
            Arc::clone(&utf8),
            None,
        )),
        Arc::new(MapArray::new(entry, ones(), entries, None, false)),
        Arc::new(FixedSizeListArray::new(field, 1, utf8, None)),
    ]
}

#[test]
fn what_lies_below_nulls_is_not_sent() {
    let shown_rows = NullBuffer::from_iter((0..20).map(|row| row % 2 == 0));
    for all in secrets() {
        let kind = all.data_type().clone();
        let masked = all.to_data().into_builder().nulls(Some(shown_rows.clone()));
        let masked = make_array(masked.build().unwrap());
        assert!(has_secret(&sent(&masked)), "{kind} has none to begin with");
        let own_rows = own(&masked, None).unwrap();
        assert!(!has_secret(&sent(&own_rows)), "{kind}");
        assert_eq!(shown(&own_rows), shown(&masked), "{kind}");
        // Of a slice, and of a field of a struct that is null itself.
        let slice = masked.slice(3, 9);
        let own_slice = own(&slice, None).unwrap();
        assert!(!has_secret(&sent(&own_slice)), "slice of {kind}");
        assert_eq!(shown(&own_slice), shown(&slice), "{kind}");
        let within = Fields::from(vec![Field::new("f", kind.clone(), true)]);
        let within: ArrayRef = Arc::new(StructArray::new(
            within,
            vec![all],
            Some(shown_rows.clone()),
        ));
        let own_struct = own(&within, None).unwrap();
        assert!(!has_secret(&sent(&own_struct)), "struct of {kind}");
        assert_eq!(shown(&own_struct), shown(&within), "{kind}");
    }
    let flags = BooleanArray::new(BooleanBuffer::new_set(20), Some(shown_rows));
    let flags: ArrayRef = Arc::new(flags);
    let own_flags = own(&flags, None).unwrap();
    assert_eq!(own_flags.as_boolean().values().count_set_bits(), 10);
    assert_eq!(shown(&own_flags), shown(&flags));
}

#[test]
fn values_of_a_union_that_no_row_leads_to_are_not_sent() {
    let texts = StringArray::from_iter_values((0..20).map(|row| match row % 2 {
        0 => "what all may read",
        _ => SECRET,
    }));
    let texts: ArrayRef = Arc::new(texts);
    let numbers: ArrayRef = Arc::new(Int32Array::from_iter_values(0..20));
    let fields = UnionFields::from_fields([
        Field::new("text", DataType::Utf8, true),
        Field::new("number", DataType::Int32, true),
    ]);
    // Each second row is a number.
    let ids: ScalarBuffer<i8> = (0..20).map(|row| row % 2).collect();
    for offsets in [None, Some((0..20).collect::<ScalarBuffer<i32>>())] {
        let children = vec![Arc::clone(&texts), Arc::clone(&numbers)];
        let union = UnionArray::try_new(fields.clone(), ids.clone(), offsets, children);
        let union: ArrayRef = Arc::new(union.unwrap());
        for rows in [Arc::clone(&union), union.slice(3, 8)] {
            assert!(has_secret(&sent(&rows)));
            let own_rows = own(&rows, None).unwrap();
            assert!(!has_secret(&sent(&own_rows)));
            assert_eq!(shown(&own_rows), shown(&rows));
            assert!(own(&own_rows, None).is_none());
        }
    }
}

const SECRET: &str = "SECRET that none may read";

fn has_secret(bytes: &[u8]) -> bool {
    bytes.windows(6).any(|window| window == b"SECRET")
}

/// An array as a stream of Arrow IPC.
fn sent(array: &ArrayRef) -> Vec<u8> {
    let batch = RecordBatch::try_from_iter_with_nullable([("a", Arc::clone(array), true)]);
    let batch = batch.unwrap();
    let mut writer = StreamWriter::try_new(Vec::new(), &batch.schema()).unwrap();
    writer.write(&batch).unwrap();
    writer.into_inner().unwrap()
}

fn shown(array: &ArrayRef) -> String {
    let options = FormatOptions::new();
    let shown = ArrayFormatter::try_new(array.as_ref(), &options).unwrap();
    (0..array.len())
        .map(|row| format!("{}\n", shown.value(row)))
        .collect()
}
