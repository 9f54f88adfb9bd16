//! Two types of one column -> the type that holds both.
//!
//! Comes in: Arrow types as two files have them. Goes out: the type of the grid's column, or nothing when the types differ. A wider type holds every value of both
//! exactly. Pure. Never here: values, names of files.

use std::sync::Arc;

use arrow::datatypes::{
    DECIMAL128_MAX_PRECISION, DECIMAL256_MAX_PRECISION, DataType, Field, FieldRef, Fields, TimeUnit,
};

/// The type of a column that is `left` in one file and `right` in another. Nested fields may differ in nullability, and the item of a list and the parts of a map
/// in name and metadata: the names are those of `left`. With `widen`, types that a third one holds exactly are merged as well.
pub(super) fn merged(left: &DataType, right: &DataType, widen: bool) -> Option<DataType> {
    use DataType::{FixedSizeList, LargeList, LargeListView, List, ListView, Map, Struct};
    if left == right {
        return Some(left.clone());
    }
    let item = |left, right| item(left, right, widen);
    Some(match (left, right) {
        (List(left), List(right)) => List(item(left, right)?),
        (LargeList(left), LargeList(right)) => LargeList(item(left, right)?),
        (List(left), LargeList(right)) | (LargeList(left), List(right)) if widen => {
            LargeList(item(left, right)?)
        }
        (ListView(left), ListView(right)) => ListView(item(left, right)?),
        (LargeListView(left), LargeListView(right)) => LargeListView(item(left, right)?),
        (FixedSizeList(left, size), FixedSizeList(right, other)) if size == other => {
            FixedSizeList(item(left, right)?, *size)
        }
        (Struct(left), Struct(right)) => Struct(fields(left, right, true, widen)?),
        (Map(left, sorted), Map(right, other)) if sorted == other => {
            Map(entries(left, right, widen)?, *sorted)
        }
        _ if widen => wider(left, right).or_else(|| wider(right, left))?,
        _ => return None,
    })
}

/// The type with `text` in place of every text type in it, but for dictionaries and run-end encodings of texts.
pub(super) fn with_text(data_type: &DataType, text: &DataType) -> DataType {
    use DataType::{
        FixedSizeList, LargeList, LargeListView, LargeUtf8, List, ListView, Map, Struct, Utf8,
        Utf8View,
    };
    let below = |field: &FieldRef| {
        let data_type = with_text(field.data_type(), text);
        Arc::new(Field::clone(field).with_data_type(data_type))
    };
    match data_type {
        Utf8 | LargeUtf8 | Utf8View => text.clone(),
        List(item) => List(below(item)),
        LargeList(item) => LargeList(below(item)),
        ListView(item) => ListView(below(item)),
        LargeListView(item) => LargeListView(below(item)),
        FixedSizeList(item, size) => FixedSizeList(below(item), *size),
        Struct(fields) => Struct(fields.iter().map(below).collect()),
        Map(entries, sorted) => Map(below(entries), *sorted),
        other => other.clone(),
    }
}

/// A field that holds the values of both; name and metadata of `left`.
fn item(left: &FieldRef, right: &FieldRef, widen: bool) -> Option<FieldRef> {
    let data_type = merged(left.data_type(), right.data_type(), widen)?;
    let nullable = left.is_nullable() || right.is_nullable() || data_type.is_null();
    let field = Field::clone(left).with_data_type(data_type);
    Some(Arc::new(field.with_nullable(nullable)))
}

fn fields(left: &Fields, right: &Fields, named: bool, widen: bool) -> Option<Fields> {
    let same_name = |(left, right): (&FieldRef, &FieldRef)| !named || left.name() == right.name();
    if left.len() != right.len() || !left.iter().zip(right).all(same_name) {
        return None;
    }
    let pairs = left.iter().zip(right);
    pairs
        .map(|(left, right)| item(left, right, widen))
        .collect()
}

/// The entries of a map: a struct of key and value.
fn entries(left: &FieldRef, right: &FieldRef, widen: bool) -> Option<FieldRef> {
    let (DataType::Struct(keys), DataType::Struct(others)) = (left.data_type(), right.data_type())
    else {
        return None;
    };
    let data_type = DataType::Struct(fields(keys, others, false, widen)?);
    Some(Arc::new(Field::clone(left).with_data_type(data_type)))
}

/// The flat type that holds both, tried in this order of the two only.
fn wider(left: &DataType, right: &DataType) -> Option<DataType> {
    use DataType::{
        Binary, BinaryView, Date32, Date64, Dictionary, Duration, Float16, Float32, Float64,
        LargeBinary, LargeUtf8, Null, Time32, Time64, Timestamp, Utf8, Utf8View,
    };
    Some(match (left, right) {
        (Null, other) => other.clone(),
        (Dictionary(key, value), Dictionary(other_key, other)) => Dictionary(
            Box::new(integer(key, other_key)?),
            Box::new(merged(value, other, true)?),
        ),
        (Dictionary(_, value), other) => merged(value, other, true)?,
        (Float16, Float32) => Float32,
        (Float16 | Float32, Float64) => Float64,
        (Date32, Date64) => Date64,
        (Utf8, LargeUtf8) | (Utf8View, LargeUtf8) => LargeUtf8,
        (Utf8, Utf8View) => Utf8View,
        (Binary, LargeBinary) | (BinaryView, LargeBinary) => LargeBinary,
        (Binary, BinaryView) => BinaryView,
        (Time32(_), Time64(unit)) => Time64(*unit),
        (Time32(unit), Time32(other)) => Time32(finer(*unit, *other)),
        (Time64(unit), Time64(other)) => Time64(finer(*unit, *other)),
        (Duration(unit), Duration(other)) => Duration(finer(*unit, *other)),
        (Timestamp(unit, zone), Timestamp(other, other_zone)) if zone == other_zone => {
            Timestamp(finer(*unit, *other), zone.clone())
        }
        (whole, Float16 | Float32 | Float64) if whole.is_integer() => float(whole, right)?,
        (whole, other) if whole.is_integer() && other.is_integer() => integer(whole, other)?,
        (whole, other) => decimal(whole, other)?,
    })
}

fn finer(left: TimeUnit, right: TimeUnit) -> TimeUnit {
    left.max(right)
}

/// Bits and sign of an integer type.
fn bits(data_type: &DataType) -> Option<(u32, bool)> {
    Some(match data_type {
        DataType::Int8 => (8, true),
        DataType::Int16 => (16, true),
        DataType::Int32 => (32, true),
        DataType::Int64 => (64, true),
        DataType::UInt8 => (8, false),
        DataType::UInt16 => (16, false),
        DataType::UInt32 => (32, false),
        DataType::UInt64 => (64, false),
        _ => return None,
    })
}

fn integer(left: &DataType, right: &DataType) -> Option<DataType> {
    let ((left, left_signed), (right, right_signed)) = (bits(left)?, bits(right)?);
    let signed = left_signed || right_signed;
    // An unsigned type among signed ones needs a bit more, which is the next type.
    let room = |bits: u32, is_signed: bool| if signed && !is_signed { bits * 2 } else { bits };
    let needed = room(left, left_signed).max(room(right, right_signed));
    Some(match (needed, signed) {
        (8, true) => DataType::Int8,
        (16, true) => DataType::Int16,
        (32, true) => DataType::Int32,
        (64, true) => DataType::Int64,
        (8, false) => DataType::UInt8,
        (16, false) => DataType::UInt16,
        (32, false) => DataType::UInt32,
        (64, false) => DataType::UInt64,
        _ => return None,
    })
}

/// The float type that holds every integer of `whole` exactly and every value of `float`.
fn float(whole: &DataType, float: &DataType) -> Option<DataType> {
    match (bits(whole)?.0, float) {
        (8, DataType::Float16) => Some(DataType::Float16),
        (8 | 16, DataType::Float16 | DataType::Float32) => Some(DataType::Float32),
        (8 | 16 | 32, _) => Some(DataType::Float64),
        _ => None,
    }
}

/// Precision and scale of a decimal type, and of the decimals that an integer type fits in.
fn digits(data_type: &DataType) -> Option<(u8, i8)> {
    Some(match data_type {
        DataType::Decimal32(precision, scale)
        | DataType::Decimal64(precision, scale)
        | DataType::Decimal128(precision, scale)
        | DataType::Decimal256(precision, scale) => (*precision, *scale),
        DataType::UInt64 => (20, 0),
        whole => match bits(whole)?.0 {
            8 => (3, 0),
            16 => (5, 0),
            32 => (10, 0),
            _ => (19, 0),
        },
    })
}

fn decimal(left: &DataType, right: &DataType) -> Option<DataType> {
    if !left.is_decimal() && !right.is_decimal() {
        return None;
    }
    let ((precision, scale), (other_precision, other_scale)) = (digits(left)?, digits(right)?);
    let before = |precision: u8, scale: i8| i16::from(precision) - i16::from(scale);
    let wide_scale = scale.max(other_scale);
    let whole = before(precision, scale).max(before(other_precision, other_scale));
    let wide = u8::try_from(whole + i16::from(wide_scale)).ok()?;
    let small = |name: fn(u8, i8) -> DataType| name(wide, wide_scale);
    let both = |is: fn(&DataType) -> bool| {
        [left, right]
            .into_iter()
            .all(|each| is(each) || each.is_integer())
    };
    if wide <= 9 && both(|each| matches!(each, DataType::Decimal32(..))) {
        Some(small(DataType::Decimal32))
    } else if wide <= 18
        && both(|each| matches!(each, DataType::Decimal32(..) | DataType::Decimal64(..)))
    {
        Some(small(DataType::Decimal64))
    } else if wide <= DECIMAL128_MAX_PRECISION
        && both(|each| !matches!(each, DataType::Decimal256(..)))
    {
        Some(small(DataType::Decimal128))
    } else {
        (wide <= DECIMAL256_MAX_PRECISION).then(|| small(DataType::Decimal256))
    }
}
