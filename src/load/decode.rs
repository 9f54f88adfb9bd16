//! Pages -> one column of one tile.
//!
//! Comes in: the pages of a column chunk or several, the rows that are wanted. Goes out: one array of exactly these rows, in the type of the grid. Synchronous: this is
//! where the processor's time goes. Never here: which rows or columns are wanted, waiting.

use arrow::array::{
    Array, ArrayRef, BooleanArray, RecordBatchReader, Scalar, UInt64Array, new_empty_array,
    new_null_array,
};
use arrow::compute::kernels::cmp::distinct;
use arrow::compute::{CastOptions, cast_with_options, concat, filter, take};
use arrow::datatypes::Field;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ParquetRecordBatchReaderBuilder, RowSelection, RowSelectionPolicy,
};

use super::claims::Claims;
use super::error::from_parquet;
use super::footer::Footer;
use super::hive::{HiveColumn, PLAIN_NAMES};
use super::input::Pages;
use super::intervals;
use super::layout::ReadTask;
use super::schema::Origin;
use super::source::SourceFile;
use crate::error::{Error, Result};

const STRICT: CastOptions<'static> = CastOptions {
    safe: false,
    format_options: FormatOptions::new(),
};

/// Which rows of a row band are decoded.
#[derive(Debug, Clone)]
pub(super) struct Rows {
    /// Among all rows of the row groups of the task; nothing: those of the task.
    pub(super) selection: Option<RowSelection>,
    /// How many they are.
    pub(super) num_rows: usize,
    /// Which of them are kept in the end; nothing: all.
    pub(super) mask: Option<BooleanArray>,
}

impl Rows {
    /// All rows of a task.
    pub(super) fn all(task: &ReadTask) -> Self {
        Self {
            selection: None,
            num_rows: usize::try_from(task.num_rows).unwrap_or(usize::MAX),
            mask: None,
        }
    }

    /// How many are kept in the end.
    pub(super) fn num_kept(&self) -> usize {
        self.mask
            .as_ref()
            .map_or(self.num_rows, BooleanArray::true_count)
    }
}

/// One column of one tile: what is needed to decode it.
pub(super) struct ColumnWork<'a> {
    pub(super) file: &'a SourceFile,
    pub(super) footer: &'a Footer,
    pub(super) task: &'a ReadTask,
    pub(super) rows: &'a Rows,
    pub(super) field: &'a Field,
    pub(super) origin: &'a Origin,
}

impl ColumnWork<'_> {
    /// The column; `pages` hold those of the file's column of that name, if it is read from the file and the file has it.
    pub(super) fn decode(&self, pages: &Pages) -> Result<ArrayRef> {
        let column = match self.origin.folder(self.field.name(), self.footer) {
            Some(hive) => self.folder_column(hive)?,
            None => {
                let column = self.file_column(pages)?;
                if let Origin::Both(hive) = self.origin {
                    self.check_folder(&column, &self.folder_value(hive)?)?;
                }
                column
            }
        };
        if column.null_count() > 0 && !self.field.is_nullable() {
            return Err(self.damaged("a column that is declared without nulls has some".to_owned()));
        }
        match &self.rows.mask {
            None => Ok(column),
            Some(mask) => Ok(filter(&column, mask)?),
        }
    }

    fn num_rows(&self) -> usize {
        self.rows.num_rows
    }

    fn file_column(&self, pages: &Pages) -> Result<ArrayRef> {
        let root = self.footer.schema().index_of(self.field.name());
        let Ok(root) = root else {
            return Ok(new_null_array(self.field.data_type(), self.num_rows()));
        };
        let claims = Claims::of(self.footer.parquet(), self.task.row_groups.clone(), root);
        let pages = pages.checked(claims);
        let months = self.footer.for_months(root);
        let months = months.map_err(|error| self.named(from_parquet(error, &self.file.name)))?;
        let column = match months {
            None => self.read(pages, root, self.footer.metadata.clone())?,
            Some(metadata) => {
                let months = self.read(pages.clone(), root, metadata)?;
                let days = self.read(pages, root, self.footer.metadata.clone())?;
                intervals::whole(&days, &months, self.footer.schema().field(root))?
            }
        };
        if column.data_type() == self.field.data_type() {
            return Ok(column);
        }
        let cast = cast_with_options(&column, self.field.data_type(), &STRICT);
        cast.map_err(|error| {
            let text = format!("a value cannot be widened: {error}");
            self.named(Error::invalid_data(text).with_source(error))
        })
    }

    fn read(&self, pages: Pages, root: usize, metadata: ArrowReaderMetadata) -> Result<ArrayRef> {
        let num_rows = self.num_rows();
        let skip_rows = usize::try_from(self.task.skip_rows).unwrap_or(usize::MAX);
        let parquet_schema = self.footer.parquet().file_metadata().schema_descr();
        let damaged = |error| self.named(from_parquet(error, &self.file.name));
        let builder = ParquetRecordBatchReaderBuilder::new_with_metadata(pages, metadata)
            .with_row_groups(self.task.row_groups.clone().collect())
            .with_projection(ProjectionMask::roots(parquet_schema, [root]))
            .with_batch_size(num_rows.max(1));
        let builder = match &self.rows.selection {
            None => builder.with_offset(skip_rows).with_limit(num_rows),
            // With a mask the reader would look into pages that were not fetched.
            Some(selection) => builder
                .with_row_selection_policy(RowSelectionPolicy::Selectors)
                .with_row_selection(selection.clone()),
        };
        let reader = builder.build().map_err(damaged)?;
        let schema = reader.schema();
        let mut parts = Vec::new();
        for batch in reader {
            let batch = batch.map_err(|error| damaged(error.into()))?;
            parts.extend(batch.columns().first().cloned());
        }
        let column = match (parts.pop(), parts.is_empty(), schema.fields().first()) {
            (Some(only), true, _) => only,
            (None, _, Some(field)) => new_empty_array(field.data_type()),
            (last, ..) => {
                parts.extend(last);
                let parts: Vec<&dyn Array> = parts.iter().map(AsRef::as_ref).collect();
                concat(&parts)?
            }
        };
        if column.len() == num_rows {
            return Ok(column);
        }
        Err(self.damaged(format!(
            "its footer promises {num_rows} rows, its pages hold {}",
            column.len()
        )))
    }

    fn damaged(&self, what: String) -> Error {
        let error = Error::invalid_data(format!("the file is damaged: {what}"));
        self.named(error.with_file(&self.file.name))
    }

    /// The error with file and column, where it has none yet.
    fn named(&self, error: Error) -> Error {
        let error = match error.context("file") {
            None => error.with_file(&self.file.name),
            Some(_) => error,
        };
        error.with_column(self.field.name())
    }

    fn folder_column(&self, hive: &HiveColumn) -> Result<ArrayRef> {
        let value = self.folder_value(hive)?;
        let places = UInt64Array::from_value(0, self.num_rows());
        Ok(take(&value, &places, None)?)
    }

    fn folder_value(&self, hive: &HiveColumn) -> Result<ArrayRef> {
        let value = hive.values.get(self.task.file).cloned();
        value.ok_or_else(|| Error::internal("a folder column has one value for each file"))
    }

    /// A column that is in the file and in the folder name must say the same in both.
    fn check_folder(&self, column: &ArrayRef, value: &ArrayRef) -> Result<()> {
        let folder = self.folder_text();
        let differs = |what: String| {
            self.named(Error::invalid_data(format!(
                "the column and the folder name differ: the folder says `{folder}`, {what}"
            )))
            .with_hint(PLAIN_NAMES)
        };
        let data_type = column.data_type();
        let value = cast_with_options(value, data_type, &STRICT)
            .map_err(|_| differs(format!("which is no {data_type}")))?;
        let unequal = distinct(&column.as_ref(), &Scalar::new(value)).map_err(|error| {
            differs(format!("which cannot be compared with {data_type}")).with_source(error)
        })?;
        let Some(row) = unequal.values().set_indices().next() else {
            return Ok(());
        };
        Err(differs(format!(
            "the column says `{}` in row {} {} ({} of {} rows differ)",
            text_of(column, row),
            match self.rows.selection {
                None => self.task.skip_rows + row as u64,
                Some(_) => row as u64,
            },
            match self.rows.selection {
                None => "of the row group",
                Some(_) => "of those that were read",
            },
            unequal.true_count(),
            unequal.len()
        )))
    }

    /// What the folder name says, as it is written there.
    fn folder_text(&self) -> String {
        let part = |part: &&super::hive::HiveKey| part.key == *self.field.name();
        let found = self.file.hive.iter().find(part);
        let value = found.and_then(|part| part.value.clone());
        value.unwrap_or_else(|| "null".to_owned())
    }
}

fn text_of(column: &ArrayRef, row: usize) -> String {
    let options = FormatOptions::new().with_null("null");
    ArrayFormatter::try_new(column, &options).map_or_else(
        |error| error.to_string(),
        |texts| texts.value(row).to_string(),
    )
}
