//! Columns that are called as they are written: `SELECT sum(x) + 1`, `SELECT (SELECT …)`, `FROM unnest([INTERVAL '1 day'])`. The engine calls them as it prints what it reads: `sum(t.x) + Int64(1)`.
//!
//! Comes in: a SELECT, or a table of FROM. Goes out: the same, with names for such columns that have none. Never here: columns of tables, fields of structs that become columns.

use std::collections::HashSet;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Ident, ObjectName,
    ObjectNamePart, Query, Select, SelectItem, TableAlias, TableAliasColumnDef, TableFactor, Value,
    Visit, VisitMut, Visitor, VisitorMut, visit_expressions,
};

use super::asof;
use super::using::folded;

/// With what the names of tables begin.
const UNNESTED: &str = "__unnested";

/// Names the items of a SELECT, but not as columns that the statement names: those are meant then.
pub(super) fn name_items(select: &mut Select, meant: &Meant) {
    let within = Meant::of(select);
    for item in &mut select.projection {
        if let SelectItem::UnnamedExpr(expr) = item
            && let Some(name) = name_of(expr)
            && !meant.0.contains(&name)
            && !within.0.contains(&name)
        {
            let (expr, alias) = (expr.clone(), Ident::with_quote('"', name));
            *item = SelectItem::ExprWithAlias { expr, alias };
        }
    }
}

/// The names that somebody writes in quotes.
#[derive(Debug, Default)]
pub(super) struct Meant(HashSet<String>);

impl Meant {
    /// Those in a part of a statement.
    pub(super) fn of(part: &impl Visit) -> Self {
        let mut names = HashSet::new();
        let mut add = |name: &Ident| {
            if name.quote_style.is_some() {
                names.insert(name.value.clone());
            }
        };
        let visited: ControlFlow<()> = visit_expressions(part, |expr| {
            match expr {
                Expr::Identifier(name) => add(name),
                Expr::CompoundIdentifier(parts) => parts.iter().for_each(&mut add),
                _ => {}
            }
            ControlFlow::Continue(())
        });
        debug_assert!(visited.is_continue());
        Self(names)
    }
}

/// What an item is called that is no column; `None` for one that may be several.
fn name_of(expr: &Expr) -> Option<String> {
    match without_parentheses(expr) {
        Expr::Identifier(_) | Expr::CompoundIdentifier(_) => None,
        value => (!may_be_many(value)).then(|| text_of(expr)),
    }
}

/// An expression as it is written, whatever the case of its words.
pub(super) fn text_of(expr: &Expr) -> String {
    let mut text = without_parentheses(expr).clone();
    let visited = VisitMut::visit(&mut text, &mut Folding);
    debug_assert!(visited.is_continue());
    asof::as_called(text.to_string())
}

/// A query as it is written, in brackets.
pub(super) fn text_of_query(query: &Query) -> String {
    let mut text = query.clone();
    let visited = VisitMut::visit(&mut text, &mut Folding);
    debug_assert!(visited.is_continue());
    format!("({text})")
}

pub(in crate::query) fn without_parentheses(expr: &Expr) -> &Expr {
    match expr {
        Expr::Nested(inner) => without_parentheses(inner),
        other => other,
    }
}

/// Writes names without quotes in lower case, as SQL reads them.
struct Folding;

fn fold(name: &mut Ident) {
    if name.quote_style.is_none() {
        name.value = folded(name);
    }
}

fn fold_all(name: &mut ObjectName) {
    for part in &mut name.0 {
        if let ObjectNamePart::Identifier(name) = part {
            fold(name);
        }
    }
}

impl VisitorMut for Folding {
    type Break = ();

    fn pre_visit_relation(&mut self, name: &mut ObjectName) -> ControlFlow<()> {
        fold_all(name);
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        match expr {
            Expr::Identifier(name) => fold(name),
            Expr::CompoundIdentifier(names) => names.iter_mut().for_each(fold),
            Expr::Function(call) => fold_all(&mut call.name),
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

/// Whether an expression may be more than one column: the fields of a struct, each of them.
fn may_be_many(expr: &Expr) -> bool {
    has_outside_subqueries(
        expr,
        |part| matches!(part, Expr::Function(call) if unnests(call)),
    )
}

/// Whether an expression has such a part, but not in a subquery.
fn has_outside_subqueries(expr: &Expr, is_such: impl Fn(&Expr) -> bool) -> bool {
    let queries = 0;
    Visit::visit(expr, &mut Parts { is_such, queries }).is_break()
}

struct Parts<F> {
    is_such: F,
    /// How many subqueries are open.
    queries: usize,
}

impl<F: Fn(&Expr) -> bool> Visitor for Parts<F> {
    type Break = ();

    fn pre_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
        self.queries += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
        self.queries -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        match self.queries == 0 && (self.is_such)(expr) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }
}

/// Whether a call makes rows of what may be a struct.
fn unnests(call: &Function) -> bool {
    let name = call.name.0.last().and_then(ObjectNamePart::as_ident);
    let is_unnest = name.is_some_and(|name| name.value.eq_ignore_ascii_case("unnest"));
    let of_list = match &call.args {
        FunctionArguments::List(list) => matches!(
            list.args.as_slice(),
            [FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Array(_)))]
        ),
        _ => false,
    };
    is_unnest && !of_list
}

/// Names the columns of `FROM unnest([…])`, counting on: that of one list as the table, in PostgreSQL and DuckDB, too.
pub(super) fn name_unnested(factor: &mut TableFactor, named: &mut usize) {
    let TableFactor::UNNEST {
        alias,
        array_exprs,
        with_offset: false,
        ..
    } = factor
    else {
        return;
    };
    let has_names = alias
        .as_ref()
        .is_some_and(|alias| !alias.columns.is_empty());
    // A struct would be several columns.
    let is_struct = |list: &Expr| matches!(list, Expr::Dictionary(_) | Expr::Struct { .. });
    if has_names || array_exprs.iter().any(is_struct) {
        return;
    }
    if let ([_], Some(alias)) = (array_exprs.as_slice(), alias.as_mut()) {
        let name = alias.name.clone();
        alias.columns.push(TableAliasColumnDef {
            name,
            data_type: None,
        });
        return;
    }
    let are_lists = array_exprs
        .iter()
        .all(|list| matches!(list, Expr::Array(_)));
    if !are_lists || !array_exprs.iter().any(has_value) {
        return;
    }
    let columns = array_exprs.iter().map(|list| TableAliasColumnDef {
        name: Ident::with_quote('"', format!("unnest({list})")),
        data_type: None,
    });
    let columns = columns.collect();
    if let Some(alias) = alias {
        alias.columns = columns;
        return;
    }
    *named += 1;
    *alias = Some(TableAlias {
        explicit: true,
        name: Ident::new(format!("{UNNESTED}_{named}")),
        columns,
        at: None,
    });
}

/// Whether there is an interval or bytes in an expression.
fn has_value(expr: &Expr) -> bool {
    has_outside_subqueries(expr, |part| match part {
        Expr::Interval(_) => true,
        Expr::Value(value) => matches!(value.value, Value::HexStringLiteral(_)),
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::ast::SetExpr;
    use datafusion::sql::sqlparser::dialect::GenericDialect;
    use datafusion::sql::sqlparser::parser::Parser;

    use super::*;

    fn named(text: &str) -> String {
        let mut parser = Parser::new(&GenericDialect {}).try_with_sql(text).unwrap();
        let mut query = parser.parse_query().unwrap();
        let SetExpr::Select(select) = query.body.as_mut() else {
            panic!("{text} is no SELECT");
        };
        name_items(select, &Meant::default());
        for table in &mut select.from {
            name_unnested(&mut table.relation, &mut 0);
        }
        query.to_string()
    }

    #[test]
    fn what_is_worked_out_is_called_as_it_is_written() {
        for (text, expected) in [
            (
                "SELECT (INTERVAL '1 day'), X'ab'",
                "SELECT (INTERVAL '1 day') AS \"INTERVAL '1 day'\", X'ab' AS \"X'ab'\"",
            ),
            (
                "SELECT Sum(T.X)+1, 'A', \"Y\"||'b', count(*) FROM t",
                "SELECT Sum(T.X) + 1 AS \"sum(t.x) + 1\", 'A' AS \"'A'\", \"Y\" || 'b' AS \"\"\"Y\"\" || 'b'\", count(*) AS \"count(*)\" FROM t",
            ),
            (
                "SELECT (SELECT max(d) FROM t), (SELECT d AS e FROM t), ((SELECT t.d FROM t UNION SELECT 1))",
                "SELECT (SELECT max(d) FROM t) AS \"(SELECT max(d) FROM t)\", (SELECT d AS e FROM t) AS \"(SELECT d AS e FROM t)\", ((SELECT t.d FROM t UNION SELECT 1)) AS \"(SELECT t.d FROM t UNION SELECT 1)\"",
            ),
            (
                "SELECT unnest([1, 2]), unnest(l), unnest([s]) || unnest(l)",
                "SELECT unnest([1, 2]) AS \"unnest([1, 2])\", unnest(l), unnest([s]) || unnest(l)",
            ),
            (
                "SELECT * FROM UNNEST([INTERVAL '1 day'])",
                "SELECT * FROM UNNEST([INTERVAL '1 day']) AS __unnested_1 (\"unnest([INTERVAL '1 day'])\")",
            ),
            (
                "SELECT * FROM UNNEST([INTERVAL '1 day']) AS u",
                "SELECT * FROM UNNEST([INTERVAL '1 day']) AS u (u)",
            ),
        ] {
            assert_eq!(named(text), expected);
        }
    }

    #[test]
    fn all_others_keep_what_they_are_called() {
        for text in [
            "SELECT 1 + 2 AS x, a, (t.a), * FROM t",
            "SELECT x + 1, \"x + 1\" FROM t",
            "SELECT max(x), t.\"max(x)\" FROM t",
            "SELECT * FROM UNNEST([1, 2])",
            "SELECT * FROM UNNEST([INTERVAL '1 day']) AS u (x)",
        ] {
            assert_eq!(named(text), text);
        }
    }
}
