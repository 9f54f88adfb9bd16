//! Values that only the rows say: `PIVOT t ON k`, `FOR k IN (ANY)`, `FOR k IN (SELECT …)`.
//!
//! Comes in: a statement, and what was told of it so far. Goes out: the query that asks for the next of them; where all are told, the statement with them in place, and with what `PIVOT t ON …` means. Inner ones are asked before those around them, so that no query asks in turn. Never here: running it.

use std::collections::HashSet;
use std::ops::ControlFlow;

use arrow::array::{Array, AsArray, RecordBatch, StringArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Schema};
use datafusion::execution::SessionState;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    CastKind, DataType as SqlType, Distinct, Expr, ExprWithAlias, Ident, LimitClause, OrderByExpr,
    PivotValueSource, Query, Select, SelectItem, SetExpr, TableAlias, TableAliasColumnDef,
    TableFactor, TableWithJoins, Value, VisitMut, VisitorMut,
};

use super::items::{MAX_COLUMNS, On, Pivot, too_many};
use super::statement::{self, Said, Values};
use super::table::{self, query_of};
use crate::error::{Error, ErrorKind, Result};
use crate::query::rewrite::around::{Around, statement_of};
use crate::query::rewrite::called::called;
use crate::query::rewrite::using::sql_of;

/// So many bytes the values may have as texts: they are written into the statement, as values and as names.
const MAX_BYTES: usize = 64 * 1024;

/// So many times the rows may be asked for one statement.
const MAX_ASKED: usize = 16;

/// What the columns are called of which the values are asked.
fn name_of(place: usize) -> String {
    format!("__value_{place}")
}

/// What was told of one question: values, each of as many columns, and how those of a column are written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::query) struct Told {
    columns: Vec<Written>,
    rows: Vec<Vec<String>>,
}

/// How values of a column are written in SQL.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Written {
    Number,
    Truth,
    Text,
    /// As a cast of the text to a type of Arrow.
    Typed(String),
    /// As texts that are compared with the column as text.
    AsText,
}

impl Written {
    fn of(kind: &DataType) -> Self {
        match kind {
            DataType::Dictionary(_, values) => Self::of(values),
            DataType::RunEndEncoded(_, values) => Self::of(values.data_type()),
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => Self::Text,
            DataType::Boolean => Self::Truth,
            DataType::Float32
            | DataType::Float64
            | DataType::Decimal128(..)
            | DataType::Date32
            | DataType::Date64
            | DataType::Timestamp(_, None) => Self::Typed(kind.to_string()),
            kind if kind.is_integer() => Self::Number,
            _ => Self::AsText,
        }
    }

    fn literal(&self, text: &str) -> Expr {
        let written = |text: &str| Expr::value(Value::SingleQuotedString(text.to_owned()));
        match self {
            Self::Number => Expr::value(Value::Number(text.to_owned(), false)),
            Self::Truth => Expr::value(Value::Boolean(text == "true")),
            Self::Text | Self::AsText => written(text),
            Self::Typed(kind) => called("arrow_cast", [written(text), written(kind)]),
        }
    }
}

impl Told {
    /// What an answer tells: its first half are the values, the other one their texts. Nulls are none.
    ///
    /// # Errors
    /// `ResourcesExhausted` for too many.
    pub(in crate::query) fn of(schema: &Schema, batches: &[RecordBatch]) -> Result<Self> {
        let half = schema.fields().len() / 2;
        let kinds = schema.fields().iter().take(half);
        let columns: Vec<Written> = kinds.map(|field| Written::of(field.data_type())).collect();
        let (mut rows, mut seen, mut num_bytes) = (Vec::new(), HashSet::new(), 0);
        for batch in batches {
            let texts = batch.columns().iter().skip(half);
            let texts: Result<Vec<_>, _> =
                texts.map(|column| cast(column, &DataType::Utf8)).collect();
            let texts = texts?;
            let texts: Vec<&StringArray> = texts
                .iter()
                .filter_map(|texts| texts.as_string_opt())
                .collect();
            let values = batch.columns().iter().take(half);
            let values: Vec<_> = values.map(|values| values.logical_nulls()).collect();
            for place in 0..batch.num_rows() {
                let mut nulls = values.iter().flatten();
                if nulls.any(|nulls| nulls.is_null(place)) {
                    continue;
                }
                let row = texts.iter().map(|texts| texts.value(place).to_owned());
                let row: Vec<String> = row.collect();
                num_bytes += row.iter().map(String::len).sum::<usize>();
                if seen.insert(row.clone()) {
                    rows.push(row);
                }
                if rows.len() > MAX_COLUMNS {
                    return Err(too_many("more"));
                }
                if num_bytes > MAX_BYTES {
                    return Err(too_long());
                }
            }
        }
        Ok(Self { columns, rows })
    }

    /// The values, and the columns as they are compared with them.
    fn on(&self, mut columns: Vec<Expr>) -> On {
        for (column, kind) in columns.iter_mut().zip(&self.columns) {
            if *kind == Written::AsText {
                *column = as_text(column.clone());
            }
        }
        let rows = self.rows.iter();
        let values = rows.map(|row| value_of(&self.columns, row)).collect();
        On { columns, values }
    }
}

fn too_long() -> Error {
    let text =
        format!("the values of a PIVOT may have {MAX_BYTES} bytes as texts, here they have more");
    Error::new(ErrorKind::ResourcesExhausted, text).with_hint(
        "name the values that are wanted: ON k IN (1, 2), or group by the column instead",
    )
}

fn value_of(columns: &[Written], row: &[String]) -> ExprWithAlias {
    let parts = columns.iter().zip(row);
    let mut parts: Vec<Expr> = parts.map(|(column, text)| column.literal(text)).collect();
    let expr = match (parts.len(), parts.pop()) {
        (1, Some(only)) => only,
        (_, last) => {
            parts.extend(last);
            Expr::Tuple(parts)
        }
    };
    let alias = Some(Ident::with_quote('"', row.join("_")));
    ExprWithAlias { expr, alias }
}

fn as_text(value: Expr) -> Expr {
    Expr::Cast {
        kind: CastKind::Cast,
        expr: Box::new(value),
        data_type: SqlType::Varchar(None),
        array: false,
        format: None,
    }
}

/// Puts values in place, as far as they are told. What is asked next; none where nothing is.
///
/// # Errors
/// `Query` for what cannot be turned so, `ResourcesExhausted` where too much is asked.
pub(in crate::query) fn put(
    statement: &mut Statement,
    state: &SessionState,
    told: &[Told],
) -> Result<Option<Statement>> {
    let Some(statement) = sql_of(statement) else {
        return Ok(None);
    };
    let mut num_told = 0;
    loop {
        let mut putting = Putting {
            around: Around::default(),
            state,
            told: told.get(num_told..).unwrap_or_default(),
        };
        match VisitMut::visit(statement, &mut putting) {
            ControlFlow::Continue(()) => return Ok(None),
            // What stands around it knows it as it is now.
            ControlFlow::Break(Step::Put(taken)) => num_told += taken,
            ControlFlow::Break(Step::Ask(_)) if told.len() >= MAX_ASKED => {
                let text = format!("PIVOT may ask for values {MAX_ASKED} times in a statement");
                let error = Error::new(ErrorKind::ResourcesExhausted, text);
                return Err(error.with_hint("name the values: ON k IN (1, 2)"));
            }
            ControlFlow::Break(Step::Ask(query)) => return Ok(Some(statement_of(*query))),
            ControlFlow::Break(Step::Refuse(error)) => return Err(*error),
        }
    }
}

/// Why the walk ends.
enum Step {
    /// Something was put in place, with so much of what was told.
    Put(usize),
    Ask(Box<Query>),
    Refuse(Box<Error>),
}

impl From<Error> for Step {
    fn from(error: Error) -> Self {
        Self::Refuse(Box::new(error))
    }
}

/// Puts what is told into the first place that wants it, those within a query before it.
struct Putting<'a> {
    around: Around,
    state: &'a SessionState,
    /// What nothing has taken yet.
    told: &'a [Told],
}

impl Putting<'_> {
    /// Of a SELECT that stands for a statement. How much of what was told it took; none where it is no such SELECT.
    fn in_select(&self, select: &mut Select) -> Result<Option<usize>, Step> {
        let Some(said) = Said::of(select)? else {
            return Ok(None);
        };
        let mut told = self.told.iter();
        let mut all = Vec::with_capacity(said.on.len());
        for (columns, values) in said.on {
            let on = match values {
                Values::Said(values) => On { columns, values },
                Values::Of(query) => match told.next() {
                    Some(told) => told.on(columns),
                    None => return Err(self.ask_query(*query, columns.len())),
                },
                Values::All => match told.next() {
                    Some(told) => told.on(columns),
                    None => return Err(self.ask_all(&select.from, &columns, &[])),
                },
            };
            all.push(on);
        }
        let pivot = Pivot {
            aggregates: &said.aggregates,
            on: &all,
            otherwise: None,
            state: self.state,
        };
        statement::put(select, &pivot)?;
        Ok(Some(self.told.len() - told.len()))
    }

    /// Of a table of FROM.
    fn in_table(&self, factor: &mut TableFactor) -> Result<Option<usize>, Step> {
        let TableFactor::Pivot {
            table,
            value_column,
            value_source,
            ..
        } = factor
        else {
            return Ok(None);
        };
        let asked = match value_source {
            PivotValueSource::List(_) => {
                table::as_query(factor, self.state)?;
                return Ok(Some(0));
            }
            PivotValueSource::Any(order) => {
                let from = [TableWithJoins {
                    relation: table.as_ref().clone(),
                    joins: Vec::new(),
                }];
                self.ask_all(&from, value_column, order)
            }
            PivotValueSource::Subquery(query) => {
                self.ask_query(query.as_ref().clone(), value_column.len())
            }
        };
        let Some(told) = self.told.first() else {
            return Err(asked);
        };
        let on = told.on(std::mem::take(value_column));
        *value_column = on.columns;
        *value_source = PivotValueSource::List(on.values);
        table::as_query(factor, self.state)?;
        Ok(Some(1))
    }

    /// Asks for all values that columns of some tables have.
    fn ask_all(&self, from: &[TableWithJoins], columns: &[Expr], order: &[OrderByExpr]) -> Step {
        let mut keys = Vec::with_capacity(columns.len());
        for key in order {
            let Some(place) = columns.iter().position(|column| same(column, &key.expr)) else {
                let text = format!(
                    "the values of PIVOT can be in an order of what is turned by, got {}",
                    key.expr
                );
                return Error::unsupported(text).into();
            };
            let expr = Expr::Identifier(Ident::new(name_of(place)));
            let key = OrderByExpr {
                expr,
                ..key.clone()
            };
            keys.push(key.to_string());
        }
        if keys.is_empty() {
            keys.extend((0..columns.len()).map(name_of));
        }
        let items = columns.iter().enumerate();
        let items = items.map(|(place, column)| SelectItem::ExprWithAlias {
            expr: column.clone(),
            alias: Ident::new(name_of(place)),
        });
        let Some(mut query) = self.around.all_of(from.to_vec()) else {
            return Error::internal("no query asks for the values of PIVOT").into();
        };
        if let Some(select) = innermost(&mut query) {
            select.projection = items.collect();
            select.distinct = Some(Distinct::Distinct);
        }
        let conditions = (0..columns.len()).map(|place| format!("{} IS NOT NULL", name_of(place)));
        let conditions: Vec<String> = conditions.collect();
        let rest = format!(
            "WHERE {} ORDER BY {} LIMIT {}",
            conditions.join(" AND "),
            keys.join(", "),
            MAX_COLUMNS + 1
        );
        asked(query, columns.len(), &rest)
    }

    /// Asks a query that stands in place of the values.
    fn ask_query(&self, mut query: Query, num_columns: usize) -> Step {
        // Only an order that a limit depends on is kept within another query.
        let is_ordered = query.order_by.is_some();
        if is_ordered && query.limit_clause.is_none() && query.fetch.is_none() {
            let number = Value::Number((MAX_COLUMNS + 1).to_string(), false);
            query.limit_clause = Some(LimitClause::LimitOffset {
                limit: Some(Expr::value(number)),
                offset: None,
                limit_by: Vec::new(),
            });
        }
        let column = |place| TableAliasColumnDef {
            name: Ident::new(name_of(place)),
            data_type: None,
        };
        let from = TableWithJoins {
            relation: TableFactor::Derived {
                lateral: false,
                subquery: Box::new(query),
                alias: Some(TableAlias {
                    explicit: true,
                    name: Ident::new("__values"),
                    columns: (0..num_columns).map(column).collect(),
                    at: None,
                }),
                sample: None,
            },
            joins: Vec::new(),
        };
        let names: Vec<String> = (0..num_columns).map(name_of).collect();
        let rest = match is_ordered {
            true => String::new(),
            false => format!("ORDER BY {}", names.join(", ")),
        };
        match self.around.all_of(vec![from]) {
            Some(query) => asked(query, num_columns, &rest),
            None => Error::internal("no query asks for the values of PIVOT").into(),
        }
    }
}

/// The values of a query, and their texts.
fn asked(query: Query, num_columns: usize, rest: &str) -> Step {
    let names: Vec<String> = (0..num_columns).map(name_of).collect();
    let texts = names.iter();
    let texts: Vec<String> = texts
        .map(|name| format!("CAST({name} AS VARCHAR)"))
        .collect();
    let text = format!(
        "(SELECT {}, {} FROM (SELECT 1) AS __all {rest})",
        names.join(", "),
        texts.join(", ")
    );
    let mut asked = match query_of(&text) {
        Ok(asked) => asked,
        Err(error) => return error.into(),
    };
    if let SetExpr::Select(select) = asked.body.as_mut()
        && let Some(TableWithJoins {
            relation: TableFactor::Derived { subquery, .. },
            ..
        }) = select.from.first_mut()
    {
        **subquery = query;
    }
    Step::Ask(Box::new(asked))
}

fn same(column: &Expr, key: &Expr) -> bool {
    column.to_string().eq_ignore_ascii_case(&key.to_string())
}

/// The SELECT within queries that stand in one another.
fn innermost(query: &mut Query) -> Option<&mut Select> {
    match query.body.as_mut() {
        SetExpr::Select(select) => Some(select),
        SetExpr::Query(inner) => innermost(inner),
        _ => None,
    }
}

impl VisitorMut for Putting<'_> {
    type Break = Step;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<Step> {
        self.around.open(query);
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<Step> {
        self.around.close();
        ControlFlow::Continue(())
    }

    fn post_visit_select(&mut self, select: &mut Select) -> ControlFlow<Step> {
        ended(self.in_select(select))
    }

    fn post_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<Step> {
        ended(self.in_table(factor))
    }
}

/// Ends the walk where something was put in place that was told: what stands around it is to know it. What the text says itself is known already.
fn ended(done: Result<Option<usize>, Step>) -> ControlFlow<Step> {
    match done {
        Ok(None | Some(0)) => ControlFlow::Continue(()),
        Ok(Some(taken)) => ControlFlow::Break(Step::Put(taken)),
        Err(step) => ControlFlow::Break(step),
    }
}
