//! Rows that become columns, and columns that become rows.
//!
//! - As a statement: `PIVOT t ON k USING sum(x) GROUP BY g`, `UNPIVOT t ON a, b INTO NAME n VALUE v`. `words` makes a SELECT of it before it is parsed, where one `begins`; `statement` and `rows` what it means.
//! - In FROM: `FROM t PIVOT (sum(x) FOR k IN ('a', 'b'))`, `FROM t UNPIVOT (x FOR k IN (a, b))`: `table`, which the parser knows.
//! - Where the text does not say which columns there are (`ON k`, `FOR k IN (ANY)`), `asked` asks the rows before the statement is planned.
//!
//! Comes in: words of a text, and a statement as it was parsed. Goes out: SELECTs with an aggregate for each value (`items`), or for many values with two steps (`steps`), with lists for columns that become rows. Never here: running what is asked (`told.rs` of the session).

mod asked;
mod begins;
mod items;
mod rows;
mod statement;
mod steps;
mod table;
mod words;

pub(in crate::query) use self::asked::{Told, put};
pub(in crate::query) use self::begins::Turn;
pub(super) use self::rows::of_statement as rows_of_statement;
pub(super) use self::table::{alone, in_joins, put_from, query_of};
pub(in crate::query) use self::words::as_queries;

/// The function whose argument is what is turned by, at the beginning of the items of a SELECT.
const ON: &str = "__pivot_on";

/// A value of it.
const IN: &str = "__pivot_in";

/// A query that gives its values.
const OUT_OF: &str = "__pivot_out_of";

/// The names of the columns into which others go, as arguments.
const INTO: &str = "__unpivot_into";
