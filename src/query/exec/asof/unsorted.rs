//! How rows of the right side are sorted.
//!
//! Comes in: for each row the number of its keys, and what is compared, of one part or of several. Goes out: the rows by both, in shards that may be made at the same time. Never here: searches (`sorted.rs`).

use std::ops::Range;
use std::sync::Arc;

use arrow::row::Rows;

use super::compared::Compared;
use super::sorted::{ByPlace, Shard, Sorted};

/// Rows that follow each other among all, as they came.
pub(super) struct Part {
    pub(super) num_rows: u32,
    /// The number of keys of each; of none, all have the same.
    pub(super) groups: Vec<u32>,
    pub(super) compared: Compared,
}

/// Rows that are to be sorted.
pub(super) struct Unsorted {
    /// Where the rows of each number of keys will begin, and where the last ones will end.
    starts: Vec<u32>,
    values: Values,
}

/// Of each part, the numbers of keys and what is compared; without keys, and of bytes, what is compared is that of all parts.
enum Values {
    Plain(Vec<u64>),
    Short(Vec<(Vec<u32>, Vec<u64>)>),
    Long(Vec<Vec<u32>>, Arc<Rows>),
}

impl Unsorted {
    pub(super) fn of(parts: Vec<Part>, num_groups: usize) -> Self {
        let num_rows = parts.iter().map(|part| part.num_rows).sum();
        let has_none = parts.iter().all(|part| part.groups.is_empty());
        let starts = match has_none {
            true => vec![0, num_rows],
            false => starts(parts.iter().map(|part| part.groups.as_slice()), num_groups),
        };
        let (mut short, mut numbers, mut long) = (Vec::new(), Vec::new(), None::<Rows>);
        for part in parts {
            match (part.compared, &mut long) {
                (Compared::Short(values), _) => short.push((part.groups, values)),
                (Compared::Long(rows), None) => {
                    numbers.push(part.groups);
                    long = Some(rows);
                }
                (Compared::Long(rows), Some(long)) => {
                    numbers.push(part.groups);
                    for row in &rows {
                        long.push(row);
                    }
                }
            }
        }
        let values = match long {
            None if has_none => Values::Plain(one_after_the_other(short)),
            None => Values::Short(short),
            Some(rows) => Values::Long(numbers, Arc::new(rows)),
        };
        Self { starts, values }
    }

    /// In order, in one shard.
    pub(super) fn alone(mut self) -> Sorted {
        let shard = match &mut self.values {
            // The only ones that may stay where they are.
            Values::Plain(values) => plain(std::mem::take(values)),
            _ => self.shard(0..self.num_groups()),
        };
        self.with(vec![shard])
    }

    /// Numbers of keys that follow each other, in about so many runs with as many rows each.
    pub(super) fn cuts(&self, count: usize) -> Vec<Range<usize>> {
        let (num_groups, num_rows) = (self.num_groups(), self.num_rows());
        let mut begin = 0;
        let ends = (1..=count).map(|number| match number == count {
            true => num_groups,
            false => {
                let rows = num_rows / count * number;
                let end = self
                    .starts
                    .partition_point(|start| (*start as usize) < rows);
                end.min(num_groups)
            }
        });
        let cuts = ends.filter_map(|end| {
            let cut = begin..end.max(begin);
            begin = cut.end;
            (!cut.is_empty()).then_some(cut)
        });
        cuts.collect()
    }

    pub(super) fn num_groups(&self) -> usize {
        self.starts.len().saturating_sub(1)
    }

    pub(super) fn num_rows(&self) -> usize {
        self.starts.last().map_or(0, |end| *end as usize)
    }

    /// The rows of some numbers of keys, in order.
    pub(super) fn shard(&self, groups: Range<usize>) -> Shard {
        let ends = self.starts.get(groups.start..=groups.end);
        let ends = ends.unwrap_or_default();
        let begin = ends.first().copied().unwrap_or_default();
        let end = ends.last().copied().unwrap_or_default();
        let places = begin as usize..end as usize;
        let ends: Vec<u32> = ends.iter().map(|start| start - begin).collect();
        let to = Placing {
            first: u32::try_from(groups.start).unwrap_or(u32::MAX),
            next: ends.iter().copied().take(groups.len()).collect(),
            rows: vec![0; places.len()],
        };
        let sorts = ends.windows(2).filter_map(|ends| match ends {
            [start, end] => Some(*start as usize..*end as usize),
            _ => None,
        });
        match &self.values {
            Values::Plain(values) => plain(values.clone()),
            Values::Short(parts) => {
                let (mut values, mut rows) = by_group_short(parts, to);
                sort_groups(&mut values, &mut rows, sorts);
                Shard {
                    places,
                    rows: Some(rows),
                    compared: ByPlace::Short(values),
                }
            }
            Values::Long(parts, values) => {
                let mut rows = by_group_long(parts, to);
                for group in sorts {
                    let rows = rows.get_mut(group).unwrap_or_default();
                    rows.sort_by(|one, next| {
                        values.row(*one as usize).cmp(&values.row(*next as usize))
                    });
                }
                Shard {
                    places,
                    rows: Some(rows),
                    compared: ByPlace::Long(Arc::clone(values)),
                }
            }
        }
    }

    /// With all shards, in the order of their keys.
    pub(super) fn with(&self, shards: Vec<Shard>) -> Sorted {
        Sorted {
            starts: self.starts.clone(),
            shards,
        }
    }
}

/// Where rows of some numbers of keys go.
struct Placing {
    first: u32,
    /// The next place of each number.
    next: Vec<u32>,
    rows: Vec<u32>,
}

impl Placing {
    /// The place of a row, if it has one of these numbers.
    fn put(&mut self, group: u32, row: u32) -> Option<usize> {
        let next = self.next.get_mut(group.wrapping_sub(self.first) as usize)?;
        let place = *next as usize;
        *self.rows.get_mut(place)? = row;
        *next += 1;
        Some(place)
    }
}

/// Rows without keys.
fn plain(mut values: Vec<u64>) -> Shard {
    let places = 0..values.len();
    let rows = (!values.is_sorted()).then(|| {
        let mut rows: Vec<u32> = (0..).take(values.len()).collect();
        sort_groups(&mut values, &mut rows, std::iter::once(places.clone()));
        rows
    });
    Shard {
        places,
        rows,
        compared: ByPlace::Short(values),
    }
}

fn one_after_the_other(parts: Vec<(Vec<u32>, Vec<u64>)>) -> Vec<u64> {
    let count = parts.iter().map(|(_, values)| values.len()).sum::<usize>();
    let mut parts = parts.into_iter().map(|(_, values)| values);
    let mut all = parts.next().unwrap_or_default();
    all.reserve_exact(count - all.len());
    for values in parts {
        all.extend(values);
    }
    all
}

/// Rows and what is compared of them, by the numbers of their keys, in the order in which they came.
fn by_group_short(parts: &[(Vec<u32>, Vec<u64>)], mut to: Placing) -> (Vec<u64>, Vec<u32>) {
    let mut values = vec![0; to.rows.len()];
    let all = parts
        .iter()
        .flat_map(|(groups, values)| groups.iter().zip(values));
    for (row, (group, value)) in (0_u32..).zip(all) {
        if let Some(place) = to.put(*group, row)
            && let Some(at) = values.get_mut(place)
        {
            *at = *value;
        }
    }
    (values, to.rows)
}

fn by_group_long(parts: &[Vec<u32>], mut to: Placing) -> Vec<u32> {
    if parts.iter().all(Vec::is_empty) {
        return (0..).take(to.rows.len()).collect();
    }
    for (row, group) in (0_u32..).zip(parts.iter().flatten()) {
        to.put(*group, row);
    }
    to.rows
}

/// Brings what is compared into order among the rows of each number of keys, and the rows with it.
fn sort_groups(values: &mut [u64], rows: &mut [u32], groups: impl Iterator<Item = Range<usize>>) {
    let mut pairs = Vec::new();
    for group in groups {
        if let Some((values, rows)) = values.get_mut(group.clone()).zip(rows.get_mut(group)) {
            sort(values, rows, &mut pairs);
        }
    }
}

/// Where rows begin once they lie by the numbers of their keys, and where the last ones end.
fn starts<'a>(numbers: impl Iterator<Item = &'a [u32]>, num_groups: usize) -> Vec<u32> {
    let mut starts = vec![0_u32; num_groups + 1];
    for group in numbers.flatten() {
        if let Some(count) = starts.get_mut(*group as usize + 1) {
            *count += 1;
        }
    }
    let mut sum = 0;
    for start in &mut starts {
        sum += *start;
        *start = sum;
    }
    starts
}

/// Brings values and their rows into order; of equal values, the rows stay in theirs.
fn sort(values: &mut [u64], rows: &mut [u32], pairs: &mut Vec<(u64, u32)>) {
    if values.is_sorted() {
        return;
    }
    pairs.clear();
    pairs.extend(values.iter().copied().zip(rows.iter().copied()));
    pairs.sort_by_key(|(value, _)| *value);
    for ((value, row), pair) in values.iter_mut().zip(rows).zip(pairs) {
        (*value, *row) = *pair;
    }
}
