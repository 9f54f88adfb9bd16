//! What of the rows of the right side is looked at: the numbers of their keys, and what is compared.
//!
//! Comes in: batches of the right side, or of one part of it. Goes out: both, for `unsorted.rs`; those of several parts have the same numbers once they are put together. Never here: the other columns, and memory that is reserved.

use std::sync::Arc;

use arrow::array::RecordBatch;
use datafusion::error::Result;

use super::columns::Columns;
use super::compared::Comparing;
use super::groups::Groups;
use super::unsorted::Part;

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
    part: Part,
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
            part: Part {
                num_rows: 0,
                groups: Vec::new(),
                compared: looking.comparing.none(),
            },
            looking,
        })
    }

    pub(super) fn num_rows(&self) -> u32 {
        self.part.num_rows
    }

    /// How many different keys there are.
    pub(super) fn num_groups(&self) -> usize {
        self.groups.as_ref().map_or(1, Groups::len)
    }

    /// How many bytes it takes.
    pub(super) fn size(&self) -> usize {
        let groups = self.groups.as_ref().map_or(0, Groups::size);
        groups + self.part.compared.size()
    }

    /// Looks at the rows of a batch, none of which has nulls. Whether rows still have numbers.
    pub(super) fn push(&mut self, batch: &RecordBatch) -> Result<bool> {
        let values = self.looking.columns.values(batch)?;
        let added = u32::try_from(batch.num_rows()).ok();
        // The last number is that of no row.
        let num_rows = added.and_then(|added| self.part.num_rows.checked_add(added));
        let num_rows = num_rows.filter(|num_rows| *num_rows < u32::MAX);
        let (Some(num_rows), Some((last, keys))) = (num_rows, values.split_last()) else {
            return Ok(false);
        };
        self.looking
            .comparing
            .append(last, &mut self.part.compared)?;
        if let Some(groups) = &mut self.groups {
            let numbers = groups.numbers(keys)?.iter();
            // There are no more of them than rows.
            let numbers = numbers.map(|number| u32::try_from(*number).unwrap_or(u32::MAX));
            self.part.groups.extend(numbers);
        }
        self.part.num_rows = num_rows;
        Ok(true)
    }

    /// The numbers of keys of some parts, as those of the first of them and what the others have beside: which number each of their own is.
    fn put_together(first: &mut Groups, other: Groups) -> Result<Vec<u32>> {
        let keys = other.into_keys()?;
        let numbers = first.numbers(&keys)?.iter();
        let numbers = numbers.map(|number| u32::try_from(*number).unwrap_or(u32::MAX));
        Ok(numbers.collect())
    }

    /// All rows of some parts, one after the other, and their keys by their numbers.
    pub(super) fn all(parts: Vec<Self>) -> Result<(Vec<Part>, Option<Groups>)> {
        let mut groups: Option<Groups> = None;
        let mut all = Vec::with_capacity(parts.len());
        for Self {
            groups: own,
            mut part,
            ..
        } in parts
        {
            if part.num_rows == 0 {
                // Its numbers count nothing, but there are such without rows.
                groups = groups.or(own);
                continue;
            }
            match (&mut groups, own) {
                (Some(groups), Some(own)) => {
                    let numbers = Self::put_together(groups, own)?;
                    for group in &mut part.groups {
                        *group = numbers.get(*group as usize).copied().unwrap_or(u32::MAX);
                    }
                }
                (groups, own) => *groups = own,
            }
            all.push(part);
        }
        Ok((all, groups))
    }

    /// The same of one.
    pub(super) fn alone(self) -> (Vec<Part>, Option<Groups>) {
        (vec![self.part], self.groups)
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
            known
        });
        let (parts, groups) = Known::all(parts.into()).unwrap();
        let groups = groups.unwrap();
        assert_eq!(groups.len(), 3);
        let numbers: Vec<u32> = parts.iter().flat_map(|part| part.groups.clone()).collect();
        assert_eq!(numbers, [0, 1, 0, 2, 1, 0]);
        let sorted = Unsorted::of(parts, 3).alone();
        assert_eq!(sorted.starts, [0, 3, 5, 6]);
        let rows: Vec<u32> = (0..6).filter_map(|place| sorted.row(place)).collect();
        assert_eq!(rows, [2, 5, 0, 4, 1, 3]);
    }
}
