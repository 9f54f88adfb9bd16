//! The schemas of all files -> the columns of the grid.
//!
//! Comes in: footers, folder names, the wish for columns, what may differ between files. Goes out: one schema, and for each of its columns where the values come from.
//! All differences that are not borne are reported at once. Never here: values.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};

use super::footer::Footer;
use super::hive::{self, HiveColumn};
use super::options::{LoadOptions, SchemaEvolution};
use super::source::SourceFile;
use super::types::merged;
use crate::error::{Error, Result};
use crate::grid::unknown_column;

/// How many differences an error lists.
const LISTED: usize = 20;

/// Where the values of a column come from.
#[derive(Debug, Clone)]
pub(super) enum Origin {
    /// From the files, under the column's name; null in files that do not have it.
    File,
    /// From the folder names.
    Folder(HiveColumn),
    /// From the files; the folder names hold the same values and are checked against them.
    Both(HiveColumn),
}

impl Origin {
    /// The folders that the column of a file comes from: those of a column that other files have in them, too, where this one has not.
    pub(super) fn folder(&self, name: &str, footer: &Footer) -> Option<&HiveColumn> {
        match self {
            Self::Folder(hive) => Some(hive),
            Self::Both(hive) if footer.schema().index_of(name).is_err() => Some(hive),
            Self::Both(_) | Self::File => None,
        }
    }
}

/// The columns of the grid.
#[derive(Debug, Clone)]
pub(super) struct Columns {
    /// Types, nullability (nullable if any file says so, in nested fields too), metadata of the first file.
    pub(super) schema: SchemaRef,
    /// One for each field.
    pub(super) origins: Vec<Origin>,
    /// How many of them the grid has; those behind are for filters only.
    pub(super) num_visible: usize,
}

impl Columns {
    /// The schema of the grid.
    pub(super) fn visible_schema(&self) -> SchemaRef {
        let fields = self.schema.fields().iter().take(self.num_visible);
        let fields: Vec<FieldRef> = fields.cloned().collect();
        let metadata = self.schema.metadata().clone();
        Arc::new(Schema::new_with_metadata(fields, metadata))
    }

    /// The names of the columns that are read from the files.
    pub(super) fn read_names(&self) -> HashSet<&str> {
        let pairs = self.schema.fields().iter().zip(&self.origins);
        let read = pairs.filter(|(_, origin)| !matches!(origin, Origin::Folder(_)));
        read.map(|(field, _)| field.name().as_str()).collect()
    }
}

/// One schema for all files.
pub(super) fn unify(
    files: &[SourceFile],
    footers: &[Footer],
    options: &LoadOptions,
) -> Result<Columns> {
    let Some(first) = footers.first() else {
        return Err(Error::internal("a load without files"));
    };
    let mut columns: Vec<(FieldRef, Origin)> = Union::of(files, footers, options)?
        .into_iter()
        .map(|field| (field, Origin::File))
        .collect();
    if options.hive_partitioning() {
        for hive in hive::columns(files)? {
            let hive = match options.text_type() {
                Some(text) => hive.with_text(&text)?,
                None => hive,
            };
            match columns
                .iter_mut()
                .find(|(field, _)| field.name() == hive.field.name())
            {
                Some((field, origin)) => *origin = Origin::Both(hive.in_type(field.data_type())?),
                None => columns.push((Arc::clone(&hive.field), Origin::Folder(hive))),
            }
        }
    }
    let chosen = choose(columns, options.columns())?;
    let (fields, origins): (Vec<FieldRef>, Vec<Origin>) = chosen.into_iter().unzip();
    let schema = Schema::new_with_metadata(fields, first.schema().metadata().clone());
    Ok(Columns {
        num_visible: options.num_columns().unwrap_or(origins.len()),
        schema: Arc::new(schema),
        origins,
    })
}

/// The fields of the files seen so far.
struct Union<'a> {
    evolution: SchemaEvolution,
    /// The columns that are asked for; differences of the others do not matter.
    wanted: Option<Vec<&'a str>>,
    fields: Vec<Field>,
    /// Name -> place in `fields`, and the number of files that have it.
    known: HashMap<String, (usize, usize)>,
    differences: Vec<Difference>,
}

/// One way in which a file differs from those before it.
struct Difference {
    file: String,
    column: String,
    text: String,
}

impl<'a> Union<'a> {
    fn of(
        files: &[SourceFile],
        footers: &[Footer],
        options: &'a LoadOptions,
    ) -> Result<Vec<FieldRef>> {
        let mut union = Self {
            evolution: options.schema_evolution(),
            wanted: options.columns(),
            fields: Vec::new(),
            known: HashMap::new(),
            differences: Vec::new(),
        };
        let mut last: Option<&SchemaRef> = None;
        let mut repeats = 0;
        for (number, (file, footer)) in files.iter().zip(footers).enumerate() {
            // Most files are like the one before them.
            if last.is_some_and(|last| last.fields() == footer.schema().fields()) {
                repeats += 1;
                continue;
            }
            check_names(file, footer.schema())?;
            union.count(last, repeats);
            (last, repeats) = (Some(footer.schema()), 0);
            union.add(number == 0, file, footer.schema());
        }
        union.count(last, repeats);
        if let (Some(difference), Some(file)) = (union.differences.first(), files.first()) {
            let error = report(&union.differences, difference, &file.name);
            return Err(error.with_hint(remedy(union.evolution)));
        }
        Ok(union.finish(files.len()))
    }

    /// Counts the columns of a schema for `times` more files.
    fn count(&mut self, schema: Option<&SchemaRef>, times: usize) {
        for field in schema.into_iter().flat_map(|schema| schema.fields()) {
            if let Some((_, files)) = self.known.get_mut(field.name()) {
                *files += times;
            }
        }
    }

    fn add(&mut self, first: bool, file: &SourceFile, schema: &Schema) {
        for (place, field) in schema.fields().iter().enumerate() {
            match self.known.get_mut(field.name()) {
                Some((at, files)) => {
                    *files += 1;
                    let at = *at;
                    self.merge(at, file, place, field);
                }
                None if first || self.evolution != SchemaEvolution::Strict => {
                    let entry = (self.fields.len(), 1);
                    self.known.insert(field.name().clone(), entry);
                    self.fields.push(Field::clone(field));
                }
                None => self.differ(
                    file,
                    field.name(),
                    format!("is column {place} ({}), not expected", field.data_type()),
                ),
            }
        }
        if self.evolution == SchemaEvolution::Strict {
            let missing = self
                .fields
                .iter()
                .filter(|field| schema.column_with_name(field.name()).is_none());
            let missing: Vec<Field> = missing.cloned().collect();
            for field in missing {
                let text = format!("missing, expected {}", field.data_type());
                self.differ(file, field.name(), text);
            }
        }
    }

    fn merge(&mut self, at: usize, file: &SourceFile, place: usize, field: &Field) {
        let Some(known) = self.fields.get_mut(at) else {
            return;
        };
        let nullable = known.is_nullable() || field.is_nullable();
        match both(known.data_type(), field.data_type(), self.evolution) {
            Some(data_type) => {
                *known = known
                    .clone()
                    .with_data_type(data_type)
                    .with_nullable(nullable);
            }
            None => {
                let (got, wanted) = (field.data_type(), known.data_type().clone());
                let text = format!("is column {place} and {got}, expected {wanted}");
                self.differ(file, field.name(), text);
            }
        }
    }

    fn differ(&mut self, file: &SourceFile, column: &str, text: String) {
        if self
            .wanted
            .as_ref()
            .is_some_and(|wanted| !wanted.contains(&column))
        {
            return;
        }
        self.differences.push(Difference {
            file: file.name.clone(),
            column: column.to_owned(),
            text,
        });
    }

    /// The fields, nullable where a file has none.
    fn finish(self, num_files: usize) -> Vec<FieldRef> {
        let known = self.known;
        let everywhere = |field: &Field| {
            known
                .get(field.name())
                .is_some_and(|(_, files)| *files == num_files)
        };
        let fields = self.fields.into_iter().map(|field| {
            let nullable = field.is_nullable() || !everywhere(&field);
            Arc::new(field.with_nullable(nullable))
        });
        fields.collect()
    }
}

/// The type of a column in two files, if this evolution bears it. A column without any value (Arrow's null type) counts as missing.
fn both(left: &DataType, right: &DataType, evolution: SchemaEvolution) -> Option<DataType> {
    match (left, right, evolution) {
        (DataType::Null, other, SchemaEvolution::Union)
        | (other, DataType::Null, SchemaEvolution::Union) => Some(other.clone()),
        (_, _, evolution) => merged(left, right, evolution == SchemaEvolution::Widen),
    }
}

fn check_names(file: &SourceFile, schema: &Schema) -> Result<()> {
    let mut seen = HashSet::new();
    match schema
        .fields()
        .iter()
        .find(|field| !seen.insert(field.name()))
    {
        None => Ok(()),
        Some(twice) => Err(
            Error::invalid_data("two columns of the file have the same name")
                .with_file(&file.name)
                .with_column(twice.name()),
        ),
    }
}

fn report(differences: &[Difference], first: &Difference, expected_by: &str) -> Error {
    let listed = differences.iter().take(LISTED);
    let mut lines: Vec<String> = listed
        .map(|difference| {
            format!(
                "  {}: column `{}` {}",
                difference.file, difference.column, difference.text
            )
        })
        .collect();
    if differences.len() > LISTED {
        lines.push(format!("  and {} more", differences.len() - LISTED));
    }
    Error::invalid_data(format!(
        "the files differ from the first, {expected_by}:\n{}",
        lines.join("\n")
    ))
    .with_file(&first.file)
    .with_column(&first.column)
}

/// What bears more differences than this.
fn remedy(evolution: SchemaEvolution) -> &'static str {
    match evolution {
        SchemaEvolution::Strict => {
            "schema_evolution=\"union\" fills missing columns with nulls, \"widen\" also widens types"
        }
        SchemaEvolution::Union => "schema_evolution=\"widen\" also widens types",
        SchemaEvolution::Widen => {
            "no type holds the values of both exactly: load these files apart, or without the column"
        }
    }
}

fn choose(
    columns: Vec<(FieldRef, Origin)>,
    wanted: Option<Vec<&str>>,
) -> Result<Vec<(FieldRef, Origin)>> {
    let Some(wanted) = wanted else {
        return Ok(columns);
    };
    let pick = |name: &&str| {
        let found = columns.iter().find(|(field, _)| field.name() == *name);
        found.cloned().ok_or_else(|| {
            unknown_column(name, columns.iter().map(|(field, _)| field.name().as_str()))
        })
    };
    wanted.iter().map(pick).collect()
}
