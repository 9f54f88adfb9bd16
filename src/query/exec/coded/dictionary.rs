//! Keys and their codes.
//!
//! Comes in: the keys of rows, batch after batch, from several threads. Goes out: for each row the code of its keys: equal keys have one, the first ones 0, and so on; and the keys of codes. Never here: which keys.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arrow::array::{Array, ArrayRef, RecordBatch, UInt32Array};
use arrow::compute::{concat, take};
use arrow::datatypes::SchemaRef;
use datafusion::error::Result;
use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};

use crate::error::{Error, ErrorKind};
use crate::query::exec::groups::Groups;
use crate::query::exec::own::own;

/// The keys of one run, which what codes them and what puts them back have in common.
#[derive(Debug)]
pub(super) struct Dictionary {
    /// Of the keys.
    schema: SchemaRef,
    state: Mutex<Option<State>>,
}

struct State {
    groups: Groups,
    /// The keys by their codes, in parts.
    parts: Vec<RecordBatch>,
    parts_bytes: usize,
    /// All of them, once they were asked for.
    keys: Option<Arc<[ArrayRef]>>,
    memory: MemoryReservation,
}

impl std::fmt::Debug for State {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{} keys", self.groups.len())
    }
}

impl Dictionary {
    pub(super) fn new(schema: SchemaRef) -> Self {
        Self {
            schema,
            state: Mutex::new(None),
        }
    }

    pub(super) fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn state(&self) -> MutexGuard<'_, Option<State>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The codes of rows.
    ///
    /// # Errors
    /// `ResourcesExhausted` where there is no room for new keys, and as the engine says.
    pub(super) fn codes(&self, keys: &[ArrayRef], context: &TaskContext) -> Result<UInt32Array> {
        let mut state = self.state();
        let state = match state.as_mut() {
            Some(state) => state,
            None => state.insert(State::try_new(&self.schema, context)?),
        };
        state.codes(keys)
    }

    /// The keys of codes.
    ///
    /// # Errors
    /// As the engine says.
    pub(super) fn keys_of(&self, codes: &UInt32Array) -> Result<Vec<ArrayRef>> {
        let keys = match self.state().as_mut() {
            Some(state) => state.keys()?,
            // Nothing has a code.
            None => {
                return Ok(RecordBatch::new_empty(Arc::clone(&self.schema))
                    .columns()
                    .to_vec());
            }
        };
        let keys = keys.iter().map(|keys| Ok(take(keys, codes, None)?));
        keys.collect()
    }
}

impl State {
    fn try_new(schema: &SchemaRef, context: &TaskContext) -> Result<Self> {
        let consumer = MemoryConsumer::new("KeyEncodeExec");
        Ok(Self {
            groups: Groups::try_new(schema.as_ref().clone())?,
            parts: Vec::new(),
            parts_bytes: 0,
            keys: None,
            memory: consumer.register(context.memory_pool()),
        })
    }

    fn codes(&mut self, keys: &[ArrayRef]) -> Result<UInt32Array> {
        let known = self.groups.len();
        let schema = Arc::clone(self.groups.schema());
        let codes = self.groups.numbers(keys)?;
        // A row of each new key: they have their codes in another order than their rows.
        let last = codes.iter().max().map_or(0, |last| last + 1);
        let mut new = vec![0_u32; last.saturating_sub(known)];
        for (row, code) in (0_u32..).zip(codes) {
            let place = code.checked_sub(known);
            if let Some(place) = place.and_then(|place| new.get_mut(place)) {
                *place = row;
            }
        }
        let narrow = |code: &usize| u32::try_from(*code).map_err(|_| too_many());
        let narrowed = codes
            .iter()
            .map(narrow)
            .collect::<Result<Vec<u32>, Error>>()?;
        if !new.is_empty() {
            let new = UInt32Array::from(new);
            let columns = keys.iter().map(|keys| Ok(take(keys, &new, None)?));
            let part = RecordBatch::try_new(schema, columns.collect::<Result<_>>()?)?;
            let part = own(&part)?;
            self.parts_bytes += part.get_array_memory_size();
            self.parts.push(part);
            self.keys = None;
            // They are put together once more at the end.
            let bytes = self.groups.size() + 2 * self.parts_bytes;
            self.memory.try_resize(bytes)?;
        }
        Ok(narrowed.into())
    }

    /// All keys so far, by their codes.
    fn keys(&mut self) -> Result<Arc<[ArrayRef]>> {
        if let Some(keys) = &self.keys {
            return Ok(Arc::clone(keys));
        }
        let columns = 0..self.groups.schema().fields().len();
        let columns = columns.map(|place| {
            let parts = self.parts.iter().map(|part| part.column(place).as_ref());
            Ok(concat(&parts.collect::<Vec<&dyn Array>>())?)
        });
        let keys: Arc<[ArrayRef]> = columns.collect::<Result<Vec<_>>>()?.into();
        self.keys = Some(Arc::clone(&keys));
        Ok(keys)
    }
}

fn too_many() -> Error {
    let text = format!("more than {} keys of groups have codes", u32::MAX);
    Error::new(ErrorKind::ResourcesExhausted, text)
}

#[cfg(test)]
mod tests {
    use arrow::array::StringViewArray;
    use arrow::datatypes::{DataType, Field, Schema};

    use super::*;

    fn texts(texts: &[Option<&str>]) -> ArrayRef {
        Arc::new(StringViewArray::from_iter(texts.iter().copied()))
    }

    #[test]
    fn keys_that_have_one_hash_have_codes_of_their_own() {
        let fields = ["a", "b", "c"].map(|name| Field::new(name, DataType::Utf8View, true));
        let dictionary = Dictionary::new(Arc::new(Schema::new(fields.to_vec())));
        let context = TaskContext::default();
        for first in ["A", "C"] {
            let keys = [
                texts(&[Some(first), Some(first), Some("B"), None, None]),
                texts(&[None, Some("Paris"), Some("x"), None, Some("Paris")]),
                texts(&[Some("Paris"), None, Some("y"), Some("Paris"), None]),
            ];
            let codes = dictionary.codes(&keys, &context).unwrap();
            assert_eq!(dictionary.keys_of(&codes).unwrap(), keys);
        }
    }

    #[test]
    fn equal_keys_have_one_code_and_codes_their_keys() {
        let kind = DataType::Utf8View;
        let fields = ["a", "b"].map(|name| Field::new(name, kind.clone(), true));
        let dictionary = Dictionary::new(Arc::new(Schema::new(fields.to_vec())));
        let none = dictionary
            .keys_of(&UInt32Array::from(Vec::<u32>::new()))
            .unwrap();
        assert_eq!(none.len(), 2);
        let context = TaskContext::default();
        let codes = |a: &[Option<&str>], b: &[Option<&str>]| {
            let codes = dictionary.codes(&[texts(a), texts(b)], &context).unwrap();
            codes.values().to_vec()
        };
        let long = "longer than the twelve bytes of a view";
        assert_eq!(
            codes(
                &[Some("x"), None, Some("x")],
                &[Some(long), None, Some(long)]
            ),
            [0, 1, 0]
        );
        let all = dictionary.keys_of(&UInt32Array::from(vec![1, 0])).unwrap();
        assert_eq!(&all[0], &texts(&[None, Some("x")]));
        // Keys that come later are known, too.
        assert_eq!(codes(&[None, Some("x")], &[None, Some("")]), [1, 2]);
        let all = dictionary
            .keys_of(&UInt32Array::from(vec![2, 2, 0]))
            .unwrap();
        assert_eq!(&all[0], &texts(&[Some("x"), Some("x"), Some("x")]));
        assert_eq!(&all[1], &texts(&[Some(""), Some(""), Some(long)]));
    }
}
