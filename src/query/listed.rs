//! What SHOW lists.
//!
//! Comes in: the names of a session, or its functions. Goes out: a plan of rows that are known already: a row for each. Never here: columns of tables, settings, `information_schema`.

use std::collections::HashSet;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, StringArray, UInt64Array};
use arrow::compute::{filter_record_batch, ilike, like};
use arrow::datatypes::{DataType, Field, Schema};
use datafusion::execution::SessionState;
use datafusion::logical_expr::{Documentation, Signature};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{ShowStatementFilter, Statement as SqlStatement};

use super::names::{Known, Table};
use super::statement::constant;
use crate::error::{Error, Result};
use crate::query::rewrite::synonyms::SYNONYMS;

/// `SHOW TABLES`: a row for each name.
pub(super) fn tables_listed(known: &Known) -> Result<Arc<dyn ExecutionPlan>> {
    let grids = || {
        known.tables.values().map(|table| match table {
            Table::Grid(table) => Some(Arc::clone(table.grid())),
            Table::View(_) => None,
        })
    };
    let names = known.tables.keys().map(String::as_str);
    let kinds = grids().map(|grid| if grid.is_some() { "table" } else { "view" });
    let rows = grids().map(|grid| grid.map(|grid| grid.num_rows()));
    let columns = grids().map(|grid| grid.map(|grid| grid.num_columns() as u64));
    let tiles = grids().map(|grid| grid.map(|grid| grid.tiles().len() as u64));
    let schema = Schema::new(vec![
        Field::new("name", DataType::Utf8, false),
        Field::new("kind", DataType::Utf8, false),
        Field::new("rows", DataType::UInt64, true),
        Field::new("columns", DataType::UInt64, true),
        Field::new("tiles", DataType::UInt64, true),
    ]);
    let values: Vec<ArrayRef> = vec![
        Arc::new(StringArray::from_iter_values(names)),
        Arc::new(StringArray::from_iter_values(kinds)),
        Arc::new(rows.collect::<UInt64Array>()),
        Arc::new(columns.collect::<UInt64Array>()),
        Arc::new(tiles.collect::<UInt64Array>()),
    ];
    constant(&RecordBatch::try_new(Arc::new(schema), values)?)
}

/// A function, as SHOW lists it.
struct Listed<'a> {
    name: &'a str,
    kind: &'static str,
    syntax: Option<String>,
    description: Option<&'a str>,
}

impl<'a> Listed<'a> {
    fn of(
        name: &'a str,
        kind: &'static str,
        signature: &Signature,
        told: Option<&'a Documentation>,
    ) -> Self {
        let takes = || signature.type_signature.to_string_repr().join(", ");
        Self {
            name,
            kind,
            syntax: Some(match told {
                Some(told) => told.syntax_example.trim().to_owned(),
                None => format!("{name}({})", takes()),
            }),
            description: told.map(|told| told.description.trim()),
        }
    }
}

/// All functions, by name.
fn functions(state: &SessionState) -> Vec<Listed<'_>> {
    let scalar = state.scalar_functions().iter().map(|(name, function)| {
        Listed::of(
            name,
            "scalar",
            function.signature(),
            function.documentation(),
        )
    });
    let aggregate = state.aggregate_functions().iter().map(|(name, function)| {
        Listed::of(
            name,
            "aggregate",
            function.signature(),
            function.documentation(),
        )
    });
    let window = state.window_functions().iter().map(|(name, function)| {
        Listed::of(
            name,
            "window",
            function.signature(),
            function.documentation(),
        )
    });
    let of_lambdas = state.higher_order_functions().iter();
    let of_lambdas = of_lambdas.map(|(name, function)| {
        let told = function.documentation();
        Listed {
            name,
            kind: "scalar",
            syntax: told.map(|told| told.syntax_example.trim().to_owned()),
            description: told.map(|told| told.description.trim()),
        }
    });
    let table = state.table_functions().keys().map(|name| Listed {
        name,
        kind: "table",
        syntax: None,
        description: None,
    });
    let synonyms = SYNONYMS.iter().map(|synonym| Listed {
        name: synonym.name,
        kind: synonym.kind,
        syntax: Some(synonym.syntax()),
        description: Some(synonym.about),
    });
    let known = scalar.chain(aggregate).chain(window).chain(table);
    let known = known.chain(of_lambdas);
    // Those that begin so are called by statements in other words.
    let known = known.filter(|function| !function.name.starts_with("__"));
    let mut all: Vec<Listed<'_>> = known.collect();
    let taken: HashSet<&str> = all.iter().map(|function| function.name).collect();
    all.extend(synonyms.filter(|synonym| !taken.contains(synonym.name)));
    all.sort_by_key(|function| (function.name, function.kind));
    all
}

/// `SHOW FUNCTIONS`: a row for each name that a function has.
///
/// # Errors
/// `Unsupported` for conditions other than LIKE and ILIKE.
pub(super) fn functions_listed(
    state: &SessionState,
    statement: &Statement,
) -> Result<Arc<dyn ExecutionPlan>> {
    let all = functions(state);
    let schema = Schema::new(vec![
        Field::new("function_name", DataType::Utf8, false),
        Field::new("function_type", DataType::Utf8, false),
        Field::new("syntax", DataType::Utf8, true),
        Field::new("description", DataType::Utf8, true),
    ]);
    let names = StringArray::from_iter_values(all.iter().map(|function| function.name));
    let kinds = StringArray::from_iter_values(all.iter().map(|function| function.kind));
    let syntaxes: StringArray = all
        .iter()
        .map(|function| function.syntax.as_deref())
        .collect();
    let descriptions: StringArray = all.iter().map(|function| function.description).collect();
    let columns: Vec<ArrayRef> = vec![
        Arc::new(names.clone()),
        Arc::new(kinds),
        Arc::new(syntaxes),
        Arc::new(descriptions),
    ];
    let batch = RecordBatch::try_new(Arc::new(schema), columns)?;
    let kept = match filter_of(statement) {
        None => None,
        Some(ShowStatementFilter::Like(pattern)) => {
            Some(like(&names, &StringArray::new_scalar(pattern))?)
        }
        Some(ShowStatementFilter::ILike(pattern)) => {
            Some(ilike(&names, &StringArray::new_scalar(pattern))?)
        }
        Some(_) => {
            let text = "SHOW FUNCTIONS takes LIKE and ILIKE, and no other condition";
            let hint = "SELECT * FROM information_schema.routines takes conditions";
            return Err(Error::unsupported(text).with_hint(hint));
        }
    };
    constant(&match kept {
        Some(kept) => filter_record_batch(&batch, &kept)?,
        None => batch,
    })
}

fn filter_of(statement: &Statement) -> Option<&ShowStatementFilter> {
    match statement {
        Statement::Statement(inner) => match inner.as_ref() {
            SqlStatement::ShowFunctions { filter } => filter.as_ref(),
            _ => None,
        },
        _ => None,
    }
}
