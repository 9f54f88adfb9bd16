//! Columns from folder names such as `month=01`.
//!
//! Comes in: the names of the folders above each file. Goes out: the columns they make, typed over all files, and each file's value. Never here: what is in the
//! files.

use std::collections::HashSet;
use std::sync::Arc;

use arrow::array::{ArrayRef, StringArray, new_null_array};
use arrow::compute::{CastOptions, cast, cast_with_options};
use arrow::datatypes::{DataType, Field};
use arrow::error::ArrowError;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use percent_encoding::percent_decode_str;

use super::source::SourceFile;
use crate::error::{Error, Result};

/// The folder name that Hive writes for a null.
pub(super) const NULL: &str = "__HIVE_DEFAULT_PARTITION__";

/// What a type does not hold is an error, not a null.
const STRICT: CastOptions<'static> = CastOptions {
    safe: false,
    format_options: FormatOptions::new(),
};

/// The remedy when folder names are not meant as columns.
pub(super) const PLAIN_NAMES: &str =
    "hive_partitioning=False takes the folder names for plain names";

/// One `key=value` folder; no value means null.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HiveKey {
    pub(super) key: String,
    pub(super) value: Option<String>,
}

/// The keys of folders that look like `key=value`, outermost first.
pub(super) fn keys_of(folders: &[&str]) -> Vec<HiveKey> {
    let keys = folders.iter().filter_map(|folder| {
        let (key, value) = folder.split_once('=')?;
        let decode = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
        (!key.is_empty()).then(|| HiveKey {
            key: decode(key),
            value: (value != NULL).then(|| decode(value)),
        })
    });
    keys.collect()
}

/// A column that folder names make.
#[derive(Debug, Clone)]
pub(super) struct HiveColumn {
    pub(super) field: Arc<Field>,
    /// One value for each file, as an array of one.
    pub(super) values: Vec<ArrayRef>,
}

impl HiveColumn {
    /// The column with texts as `text`.
    pub(super) fn with_text(self, text: &DataType) -> Result<Self> {
        if self.field.data_type() != &DataType::Utf8 {
            return Ok(self);
        }
        let values = self.values.iter();
        let values: Result<Vec<ArrayRef>, ArrowError> =
            values.map(|value| cast(value, text)).collect();
        let field = Field::clone(&self.field).with_data_type(text.clone());
        Ok(Self {
            field: Arc::new(field),
            values: values?,
        })
    }
}

impl HiveColumn {
    /// The column in the type that files have it in.
    ///
    /// # Errors
    /// `InvalidData` for a folder name that is no value of the type.
    pub(super) fn in_type(self, data_type: &DataType) -> Result<Self> {
        let cast = |value: &ArrayRef| {
            let cast = cast_with_options(value, data_type, &STRICT);
            cast.map_err(|error| {
                let text = format!(
                    "the column and the folder name differ: the folder says `{}`, which is no {data_type}",
                    ArrayFormatter::try_new(value, &FormatOptions::new())
                        .map_or_else(|error| error.to_string(), |text| text.value(0).to_string())
                );
                Error::invalid_data(text)
                    .with_column(self.field.name())
                    .with_hint(PLAIN_NAMES)
                    .with_source(error)
            })
        };
        let values = self.values.iter().map(cast).collect::<Result<_>>()?;
        let field = Field::clone(&self.field).with_data_type(data_type.clone());
        Ok(Self {
            field: Arc::new(field),
            values,
        })
    }
}

/// The columns of the folder names. Integers if every value is one and no two are the same number (`01`, `1`), dates if every value is `yyyy-mm-dd`, else text.
pub(super) fn columns(files: &[SourceFile]) -> Result<Vec<HiveColumn>> {
    let Some(first) = files.first() else {
        return Ok(Vec::new());
    };
    if let Some((file, key)) = files.iter().find_map(|file| Some((file, twice(file)?))) {
        return Err(
            Error::invalid_data("two folders above the file have the same key")
                .with_file(&file.name)
                .with_column(key)
                .with_hint(PLAIN_NAMES),
        );
    }
    let names = |file: &SourceFile| -> Vec<String> {
        file.hive.iter().map(|part| part.key.clone()).collect()
    };
    if let Some(other) = files.iter().find(|file| names(file) != names(first)) {
        return Err(Error::invalid_data(format!(
            "all files must lie below the same `key=value` folders: [{}] as in {}, got [{}]",
            names(first).join(", "),
            first.name,
            names(other).join(", ")
        ))
        .with_file(&other.name)
        .with_hint(PLAIN_NAMES));
    }
    let places = 0..first.hive.len();
    places.map(|place| column(files, place)).collect()
}

fn twice(file: &SourceFile) -> Option<&str> {
    let mut seen = HashSet::new();
    let mut keys = file.hive.iter().map(|part| part.key.as_str());
    keys.find(|key| !seen.insert(*key))
}

fn column(files: &[SourceFile], place: usize) -> Result<HiveColumn> {
    let part = |file: &SourceFile| file.hive.get(place).cloned();
    let parts: Vec<HiveKey> = files.iter().filter_map(part).collect();
    let key = parts
        .first()
        .map(|part| part.key.clone())
        .unwrap_or_default();
    let values: Vec<Option<&str>> = parts.iter().map(|part| part.value.as_deref()).collect();
    let data_type = type_of(&values);
    let arrays: Result<Vec<ArrayRef>> = values
        .iter()
        .map(|value| typed(*value, &data_type))
        .collect();
    let nullable = values.iter().any(Option::is_none);
    Ok(HiveColumn {
        field: Arc::new(Field::new(key, data_type, nullable)),
        values: arrays?,
    })
}

fn type_of(values: &[Option<&str>]) -> DataType {
    let known: Vec<&str> = values.iter().flatten().copied().collect();
    if known.is_empty() {
        return DataType::Utf8;
    }
    [DataType::Int64, DataType::Date32]
        .into_iter()
        .find(|data_type| {
            let shaped = |value: &&str| match data_type {
                DataType::Date32 => is_date(value),
                _ => is_integer(value),
            };
            known.iter().all(shaped)
                && known
                    .iter()
                    .all(|value| typed(Some(value), data_type).is_ok())
                && (data_type == &DataType::Date32 || are_different(&known))
        })
        .unwrap_or(DataType::Utf8)
}

/// Whether texts that differ are different numbers, as `01` and `1` are not: rows of one key would come to be those of another.
fn are_different(known: &[&str]) -> bool {
    let texts: HashSet<&str> = known.iter().copied().collect();
    let numbers: HashSet<i64> = texts.iter().filter_map(|text| text.parse().ok()).collect();
    numbers.len() == texts.len()
}

fn is_integer(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}

fn is_date(text: &str) -> bool {
    text.len() == 10
        && text.bytes().enumerate().all(|(place, byte)| match place {
            4 | 7 => byte == b'-',
            _ => byte.is_ascii_digit(),
        })
}

fn typed(value: Option<&str>, data_type: &DataType) -> Result<ArrayRef> {
    let Some(value) = value else {
        return Ok(new_null_array(data_type, 1));
    };
    Ok(cast_with_options(
        &StringArray::from(vec![value]),
        data_type,
        &STRICT,
    )?)
}
