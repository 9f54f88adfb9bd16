//! `DESCRIBE SELECT …` and `SUMMARIZE t`: which columns an answer has, and what is in them.
//!
//! Comes in: words of a text, or a parsed statement. Goes out: a plan: of rows that are known already, or of aggregates over all columns, of a table over sixteen at a time. Never here: `DESCRIBE t`, which the engine knows; columns of types that have no order,
//! of which there is neither the least nor the greatest.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef, Schema};
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, ScalarValue};
use datafusion::error::Result as PlanResult;
use datafusion::execution::SessionState;
use datafusion::functions::core::expr_fn::get_field;
use datafusion::functions_nested::expr_fn::make_array;
use datafusion::logical_expr::{DescribeTable, Expr, LogicalPlan, LogicalPlanBuilder, col, lit};
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{DescribeAlias, Query, Statement as SqlStatement};
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer};

use crate::error::{Error, ErrorKind};
use crate::query::rewrite::pivot;
use crate::query::rewrite::same_names::{self, Wanted};

/// Planning takes time by the square of the aggregates over one input. Of tables so many columns are read at once, which costs no more than reading all of them.
const AT_ONCE: usize = 16;
const MAX_COLUMNS_READ: usize = 1_000;
const MAX_COLUMNS: usize = 200;

/// What the column of rows is called before these are taken apart.
const ROW: &str = "__row";

/// What the number of a column is called.
const PLACE: &str = "__place";

/// What stands for `SUMMARIZE`, which the parser does not know.
const SUMMARIZE: &str = "DESCRIBE ESTIMATE ";
const ALL_OF: &str = "SELECT * FROM ";

/// The words, with a statement that the parser knows in place of `SUMMARIZE`.
pub(super) fn with_known_words(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let is_blank = |token: &TokenWithSpan| matches!(token.token, Token::Whitespace(_));
    let mut words = tokens.iter().enumerate();
    let mut next = || words.by_ref().find(|(_, token)| !is_blank(token));
    let Some((place, first)) = next() else {
        return tokens;
    };
    let is_it = matches!(&first.token, Token::Word(word)
        if word.quote_style.is_none() && word.value.eq_ignore_ascii_case("summarize"));
    if !is_it {
        return tokens;
    }
    let is_query = match next().map(|(_, token)| &token.token) {
        // The parser says that there is more to say.
        None => return tokens,
        Some(Token::LParen) => true,
        Some(Token::Word(word)) => {
            let begins = [
                Keyword::SELECT,
                Keyword::WITH,
                Keyword::FROM,
                Keyword::VALUES,
            ];
            // Alone it is the name of a table.
            let turns = pivot::Turn::of(word).is_some();
            word.quote_style.is_none()
                && (begins.contains(&word.keyword) || turns && next().is_some())
        }
        _ => false,
    };
    let text = match is_query {
        true => SUMMARIZE.to_owned(),
        false => format!("{SUMMARIZE}{ALL_OF}"),
    };
    let words = Tokenizer::new(&GenericDialect {}, &text).tokenize();
    let span = first.span;
    let words = words.unwrap_or_default().into_iter();
    let mut tokens = tokens;
    tokens.splice(
        place..=place,
        words.map(|token| TokenWithSpan { token, span }),
    );
    tokens
}

/// The query that is described, and whether what is in its columns is wanted.
pub(super) fn asked(statement: &SqlStatement) -> Option<(&Query, bool)> {
    let SqlStatement::Explain {
        describe_alias: DescribeAlias::Describe | DescribeAlias::Desc,
        analyze: false,
        verbose: false,
        query_plan: false,
        estimate,
        statement,
        format: None,
        options: None,
    } = statement
    else {
        return None;
    };
    match statement.as_ref() {
        SqlStatement::Query(query) => Some((query, *estimate)),
        _ => None,
    }
}

/// The logical plan of a statement, and the names to put back on its answer.
pub(super) async fn planned(
    state: &SessionState,
    statement: Statement,
) -> PlanResult<(LogicalPlan, Wanted)> {
    let asked = match &statement {
        Statement::Statement(inner) => asked(inner),
        _ => None,
    };
    let Some((query, is_summary)) = asked else {
        return same_names::planned(state, statement).await;
    };
    let inner = SqlStatement::Query(Box::new(query.clone()));
    let inner = Statement::Statement(Box::new(inner));
    let (plan, wanted) = same_names::planned(state, inner).await?;
    let num_columns = plan.schema().fields().len();
    let most = match only_reads(&plan)? {
        true => MAX_COLUMNS_READ,
        false => MAX_COLUMNS,
    };
    if is_summary && num_columns > most {
        let text = format!("SUMMARIZE takes {most} columns at most, got {num_columns}");
        let error = Error::new(ErrorKind::ResourcesExhausted, text);
        let hint = "name those that are of interest: SUMMARIZE SELECT a, b FROM t";
        return Err(error.with_hint(hint).into());
    }
    // The types are those of what runs.
    let schema = named(state.optimize(&plan)?.schema(), &wanted);
    if is_summary {
        let summary = match num_columns {
            0 => of_nothing(state)?,
            _ => summary(state, plan, &schema)?,
        };
        return Ok((summary, Wanted::new()));
    }
    let plan = LogicalPlan::DescribeTable(DescribeTable {
        schema: Arc::new(schema),
        output_schema: Arc::new(DFSchema::try_from(LogicalPlan::describe_schema())?),
    });
    Ok((plan, Wanted::new()))
}

/// The columns, called as they shall be.
fn named(schema: &DFSchema, wanted: &Wanted) -> Schema {
    let fields = schema.fields().iter().map(|field| {
        let name = wanted.get(field.name()).unwrap_or(field.name());
        field.as_ref().clone().with_name(name)
    });
    Schema::new(fields.collect::<Vec<Field>>())
}

/// The plan that says what is in the columns of another one, which are of these types: all aggregates over it at once, then a row for each column. What reads tables and nothing else is read in several parts.
fn summary(state: &SessionState, plan: LogicalPlan, schema: &Schema) -> PlanResult<LogicalPlan> {
    let columns = plan.schema().iter().map(Column::from).map(Expr::from);
    let columns = columns
        .enumerate()
        .map(|(place, column)| column.alias(place_name(place)));
    let columns: Vec<Expr> = columns.collect();
    let at_once = match only_reads(&plan)? {
        true => AT_ONCE,
        false => columns.len(),
    };
    let input = LogicalPlanBuilder::from(plan).project(columns)?.build()?;
    let fields: Vec<(usize, &FieldRef)> = schema.fields().iter().enumerate().collect();
    let mut parts = fields
        .chunks(at_once)
        .map(|fields| part(state, &input, fields));
    let Some(first) = parts.next() else {
        return Ok(input);
    };
    let rows = parts.try_fold(LogicalPlanBuilder::from(first?), |rows, part| {
        rows.union(part?)
    })?;
    let titles = TITLES.map(|title| get_field(col(ROW), title).alias(title));
    rows.sort([get_field(col(ROW), PLACE).sort(true, false)])?
        .project(titles)?
        .build()
}

/// A row for each of some columns.
fn part(
    state: &SessionState,
    input: &LogicalPlan,
    fields: &[(usize, &FieldRef)],
) -> PlanResult<LogicalPlan> {
    let (mut aggregates, mut known) = (Vec::new(), HashSet::new());
    let mut rows = Vec::new();
    for (place, field) in fields {
        let column = Field::new(place_name(*place), field.data_type().clone(), true);
        let alone = DFSchema::from_unqualified_fields(vec![column].into(), HashMap::new())?;
        let said = state.create_logical_expr(&of_column(*place, field), &alone)?;
        let row = said.transform_down(|part| {
            if !matches!(part, Expr::AggregateFunction(_)) {
                return Ok(Transformed::no(part));
            }
            let name = part.schema_name().to_string();
            if known.insert(name.clone()) {
                aggregates.push(part);
            }
            let column = Expr::from(Column::from_name(name));
            Ok(Transformed::new(column, true, TreeNodeRecursion::Jump))
        })?;
        rows.push(row.data);
    }
    LogicalPlanBuilder::from(input.clone())
        .aggregate(Vec::<Expr>::new(), aggregates)?
        .project([make_array(rows).alias(ROW)])?
        .unnest_column(ROW)?
        .build()
}

/// Whether a plan does nothing but read columns of tables.
fn only_reads(plan: &LogicalPlan) -> PlanResult<bool> {
    plan.exists(|node| {
        let is_plain = match node {
            LogicalPlan::TableScan(_) | LogicalPlan::SubqueryAlias(_) => true,
            LogicalPlan::Projection(projection) => {
                let mut items = projection.expr.iter();
                items.all(|item| matches!(item, Expr::Column(_)))
            }
            _ => false,
        };
        Ok(!is_plain)
    })
    .map(|does_more| !does_more)
}

/// The plan for a query without columns.
fn of_nothing(state: &SessionState) -> PlanResult<LogicalPlan> {
    let nothing = [lit(ScalarValue::Null).alias("nothing")];
    let one = LogicalPlanBuilder::empty(false).project(nothing)?.build()?;
    let schema = Schema::new(vec![Field::new("nothing", DataType::Null, true)]);
    LogicalPlanBuilder::from(summary(state, one, &schema)?)
        .filter(lit(false))?
        .build()
}

/// What a column of the query is called in the summary.
fn place_name(place: usize) -> String {
    format!("__{place}")
}

/// The columns of a summary.
const TITLES: [&str; 12] = [
    "column_name",
    "data_type",
    "min",
    "max",
    "approx_unique",
    "avg",
    "std",
    "q25",
    "q50",
    "q75",
    "count",
    "null_percentage",
];

/// What is said of one column, as a struct.
fn of_column(place: usize, field: &Field) -> String {
    let column = place_name(place);
    let kind = values(field.data_type());
    let values = match kind == field.data_type() {
        true => column,
        false => format!("arrow_cast({column}, {})", literal(&kind.to_string())),
    };
    let column = values.as_str();
    let number = match kind {
        DataType::Float64 => column.to_owned(),
        _ => format!("CAST({column} AS DOUBLE)"),
    };
    let number = kind.is_numeric().then_some(number);
    let of_numbers = |function: &dyn Fn(&str) -> String| match &number {
        Some(number) => format!("CAST({} AS DOUBLE)", function(number)),
        None => "CAST(NULL AS DOUBLE)".to_owned(),
    };
    let quantile = |share: &'static str| {
        of_numbers(&move |number| {
            format!("approx_percentile_cont({share}) WITHIN GROUP (ORDER BY {number})")
        })
    };
    let extreme = |function: &str| match has_extremes(kind) {
        true => format!("CAST({function}({column}) AS VARCHAR)"),
        false => "CAST(NULL AS VARCHAR)".to_owned(),
    };
    let distinct = match kind {
        DataType::Null => "CAST(NULL AS BIGINT)".to_owned(),
        kind if kind.is_floating() => {
            // -0.0 is 0.0.
            format!("CAST(approx_distinct(CAST({column} + 0.0 AS VARCHAR)) AS BIGINT)")
        }
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => {
            format!("CAST(approx_distinct(CAST({column} AS VARCHAR)) AS BIGINT)")
        }
        _ => format!("CAST(approx_distinct({column}) AS BIGINT)"),
    };
    let of_all = [
        literal(field.name()),
        literal(&field.data_type().to_string()),
        extreme("min"),
        extreme("max"),
        distinct,
        of_numbers(&|number| format!("avg({number})")),
        of_numbers(&|number| format!("stddev({number})")),
        quantile("0.25"),
        quantile("0.5"),
        quantile("0.75"),
        "CAST(count(*) AS BIGINT)".to_owned(),
        format!("round(100.0 * (count(*) - count({column})) / nullif(count(*), 0), 2)"),
    ];
    let fields = TITLES.iter().zip(of_all);
    let fields = fields.map(|(title, value)| format!("'{title}', {value}"));
    let fields: Vec<String> = fields.collect();
    format!("named_struct('{PLACE}', {place}, {})", fields.join(", "))
}

/// The type of the values, however they are stored.
fn values(data_type: &DataType) -> &DataType {
    match data_type {
        DataType::Dictionary(_, value) => values(value),
        DataType::RunEndEncoded(_, value) => values(value.data_type()),
        other => other,
    }
}

/// Whether there are a least and a greatest one that have texts.
fn has_extremes(data_type: &DataType) -> bool {
    data_type.is_numeric()
        || data_type.is_temporal()
        || data_type.is_string()
        || *data_type == DataType::Boolean
}

fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> String {
        let tokens = Tokenizer::new(&GenericDialect {}, text).tokenize_with_location();
        let known = with_known_words(tokens.unwrap());
        known.iter().map(|token| token.token.to_string()).collect()
    }

    #[test]
    fn summarize_is_put_in_words_that_are_known() {
        let cases = [
            (" summarize t", " DESCRIBE ESTIMATE SELECT * FROM  t"),
            ("SUMMARIZE SELECT 1", "DESCRIBE ESTIMATE  SELECT 1"),
            ("SUMMARIZE (FROM t)", "DESCRIBE ESTIMATE  (FROM t)"),
            ("SUMMARIZE PIVOT t ON k", "DESCRIBE ESTIMATE  PIVOT t ON k"),
            ("SUMMARIZE pivot", "DESCRIBE ESTIMATE SELECT * FROM  pivot"),
            (
                "SUMMARIZE \"select\"",
                "DESCRIBE ESTIMATE SELECT * FROM  \"select\"",
            ),
            ("SELECT summarize", "SELECT summarize"),
            ("SUMMARIZE", "SUMMARIZE"),
            ("\"summarize\" t", "\"summarize\" t"),
            ("", ""),
        ];
        for (text, expected) in cases {
            assert_eq!(words(text), expected);
        }
    }
}
