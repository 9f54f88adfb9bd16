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

use super::described;
use super::options::Statements;
use super::shape::check_shape;
use crate::error::{Error, ErrorKind, Result};
use crate::query::rewrite::asof;
use crate::query::rewrite::comprehensions;
use crate::query::rewrite::dialect::{Sql, with_arrows_of_json, with_powers};
use crate::query::rewrite::digits;
use crate::query::rewrite::each_column;
use crate::query::rewrite::from_first;
use crate::query::rewrite::pivot::{self, Told};
use crate::query::rewrite::standard;
use crate::query::rewrite::struct_stars;
use crate::query::rewrite::trimmed;
use crate::query::rewrite::using::as_using;

/// The longest SQL text that is read, in bytes.
pub const MAX_SQL_BYTES: usize = 256 * 1024;

/// The deepest nesting of expressions; a chain of `n` operators without parentheses is `n` deep.
pub const MAX_EXPRESSION_DEPTH: usize = 500;

/// The longest run of operators between commas and clause words that is parsed at all. Higher than the depth, since `a = 1 AND b = 2` is a run of 3 and 2 deep.
const MAX_OPERATOR_RUN: usize = 4 * MAX_EXPRESSION_DEPTH;

/// The deepest nesting of parentheses, brackets, braces and CASE, together. From about 48 on, the parser tries each level twice, which doubles its time with every one, and takes the word CASE for a name.
const MAX_NESTING: usize = 40;

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
pub(super) enum Parsed {
    Statement(Statement, Does),
    /// What it comes to depends on the rows of this query.
    Asks(String),
}

/// Parses one statement within the limits, of somebody who `may` do so much, which says what is told where it is refused. `?` becomes `$1`, `$2` and so on. What it asks of rows is asked one by one, and told in that order.
///
/// # Errors
/// `ResourcesExhausted` past a limit, `Query` for text that is not SQL, holds no statement or several, or would change files, grids or settings.
pub(super) async fn parse(
    state: &SessionState,
    text: &str,
    may: Statements,
    told: &[Told],
) -> Result<Parsed> {
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
    let mut tokens = comprehensions::as_functions(tokens);
    check_nesting(&tokens)?;
    check_runs(&tokens)?;
    let is_turned = pivot::as_queries(&mut tokens);
    let tokens = asof::with_known_words(with_arrows_of_json(trimmed::with_blanks(tokens)))?;
    let mut tokens = from_first::with_select(tokens);
    let has_each_column = each_column::with_known_words(&mut tokens);
    number_parameters(&mut tokens)?;
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
    let (Some(mut statement), 0) = (statements.pop_front(), statements.len()) else {
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
    let does = check_kind(&statement, may)?;
    check_shape(&statement)?;
    if is_turned {
        if let Some(asks) = pivot::put(&mut statement, state, told)? {
            check_view(&statement)?;
            return Ok(Parsed::Asks(asks));
        }
        check_shape(&statement)?;
    }
    if has_stars_of_names {
        Box::pin(struct_stars::written_out(&mut statement, state)).await?;
        check_shape(&statement)?;
    }
    if has_each_column {
        Box::pin(each_column::written_out(&mut statement, state)).await?;
        if has_stars_of_names {
            Box::pin(struct_stars::written_out(&mut statement, state)).await?;
        }
        check_shape(&statement)?;
    }
    if has_natural {
        Box::pin(as_using(&mut statement, state)).await?;
    }
    standard::rewrite(&mut statement, state)?;
    Ok(Parsed::Statement(statement, does))
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

/// Refuses deep nesting on the tokens, before the parser meets it.
fn check_nesting(tokens: &[TokenWithSpan]) -> Result<()> {
    // How many CASE are open within each bracket that is, and outside of all.
    let mut open = vec![0_usize];
    let (mut depth, mut is_part_of_name) = (0_usize, false);
    for token in tokens {
        match &token.token {
            Token::LParen | Token::LBracket | Token::LBrace => {
                open.push(0);
                depth += 1;
            }
            Token::RParen | Token::RBracket | Token::RBrace if open.len() > 1 => {
                let cases = open.pop().unwrap_or_default();
                depth = depth.saturating_sub(cases + 1);
            }
            // A column that is called `case` has no END.
            Token::Comma | Token::SemiColon => {
                let cases = open.last_mut().map_or(0, std::mem::take);
                depth = depth.saturating_sub(cases);
            }
            Token::Word(word) if word.keyword == Keyword::CASE && !is_part_of_name => {
                if let Some(cases) = open.last_mut() {
                    *cases += 1;
                    depth += 1;
                }
            }
            Token::Word(word) if word.keyword == Keyword::END => {
                if let Some(cases) = open.last_mut().filter(|cases| **cases > 0) {
                    *cases -= 1;
                    depth = depth.saturating_sub(1);
                }
            }
            _ => {}
        }
        is_part_of_name = token.token == Token::Period;
        if depth > MAX_NESTING {
            let text = format!(
                "parentheses, brackets and CASE may be nested {MAX_NESTING} deep, these are deeper"
            );
            return Err(Error::new(ErrorKind::ResourcesExhausted, text).with_hint(
                "name the parts: WITH part AS (SELECT …); one CASE takes any number of WHEN",
            ));
        }
    }
    Ok(())
}

/// Refuses long runs of operators on the tokens, so that the parser never builds a tree that is too deep to walk or drop.
fn check_runs(tokens: &[TokenWithSpan]) -> Result<()> {
    let mut levels = vec![Level::default()];
    for token in tokens.iter().map(|token| &token.token) {
        match token {
            Token::LParen => levels.push(Level::default()),
            Token::RParen if levels.len() > 1 => {
                levels.pop();
            }
            _ => {}
        }
        let Some(level) = levels.last_mut() else {
            continue;
        };
        level.count(token);
        let longest = level.operators.max(level.members);
        if longest > MAX_OPERATOR_RUN {
            return Err(too_much(format!(
                "a chain of operators may be {MAX_EXPRESSION_DEPTH} deep, got more than {MAX_OPERATOR_RUN} operators in a row"
            )));
        }
    }
    Ok(())
}

/// What was counted since the parenthesis that opened this level.
#[derive(Default)]
struct Level {
    /// Operators since the last comma or clause word.
    operators: usize,
    /// Joins and set operations; clause words do not end such a chain.
    members: usize,
}

impl Level {
    fn count(&mut self, token: &Token) {
        match token {
            Token::Comma | Token::SemiColon => self.operators = 0,
            Token::Word(word) => match word.keyword {
                Keyword::SELECT
                | Keyword::FROM
                | Keyword::WHERE
                | Keyword::GROUP
                | Keyword::HAVING
                | Keyword::ORDER
                | Keyword::ON
                | Keyword::WHEN
                | Keyword::THEN
                | Keyword::ELSE
                | Keyword::END => self.operators = 0,
                Keyword::JOIN | Keyword::UNION | Keyword::EXCEPT | Keyword::INTERSECT => {
                    self.members += 1;
                }
                Keyword::AND
                | Keyword::OR
                | Keyword::XOR
                | Keyword::NOT
                | Keyword::IS
                | Keyword::LIKE
                | Keyword::ILIKE
                | Keyword::RLIKE
                | Keyword::REGEXP
                | Keyword::SIMILAR
                | Keyword::BETWEEN
                | Keyword::IN
                | Keyword::DIV
                | Keyword::AT
                | Keyword::COLLATE => self.operators += 1,
                _ => {}
            },
            Token::Number(..)
            | Token::SingleQuotedString(_)
            | Token::DoubleQuotedString(_)
            | Token::Whitespace(_)
            | Token::LParen
            | Token::RParen
            | Token::RBracket
            | Token::RBrace
            | Token::EOF => {}
            _ => self.operators += 1,
        }
    }
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
