//! Names that WITH gives once more in a query within, which the engine takes for two of one name.
//!
//! Comes in: the queries of a statement, from outside and back. Goes out: the same, in which what such a name stands for within has another one, and is called as before where it is read; and names within what is recursive, which
//! the engine forgets, are given before it. Never here: two of one name in one WITH.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Ident, ObjectName, Query, SetExpr, TableAlias, TableFactor, VisitMut, VisitorMut, With,
};

use super::using::folded;

/// With what the other names begin.
const WITHIN: &str = "__within";

/// The names of the queries that are open.
#[derive(Debug, Default)]
pub(super) struct Withs {
    open: Vec<Vec<String>>,
    /// How many got another name.
    renamed: usize,
}

impl Withs {
    /// A query begins.
    pub(super) fn open(&mut self, query: &Query) {
        let given = query.with.iter().flat_map(|with| &with.cte_tables);
        let names = given.map(|given| folded(&given.alias.name));
        self.open.push(names.collect());
    }

    /// It ends; those within it have ended.
    pub(super) fn close(&mut self, query: &mut Query) {
        let names = self.open.pop().unwrap_or_default();
        let distinct: BTreeSet<&String> = names.iter().collect();
        if distinct.len() < names.len() {
            return;
        }
        for name in distinct {
            if self.open.iter().flatten().any(|outside| outside == name) {
                rename(query, name, &self.new_name());
            }
        }
        if let Some(with) = query.with.as_mut().filter(|with| with.recursive) {
            self.give_before(with);
        }
    }

    fn new_name(&mut self) -> Ident {
        self.renamed += 1;
        Ident::with_quote('"', format!("{WITHIN}_{}", self.renamed))
    }

    /// What a query that may be recursive gives names to in a WITH of its own, given before it: the engine looks at the sides of its UNION alone.
    fn give_before(&mut self, with: &mut With) {
        let mut all = Vec::new();
        for mut given in std::mem::take(&mut with.cte_tables) {
            let is_union = matches!(*given.query.body, SetExpr::SetOperation { .. });
            let own = given.query.with.iter().flat_map(|own| &own.cte_tables);
            let names: BTreeSet<String> = own.map(|own| folded(&own.alias.name)).collect();
            if is_union {
                for name in &names {
                    rename(&mut given.query, name, &self.new_name());
                }
                all.extend(
                    given
                        .query
                        .with
                        .take()
                        .into_iter()
                        .flat_map(|own| own.cte_tables),
                );
            }
            all.push(given);
        }
        with.cte_tables = all;
    }
}

/// Gives what `name` stands for in a query another name, where it is given and where it is read: behind itself, and in itself only if it is recursive.
fn rename(query: &mut Query, name: &str, new: &Ident) {
    let mut reading = Reading { name, new };
    let mut with = query.with.take();
    if let Some(with) = &mut with {
        let mut is_given = false;
        for given in &mut with.cte_tables {
            let is_it = folded(&given.alias.name) == name;
            if is_given || is_it && with.recursive {
                let _: ControlFlow<()> = given.query.visit(&mut reading);
            }
            if is_it {
                given.alias.name = new.clone();
                is_given = true;
            }
        }
    }
    let _: ControlFlow<()> = query.visit(&mut reading);
    query.with = with;
}

struct Reading<'a> {
    name: &'a str,
    new: &'a Ident,
}

impl VisitorMut for Reading<'_> {
    type Break = ();

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
        let TableFactor::Table {
            name,
            alias,
            args: None,
            ..
        } = factor
        else {
            return ControlFlow::Continue(());
        };
        let known = match name.0.as_slice() {
            [part] => part.as_ident().filter(|name| folded(name) == self.name),
            _ => None,
        };
        if let Some(known) = known {
            alias.get_or_insert_with(|| TableAlias {
                explicit: true,
                name: known.clone(),
                columns: Vec::new(),
                at: None,
            });
            *name = ObjectName::from(self.new.clone());
        }
        ControlFlow::Continue(())
    }
}
