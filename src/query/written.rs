//! Columns that are called as they are written: `SELECT INTERVAL '1 day'`, `SELECT x'ab'`. The engine calls them as Rust prints such values.
//!
//! Comes in: a SELECT, or a table of FROM. Goes out: the same, with names for such columns that have none. Never here: columns of other values; values within subqueries, which have columns of their own.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, Ident, Query, Select, SelectItem, TableAlias, TableAliasColumnDef, TableFactor, Value,
    Visit, Visitor,
};

/// With what the names of tables begin.
const UNNESTED: &str = "__unnested";

/// Names the items of a SELECT.
pub(super) fn name_items(select: &mut Select) {
    for item in &mut select.projection {
        if let SelectItem::UnnamedExpr(expr) = item
            && has_value(expr)
        {
            *item = SelectItem::ExprWithAlias {
                alias: Ident::with_quote('"', without_parentheses(expr).to_string()),
                expr: expr.clone(),
            };
        }
    }
}

/// Names the columns of `FROM unnest([…])`, counting on.
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
    // A struct would be several columns.
    let are_lists = array_exprs
        .iter()
        .all(|list| matches!(list, Expr::Array(_)));
    let has_names = alias
        .as_ref()
        .is_some_and(|alias| !alias.columns.is_empty());
    if has_names || !are_lists || !array_exprs.iter().any(has_value) {
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

fn without_parentheses(expr: &Expr) -> &Expr {
    match expr {
        Expr::Nested(inner) => without_parentheses(inner),
        other => other,
    }
}

/// Whether there is such a value in an expression, but not in a subquery.
fn has_value(expr: &Expr) -> bool {
    expr.visit(&mut Values { queries: 0 }).is_break()
}

struct Values {
    /// How many subqueries are open.
    queries: usize,
}

impl Visitor for Values {
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
        let is_value = match expr {
            Expr::Interval(_) => true,
            Expr::Value(value) => matches!(value.value, Value::HexStringLiteral(_)),
            _ => false,
        };
        match is_value && self.queries == 0 {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }
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
        name_items(select);
        for table in &mut select.from {
            name_unnested(&mut table.relation, &mut 0);
        }
        query.to_string()
    }

    #[test]
    fn intervals_and_bytes_are_called_as_they_are_written() {
        for (text, expected) in [
            (
                "SELECT (INTERVAL '1 day'), X'ab'",
                "SELECT (INTERVAL '1 day') AS \"INTERVAL '1 day'\", X'ab' AS \"X'ab'\"",
            ),
            (
                "SELECT d - INTERVAL '1' MONTH FROM t",
                "SELECT d - INTERVAL '1' MONTH AS \"d - INTERVAL '1' MONTH\" FROM t",
            ),
            (
                "SELECT * FROM UNNEST([INTERVAL '1 day'])",
                "SELECT * FROM UNNEST([INTERVAL '1 day']) AS __unnested_1 (\"unnest([INTERVAL '1 day'])\")",
            ),
            (
                "SELECT * FROM UNNEST([INTERVAL '1 day']) AS u",
                "SELECT * FROM UNNEST([INTERVAL '1 day']) AS u (\"unnest([INTERVAL '1 day'])\")",
            ),
        ] {
            assert_eq!(named(text), expected);
        }
    }

    #[test]
    fn all_others_keep_what_they_are_called() {
        for text in [
            "SELECT INTERVAL '1 day' AS x, a, 1 + 2, * FROM t",
            "SELECT (SELECT max(d) FROM t WHERE d > INTERVAL '1 day')",
            "SELECT * FROM UNNEST([1, 2])",
            "SELECT * FROM UNNEST([INTERVAL '1 day']) AS u (x)",
        ] {
            assert_eq!(named(text), text);
        }
    }
}
