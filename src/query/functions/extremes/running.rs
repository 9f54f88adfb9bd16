//! The least and the greatest value so far, a batch at a time.
//!
//! Comes in: values in the order of their rows, and where they begin anew. Goes out: for each row the best value up to it. Never here: frames that slide, nested values.

use std::cmp::Ordering;

use arrow::array::{Array, ArrayRef, UInt32Array, make_comparator, new_null_array};
use arrow::buffer::BooleanBuffer;
use arrow::compute::{SortOptions, concat, take};
use arrow::datatypes::DataType;
use datafusion::error::Result;
use datafusion::logical_expr::AggregateUDF;

use super::Extreme;
use crate::query::functions::sums::Running;

/// What finds the best, if the function is one of ours and does so; of values of the first type, which come to the second.
pub(in crate::query) fn running(
    function: &AggregateUDF,
    (input, output): (&DataType, &DataType),
) -> Option<Running> {
    let extreme = function.inner().downcast_ref::<Extreme>()?;
    let is_known = input.is_numeric()
        || input.is_string()
        || input.is_temporal() && !matches!(input, DataType::Interval(_));
    if !is_known || input != output {
        return None;
    }
    let better = match extreme.is_max {
        true => Ordering::Greater,
        false => Ordering::Less,
    };
    // A value of one row: the best so far.
    let mut best = new_null_array(input, 1);
    Some(Box::new(move |values, begins| {
        let found = so_far(&concat(&[best.as_ref(), values.as_ref()])?, begins, better)?;
        let last = u32::try_from(found.len() - 1).unwrap_or_default();
        // Copied, since the batch is large.
        best = take(&found, &UInt32Array::from(vec![last]), None)?;
        Ok(found)
    }))
}

/// The best up to each row but the first, which is that before them.
fn so_far(values: &ArrayRef, begins: &BooleanBuffer, better: Ordering) -> Result<ArrayRef> {
    let compare = make_comparator(values, values, SortOptions::default())?;
    let mut best = values.is_valid(0).then_some(0);
    let places = (1..values.len()).map(|place| {
        if begins.value(place - 1) {
            best = None;
        }
        if values.is_valid(place) && best.is_none_or(|best| compare(place, best) == better) {
            best = Some(place);
        }
        best.and_then(|best| u32::try_from(best).ok())
    });
    let places: UInt32Array = places.collect();
    Ok(take(values, &places, None)?)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{AsArray, Float64Array, StringArray};
    use arrow::datatypes::Float64Type;
    use datafusion::functions_aggregate::min_max::{max_udaf, min_udaf};

    use super::*;

    #[test]
    fn the_best_goes_on_in_the_next_batch() {
        let function = AggregateUDF::from(Extreme {
            inner: max_udaf(),
            is_max: true,
        });
        let mut run = running(&function, (&DataType::Float64, &DataType::Float64)).unwrap();
        let mut best = |values: Vec<Option<f64>>, begins: Vec<bool>| {
            let values: ArrayRef = Arc::new(Float64Array::from(values));
            let found = run(&values, &begins.into()).unwrap();
            found
                .as_primitive::<Float64Type>()
                .iter()
                .collect::<Vec<_>>()
        };
        assert_eq!(
            best(
                vec![None, Some(1.0), Some(0.5), Some(-2.0)],
                vec![true, false, false, true]
            ),
            [None, Some(1.0), Some(1.0), Some(-2.0)]
        );
        let found = best(
            vec![None, Some(f64::NAN), Some(5.0)],
            vec![false, false, false],
        );
        assert_eq!(found[0], Some(-2.0));
        assert!(found[1].unwrap().is_nan() && found[2].unwrap().is_nan());
        let function = AggregateUDF::from(Extreme {
            inner: min_udaf(),
            is_max: false,
        });
        let mut run = running(&function, (&DataType::Utf8, &DataType::Utf8)).unwrap();
        let texts: ArrayRef = Arc::new(StringArray::from(vec!["b", "c", "a"]));
        let found = run(&texts, &BooleanBuffer::from(vec![true, false, false])).unwrap();
        let found: Vec<&str> = found.as_string::<i32>().iter().flatten().collect();
        assert_eq!(found, ["b", "b", "a"]);
    }
}
