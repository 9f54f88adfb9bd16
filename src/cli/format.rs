//! Query results as CSV, JSON, Arrow and Parquet.
//!
//! Comes in: a schema and batches, one after the other. Goes out: bytes, batch by batch; nothing is gathered, except what a row group of Parquet holds. Never
//! here: a value or a column that the format cannot keep: those are errors.

use std::collections::HashSet;
use std::io::Write;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow::ipc::writer::{FileWriter, StreamWriter};
use arrow::json::writer::{LineDelimited, WriterBuilder as JsonBuilder};
use clap::ValueEnum;

use super::output::write_failed;
use crate::error::{Error, Result};
use crate::load::{FileCompression, write_parquet};

/// How a result is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// A table for people, of at most 1,000 rows (see --all)
    Table,
    /// Comma-separated values with a header; a null and an empty text are both empty
    Csv,
    /// One JSON object a line (newline-delimited JSON); NaN and infinity are null
    Json,
    /// An Arrow IPC stream
    Arrow,
    /// An Arrow IPC file (Feather version 2)
    Feather,
    /// A Parquet file, compressed with Zstandard
    Parquet,
}

/// Result batches in order.
pub(super) type Batches<'a> = &'a mut dyn Iterator<Item = Result<RecordBatch>>;

impl Format {
    /// Whether the bytes mean nothing to a person.
    pub(super) fn is_binary(self) -> bool {
        matches!(self, Self::Arrow | Self::Feather | Self::Parquet)
    }

    /// The extensions that say how a result is written.
    pub(super) const EXTENSIONS: &str =
        ".csv, .json, .jsonl, .ndjson, .arrows, .arrow, .feather, .parquet";

    /// The format whose files have this extension. A table is none: it may leave rows out.
    pub(super) fn of_extension(extension: &str) -> Option<Self> {
        match extension.to_ascii_lowercase().as_str() {
            "csv" => Some(Self::Csv),
            "json" | "jsonl" | "ndjson" => Some(Self::Json),
            "arrows" => Some(Self::Arrow),
            "arrow" | "feather" => Some(Self::Feather),
            "parquet" => Some(Self::Parquet),
            _ => None,
        }
    }
}

/// Writes CSV, header first.
pub(super) fn write_csv(
    sink: &mut dyn Write,
    schema: &SchemaRef,
    batches: Batches<'_>,
) -> Result<()> {
    if let Some(nested) = schema
        .fields()
        .iter()
        .find(|field| field.data_type().is_nested())
    {
        return Err(
            Error::unsupported(format!("CSV cannot hold a {}", nested.data_type()))
                .with_column(nested.name())
                .with_hint("take --format json, arrow or parquet"),
        );
    }
    let header = std::iter::once(Ok(RecordBatch::new_empty(Arc::clone(schema))));
    for (number, batch) in header.chain(batches).enumerate() {
        let mut bytes = Vec::new();
        let builder = arrow::csv::WriterBuilder::new().with_header(number == 0);
        builder.build(&mut bytes).write(&batch?)?;
        sink.write_all(&bytes)
            .map_err(|error| write_failed(&error))?;
    }
    Ok(())
}

/// Writes one JSON object a line, nulls included.
pub(super) fn write_json(
    sink: &mut dyn Write,
    schema: &SchemaRef,
    batches: Batches<'_>,
) -> Result<()> {
    check_distinct(schema, "a JSON object")?;
    for batch in batches {
        let mut bytes = Vec::new();
        let builder = JsonBuilder::new().with_explicit_nulls(true);
        let mut writer = builder.build::<_, LineDelimited>(&mut bytes);
        writer.write(&batch?)?;
        writer.finish()?;
        drop(writer);
        sink.write_all(&bytes)
            .map_err(|error| write_failed(&error))?;
    }
    Ok(())
}

/// Writes an Arrow IPC stream.
pub(super) fn write_arrow(
    sink: &mut dyn Write,
    schema: &SchemaRef,
    batches: Batches<'_>,
) -> Result<()> {
    let mut writer = StreamWriter::try_new(Vec::new(), schema)?;
    let mut drain = |bytes: &mut Vec<u8>| {
        let written = sink.write_all(bytes);
        bytes.clear();
        written.map_err(|error| write_failed(&error))
    };
    for batch in batches {
        writer.write(&batch?)?;
        drain(writer.get_mut())?;
    }
    writer.finish()?;
    drain(writer.get_mut())
}

/// Writes an Arrow IPC file.
pub(super) fn write_feather(
    sink: &mut dyn Write,
    schema: &SchemaRef,
    batches: Batches<'_>,
) -> Result<()> {
    let mut writer = FileWriter::try_new(Vec::new(), schema)?;
    let mut drain = |bytes: &mut Vec<u8>| {
        let written = sink.write_all(bytes);
        bytes.clear();
        written.map_err(|error| write_failed(&error))
    };
    for batch in batches {
        writer.write(&batch?)?;
        drain(writer.get_mut())?;
    }
    writer.finish()?;
    drain(writer.get_mut())
}

/// Writes a Parquet file.
pub(super) fn write_parquet_file(
    sink: &mut dyn Write,
    schema: &SchemaRef,
    batches: Batches<'_>,
) -> Result<()> {
    check_distinct(schema, "a Parquet file")?;
    write_parquet(sink, schema, FileCompression::default(), batches)
}

/// Readers would see one of two columns with the same name.
fn check_distinct(schema: &SchemaRef, what: &str) -> Result<()> {
    let mut seen = HashSet::new();
    match schema
        .fields()
        .iter()
        .find(|field| !seen.insert(field.name()))
    {
        None => Ok(()),
        Some(twice) => Err(Error::invalid_argument(format!(
            "the columns of {what} must have distinct names, this one repeats"
        ))
        .with_column(twice.name())
        .with_hint("give one of them another name: SELECT … AS …")),
    }
}
