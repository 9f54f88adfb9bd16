//! Dictionaries, where values of several rows or columns meet: the engine puts the entries of all of them behind each other, and keys are soon used up.
//!
//! Comes in: expressions before types are settled. Goes out: the same over the values in place of the dictionaries. Never here: keys of groups and joins, which the engine looks up.

use std::collections::HashSet;

use arrow::datatypes::DataType;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::expr::Sort;
use datafusion::logical_expr::{Expr, ExprSchemable, cast};

/// Functions of windows and of groups that give the value of one row of many.
pub(super) const OF_ONE_ROW: [&str; 8] = [
    "any_value",
    "lag",
    "lead",
    "first_value",
    "last_value",
    "nth_value",
    "mode",
    "percentile_disc",
];

/// The values of dictionaries in place of these: the engine gives each row an entry of its own, and keys are soon used up.
pub(super) fn without_dictionaries<'a>(
    parts: impl IntoIterator<Item = &'a mut Expr>,
    schema: &DFSchema,
) -> Result<bool> {
    let mut is_changed = false;
    for part in parts {
        if let DataType::Dictionary(_, values) = part.get_type(schema)? {
            *part = cast(std::mem::take(part), *values);
            is_changed = true;
        }
    }
    Ok(is_changed)
}

/// Functions that give one of their arguments, or a list of them.
const OF_SEVERAL: [&str; 7] = [
    "coalesce",
    "nvl",
    "ifnull",
    "nvl2",
    "greatest",
    "least",
    "make_array",
];

/// The values of several dictionaries, of which each row has one, or of one with few keys beside other values.
pub(super) fn of_several(mut expression: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let parts: Vec<&mut Expr> = match &mut expression {
        Expr::Case(case) => {
            let given = case.when_then_expr.iter_mut().map(|(_, then)| &mut **then);
            given.chain(case.else_expr.as_deref_mut()).collect()
        }
        Expr::ScalarFunction(call) if OF_SEVERAL.contains(&call.func.name()) => {
            call.args.iter_mut().collect()
        }
        _ => return Ok(Transformed::no(expression)),
    };
    let mut distinct = HashSet::new();
    let mut others = 0;
    let mut are_narrow = false;
    for part in &parts {
        match part.get_type(schema)? {
            DataType::Dictionary(keys, _) => {
                are_narrow |= matches!(*keys, DataType::Int8 | DataType::UInt8);
                distinct.insert(Expr::clone(part));
            }
            DataType::Null => {}
            _ => others += 1,
        }
    }
    let is_much = distinct.len() > 1 || are_narrow && others > 0;
    let is_changed = is_much && without_dictionaries(parts, schema)?;
    Ok(Transformed::new_transformed(expression, is_changed))
}

/// Without the keys of an order that stand there once more: behind the first they change nothing, and the engine drops them in one place and counts them in another.
pub(super) fn without_repeated(order: &mut Vec<Sort>) -> bool {
    let all = order.len();
    let mut known = HashSet::new();
    order.retain(|key| known.insert(key.expr.clone()));
    order.len() < all
}
