//! Checks the shape of a parsed statement.
//!
//! Comes in: a statement that the guard lets through. Goes out: nothing, or an error: for nesting that takes the planner too long or too much memory, and for what the engine would
//! read otherwise than it is written. Never here: tokens, planning.

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;

use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, FunctionArg, FunctionArgExpr, FunctionArguments, GroupByExpr,
    JoinConstraint, JoinOperator, ObjectName, Query, Select, Statement as SqlStatement,
    TableFactor, TableWithJoins, Value, Visit, Visitor, With,
};

use super::guard::{MAX_EXPRESSION_DEPTH, too_much};
use crate::error::{Error, ErrorKind, Result};
use crate::query::messages::slips::TWO_OF_WITH;
use crate::query::rewrite::positions::nested;
use crate::query::rewrite::using::folded;

/// The deepest nesting of queries; planning time of some forms doubles with each level.
const MAX_QUERY_DEPTH: usize = 16;

/// How many queries the names of WITH may stand for, written out: each use of a name is planned anew.
const MAX_WRITTEN_OUT: u64 = 1000;

/// For how many sets of keys one SELECT may make groups: those of CUBE double with each key.
const MAX_KEY_SETS: u64 = 4096;

/// How many keys such a SELECT may have: which set a row is of is a number with a bit for each.
const MAX_KEYS_OF_SETS: usize = 63;

/// Refuses what is too deep, too long when it is written out, or not supported as it is written.
///
/// # Errors
/// `ResourcesExhausted` past a limit; `Unsupported` for forms that would be ignored or misread; `Query` for a name that WITH has twice.
pub(super) fn check_shape(statement: &Statement) -> Result<()> {
    let inner = match statement {
        Statement::Statement(inner) => inner.as_ref(),
        Statement::Explain(explain) => return check_shape(&explain.statement),
        _ => return Ok(()),
    };
    let mut shape = Shape::default();
    match inner.visit(&mut shape) {
        ControlFlow::Continue(()) => check_names(inner),
        ControlFlow::Break(error) => Err(*error),
    }
}

/// How deep the visitor is.
#[derive(Default)]
struct Shape {
    expressions: usize,
    queries: usize,
}

type Step = ControlFlow<Box<Error>>;

fn unsupported(text: &str, hint: &str) -> Step {
    ControlFlow::Break(Box::new(Error::unsupported(text).with_hint(hint)))
}

/// What is said of an operator that has no meaning here, and what to write.
fn refused(operator: &BinaryOperator) -> Option<(&'static str, &'static str)> {
    Some(match operator {
        BinaryOperator::BitwiseXor => (
            "`^` is a power for some engines and XOR for others, so that it is neither here",
            "write power(x, y), or x XOR y",
        ),
        _ => return None,
    })
}

impl Visitor for Shape {
    type Break = Box<Error>;

    fn pre_visit_query(&mut self, query: &Query) -> Step {
        self.queries += 1;
        if self.queries > MAX_QUERY_DEPTH {
            let text = format!("queries may be nested {MAX_QUERY_DEPTH} deep, these are deeper");
            let error = Error::new(ErrorKind::ResourcesExhausted, text);
            return ControlFlow::Break(Box::new(
                error.with_hint("name the inner ones: WITH inner AS (SELECT …)"),
            ));
        }
        if !query.locks.is_empty() {
            return unsupported(
                "FOR UPDATE and FOR SHARE lock rows, and grids never change",
                "leave the clause out",
            );
        }
        query
            .with
            .as_ref()
            .map_or(ControlFlow::Continue(()), check_with)
    }

    fn post_visit_query(&mut self, _: &Query) -> Step {
        self.queries -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &Select) -> Step {
        let (GroupByExpr::Expressions(_, more) | GroupByExpr::All(more)) = &select.group_by;
        if let Some(more) = more.first() {
            let text = format!("GROUP BY takes nothing behind its keys, got {more}");
            let hint = "ROLLUP, CUBE and GROUPING SETS stand before them: GROUP BY ROLLUP (a, b)";
            return unsupported(&text, hint);
        }
        if let GroupByExpr::Expressions(keys, _) = &select.group_by {
            check_key_sets(keys)?;
        }
        select.from.iter().try_for_each(check_joins)
    }

    fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> Step {
        match factor {
            TableFactor::NestedJoin {
                table_with_joins, ..
            } => check_joins(table_with_joins),
            _ => ControlFlow::Continue(()),
        }
    }

    fn pre_visit_expr(&mut self, expression: &Expr) -> Step {
        self.expressions += 1;
        // An operator chain of depth n ends in a leaf that is visited one level below.
        if self.expressions > MAX_EXPRESSION_DEPTH + 1 {
            return ControlFlow::Break(Box::new(too_much(format!(
                "an expression may be {MAX_EXPRESSION_DEPTH} operators deep, this one is deeper"
            ))));
        }
        if let Expr::BinaryOp { op, .. } = expression
            && let Some((text, hint)) = refused(op)
        {
            return unsupported(text, hint);
        }
        check_pattern(expression)
    }

    fn post_visit_expr(&mut self, _: &Expr) -> Step {
        self.expressions -= 1;
        ControlFlow::Continue(())
    }
}

/// Refuses joins of which nobody says what belongs together: the engine pairs each row with all.
fn check_joins(table: &TableWithJoins) -> Step {
    for join in &table.joins {
        let (JoinOperator::Join(JoinConstraint::None)
        | JoinOperator::Inner(JoinConstraint::None)
        | JoinOperator::Left(JoinConstraint::None)
        | JoinOperator::LeftOuter(JoinConstraint::None)
        | JoinOperator::Right(JoinConstraint::None)
        | JoinOperator::RightOuter(JoinConstraint::None)
        | JoinOperator::FullOuter(JoinConstraint::None)) = &join.join_operator
        else {
            continue;
        };
        // What looks at the rows beside it says so itself.
        let looks_beside = match &join.relation {
            TableFactor::Derived { lateral, .. } | TableFactor::Function { lateral, .. } => {
                *lateral
            }
            TableFactor::UNNEST { .. } => true,
            _ => false,
        };
        if !looks_beside {
            let text = format!(
                "a join needs ON or USING, that with {} has neither",
                join.relation
            );
            let error = Error::new(ErrorKind::Query, text);
            let hint = "write JOIN … ON a.x = b.x or JOIN … USING (x); CROSS JOIN pairs each row with all others";
            return ControlFlow::Break(Box::new(error.with_hint(hint)));
        }
    }
    ControlFlow::Continue(())
}

/// Refuses patterns of times in which there is no field: the answer would be the pattern.
fn check_pattern(expression: &Expr) -> Step {
    let Expr::Function(call) = expression else {
        return ControlFlow::Continue(());
    };
    let name = call.name.to_string().to_lowercase();
    let FunctionArguments::List(list) = &call.args else {
        return ControlFlow::Continue(());
    };
    if let "to_char" | "date_format" = name.as_str()
        && let [
            _,
            FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Value(pattern))),
        ] = list.args.as_slice()
        && let Value::SingleQuotedString(text) = &pattern.value
        && text.contains(char::is_alphabetic)
        && !text.contains('%')
    {
        let text = format!("the pattern {pattern} of {name}() has no field, which begins with %");
        let error = Error::new(ErrorKind::Query, text);
        let hint = "write '%Y-%m-%d %H:%M:%S', with %b for Jan, %B for January, %a for Mon";
        return ControlFlow::Break(Box::new(error.with_hint(hint)));
    }
    ControlFlow::Continue(())
}

/// Refuses a name that stands for two queries of one WITH, here where its place is known.
fn check_with(with: &With) -> Step {
    let mut seen = HashSet::new();
    let mut names = with.cte_tables.iter().map(|table| &table.alias.name);
    let Some(again) = names.find(|name| !seen.insert(folded(name))) else {
        return ControlFlow::Continue(());
    };
    let (name, place) = (folded(again), again.span.start);
    // The place is read from the words, as from those of the parser.
    let text = format!(
        "two queries of WITH have the name `{name}` at Line: {}, Column: {}",
        place.line, place.column
    );
    let error = Error::new(ErrorKind::Query, text);
    ControlFlow::Break(Box::new(error.with_hint(TWO_OF_WITH)))
}

/// Refuses more sets of keys, or more keys of sets, than can be borne.
fn check_key_sets(keys: &[Expr]) -> Step {
    let sets = keys.iter().map(num_sets).fold(1, u64::saturating_mul);
    let num_keys: usize = keys.iter().map(num_keys).sum();
    if sets > MAX_KEY_SETS {
        let text = format!(
            "a SELECT may make groups for {MAX_KEY_SETS} sets of keys, got {sets}; CUBE of n keys makes 2^n"
        );
        let error = Error::new(ErrorKind::ResourcesExhausted, text);
        return ControlFlow::Break(Box::new(
            error.with_hint("name the sets that are wanted: GROUPING SETS ((a, b), (a), ())"),
        ));
    }
    if sets > 1 && num_keys > MAX_KEYS_OF_SETS {
        let text = format!(
            "ROLLUP, CUBE and GROUPING SETS may have {MAX_KEYS_OF_SETS} keys, got {num_keys}"
        );
        let error = Error::new(ErrorKind::ResourcesExhausted, text);
        return ControlFlow::Break(Box::new(
            error.with_hint("make groups of fewer keys, and join with what belongs to them"),
        ));
    }
    ControlFlow::Continue(())
}

/// How many sets a key of GROUP BY stands for.
fn num_sets(key: &Expr) -> u64 {
    match key {
        Expr::Rollup(parts) => parts.len() as u64 + 1,
        Expr::Cube(parts) => two_to_the(parts.len()),
        Expr::GroupingSets(sets) => {
            let each = sets
                .iter()
                .map(|set| nested(set).map_or(1, |key| num_sets(&key)));
            each.fold(0, u64::saturating_add)
        }
        _ => 1,
    }
}

/// How many keys it consists of.
fn num_keys(key: &Expr) -> usize {
    match key {
        Expr::Rollup(parts) | Expr::Cube(parts) => parts.iter().flatten().map(num_keys).sum(),
        Expr::GroupingSets(sets) => {
            let each = sets.iter().map(|set| match nested(set) {
                Some(key) => num_keys(&key),
                None => set.iter().map(num_keys).sum(),
            });
            each.sum()
        }
        Expr::Tuple(keys) => keys.iter().map(num_keys).sum(),
        _ => 1,
    }
}

fn two_to_the(exponent: usize) -> u64 {
    let exponent = u32::try_from(exponent).ok();
    let power = exponent.and_then(|exponent| 2_u64.checked_pow(exponent));
    power.unwrap_or(u64::MAX)
}

/// Refuses chains of WITH whose names stand for more and more queries.
fn check_names(statement: &SqlStatement) -> Result<()> {
    let mut names = Names::default();
    match statement.visit(&mut names) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(name) => {
            let text = format!(
                "the names of WITH may stand for {MAX_WRITTEN_OUT} queries when each use is written out, `{name}` stands for more"
            );
            Err(Error::new(ErrorKind::ResourcesExhausted, text)
                .with_hint("keep what is used often as a grid: CREATE TABLE name AS …"))
        }
    }
}

/// For each name of WITH, how many queries one use of it stands for. Names within one another share this table, which can only count too many.
#[derive(Default)]
struct Names {
    uses: HashMap<String, u64>,
}

impl Visitor for Names {
    type Break = String;

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<String> {
        for table in query.with.iter().flat_map(|with| &with.cte_tables) {
            let name = table.alias.name.value.to_lowercase();
            let mut uses = Uses {
                known: &self.uses,
                itself: &name,
                count: 1,
            };
            if table.query.visit(&mut uses).is_break() || uses.count > MAX_WRITTEN_OUT {
                return ControlFlow::Break(table.alias.name.value.clone());
            }
            let count = uses.count;
            self.uses.insert(name, count);
        }
        ControlFlow::Continue(())
    }
}

struct Uses<'a> {
    known: &'a HashMap<String, u64>,
    /// What a recursive query calls itself is not written out.
    itself: &'a str,
    count: u64,
}

impl Visitor for Uses<'_> {
    type Break = ();

    fn pre_visit_relation(&mut self, relation: &ObjectName) -> ControlFlow<()> {
        let name = relation.to_string().to_lowercase();
        if name != self.itself {
            self.count = self
                .count
                .saturating_add(self.known.get(&name).copied().unwrap_or(0));
        }
        match self.count > MAX_WRITTEN_OUT {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }
}
