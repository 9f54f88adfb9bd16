//! Functions of lists with a lambda: what each element becomes and which stay, whose lambdas are told the place of an element, too (`mapped.rs`), and one value of all elements (`reduced.rs`).
//!
//! Comes in: lists, and a lambda. Goes out: what DuckDB's functions of these names make of them. Never here: what lambdas do, and over which columns (`plan/meaning/lambdas/`).

mod mapped;
mod reduced;

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{Result, exec_err, plan_err};
use datafusion::prelude::SessionContext;

/// Puts the functions beside those of the engine, and in place of those of the same names.
pub(super) fn add_to(context: &SessionContext) {
    for function in mapped::functions().into_iter().chain([reduced::function()]) {
        context.register_higher_order_function(function);
    }
}

/// Where the elements of each list begin, after those of the lists before it, and how many there are.
fn extents(lists: &ArrayRef) -> Result<Vec<(usize, usize)>> {
    fn of<O: TryInto<usize> + Copy>(offsets: &[O]) -> Vec<(usize, usize)> {
        // Offsets ascend from a number that is not negative.
        let offset = |offset: O| offset.try_into().unwrap_or(0);
        let first = offsets.first().copied().map_or(0, offset);
        let each = offsets.array_windows().map(|[begin, end]| {
            let begin = offset(*begin);
            (begin - first, offset(*end) - begin)
        });
        each.collect()
    }
    match lists.data_type() {
        DataType::List(_) => Ok(of(lists.as_list::<i32>().offsets())),
        DataType::LargeList(_) => Ok(of(lists.as_list::<i64>().offsets())),
        other => exec_err!("elements of {other}"),
    }
}

/// The field of the elements of a list.
fn element_of(name: &str, list: &FieldRef) -> Result<FieldRef> {
    match list.data_type() {
        DataType::List(field) | DataType::LargeList(field) => Ok(Arc::clone(field)),
        other => plan_err!("{name} expected a list as first argument, got {other}"),
    }
}

/// The field of the place of an element in its list: the first one is 1.
fn place_field() -> FieldRef {
    Arc::new(Field::new("place", DataType::Int64, false))
}
