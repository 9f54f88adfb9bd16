//! Texts by a format: `format('{} is {:.2f}', name, price)` as in Python and DuckDB, `printf('%s is %.2f', name, price)` as in C.
//!
//! Comes in: a format and values. Goes out: the text; null where one of them is null. How formats are read stands in `read.rs`, how values are written in `write.rs`. Never here: formats of dates (`strftime`).

mod read;
mod write;

use std::sync::{Arc, LazyLock};

use arrow::array::{Array, ArrayRef, AsArray, StringBuilder};
use arrow::datatypes::{DataType, Decimal128Type, Float64Type, Int64Type};
use datafusion::common::{ScalarValue, plan_err};
use datafusion::error::Result;
use datafusion::logical_expr::scalar_doc_sections::DOC_SECTION_STRING;
use datafusion::logical_expr::{
    ColumnarValue, Documentation, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};

use self::read::{Part, read};
use self::write::Written;
use crate::error::{Error, ErrorKind};

/// The functions. What they make may be far larger than what they are given.
pub(super) fn functions() -> [ScalarUDF; 2] {
    [Style::Braces, Style::Percents].map(|style| {
        ScalarUDF::from(Format {
            style,
            signature: Signature::user_defined(Volatility::Immutable),
        })
    })
}

/// How a format marks the places of values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Style {
    Braces,
    Percents,
}

impl Style {
    fn name(self) -> &'static str {
        match self {
            Self::Braces => "format",
            Self::Percents => "printf",
        }
    }
}

static BRACES: LazyLock<Documentation> = LazyLock::new(|| {
    Documentation::builder(
        DOC_SECTION_STRING,
        "A text with values in the places that a format marks: {}, {0}, and with how they are written: {:>8}, {:05d}, {:,.2f}, {:x}, {:e}.",
        "format(format, value, ...)",
    )
    .with_argument("format", "A text with such marks; {{ and }} are brackets.")
    .with_argument("value", "What stands at the next mark, or at those with its number, from 0.")
    .with_sql_example("SELECT format('{} costs {:,.2f}', 'it', 1234.5) -- it costs 1,234.50")
    .build()
});

static PERCENTS: LazyLock<Documentation> = LazyLock::new(|| {
    Documentation::builder(
        DOC_SECTION_STRING,
        "A text with values in the places that a format marks, as in C: %d, %s, %8.2f, %05d, %x, and %,d for groups of digits.",
        "printf(format, value, ...)",
    )
    .with_argument("format", "A text with such marks; %% is a percent sign.")
    .with_argument("value", "What stands at the next mark.")
    .with_sql_example("SELECT printf('%s costs %.2f', 'it', 1234.5) -- it costs 1234.50")
    .build()
});

#[derive(Debug, PartialEq, Eq, Hash)]
struct Format {
    style: Style,
    signature: Signature,
}

impl ScalarUDFImpl for Format {
    fn name(&self) -> &'static str {
        self.style.name()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn documentation(&self) -> Option<&Documentation> {
        Some(match self.style {
            Style::Braces => &BRACES,
            Style::Percents => &PERCENTS,
        })
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        let Some((format, values)) = types.split_first() else {
            return plan_err!("{} takes a format and values, got nothing", self.name());
        };
        if !(format.is_string() || format.is_null() || matches!(format, DataType::Dictionary(..))) {
            return plan_err!("the format of {} is a text, got {format}", self.name());
        }
        let kinds = values.iter().map(kind_of);
        Ok([DataType::Utf8View].into_iter().chain(kinds).collect())
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8)
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let is_one = |value: &ColumnarValue| matches!(value, ColumnarValue::Scalar(_));
        let are_scalars = arguments.args.iter().all(is_one);
        let arrays = ColumnarValue::values_to_arrays(&arguments.args)?;
        let Some((formats, values)) = arrays.split_first() else {
            return datafusion::common::internal_err!("{} of nothing", self.name());
        };
        let made = self.made(formats, values)?;
        Ok(match are_scalars {
            true => ColumnarValue::Scalar(ScalarValue::try_from_array(&made, 0)?),
            false => ColumnarValue::Array(made),
        })
    }
}

/// The type in which values of another are written.
fn kind_of(kind: &DataType) -> DataType {
    match kind {
        DataType::UInt64 => DataType::Decimal128(20, 0),
        kind if kind.is_integer() => DataType::Int64,
        DataType::Decimal128(digits, 0) => DataType::Decimal128(*digits, 0),
        kind if kind.is_floating() || kind.is_decimal() => DataType::Float64,
        _ => DataType::Utf8View,
    }
}

/// A column of values.
enum Values<'a> {
    Whole(&'a arrow::array::Int64Array),
    Long(&'a arrow::array::Decimal128Array),
    Float(&'a arrow::array::Float64Array),
    Text(&'a arrow::array::StringViewArray),
}

impl<'a> Values<'a> {
    fn of(values: &'a ArrayRef) -> Self {
        match values.data_type() {
            DataType::Int64 => Self::Whole(values.as_primitive::<Int64Type>()),
            DataType::Decimal128(..) => Self::Long(values.as_primitive::<Decimal128Type>()),
            DataType::Float64 => Self::Float(values.as_primitive::<Float64Type>()),
            _ => Self::Text(values.as_string_view()),
        }
    }

    fn at(&self, row: usize) -> Written<'a> {
        match self {
            Self::Whole(values) => Written::Whole(values.value(row).into()),
            Self::Long(values) => Written::Whole(values.value(row)),
            Self::Float(values) => Written::Float(values.value(row)),
            Self::Text(values) => Written::Text(values.value(row)),
        }
    }
}

impl Format {
    fn made(&self, formats: &ArrayRef, values: &[ArrayRef]) -> Result<ArrayRef> {
        let mut made = StringBuilder::new();
        let mut text = String::new();
        let mut known: Option<(&str, Vec<Part>)> = None;
        let columns: Vec<Values<'_>> = values.iter().map(Values::of).collect();
        for (row, format) in formats.as_string_view().iter().enumerate() {
            let Some(format) = format.filter(|_| values.iter().all(|values| values.is_valid(row)))
            else {
                made.append_null();
                continue;
            };
            let parts = match known.take().filter(|(known, _)| *known == format) {
                Some((_, parts)) => parts,
                None => read(format, self.style).map_err(|wrong| self.wrong(format, &wrong))?,
            };
            text.clear();
            for part in &parts {
                match part {
                    Part::Text(part) => text.push_str(part),
                    Part::Value { place, how } => {
                        let value = columns.get(*place).map(|values| values.at(row));
                        let written = match value {
                            Some(value) => value.put(how, &mut text),
                            None => Err(format!(
                                "it has a place for value {}, and there are {}",
                                place + 1,
                                columns.len()
                            )),
                        };
                        written.map_err(|wrong| self.wrong(format, &wrong))?;
                    }
                }
            }
            made.append_value(&text);
            known = Some((format, parts));
        }
        Ok(Arc::new(made.finish()))
    }

    fn wrong(&self, format: &str, wrong: &str) -> datafusion::error::DataFusionError {
        let error = Error::new(
            ErrorKind::Query,
            format!("the format '{format}' of {}: {wrong}", self.name()),
        );
        let hint = match self.style {
            Style::Braces => "format('{} of {:,.2f}', text, number)",
            Style::Percents => "printf('%s of %.2f', text, number)",
        };
        error.with_hint(hint).into()
    }
}

/// How many bytes the texts have at most.
pub(super) fn most_bytes(arguments: &[ArrayRef]) -> f64 {
    let Some((formats, values)) = arguments.split_first() else {
        return 0.0;
    };
    let formats = match arrow::compute::cast(formats, &DataType::Utf8View) {
        Ok(formats) => formats,
        Err(_) => return 0.0,
    };
    let is_text = |kind: &DataType| !kind.is_numeric();
    let texts: Vec<Option<ArrayRef>> = values
        .iter()
        .map(|values| match is_text(values.data_type()) {
            true => arrow::compute::cast(values, &DataType::Utf8View).ok(),
            false => None,
        })
        .collect();
    let mut bytes = 0.0;
    for (row, format) in formats.as_string_view().iter().enumerate() {
        let format = format.unwrap_or_default();
        let longest = texts.iter().flatten().map(|texts| {
            let texts = texts.as_string_view();
            texts.views().get(row).map_or(0, |view| *view & 0xffff_ffff)
        });
        let longest = u32::try_from(longest.max().unwrap_or_default()).unwrap_or(u32::MAX);
        let places = format
            .bytes()
            .filter(|byte| matches!(byte, b'{' | b'%'))
            .count();
        // A number with a width of three digits has a thousand letters, and a float without one 310.
        let written = format.len() * 128 + places * 400;
        bytes += as_f64(written) + as_f64(places) * f64::from(longest);
    }
    bytes
}

#[expect(clippy::cast_precision_loss, reason = "an estimate")]
fn as_f64(number: usize) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(format: &str, style: Style, values: &[Written<'_>]) -> Result<String, String> {
        let mut text = String::new();
        for part in read(format, style)? {
            match part {
                Part::Text(part) => text.push_str(&part),
                Part::Value { place, how } => {
                    let value = values.get(place).ok_or("no value")?;
                    value.put(&how, &mut text)?;
                }
            }
        }
        Ok(text)
    }

    fn braces(format: &str, value: Written<'_>) -> String {
        written(format, Style::Braces, &[value]).unwrap()
    }

    fn percents(format: &str, value: Written<'_>) -> String {
        written(format, Style::Percents, &[value]).unwrap()
    }

    #[test]
    fn floats_have_the_digits_that_are_asked_for() {
        use Written::Float;
        for (format, number, wanted) in [
            ("{}", 1.0, "1.0"),
            ("{}", 1e20, "1e+20"),
            ("{}", -0.1, "-0.1"),
            ("{:.2f}", 3.2468, "3.25"),
            ("{:.0f}", 2.5, "2"),
            ("{:010.2f}", -1.5, "-000001.50"),
            ("{:e}", 1234.5, "1.234500e+03"),
            ("{:g}", 1e10, "1e+10"),
            ("{:g}", 1234.5, "1234.5"),
            ("{:g}", 0.00001, "1e-05"),
            ("{:,}", -1_234_567.5, "-1,234,567.5"),
            ("{:,.2f}", 1_234_567.891, "1,234,567.89"),
            ("{:+.1f}", 0.25, "+0.2"),
            ("{:f}", f64::INFINITY, "inf"),
            ("{}", f64::NAN, "nan"),
        ] {
            assert_eq!(braces(format, Float(number)), wanted, "{format} {number}");
        }
    }

    #[test]
    fn whole_numbers_have_bases_and_widths() {
        use Written::Whole;
        for (format, number, wanted) in [
            ("{:05d}", 42, "00042"),
            ("{:x}{{}}", 255, "ff{}"),
            ("{:#X}", 255, "0XFF"),
            ("{:b}", 5, "101"),
            ("{:10}|", 5, "         5|"),
            ("{:<4}|", 5, "5   |"),
            ("{:*^7,}", 1234, "*1,234*"),
            ("{:_}", -1_234_567, "-1_234_567"),
            ("{: d}", 5, " 5"),
        ] {
            assert_eq!(braces(format, Whole(number)), wanted, "{format} {number}");
        }
        for (format, number, wanted) in [
            ("%05d%%", 42, "00042%"),
            ("%-5d|", 2, "2    |"),
            ("%,d", 1_234_567, "1,234,567"),
            ("%c", 65, "A"),
            ("%X", 255, "FF"),
        ] {
            assert_eq!(percents(format, Whole(number)), wanted, "{format} {number}");
        }
    }

    #[test]
    fn texts_are_cut_and_filled() {
        use Written::Text;
        assert_eq!(braces("{:>3}", Text("ä")), "  ä");
        assert_eq!(braces("{:.2}|", Text("äöü")), "äö|");
        assert_eq!(braces("{:é>3}", Text("a")), "ééa");
        assert_eq!(percents("%5s|", Text("a")), "    a|");
        assert_eq!(percents("%-5.3s|", Text("abcdef")), "abc  |");
        let both = [Text("a"), Text("b")];
        assert_eq!(written("{1} {0}", Style::Braces, &both).unwrap(), "b a");
    }

    #[test]
    fn wrong_formats_are_refused() {
        for format in ["{", "}", "{a}", "{:q}", "{:5000}", "{:d", "{:>"] {
            assert!(read(format, Style::Braces).is_err(), "{format}");
        }
        for format in ["%", "%5", "%y", "%99999d"] {
            assert!(read(format, Style::Percents).is_err(), "{format}");
        }
        assert!(written("{:d}", Style::Braces, &[Written::Float(1.5)]).is_err());
        assert!(written("%d", Style::Percents, &[Written::Text("a")]).is_err());
    }
}
