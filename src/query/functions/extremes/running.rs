//! The least and the greatest value so far, and of the last rows, a batch at a time.
//!
//! Comes in: values in the order of their rows, and where they begin anew. Goes out: for each row the best value up to it. Never here: other frames, nested values.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, UInt32Array, make_comparator, new_null_array};
use arrow::buffer::BooleanBuffer;
use arrow::compute::{SortOptions, concat, take};
use arrow::datatypes::DataType;
use datafusion::error::Result;
use datafusion::logical_expr::AggregateUDF;

use super::Extreme;
use crate::query::functions::sums::Running;

/// What finds the best so far, or of so many rows before each and itself, if the function is one of ours and does so; of values of the first type, which come to the second.
pub(in crate::query) fn running(
    function: &AggregateUDF,
    (input, output): (&DataType, &DataType),
    before: Option<usize>,
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
    if let Some(before) = before {
        return Some(of_last(new_null_array(input, 0), before, better));
    }
    // A value of one row: the best so far.
    let mut best = new_null_array(input, 1);
    Some(Running::at_once(Box::new(move |values, begins| {
        let found = so_far(&concat(&[best.as_ref(), values.as_ref()])?, begins, better)?;
        let last = u32::try_from(found.len() - 1).unwrap_or_default();
        best = copied(&found, &UInt32Array::from(vec![last]))?;
        Ok(found)
    })))
}

/// Some values without the memory of the others.
fn copied(values: &ArrayRef, places: &UInt32Array) -> Result<ArrayRef> {
    let values = take(values, places, None)?;
    Ok(match values.as_string_view_opt() {
        Some(views) => Arc::new(views.gc()),
        None => values,
    })
}

/// The best of so many rows before each and itself. Rows that a better one follows are forgotten.
fn of_last(none: ArrayRef, before: usize, better: Ordering) -> Running {
    // The last rows, and the places in them of those that may still be the best, the best first.
    let (mut last, mut places) = (none, VecDeque::<usize>::new());
    Running::at_once(Box::new(move |values, begins| {
        let all = concat(&[last.as_ref(), values.as_ref()])?;
        let compare = make_comparator(&all, &all, SortOptions::default())?;
        let found = (0..values.len()).map(|row| {
            let place = last.len() + row;
            if begins.value(row) {
                places.clear();
            }
            if places.front().is_some_and(|first| first + before < place) {
                places.pop_front();
            }
            if all.is_valid(place) {
                while places
                    .back()
                    .is_some_and(|held| compare(*held, place) != better)
                {
                    places.pop_back();
                }
                places.push_back(place);
            }
            places.front().and_then(|first| u32::try_from(*first).ok())
        });
        let found: UInt32Array = found.collect();
        let found = take(&all, &found, None)?;
        let gone = all.len().saturating_sub(before);
        let kept = (gone..all.len()).filter_map(|place| u32::try_from(place).ok());
        let kept: UInt32Array = kept.collect();
        last = copied(&all, &kept)?;
        // Those that are no more among the last ones leave with the next row.
        places.retain(|place| *place >= gone);
        places.iter_mut().for_each(|place| *place -= gone);
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
    use arrow::array::{Float64Array, StringArray, StringViewArray};
    use arrow::datatypes::Float64Type;
    use datafusion::functions_aggregate::min_max::{max_udaf, min_udaf};

    use super::*;

    #[test]
    fn the_best_goes_on_in_the_next_batch() {
        let function = AggregateUDF::from(Extreme {
            inner: max_udaf(),
            is_max: true,
        });
        let mut run = running(&function, (&DataType::Float64, &DataType::Float64), None).unwrap();
        let mut best = |values: Vec<Option<f64>>, begins: Vec<bool>| {
            let values: ArrayRef = Arc::new(Float64Array::from(values));
            let found = (run.run)(&values, &begins.into()).unwrap();
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
        let mut run = running(&function, (&DataType::Utf8, &DataType::Utf8), None).unwrap();
        let texts: ArrayRef = Arc::new(StringArray::from(vec!["b", "c", "a"]));
        let found = (run.run)(&texts, &BooleanBuffer::from(vec![true, false, false])).unwrap();
        let found: Vec<&str> = found.as_string::<i32>().iter().flatten().collect();
        assert_eq!(found, ["b", "b", "a"]);
    }

    #[test]
    fn the_best_of_the_last_rows_leaves_with_its_row() {
        let function = AggregateUDF::from(Extreme {
            inner: max_udaf(),
            is_max: true,
        });
        let kind = DataType::Float64;
        let values: Vec<f64> = (0..100).map(|number| f64::from(number * 37 % 23)).collect();
        for before in [0, 1, 3, 40, 200] {
            let mut run = running(&function, (&kind, &kind), Some(before)).unwrap();
            let mut found = Vec::new();
            for (begin, part) in (0..).step_by(7).zip(values.chunks(7)) {
                let begins: Vec<bool> = (begin..begin + part.len())
                    .map(|row| row == 0 || row == 60)
                    .collect();
                let part: ArrayRef = Arc::new(Float64Array::from(part.to_vec()));
                let best = (run.run)(&part, &begins.into()).unwrap();
                found.extend(best.as_primitive::<Float64Type>().values().iter().copied());
            }
            let wanted: Vec<f64> = (0..values.len())
                .map(|row| {
                    let first = if row < 60 { 0 } else { 60 };
                    let rows = &values[first.max(row.saturating_sub(before))..=row];
                    rows.iter().copied().fold(f64::MIN, f64::max)
                })
                .collect();
            assert_eq!(found, wanted, "{before} before");
        }
    }

    #[test]
    fn views_of_earlier_batches_keep_no_memory() {
        let function = AggregateUDF::from(Extreme {
            inner: min_udaf(),
            is_max: false,
        });
        let kind = DataType::Utf8View;
        for before in [None, Some(3)] {
            let mut run = running(&function, (&kind, &kind), before).unwrap();
            for number in 0..50 {
                let text = format!("a text that is too long for a view {:03}", 100 - number);
                let values: ArrayRef = Arc::new(StringViewArray::from(vec![text.as_str(); 9]));
                let begins = BooleanBuffer::from(vec![number == 0; 9]);
                let found = (run.run)(&values, &begins).unwrap();
                assert!(found.as_string_view().data_buffers().len() <= 2);
            }
        }
    }
}
