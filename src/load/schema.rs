//! The schemas of all files -> the columns of the grid.
//!
//! Comes in: footers, folder names, the wish for columns. Goes out: one schema, and for each of its columns where the values come from. Strict: every file must have
//! the same columns; all differences are reported at once. Never here: values.

use std::collections::HashSet;
use std::sync::Arc;

use arrow::datatypes::{Field, FieldRef, Schema, SchemaRef};

use super::footer::Footer;
use super::hive::{self, HiveColumn};
use super::options::LoadOptions;
use super::source::SourceFile;
use crate::error::{Error, Result};
use crate::grid::unknown_column;

/// How many differences an error lists.
const LISTED: usize = 20;

/// Where the values of a column come from.
#[derive(Debug, Clone)]
pub(super) enum Origin {
    /// From the files, under the column's name.
    File,
    /// From the folder names.
    Folder(HiveColumn),
    /// From the files; the folder names hold the same values and are checked against them.
    Both(HiveColumn),
}

/// The columns of the grid.
#[derive(Debug, Clone)]
pub(super) struct Columns {
    /// Types, nullability (nullable if any file says so), metadata of the first file.
    pub(super) schema: SchemaRef,
    /// One for each field.
    pub(super) origins: Vec<Origin>,
}

impl Columns {
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
    let mut differences = Vec::new();
    for (file, footer) in files.iter().zip(footers) {
        check_names(file, footer.schema())?;
        compare(
            first.schema(),
            footer.schema(),
            &file.name,
            &mut differences,
        );
    }
    if let (Some(difference), Some(file)) = (differences.first(), files.first()) {
        return Err(report(&differences, difference, &file.name));
    }
    let mut columns: Vec<(FieldRef, Origin)> = (0..first.schema().fields().len())
        .filter_map(|place| Some((merged(footers, place)?, Origin::File)))
        .collect();
    if options.hive_partitioning() {
        for hive in hive::columns(files)? {
            match columns
                .iter_mut()
                .find(|(field, _)| field.name() == hive.field.name())
            {
                Some((_, origin)) => *origin = Origin::Both(hive),
                None => columns.push((Arc::clone(&hive.field), Origin::Folder(hive))),
            }
        }
    }
    let chosen = choose(columns, options.columns())?;
    let (fields, origins): (Vec<FieldRef>, Vec<Origin>) = chosen.into_iter().unzip();
    let schema = Schema::new_with_metadata(fields, first.schema().metadata().clone());
    Ok(Columns {
        schema: Arc::new(schema),
        origins,
    })
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

/// One way in which a file differs from the first.
struct Difference {
    file: String,
    column: String,
    text: String,
}

fn compare(wanted: &Schema, got: &Schema, file: &str, differences: &mut Vec<Difference>) {
    let mut add = |field: &Field, text: String| {
        differences.push(Difference {
            file: file.to_owned(),
            column: field.name().clone(),
            text,
        });
    };
    for field in wanted.fields() {
        match got.column_with_name(field.name()) {
            None => add(field, format!("missing, expected {}", field.data_type())),
            Some((place, other)) if other.data_type() != field.data_type() => add(
                field,
                format!(
                    "is column {place} and {}, expected {}",
                    other.data_type(),
                    field.data_type()
                ),
            ),
            Some(_) => {}
        }
    }
    for (place, field) in got.fields().iter().enumerate() {
        if wanted.column_with_name(field.name()).is_none() {
            add(
                field,
                format!("is column {place} ({}), not expected", field.data_type()),
            );
        }
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
        "all files must have the columns of the first, {expected_by}:\n{}",
        lines.join("\n")
    ))
    .with_file(&first.file)
    .with_column(&first.column)
    .with_hint("load the files apart, or rewrite them with one schema")
}

/// The field of the first file, nullable if any file says so.
fn merged(footers: &[Footer], place: usize) -> Option<FieldRef> {
    let field = footers.first()?.schema().fields().get(place)?;
    let nullable = footers.iter().any(|footer| {
        footer
            .schema()
            .field_with_name(field.name())
            .is_ok_and(Field::is_nullable)
    });
    Some(Arc::new(Field::clone(field).with_nullable(nullable)))
}

fn choose(
    columns: Vec<(FieldRef, Origin)>,
    wanted: Option<&[String]>,
) -> Result<Vec<(FieldRef, Origin)>> {
    let Some(wanted) = wanted else {
        return Ok(columns);
    };
    let pick = |name: &String| {
        let found = columns.iter().find(|(field, _)| field.name() == name);
        found.cloned().ok_or_else(|| {
            unknown_column(name, columns.iter().map(|(field, _)| field.name().as_str()))
        })
    };
    wanted.iter().map(pick).collect()
}
