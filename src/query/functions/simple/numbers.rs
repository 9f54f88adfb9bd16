//! Bits and digits of numbers, the gamma function, neighbours of floats, and bars.
//!
//! Comes in: numbers; texts and bytes whose digits are wanted. Goes out: counts, floats, texts of digits. Never here: digits of floats.

use std::fmt::Write;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Float64Array, Int64Array, StringViewArray,
};
use arrow::compute::{binary, cast};
use arrow::datatypes::{
    DataType, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type, UInt16Type,
    UInt32Type, UInt64Type,
};
use datafusion::common::plan_err;
use datafusion::error::Result;
use datafusion::logical_expr::scalar_doc_sections::{DOC_SECTION_MATH, DOC_SECTION_STRING};

use super::{Function, Takes, float, is_text, text, truth, whole, wrong};

pub(super) const ALL: &[Function] = &[
    Function {
        name: "bit_count",
        aliases: &[],
        section: DOC_SECTION_MATH,
        about: "How many bits of a whole number are set, of a negative one in the width of its type.",
        takes: &[("number", Takes::Integer)],
        least: 1,
        repeats: false,
        returned: whole,
        made: bit_count,
    },
    Function {
        name: "gamma",
        aliases: &[],
        section: DOC_SECTION_MATH,
        about: "The gamma function, which continues the factorial: gamma(n + 1) is n!.",
        takes: &[("number", Takes::Float)],
        least: 1,
        repeats: false,
        returned: float,
        made: |arrays| of_floats(arrays, libm::tgamma),
    },
    Function {
        name: "lgamma",
        aliases: &[],
        section: DOC_SECTION_MATH,
        about: "The natural logarithm of the absolute value of the gamma function.",
        takes: &[("number", Takes::Float)],
        least: 1,
        repeats: false,
        returned: float,
        made: |arrays| of_floats(arrays, libm::lgamma),
    },
    Function {
        name: "nextafter",
        aliases: &[],
        section: DOC_SECTION_MATH,
        about: "The next float after a number towards another one.",
        takes: &[("number", Takes::Float), ("towards", Takes::Float)],
        least: 2,
        repeats: false,
        returned: float,
        made: next_after,
    },
    Function {
        name: "bar",
        aliases: &[],
        section: DOC_SECTION_STRING,
        about: "A bar whose length says where a number lies between two others, of so many letters at most: 80, or 1 to 1000.",
        takes: &[
            ("number", Takes::Float),
            ("least", Takes::Float),
            ("most", Takes::Float),
            ("width", Takes::Float),
        ],
        least: 3,
        repeats: false,
        returned: text,
        made: bars,
    },
    Function {
        name: "signbit",
        aliases: &[],
        section: DOC_SECTION_MATH,
        about: "Whether the sign of a number is negative, that of -0.0 too.",
        takes: &[("number", Takes::Float)],
        least: 1,
        repeats: false,
        returned: truth,
        made: sign_bit,
    },
    Function {
        name: "to_base",
        aliases: &[],
        section: DOC_SECTION_MATH,
        about: "The digits of a whole number, that is not negative, for a base of 2 to 36, with zeros before them up to a length of at most 64.",
        takes: &[
            ("number", Takes::Whole),
            ("base", Takes::Whole),
            ("length", Takes::Whole),
        ],
        least: 2,
        repeats: false,
        returned: text,
        made: to_base,
    },
    Function {
        name: "bin",
        aliases: &["to_binary"],
        section: DOC_SECTION_STRING,
        about: "The binary digits of a whole number, in 64 bits where it is negative, or of each byte of a text or of bytes.",
        takes: &[("value", Takes::Any)],
        least: 1,
        repeats: false,
        returned: of_digits,
        made: |arrays| digits(arrays, &BINARY),
    },
    Function {
        name: "hex",
        aliases: &[],
        section: DOC_SECTION_STRING,
        about: "The hexadecimal digits of a whole number, in 64 bits where it is negative, or of each byte of a text or of bytes, in large letters.",
        takes: &[("value", Takes::Any)],
        least: 1,
        repeats: false,
        returned: of_digits,
        made: |arrays| digits(arrays, &HEXADECIMAL),
    },
];

fn bit_count(arrays: &[ArrayRef]) -> Result<ArrayRef> {
    let [numbers] = arrays else {
        return datafusion::common::internal_err!("bits of several numbers");
    };
    macro_rules! counted {
        ($($type:ident: $kind:ident),*) => {
            match numbers.data_type() {
                $(DataType::$kind => {
                    let numbers = numbers.as_primitive::<$type>();
                    numbers.unary(|number| i64::from(number.count_ones()))
                })*
                other => return datafusion::common::internal_err!("bits of {other}"),
            }
        };
    }
    let counts: Int64Array = counted!(
        Int8Type: Int8,
        Int16Type: Int16,
        Int32Type: Int32,
        Int64Type: Int64,
        UInt8Type: UInt8,
        UInt16Type: UInt16,
        UInt32Type: UInt32,
        UInt64Type: UInt64
    );
    Ok(Arc::new(counts))
}

fn of_floats(arrays: &[ArrayRef], value: fn(f64) -> f64) -> Result<ArrayRef> {
    let [numbers] = arrays else {
        return datafusion::common::internal_err!("one value of several numbers");
    };
    let numbers = numbers.as_primitive::<Float64Type>();
    let values: Float64Array = numbers.unary(value);
    Ok(Arc::new(values))
}

fn next_after(arrays: &[ArrayRef]) -> Result<ArrayRef> {
    let [numbers, towards] = arrays else {
        return datafusion::common::internal_err!("neighbours of {} columns", arrays.len());
    };
    let (numbers, towards) = (
        numbers.as_primitive::<Float64Type>(),
        towards.as_primitive::<Float64Type>(),
    );
    let values: Float64Array = binary(numbers, towards, libm::nextafter)?;
    Ok(Arc::new(values))
}

/// Eighths of a letter, from none to seven.
const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];

fn bars(arrays: &[ArrayRef]) -> Result<ArrayRef> {
    let columns: Vec<&Float64Array> = arrays.iter().map(|array| array.as_primitive()).collect();
    let rows = columns.first().map_or(0, |column| column.len());
    let at = |row: usize| {
        let one = |column: &&Float64Array| column.is_valid(row).then(|| column.value(row));
        let values: Option<Vec<f64>> = columns.iter().map(one).collect();
        match values.as_deref() {
            Some([number, least, most]) => bar(*number, *least, *most, 80.0).map(Some),
            Some([number, least, most, width]) => bar(*number, *least, *most, *width).map(Some),
            _ => Ok(None),
        }
    };
    let texts: StringViewArray = (0..rows).map(at).collect::<Result<_>>()?;
    Ok(Arc::new(texts))
}

fn bar(number: f64, least: f64, most: f64, width: f64) -> Result<String> {
    if !(1.0..=1000.0).contains(&width) {
        return Err(wrong(format!("the width of bar must be 1 to 1000, got {width}")).into());
    }
    let share = match number {
        number if number <= least => 0.0,
        number if number >= most => 1.0,
        number => (number - least) / (most - least),
    };
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "0 to 8000, and NaN is 0"
    )]
    let (eighths, letters) = ((share * width * 8.0) as usize, width as usize);
    let mut text = "█".repeat(eighths / 8);
    text += EIGHTHS.get(eighths % 8).copied().unwrap_or_default();
    let missing = letters.saturating_sub(eighths.div_ceil(8));
    text += &" ".repeat(missing);
    Ok(text)
}

fn sign_bit(arrays: &[ArrayRef]) -> Result<ArrayRef> {
    let [numbers] = arrays else {
        return datafusion::common::internal_err!("the sign of several numbers");
    };
    let numbers = numbers.as_primitive::<Float64Type>().iter();
    let signs: BooleanArray = numbers
        .map(|number| number.map(f64::is_sign_negative))
        .collect();
    Ok(Arc::new(signs))
}

fn to_base(arrays: &[ArrayRef]) -> Result<ArrayRef> {
    let columns: Vec<&Int64Array> = arrays.iter().map(|array| array.as_primitive()).collect();
    let rows = columns.first().map_or(0, |column| column.len());
    let at = |row: usize| {
        let one = |column: &&Int64Array| column.is_valid(row).then(|| column.value(row));
        let values: Option<Vec<i64>> = columns.iter().map(one).collect();
        match values.as_deref() {
            Some([number, base]) => in_base(*number, *base, 0).map(Some),
            Some([number, base, length]) => in_base(*number, *base, *length).map(Some),
            _ => Ok(None),
        }
    };
    let texts: StringViewArray = (0..rows).map(at).collect::<Result<_>>()?;
    Ok(Arc::new(texts))
}

fn in_base(number: i64, base: i64, length: i64) -> Result<String> {
    let Ok(mut number) = u64::try_from(number) else {
        return Err(wrong(format!("to_base takes no negative number, got {number}")).into());
    };
    let radix = match u32::try_from(base) {
        Ok(base @ 2..=36) => base,
        _ => return Err(wrong(format!("the base of to_base must be 2 to 36, got {base}")).into()),
    };
    let length = match usize::try_from(length) {
        Ok(length @ 0..=64) => length,
        _ => {
            let text = format!("the length of to_base must be 0 to 64, got {length}");
            return Err(wrong(text).into());
        }
    };
    let mut digits = Vec::new();
    while number > 0 || digits.is_empty() {
        let digit = u32::try_from(number % u64::from(radix)).unwrap_or_default();
        digits.extend(char::from_digit(digit, radix));
        number /= u64::from(radix);
    }
    while digits.len() < length {
        digits.push('0');
    }
    let letters = digits.iter().rev().map(char::to_ascii_uppercase);
    Ok(letters.collect())
}

/// How a number and a byte are written.
struct Digits {
    number: fn(u128) -> String,
    byte: fn(&mut String, u8) -> std::fmt::Result,
}

const BINARY: Digits = Digits {
    number: |number| format!("{number:b}"),
    byte: |text, byte| write!(text, "{byte:08b}"),
};

const HEXADECIMAL: Digits = Digits {
    number: |number| format!("{number:X}"),
    byte: |text, byte| write!(text, "{byte:02X}"),
};

/// Digits are those of whole numbers, texts and bytes.
fn of_digits(types: &[DataType]) -> Result<DataType> {
    match types {
        [kind] if is_text(kind) || kind.is_integer() || kind.is_binary() => Ok(DataType::Utf8View),
        [DataType::FixedSizeBinary(_)] => Ok(DataType::Utf8View),
        [other] => plan_err!("hex and bin take a whole number, a text or bytes, got {other}"),
        _ => datafusion::common::internal_err!("digits of several values"),
    }
}

fn digits(arrays: &[ArrayRef], digits: &Digits) -> Result<ArrayRef> {
    let [values] = arrays else {
        return datafusion::common::internal_err!("digits of several values");
    };
    let texts: StringViewArray = match values.data_type() {
        DataType::UInt64 => {
            let numbers = values.as_primitive::<UInt64Type>().iter();
            numbers
                .map(|number| number.map(|number| (digits.number)(u128::from(number))))
                .collect()
        }
        kind if kind.is_integer() => {
            let numbers = cast(values, &DataType::Int64)?;
            let numbers = numbers.as_primitive::<Int64Type>().iter();
            let of_number = |number: i64| (digits.number)(u128::from(number.cast_unsigned()));
            numbers.map(|number| number.map(of_number)).collect()
        }
        _ => {
            let bytes = cast(values, &DataType::BinaryView)?;
            let written = |bytes: &[u8]| {
                let mut text = String::new();
                for byte in bytes {
                    (digits.byte)(&mut text, *byte)?;
                }
                Ok::<_, std::fmt::Error>(text)
            };
            let texts = bytes.as_binary_view().iter();
            let texts = texts.map(|bytes| bytes.map(written).transpose());
            texts
                .collect::<Result<_, std::fmt::Error>>()
                .map_err(|error| wrong(error.to_string()))?
        }
    };
    Ok(Arc::new(texts))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_as_long_as_they_may_be() {
        for (number, width, wanted) in [
            (5.0, 10.0, "█████     "),
            (50.0, 4.0, "████"),
            (-1.0, 3.0, "   "),
            (3.3, 7.0, "██▎    "),
            (10.0, 2.5, "██▌"),
            (f64::NAN, 2.0, "  "),
        ] {
            assert_eq!(bar(number, 0.0, 10.0, width).unwrap(), wanted);
        }
        for width in [0.5, 1001.0, f64::NAN] {
            assert!(bar(1.0, 0.0, 10.0, width).is_err());
        }
    }

    #[test]
    fn digits_for_every_base() {
        assert_eq!(in_base(i64::MAX, 36, 0).unwrap(), "1Y2P0IJ32E8E7");
        assert_eq!(in_base(0, 2, 0).unwrap(), "0");
        assert_eq!(in_base(10, 2, 8).unwrap(), "00001010");
        for (number, base, length) in [(-1, 2, 0), (1, 1, 0), (1, 37, 0), (1, 2, 65), (1, 2, -1)] {
            assert!(in_base(number, base, length).is_err());
        }
    }
}
