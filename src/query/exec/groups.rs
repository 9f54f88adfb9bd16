//! Rows of equal keys.
//!
//! Comes in: keys of rows. Goes out: for each row the number of its keys. Of the two sides of a join, keys of the left one that the right one has not get numbers, too, and are forgotten from time to time. Never here: what is compared, or added up.

use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::datatypes::{Schema, SchemaRef};
use datafusion::error::Result;
use datafusion::logical_expr::EmitTo;
use datafusion::physical_plan::aggregates::group_values::{GroupValues, new_group_values};
use datafusion::physical_plan::aggregates::order::GroupOrdering;

/// So many keys may be known that the right side has not, beside as many as that has.
const MOST_OTHERS: usize = 65_536;

/// The keys so far.
pub(super) struct Groups {
    values: Box<dyn GroupValues>,
    schema: SchemaRef,
    /// For the rows of the last batch.
    numbers: Vec<usize>,
}

impl Groups {
    /// # Errors
    /// For types that the engine does not group by.
    pub(super) fn try_new(keys: Schema) -> Result<Self> {
        let schema = Arc::new(keys);
        Ok(Self {
            values: new_group_values(Arc::clone(&schema), &GroupOrdering::None)?,
            schema,
            numbers: Vec::new(),
        })
    }

    /// With the keys of others, which have the same numbers.
    pub(super) fn of_keys(schema: &SchemaRef, keys: &[ArrayRef]) -> Result<Self> {
        let mut numbers = Vec::new();
        Ok(Self {
            values: numbered(schema, keys, &mut numbers)?,
            schema: Arc::clone(schema),
            numbers,
        })
    }

    pub(super) fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// The keys by their numbers.
    pub(super) fn into_keys(mut self) -> Result<Vec<ArrayRef>> {
        self.values.emit(EmitTo::All)
    }

    /// The numbers of rows. Those of new keys follow those of known ones, but not in the order of the rows.
    pub(super) fn numbers(&mut self, keys: &[ArrayRef]) -> Result<&[usize]> {
        self.values.intern(keys, &mut self.numbers)?;
        Ok(&self.numbers)
    }

    /// Those of the last rows again.
    pub(super) fn last_numbers(&self) -> &[usize] {
        &self.numbers
    }

    pub(super) fn len(&self) -> usize {
        self.values.len()
    }

    /// How many bytes they take.
    pub(super) fn size(&self) -> usize {
        self.values.size() + self.numbers.capacity() * size_of::<usize>()
    }

    /// Whether many are known that the right side, which has the first so many, has not.
    pub(super) fn has_many_others(&self, of_right: usize) -> bool {
        self.len() > of_right.saturating_mul(2).saturating_add(MOST_OTHERS)
    }

    /// Whether so many are known that it costs little to forget them: all that the right side has are put in anew.
    pub(super) fn has_some_others(&self, of_right: usize) -> bool {
        self.len().saturating_sub(of_right).saturating_mul(4) >= of_right
    }

    /// Forgets all but the first so many.
    pub(super) fn forget_others(&mut self, of_right: usize) -> Result<()> {
        let known = self.values.emit(EmitTo::All)?;
        let known: Vec<ArrayRef> = known
            .iter()
            .map(|keys| keys.slice(0, of_right.min(keys.len())))
            .collect();
        self.values = numbered(&self.schema, &known, &mut self.numbers)?;
        Ok(())
    }
}

/// Different keys, numbered in their order. Of several columns the engine may number keys whose hash another one has behind those that come after them; (NULL, 'a') and ('a', NULL) have one.
fn numbered(
    schema: &SchemaRef,
    keys: &[ArrayRef],
    numbers: &mut Vec<usize>,
) -> Result<Box<dyn GroupValues>> {
    let none = || new_group_values(Arc::clone(schema), &GroupOrdering::None);
    let mut values = none()?;
    values.intern(keys, numbers)?;
    if numbers.iter().copied().eq(0..numbers.len()) {
        return Ok(values);
    }
    values = none()?;
    for row in 0..numbers.len() {
        let key: Vec<ArrayRef> = keys.iter().map(|keys| keys.slice(row, 1)).collect();
        values.intern(&key, numbers)?;
    }
    Ok(values)
}

#[cfg(test)]
mod tests {
    use arrow::array::{Int64Array, StringViewArray};
    use arrow::datatypes::{DataType, Field};

    use super::*;

    #[test]
    fn keys_that_have_one_hash_keep_their_numbers() {
        let field = |name: &str| Field::new(name, DataType::Utf8View, true);
        let schema = Arc::new(Schema::new(["a", "b", "c"].map(field).to_vec()));
        let texts = |texts: [Option<&str>; 4]| Arc::new(StringViewArray::from_iter(texts)) as _;
        let keys = [
            texts([Some("A"), Some("A"), Some("B"), None]),
            texts([None, Some("x"), Some("y"), None]),
            texts([Some("x"), None, Some("z"), Some("x")]),
        ];
        let mut groups = Groups::of_keys(&schema, &keys).unwrap();
        assert_eq!(groups.numbers(&keys).unwrap(), [0, 1, 2, 3]);
        groups.forget_others(3).unwrap();
        assert_eq!(groups.numbers(&keys).unwrap(), [0, 1, 2, 3]);
    }

    #[test]
    fn keys_of_the_right_side_keep_their_numbers() {
        let kind = DataType::Int64;
        let mut groups = Groups::try_new(Schema::new(vec![Field::new("k", kind, true)])).unwrap();
        let keys = |keys: Vec<i64>| [Arc::new(Int64Array::from(keys)) as ArrayRef];
        assert_eq!(groups.numbers(&keys(vec![7, 5, 7])).unwrap(), [0, 1, 0]);
        assert_eq!(groups.numbers(&keys(vec![9, 5, 8])).unwrap(), [2, 1, 3]);
        assert!(!groups.has_many_others(2));
        groups.forget_others(2).unwrap();
        assert_eq!(groups.len(), 2);
        assert_eq!(groups.numbers(&keys(vec![8, 5, 7])).unwrap(), [2, 1, 0]);
        let schema = Arc::clone(groups.schema());
        let known = groups.into_keys().unwrap();
        let mut again = Groups::of_keys(&schema, &known).unwrap();
        assert_eq!(again.len(), 3);
        assert_eq!(again.numbers(&keys(vec![5, 9, 8])).unwrap(), [1, 3, 2]);
    }
}
