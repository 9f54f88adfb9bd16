//! `extract(decade FROM x)`, and centuries and millennia, which the engine does not know.
//!
//! Comes in: a call of `date_part`, which EXTRACT is another form of. Goes out: the same of years, worked out as DuckDB and PostgreSQL do: the year 2000 is in the 20th century, and before the year 1 comes the century -1.
//! Never here: parts of intervals, parts that the engine has.

use arrow::datatypes::DataType;
use datafusion::common::DFSchema;
use datafusion::common::tree_node::Transformed;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{Case, Expr, ExprSchemable, lit};

/// The call over years, where it is of one of these parts.
pub(super) fn of_years(call: ScalarFunction, schema: &DFSchema) -> Transformed<Expr> {
    match years_of(&call, schema) {
        Some((years, value)) => Transformed::yes(part(&call, years, value)),
        None => Transformed::no(Expr::ScalarFunction(call)),
    }
}

/// How many years the part has, and of what it is asked.
fn years_of<'a>(call: &'a ScalarFunction, schema: &DFSchema) -> Option<(i32, &'a Expr)> {
    let [Expr::Literal(part, _), value] = call.args.as_slice() else {
        return None;
    };
    if call.func.name() != "date_part"
        || matches!(value.get_type(schema), Ok(DataType::Interval(_)))
    {
        return None;
    }
    let part = part.try_as_str().flatten()?.to_lowercase();
    let years = match part.as_str() {
        "decade" | "decades" => 10,
        "century" | "centuries" => 100,
        "millennium" | "millenniums" | "millennia" => 1_000,
        _ => return None,
    };
    Some((years, value))
}

fn part(call: &ScalarFunction, years: i32, value: &Expr) -> Expr {
    let arguments = vec![lit("year"), value.clone()];
    let year = call.func.call(arguments);
    let whole = |year: Expr| year / lit(years);
    if years == 10 {
        return whole(year);
    }
    let begun = whole(year.clone() + lit(years - 1));
    let before = whole(year.clone()) - lit(1);
    Expr::Case(Case::new(
        None,
        vec![(Box::new(year.gt(lit(0))), Box::new(begun))],
        Some(Box::new(before)),
    ))
}
