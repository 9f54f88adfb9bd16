//! What a statement does, against what it may do.
//!
//! Comes in: a parsed statement, and what whoever sent it may do. Goes out: nothing, or a refusal. Settings of the engine show paths, memory and versions: only those see them who may do all.
//! Never here: which tables somebody may see (`names.rs`).

use std::ops::ControlFlow;

use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{ObjectName, Statement as SqlStatement, visit_relations};

use super::guard::Does;
use super::options::Statements;
use crate::error::{Error, ErrorKind, Result};

/// The table of settings in `information_schema`.
const SETTINGS: &str = "df_settings";

/// # Errors
/// `PermissionDenied` when the statement does more than it may.
pub(super) fn check(may: Statements, statement: &Statement, does: Does) -> Result<()> {
    let refused = match (may, does) {
        (Statements::All, _) => return Ok(()),
        (Statements::Read, Does::Name) => {
            "naming and dropping tables and views needs the right to write: a token with the scope `write`, this one has `read`"
        }
        (_, Does::Prepare) => "PREPARE, EXECUTE and DEALLOCATE are not for clients of a server",
        _ if shows_settings(statement) => {
            "the settings of the engine are not for clients of a server"
        }
        _ => return Ok(()),
    };
    let error = Error::new(ErrorKind::PermissionDenied, refused);
    Err(match does {
        Does::Prepare => {
            error.with_hint("prepare statements through the client, which keeps them by handles")
        }
        Does::Name => error.with_hint(
            "ask the administrator for such a token: `partgrid token NAME --scope write` makes one",
        ),
        _ => error,
    })
}

fn shows_settings(statement: &Statement) -> bool {
    let inner = match statement {
        Statement::Statement(inner) => inner.as_ref(),
        Statement::Explain(explain) => return shows_settings(&explain.statement),
        _ => return false,
    };
    if matches!(inner, SqlStatement::ShowVariable { .. }) {
        return true;
    }
    let named = visit_relations(inner, |name: &ObjectName| match is_settings(name) {
        true => ControlFlow::Break(()),
        false => ControlFlow::Continue(()),
    });
    named.is_break()
}

fn is_settings(name: &ObjectName) -> bool {
    let last = name.0.last().and_then(|part| part.as_ident());
    last.is_some_and(|last| last.value.eq_ignore_ascii_case(SETTINGS))
}
