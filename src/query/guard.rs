//! Checks SQL text before anything plans it.
//!
//! Comes in: a text from anywhere. Goes out: one parsed statement that reads, or that names something within the session, whose size and nesting the planner can bear. Needed because
//! a flat chain of 20,000 operators is legal for the parser, overflows the stack of the planner, and planning time grows with the square of the chain. Statements that would
//! touch files or settings never get further. Never here: planning.

use datafusion::execution::SessionState;
use datafusion::sql::parser::{DFParserBuilder, Statement};
use datafusion::sql::sqlparser::ast::{
    CreateTable, ObjectType, ShowStatementOptions, Statement as SqlStatement,
};
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer};

use super::cache::Question;
use super::depth::{check_nesting, check_runs};
use super::described;
use super::options::Statements;
use super::parameters::Placeholders;
use super::shape::check_shape;
use crate::error::{Error, ErrorKind, Result};
use crate::query::rewrite::asof;
use crate::query::rewrite::chained;
use crate::query::rewrite::comprehensions;
use crate::query::rewrite::dialect::{Sql, with_arrows_of_json, with_powers};
use crate::query::rewrite::digits;
use crate::query::rewrite::each_column;
use crate::query::rewrite::filtered;
use crate::query::rewrite::from_first;
use crate::query::rewrite::pivot;
use crate::query::rewrite::prefixed;
use crate::query::rewrite::samples;
use crate::query::rewrite::standard;
use crate::query::rewrite::struct_stars;
use crate::query::rewrite::table_rows;
use crate::query::rewrite::trimmed;
use crate::query::rewrite::using::as_using;

/// The longest SQL text that is read, in bytes.
pub const MAX_SQL_BYTES: usize = 256 * 1024;

/// The deepest nesting of expressions; a chain of `n` operators without parentheses is `n` deep.
pub const MAX_EXPRESSION_DEPTH: usize = 500;

/// What a statement does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Does {
    /// Gives rows.
    Read,
    /// Lists the tables.
    ListTables,
    ListFunctions,
    /// Changes what the name of a grid or view stands for.
    Name,
    /// Keeps, runs or forgets a statement under a name of SQL.
    Prepare,
}

/// What a text comes to before it is planned.
pub(super) struct Parsed {
    /// Where it asks for rows first, the statement as it is written; or the query that asks, where that is meant.
    pub(super) statement: Statement,
    pub(super) does: Does,
    /// Whether it asks for rows first.
    pub(super) asks: bool,
    /// The parameters, where some may be of the query that asks alone.
    pub(super) placeholders: Option<Placeholders>,
}

/// What a text has beside what the parser makes of it.
struct Read {
    statement: Statement,
    is_turned: bool,
    has_stars_of_names: bool,
    has_each_column: bool,
    has_natural: bool,
}

/// Parses one statement within the limits, of somebody who `may` do so much, which says what is told where it is refused. `?` becomes `$1`, `$2` and so on. What it asks of rows is asked one by one, and told in that order.
///
/// # Errors
/// `ResourcesExhausted` past a limit, `Query` for text that is not SQL, holds no statement or several, or would change files, grids or settings.
pub(super) async fn parse(state: &SessionState, question: &Question) -> Result<Parsed> {
    let mut read = read(state, &question.text)?;
    let does = check_kind(&read.statement, question.may)?;
    check_shape(&read.statement)?;
    let mut placeholders = None;
    if read.is_turned {
        let before = Placeholders::of(&read.statement);
        let written = read.statement.clone();
        if let Some(asks) = pivot::put(&mut read.statement, state, &question.told)? {
            check_view(&written)?;
            if !question.asks {
                return Ok(Parsed {
                    statement: written,
                    does,
                    asks: true,
                    placeholders: None,
                });
            }
            read = Read::of_ours(asks);
        }
        check_shape(&read.statement)?;
        // Those of a statement that is kept under a name get their values later.
        let are_due = !question.told.is_empty() && does != Does::Prepare;
        if question.asks || are_due {
            placeholders = Some(before.after(&read.statement, question.asks));
        }
    }
    let does = if question.asks { Does::Read } else { does };
    Ok(Parsed {
        statement: settled(read, state).await?,
        does,
        asks: question.asks,
        placeholders,
    })
}

/// Reads a text.
fn read(state: &SessionState, text: &str) -> Result<Read> {
    if text.len() > MAX_SQL_BYTES {
        return Err(too_much(format!(
            "a SQL text may have {MAX_SQL_BYTES} bytes, got {}",
            text.len()
        )));
    }
    let tokens = Tokenizer::new(&GenericDialect {}, text)
        .tokenize_with_location()
        .map_err(|error| Error::new(ErrorKind::Query, error.to_string()))?;
    let tokens = described::with_known_words(digits::joined(with_powers(tokens)));
    let mut tokens = filtered::with_where(comprehensions::as_functions(tokens));
    chained::as_plain_words(&mut tokens);
    check_nesting(&tokens)?;
    check_runs(&tokens)?;
    // Before any of them changes its place.
    number_parameters(&mut tokens)?;
    let is_turned = pivot::as_queries(&mut tokens)?;
    let tokens = asof::with_known_words(with_arrows_of_json(trimmed::with_blanks(tokens)))?;
    let tokens = prefixed::with_names_behind(from_first::with_select(tokens));
    let mut tokens = samples::in_words(tokens);
    let has_each_column = each_column::with_known_words(&mut tokens);
    let has_natural = tokens
        .iter()
        .any(|token| matches!(&token.token, Token::Word(word) if word.keyword == Keyword::NATURAL));
    let has_stars_of_names = has_stars_of_names(&tokens);
    let nesting = state.config().options().sql_parser.recursion_limit.get();
    let mut statements = DFParserBuilder::new(tokens)
        .with_dialect(&Sql)
        .with_recursion_limit(nesting)
        .build()?
        .parse_statements()?;
    let (Some(statement), 0) = (statements.pop_front(), statements.len()) else {
        let count = if statements.is_empty() {
            "none"
        } else {
            "several"
        };
        return Err(Error::new(
            ErrorKind::Query,
            format!("a SQL text must hold one statement, got {count}"),
        ));
    };
    Ok(Read {
        statement,
        is_turned,
        has_stars_of_names,
        has_each_column,
        has_natural,
    })
}

impl Read {
    /// A query that was made of parts of a text.
    fn of_ours(statement: Statement) -> Self {
        Self {
            statement,
            is_turned: true,
            has_stars_of_names: true,
            has_each_column: true,
            has_natural: true,
        }
    }
}

/// The statement in words of the engine.
async fn settled(read: Read, state: &SessionState) -> Result<Statement> {
    let mut statement = read.statement;
    if read.has_stars_of_names {
        Box::pin(struct_stars::written_out(&mut statement, state)).await?;
        check_shape(&statement)?;
    }
    if read.has_each_column {
        Box::pin(each_column::written_out(&mut statement, state)).await?;
        if read.has_stars_of_names {
            Box::pin(struct_stars::written_out(&mut statement, state)).await?;
        }
        check_shape(&statement)?;
    }
    if read.has_natural {
        Box::pin(as_using(&mut statement, state)).await?;
    }
    Box::pin(table_rows::written_out(&mut statement, state)).await?;
    standard::rewrite(&mut statement, state)?;
    Ok(statement)
}

/// Refuses a view whose columns depend on rows: it is planned anew each time, and these change.
fn check_view(statement: &Statement) -> Result<()> {
    let is_view = matches!(statement, Statement::Statement(inner) if matches!(inner.as_ref(), SqlStatement::CreateView(_)));
    if !is_view {
        return Ok(());
    }
    let text = "a view has the same columns whatever rows there are, and those of a PIVOT without values depend on them";
    Err(Error::new(ErrorKind::Query, text).with_hint(
        "name the values: ON k IN ('a', 'b'); CREATE TABLE … AS keeps what there is now",
    ))
}

/// Whether a star follows a dot, blanks in between or not.
fn has_stars_of_names(tokens: &[TokenWithSpan]) -> bool {
    let words = tokens.iter().map(|token| &token.token);
    let words = words.filter(|token| !matches!(token, Token::Whitespace(_)));
    let mut follows_dot = false;
    for word in words {
        if follows_dot && *word == Token::Mul {
            return true;
        }
        follows_dot = *word == Token::Period;
    }
    false
}

/// Numbers the parameters that are written `?`, which the planner does not know.
fn number_parameters(tokens: &mut [TokenWithSpan]) -> Result<()> {
    let bare = |token: &Token| match token {
        Token::Placeholder(name) => name == "?",
        other => *other == Token::Question,
    };
    let placeholder = |token: &Token| matches!(token, Token::Placeholder(_)) && !bare(token);
    let named = tokens.iter().any(|token| placeholder(&token.token));
    let mut number = 0;
    for token in tokens.iter_mut().filter(|token| bare(&token.token)) {
        if named {
            return Err(Error::new(
                ErrorKind::Query,
                "parameters must all be written `?`, or all `$1` or `$name`, got both",
            ));
        }
        number += 1;
        token.token = Token::Placeholder(format!("${number}"));
    }
    Ok(())
}

pub(super) fn too_much(message: String) -> Error {
    Error::new(ErrorKind::ResourcesExhausted, message)
        .with_hint("register the values as a grid and join, or use IN (…) for long lists")
}

fn check_kind(statement: &Statement, may: Statements) -> Result<Does> {
    let refused = match statement {
        Statement::Statement(inner) => match does(inner, may)? {
            Some(does) => return Ok(does),
            None => named(inner),
        },
        Statement::Explain(explain) => match check_kind(&explain.statement, may)? {
            Does::Read => return Ok(Does::Read),
            _ => format!("EXPLAIN {}", first_words(&explain.statement.to_string())),
        },
        other => first_words(&other.to_string()),
    };
    let text = format!(
        "only statements that read are allowed (SELECT, WITH, VALUES, EXPLAIN, DESCRIBE, SUMMARIZE, SHOW){}, got {refused}",
        that_name(may)
    );
    let error = Error::new(ErrorKind::Query, text);
    let within = refused.trim_start_matches("EXPLAIN ");
    let within = within.trim_start_matches("PREPARE of ");
    let word = within.split(' ').next().unwrap_or_default();
    Err(match instead_of(word, may) {
        Some(hint) => error.with_hint(hint),
        None => error,
    })
}

/// Which statements beside those that read there are for somebody who may do so much.
fn that_name(may: Statements) -> &'static str {
    match may {
        Statements::Read => "",
        Statements::Tables => {
            ", and those that name what was read (CREATE VIEW, CREATE TABLE … AS, DROP TABLE, DROP VIEW)"
        }
        Statements::All => {
            ", and those that name what was read (CREATE VIEW, CREATE TABLE … AS, DROP TABLE, DROP VIEW, PREPARE of those that read, EXECUTE, DEALLOCATE)"
        }
    }
}

/// What to do in place of a statement that begins with this word.
fn instead_of(word: &str, may: Statements) -> Option<&'static str> {
    Some(match word {
        "SET" | "RESET" => {
            "settings are no statements: a session or a query takes timeout, memory_limit and others when it is made"
        }
        "COPY" => {
            "answers are written by those who get them: `write_parquet` of a result (`session.sql(…).write_parquet(folder)`), `partgrid sql --output`"
        }
        "DESCRIBE" | "DESC" => "DESCRIBE takes the name of a table, or a query: DESCRIBE SELECT …",
        "SHOW" => "SHOW TABLES, SHOW FUNCTIONS, SHOW COLUMNS FROM t and SHOW ALL are known",
        "START" | "BEGIN" | "COMMIT" | "END" | "ROLLBACK" | "SAVEPOINT" | "RELEASE" => {
            "there are no transactions: each statement takes effect by itself"
        }
        "INSERT" if may != Statements::All => {
            "rows are sent to a server by bulk ingest: `adbc_ingest(name, rows, mode=\"append\")` of ADBC; by statements grids never change: CREATE OR REPLACE TABLE … AS makes a new one under the name"
        }
        "INSERT" | "UPDATE" | "DELETE" | "MERGE" | "TRUNCATE" | "ALTER" | "REPLACE" => {
            "grids never change: CREATE OR REPLACE TABLE … AS makes a new one under the name"
        }
        _ => return None,
    })
}

/// What a statement does; `None` for one that is refused.
fn does(statement: &SqlStatement, may: Statements) -> Result<Option<Does>> {
    Ok(match statement {
        SqlStatement::Query(_)
        | SqlStatement::ExplainTable { .. }
        | SqlStatement::ShowColumns { .. }
        | SqlStatement::ShowVariable { .. } => Some(Does::Read),
        SqlStatement::Explain { .. } if described::asked(statement).is_some() => Some(Does::Read),
        SqlStatement::ShowFunctions { .. } => Some(Does::ListFunctions),
        SqlStatement::ShowTables {
            extended: false,
            full: false,
            terse: false,
            history: false,
            external: false,
            show_options:
                ShowStatementOptions {
                    show_in: None,
                    starts_with: None,
                    limit: None,
                    limit_from: None,
                    filter_position: None,
                },
        } => Some(Does::ListTables),
        SqlStatement::ShowTables { .. } => {
            let text = "SHOW TABLES takes nothing more";
            return Err(Error::unsupported(text)
                .with_hint("SELECT * FROM information_schema.tables takes conditions"));
        }
        SqlStatement::CreateTable(table) => {
            check_create(table, may)?;
            Some(Does::Name)
        }
        SqlStatement::CreateView(view) if !view.materialized => Some(Does::Name),
        SqlStatement::Drop {
            object_type: ObjectType::Table | ObjectType::View,
            ..
        } => Some(Does::Name),
        SqlStatement::Execute { .. } | SqlStatement::Deallocate { .. } => Some(Does::Prepare),
        SqlStatement::Prepare { statement, .. } => match does(statement, may)? {
            Some(Does::Read) => Some(Does::Prepare),
            _ => None,
        },
        _ => None,
    })
}

fn check_create(table: &CreateTable, may: Statements) -> Result<()> {
    let wrong = |text: &str, hint: &str| {
        let error = Error::new(ErrorKind::Query, text);
        Err(error.with_hint(hint))
    };
    let is_session = may == Statements::All;
    if table.temporary {
        let hint = match is_session {
            true => "leave the word out: all tables of a session end with it",
            false => "leave the word out, and DROP TABLE what is not needed any more",
        };
        return wrong("CREATE TABLE takes no TEMPORARY", hint);
    }
    let outside = table.external || table.location.is_some() || table.file_format.is_some();
    if outside || table.query.is_none() {
        let hint = match is_session {
            true => "a table is a grid, which never changes; files become one by read_parquet",
            false => {
                "a table is a grid, which never changes; rows become one by bulk ingest (`adbc_ingest` of ADBC) or `upload` of pg.connect, files by its `load_parquet`"
            }
        };
        return wrong(
            "CREATE TABLE must read like CREATE TABLE name AS SELECT …",
            hint,
        );
    }
    Ok(())
}

/// What a statement that is refused is called.
fn named(statement: &SqlStatement) -> String {
    match statement {
        SqlStatement::Prepare { statement, .. } => {
            format!("PREPARE of {}", first_words(&statement.to_string()))
        }
        other => first_words(&other.to_string()),
    }
}

/// The word with which a statement begins, and what it makes, drops or changes.
fn first_words(text: &str) -> String {
    let mut words = text.split_whitespace();
    let first = words.next().unwrap_or_default();
    if !matches!(first, "CREATE" | "DROP" | "ALTER" | "SHOW") {
        return first.to_owned();
    }
    let mut more = words.filter(|word| !matches!(*word, "OR" | "REPLACE"));
    match more.next() {
        Some(second) => format!("{first} {second}"),
        None => first.to_owned(),
    }
}
