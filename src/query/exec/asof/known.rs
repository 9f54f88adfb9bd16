//! What of the rows of the right side is looked at: the numbers of their keys, and what is compared.
//!
//! Comes in: batches of the right side, or of one part of it. Goes out: both, for `unsorted.rs`; those of several parts have the same numbers once they are put together. Never here: the other columns, and memory that is reserved.

use std::sync::Arc;

use arrow::array::RecordBatch;
use datafusion::error::Result;

use super::columns::Columns;
use super::compared::{Compared, Comparing};
use super::unsorted::Part;
use crate::query::exec::groups::Groups;

/// How rows are looked at.
#[derive(Clone)]
pub(super) struct Looking {
    pub(super) columns: Arc<Columns>,
    pub(super) comparing: Arc<Comparing>,
    pub(super) has_keys: bool,
}

impl Looking {
    pub(super) fn try_new(columns: Columns, has_keys: bool) -> Result<Self> {
        let (kind, options) = columns.compared()?;
        Ok(Self {
            columns: Arc::new(columns),
            comparing: Arc::new(Comparing::try_new(&kind, options)?),
            has_keys,
        })
    }
}

/// What is known of some rows.
pub(super) struct Known {
    looking: Looking,
    /// `None` without keys: all rows are near to all.
    groups: Option<Groups>,
    group_of_row: Vec<u32>,
    compared: Compared,
    num_rows: u32,
}

impl Known {
    /// Of no rows.
    ///
    /// # Errors
    /// For keys of types that the engine does not group by.
    pub(super) fn try_new(looking: Looking) -> Result<Self> {
        Ok(Self {
            groups: match looking.has_keys {
                false => None,
                true => Some(Groups::try_new(looking.columns.of_keys())?),
            },
            group_of_row: Vec::new(),
            compared: looking.comparing.none(),
            num_rows: 0,
            looking,
        })
    }

    pub(super) fn num_rows(&self) -> u32 {
        self.num_rows
    }

    /// How many bytes it takes.
    pub(super) fn size(&self) -> usize {
        let groups = self.groups.as_ref().map_or(0, Groups::size);
        groups + self.compared.size()
    }

    /// Looks at the rows of a batch, none of which has nulls. Whether rows still have numbers.
    pub(super) fn push(&mut self, batch: &RecordBatch) -> Result<bool> {
        let values = self.looking.columns.values(batch)?;
        let added = u32::try_from(batch.num_rows()).ok();
        // The last number is that of no row.
        let num_rows = added.and_then(|added| self.num_rows.checked_add(added));
        let num_rows = num_rows.filter(|num_rows| *num_rows < u32::MAX);
        let (Some(num_rows), Some((last, keys))) = (num_rows, values.split_last()) else {
            return Ok(false);
        };
        self.looking.comparing.append(last, &mut self.compared)?;
        if let Some(groups) = &mut self.groups {
            let numbers = groups.numbers(keys)?.iter();
            // There are no more of them than rows.
            let numbers = numbers.map(|number| u32::try_from(*number).unwrap_or(u32::MAX));
            self.group_of_row.extend(numbers);
        }
        self.num_rows = num_rows;
        Ok(true)
    }

    /// The rows by the numbers of their keys, once all have come.
    pub(super) fn by_group(self) -> Grouped {
        let part = match &self.groups {
            None => Part::plain(self.num_rows, self.compared),
            Some(groups) => Part::of(&self.group_of_row, groups.len(), self.compared),
        };
        Grouped {
            groups: self.groups,
            part,
        }
    }
}

/// Some rows by the numbers of their keys.
pub(super) struct Grouped {
    pub(super) groups: Option<Groups>,
    pub(super) part: Part,
}

impl Grouped {
    /// All rows of some parts, one after the other, and their keys by their numbers: those of the first part, and behind them what the others have beside.
    pub(super) fn all(parts: Vec<Self>) -> Result<(Vec<Part>, Option<Groups>)> {
        let mut groups: Option<Groups> = None;
        let mut all = Vec::with_capacity(parts.len());
        for Self {
            groups: own,
            mut part,
        } in parts
        {
            match (&mut groups, own) {
                (Some(groups), Some(own)) => {
                    let keys = own.into_keys()?;
                    let numbers = groups.numbers(&keys)?.iter();
                    let numbers = numbers.map(|number| u32::try_from(*number).unwrap_or(u32::MAX));
                    part.tell_numbers(numbers.collect());
                }
                (groups, own) => *groups = own,
            }
            all.push(part);
        }
        Ok((all, groups))
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{ArrayRef, Int64Array, StringArray};
    use arrow::datatypes::{DataType, Field, Schema};
    use datafusion::logical_expr::Operator;

    use super::super::Nearest;
    use super::super::unsorted::Unsorted;
    use super::*;

    #[test]
    fn keys_of_several_parts_have_the_same_numbers() {
        let schema = Schema::new(vec![
            Field::new("k", DataType::Utf8, true),
            Field::new("m", DataType::Int64, true),
        ]);
        let schema = Arc::new(schema);
        let nearest = Nearest::of(Operator::GtEq, vec![(0, 0)], (1, 1), true).unwrap();
        let columns = Columns::of(&schema, &nearest, super::super::right);
        let looking = Looking::try_new(columns, true).unwrap();
        let parts: [(&[&str], &[i64]); 3] = [
            (&["b", "a", "b"], &[5, 1, 3]),
            (&[], &[]),
            (&["c", "a", "b"], &[9, 0, 4]),
        ];
        let parts = parts.map(|(keys, moments)| {
            let mut known = Known::try_new(looking.clone()).unwrap();
            let columns: Vec<ArrayRef> = vec![
                Arc::new(StringArray::from(keys.to_vec())),
                Arc::new(Int64Array::from(moments.to_vec())),
            ];
            let batch = RecordBatch::try_new(Arc::clone(&schema), columns).unwrap();
            assert!(known.push(&batch).unwrap());
            known.by_group()
        });
        let (parts, groups) = Grouped::all(parts.into()).unwrap();
        assert_eq!(groups.unwrap().len(), 3);
        let sorted = Unsorted::of(parts, 3).alone();
        assert_eq!(sorted.starts, [0, 3, 5, 6]);
        let rows: Vec<u32> = (0..6).filter_map(|place| sorted.row(place)).collect();
        assert_eq!(rows, [2, 5, 0, 4, 1, 3]);
    }
}
