//! How rows of the right side are sorted.
//!
//! Comes in: for each row the number of its keys, and what is compared, of one part or of several. Goes out: the rows by both. Each part is put in the order of its own numbers by itself ([`Part::of`]), and runs of numbers of all parts at the same time ([`Unsorted::shard`]). Never here: searches (`sorted.rs`).

use std::ops::Range;
use std::sync::Arc;

use arrow::row::Rows;

use super::compared::Compared;
use super::sorted::{ByPlace, NO_ROW, Shard, Sorted};

/// Rows that follow each other among all.
pub(super) struct Part {
    pub(super) num_rows: u32,
    /// `None` without keys: rows are as they came.
    by_group: Option<ByGroup>,
    /// Numbers are in the order of the rows by groups, and bytes in that of the rows themselves.
    compared: Compared,
}

/// Rows by the numbers of their keys, and of one number in the order in which they came.
struct ByGroup {
    /// Where those of each number begin, and where the last ones end.
    starts: Vec<u32>,
    rows: Vec<u32>,
    /// What each number is among all parts; of none, the same.
    numbers: Vec<u32>,
}

impl Part {
    /// Of rows without keys.
    pub(super) fn plain(num_rows: u32, compared: Compared) -> Self {
        Self {
            num_rows,
            by_group: None,
            compared,
        }
    }

    /// Of rows by the numbers of their keys, of which there are so many.
    pub(super) fn of(groups: &[u32], num_groups: usize, compared: Compared) -> Self {
        let starts = starts(groups, num_groups);
        let mut next = starts.clone();
        let mut places = groups.iter().map(|group| {
            let next = next.get_mut(*group as usize)?;
            *next += 1;
            Some(*next as usize - 1)
        });
        let mut rows = vec![0; groups.len()];
        let compared = match compared {
            Compared::Short(values) => {
                let mut ordered = vec![0; values.len()];
                for ((row, value), place) in (0..).zip(&values).zip(&mut places) {
                    if let Some(place) = place
                        && let (Some(to), Some(at)) = (rows.get_mut(place), ordered.get_mut(place))
                    {
                        (*to, *at) = (row, *value);
                    }
                }
                Compared::Short(ordered)
            }
            Compared::Long(values) => {
                for (row, place) in (0..).zip(&mut places) {
                    if let Some(to) = place.and_then(|place| rows.get_mut(place)) {
                        *to = row;
                    }
                }
                Compared::Long(values)
            }
        };
        Self {
            num_rows: u32::try_from(groups.len()).unwrap_or(NO_ROW),
            by_group: Some(ByGroup {
                starts,
                rows,
                numbers: Vec::new(),
            }),
            compared,
        }
    }

    /// What the numbers of its keys are among all parts.
    pub(super) fn tell_numbers(&mut self, numbers: Vec<u32>) {
        if let Some(by_group) = &mut self.by_group {
            by_group.numbers = numbers;
        }
    }
}

/// Where rows begin once they lie by the numbers of their keys, and where the last ones end.
fn starts(groups: &[u32], num_groups: usize) -> Vec<u32> {
    let mut starts = vec![0_u32; num_groups + 1];
    for group in groups {
        if let Some(count) = starts.get_mut(*group as usize + 1) {
            *count += 1;
        }
    }
    add_up(&mut starts);
    starts
}

fn add_up(counts: &mut [u32]) {
    let mut sum = 0;
    for count in counts {
        sum += *count;
        *count = sum;
    }
}

/// Rows of several parts that are to be sorted.
pub(super) struct Unsorted {
    /// Where the rows of each number of keys will begin, and where the last ones will end.
    starts: Vec<u32>,
    rows: RowsOf,
    values: Values,
}

/// Rows of parts with the first of each, and which number of their own each number of keys is, if it is none of the same.
enum RowsOf {
    Plain(u32),
    ByGroup(Vec<(u32, ByGroup, Vec<u32>)>),
}

/// What is compared: without keys, and of bytes, that of all parts, else of each part.
enum Values {
    Plain(Vec<u64>),
    Short(Vec<Vec<u64>>),
    Long(Arc<Rows>),
}

impl Unsorted {
    pub(super) fn of(parts: Vec<Part>, num_groups: usize) -> Self {
        let (mut short, mut long) = (Vec::new(), None::<Rows>);
        let (mut begin, mut all) = (0, Vec::new());
        for part in parts {
            all.extend(part.by_group.map(|by_group| {
                let own = own_numbers(&by_group.numbers, num_groups);
                (begin, by_group, own)
            }));
            begin += part.num_rows;
            match (part.compared, &mut long) {
                (Compared::Short(values), _) => short.push(values),
                (Compared::Long(rows), None) => long = Some(rows),
                (Compared::Long(rows), Some(long)) => rows.iter().for_each(|row| long.push(row)),
            }
        }
        let has_keys = !all.is_empty();
        Self {
            starts: match has_keys {
                false => vec![0, begin],
                true => starts_of_all(&all, num_groups),
            },
            values: match long {
                Some(rows) => Values::Long(Arc::new(rows)),
                None if has_keys => Values::Short(short),
                None => Values::Plain(one_after_the_other(short)),
            },
            rows: match has_keys {
                true => RowsOf::ByGroup(all),
                false => RowsOf::Plain(begin),
            },
        }
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
        let sorts = ends.windows(2).filter_map(|ends| match ends {
            [start, end] => Some((start - begin) as usize..(end - begin) as usize),
            _ => None,
        });
        match &self.values {
            Values::Plain(values) => plain(values.clone()),
            Values::Short(parts) => {
                let (mut rows, mut values) = (
                    Vec::with_capacity(places.len()),
                    Vec::with_capacity(places.len()),
                );
                self.each_run(groups, |part, first, run| {
                    if let Some((own, ordered)) = run.and_values(parts.get(part)) {
                        rows.extend(own.iter().map(|row| first + row));
                        values.extend_from_slice(ordered);
                    }
                });
                let mut pairs = Vec::new();
                for group in sorts {
                    if let Some((values, rows)) =
                        values.get_mut(group.clone()).zip(rows.get_mut(group))
                    {
                        sort(values, rows, &mut pairs);
                    }
                }
                Shard {
                    places,
                    rows: Some(rows),
                    compared: ByPlace::Short(values),
                }
            }
            Values::Long(values) => {
                let mut rows: Vec<u32> = Vec::with_capacity(places.len());
                match &self.rows {
                    RowsOf::Plain(count) => rows.extend(0..*count),
                    RowsOf::ByGroup(_) => self.each_run(groups, |_, first, run| {
                        rows.extend(run.rows().iter().map(|row| first + row));
                    }),
                }
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

    /// For each number of keys the rows of each part, with the number of the part and its first row.
    fn each_run(&self, groups: Range<usize>, mut work: impl FnMut(usize, u32, Run<'_>)) {
        let RowsOf::ByGroup(parts) = &self.rows else {
            return;
        };
        for group in groups {
            for (part, (first, by_group, own)) in parts.iter().enumerate() {
                let number = match own.is_empty() {
                    true => group,
                    false => own.get(group).map_or(usize::MAX, |own| *own as usize),
                };
                let ends = number
                    .checked_add(2)
                    .and_then(|end| by_group.starts.get(number..end));
                if let Some([begin, end]) = ends {
                    let places = *begin as usize..*end as usize;
                    work(part, *first, Run { by_group, places });
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

/// Rows of one number of keys in one part.
struct Run<'a> {
    by_group: &'a ByGroup,
    places: Range<usize>,
}

impl<'a> Run<'a> {
    fn rows(&self) -> &'a [u32] {
        self.by_group
            .rows
            .get(self.places.clone())
            .unwrap_or_default()
    }

    fn and_values<'b>(&self, values: Option<&'b Vec<u64>>) -> Option<(&'a [u32], &'b [u64])> {
        Some((self.rows(), values?.get(self.places.clone())?))
    }
}

/// Which of its own numbers of keys a part has for each of all; none if they are the same.
fn own_numbers(numbers: &[u32], num_groups: usize) -> Vec<u32> {
    if numbers.is_empty() {
        return Vec::new();
    }
    let mut own = vec![u32::MAX; num_groups];
    for (number, group) in (0..).zip(numbers) {
        if let Some(own) = own.get_mut(*group as usize) {
            *own = number;
        }
    }
    own
}

fn starts_of_all(parts: &[(u32, ByGroup, Vec<u32>)], num_groups: usize) -> Vec<u32> {
    let mut starts = vec![0_u32; num_groups + 1];
    for (_, part, _) in parts {
        for (number, ends) in part.starts.windows(2).enumerate() {
            let group = match part.numbers.is_empty() {
                true => number,
                false => part
                    .numbers
                    .get(number)
                    .map_or(usize::MAX, |group| *group as usize),
            };
            let count = group.checked_add(1).and_then(|place| starts.get_mut(place));
            if let (Some(count), [begin, end]) = (count, ends) {
                *count += end - begin;
            }
        }
    }
    add_up(&mut starts);
    starts
}

/// Rows without keys.
fn plain(mut values: Vec<u64>) -> Shard {
    let places = 0..values.len();
    let rows = (!values.is_sorted()).then(|| {
        let mut rows: Vec<u32> = (0..).take(values.len()).collect();
        sort(&mut values, &mut rows, &mut Vec::new());
        rows
    });
    Shard {
        places,
        rows,
        compared: ByPlace::Short(values),
    }
}

fn one_after_the_other(parts: Vec<Vec<u64>>) -> Vec<u64> {
    let count = parts.iter().map(Vec::len).sum::<usize>();
    let mut parts = parts.into_iter();
    let mut all = parts.next().unwrap_or_default();
    all.reserve_exact(count - all.len());
    for values in parts {
        all.extend(values);
    }
    all
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
