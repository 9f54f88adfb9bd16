//! Which numbers belong to which task, where the parts of grids end within a value.
//!
//! Comes in: the least and the greatest number of each row band that a task reads, of columns whose values are to lie apart, and what can be seen of the others. Goes out: the numbers of each task, if only few rows have numbers of another task. Never here: plans (`borders.rs`).

use crate::query::{Facts, Numbers};

/// Whole numbers from the first to the last, both included.
pub(in crate::cluster) type Span = (i128, i128);

/// One row of so many may be handed over.
const ONE_OF: u64 = 32;
/// And no more than so many, which are kept in memory where they arrive.
const MOST_ROWS: u64 = 250_000;
/// Scans of fewer rows hand none over: sending all of them costs as little as one more stage.
const LEAST_ROWS: u64 = 50_000;

/// The row bands that a task reads, and their numbers.
pub(in crate::cluster) struct Bands {
    all: Vec<Band>,
    seen: Option<Numbers>,
}

struct Band {
    number: usize,
    rows: u64,
    span: Span,
}

impl Bands {
    /// Row bands of a grid by their numbers, and what they have in a column; `None` where that is not known.
    pub(in crate::cluster) fn of(facts: &Facts, bands: &[usize], column: usize) -> Option<Self> {
        if bands.is_empty() {
            return Some(Self {
                all: Vec::new(),
                seen: None,
            });
        }
        let [least, greatest] = facts.numbers(bands, column)?;
        let rows = facts.grid().rows();
        let bands = bands.iter().zip(least.into_iter().zip(greatest));
        let bands = bands.map(|(number, span)| {
            let rows = rows.interval(*number)?;
            Some(Band {
                number: *number,
                rows: rows.end - rows.start,
                span,
            })
        });
        Some(Self {
            all: bands.collect::<Option<_>>()?,
            seen: Some(facts.seen_numbers(column)),
        })
    }

    pub(in crate::cluster) fn numbers(&self) -> impl Iterator<Item = usize> + '_ {
        self.all.iter().map(|band| band.number)
    }

    fn span(&self) -> Option<Span> {
        self.all.iter().map(|band| band.span).reduce(both)
    }

    /// Those with rows of the task.
    pub(in crate::cluster) fn kept(&self, span: Option<Span>) -> Vec<usize> {
        let kept = self.all.iter();
        let kept = kept.filter(|band| span.is_some_and(|span| common(band.span, span).is_some()));
        kept.map(|band| band.number).collect()
    }

    /// Those with rows of other tasks.
    pub(in crate::cluster) fn given(&self, span: Option<Span>) -> Vec<usize> {
        let given = self.all.iter();
        let given = given.filter(|band| !span.is_some_and(|span| is_inside(band.span, span)));
        given.map(|band| band.number).collect()
    }

    /// How many of their rows are those of other tasks: counted where they are here, and about as many as there seem to be elsewhere.
    fn handed(&self, span: Option<Span>) -> u64 {
        let (mut handed, mut elsewhere) = (0, Vec::new());
        for band in &self.all {
            let inside = span.filter(|span| common(band.span, *span).is_some());
            let counted = match inside {
                None => Some(band.rows),
                Some(span) => self.counted(band, span),
            };
            match (counted, inside) {
                (None, Some(span)) => elsewhere.push((band, span)),
                (counted, _) => handed = counted.unwrap_or(band.rows).saturating_add(handed),
            }
        }
        self.guessed(&elsewhere).saturating_add(handed)
    }

    /// The rows of a row band with numbers beyond those of a task, some of which it has; `None` if they are elsewhere.
    fn counted(&self, band: &Band, span: Span) -> Option<u64> {
        let below = |number| self.seen.as_ref()?.rows_below(band.number, number);
        let before = match band.span.0 < span.0 {
            true => below(span.0)?,
            false => 0,
        };
        let behind = match band.span.1 > span.1 {
            true => band.rows.saturating_sub(below(span.1 + 1)?),
            false => 0,
        };
        Some(before.saturating_add(behind))
    }

    /// About how many rows of row bands have numbers beyond those of a task: as many as if numbers came at even distances, and at least as many as there seem to be of rows with such numbers. All of them, if nobody has looked.
    fn guessed(&self, bands: &[(&Band, Span)]) -> u64 {
        let rows = bands.iter().map(|(band, _)| band.rows);
        let rows = rows.fold(0, u64::saturating_add);
        let seen = self.seen.as_ref();
        let seen = seen.and_then(|seen| Some((seen, seen.rows_of_each()?)));
        let Some((seen, of_each)) = seen.filter(|(_, of_each)| *of_each <= MOST_ROWS) else {
            return rows;
        };
        let evenly = bands.iter().map(|(band, span)| band.beyond(*span));
        let evenly = evenly.fold(0, u64::saturating_add);
        let ends = |end: fn(&(&Band, Span)) -> Span| bands.iter().map(end).reduce(both);
        let before = ends(|(band, span)| (band.span.0, span.0.saturating_sub(1)));
        let behind = ends(|(band, span)| (span.1.saturating_add(1), band.span.1));
        let ranges = [before, behind].into_iter().flatten();
        let found: u64 = ranges.map(|range| seen.num_seen(range)).sum();
        found.saturating_mul(of_each).max(evenly).min(rows)
    }

    /// Whether some of their rows may be before the first number of a task, and behind the last.
    pub(in crate::cluster) fn beyond(&self, span: Span) -> (bool, bool) {
        let all = self.span().unwrap_or(span);
        (all.0 < span.0, all.1 > span.1)
    }
}

impl Band {
    /// How many of its rows have numbers beyond those of a task, if numbers come at even distances.
    fn beyond(&self, span: Span) -> u64 {
        let inside = common(self.span, span);
        let (inside, all) = (inside.map_or(0, length), length(self.span));
        let beyond = u128::from(self.rows).saturating_mul(all.saturating_sub(inside));
        u64::try_from(beyond.div_ceil(all)).unwrap_or(u64::MAX)
    }
}

/// What all tasks read of a grid, and their numbers in a column.
pub(in crate::cluster) struct Part {
    /// For each task; none of a scan of which rows are handed over already.
    pub(in crate::cluster) bands: Vec<Bands>,
    /// The least and the greatest number of each task.
    spans: Vec<Option<Span>>,
    /// Whether it stays as it is.
    is_fixed: bool,
}

impl Part {
    /// One that hands rows over if it is not to stay as it is; `None` if a row band is read by two tasks, so that it is nobody's to hand over.
    pub(in crate::cluster) fn of(bands: Vec<Bands>, is_fixed: bool) -> Option<Self> {
        let mut read: Vec<usize> = bands.iter().flat_map(Bands::numbers).collect();
        read.sort_unstable();
        let is_once = read.windows(2).all(|pair| pair.first() != pair.last());
        is_once.then(|| Self {
            spans: bands.iter().map(Bands::span).collect(),
            bands,
            is_fixed,
        })
    }

    /// One with these numbers, whatever rows there are.
    pub(in crate::cluster) fn fixed(spans: Vec<Option<Span>>) -> Self {
        Self {
            bands: Vec::new(),
            spans,
            is_fixed: true,
        }
    }

    fn num_rows(&self) -> u64 {
        let bands = self.bands.iter().flat_map(|bands| &bands.all);
        bands.map(|band| band.rows).fold(0, u64::saturating_add)
    }

    fn may_hand(&self) -> u64 {
        let rows = self.num_rows();
        match rows < LEAST_ROWS {
            true => 0,
            false => MOST_ROWS.min(rows / ONE_OF),
        }
    }

    /// About how many rows tasks have to hand over; `None` if they cannot.
    fn handed(&self, spans: &[Option<Span>]) -> Option<u64> {
        let tasks = self.bands.iter().zip(spans);
        let handed = tasks.map(|(bands, span)| bands.handed(*span));
        let mut own = self.spans.iter().zip(spans);
        let stays = own.all(|(own, span)| match (own, span) {
            (None, _) => true,
            (Some(own), Some(span)) => is_inside(*own, *span),
            (Some(_), None) => false,
        });
        match (stays, self.is_fixed) {
            (true, _) => Some(0),
            (false, true) => None,
            (false, false) => Some(handed.fold(0, u64::saturating_add).max(1)),
        }
    }

    /// Whether it has to hand rows over.
    pub(in crate::cluster) fn hands_over(&self, spans: &[Option<Span>]) -> bool {
        self.handed(spans) != Some(0)
    }

    /// The numbers of each task, of those that there are.
    pub(in crate::cluster) fn within(&self, spans: &[Option<Span>]) -> Vec<Option<Span>> {
        let all = self.spans.iter().copied().flatten().reduce(both);
        let within = |span: &Option<Span>| common((*span)?, all?);
        spans.iter().map(within).collect()
    }

    /// The least number of each task, if tasks have at most their ends in common, so that rows of others come before or behind all of its own.
    pub(in crate::cluster) fn firsts(&self) -> Option<Vec<i128>> {
        let mut spans: Vec<Span> = self.spans.iter().copied().flatten().collect();
        spans.sort_unstable();
        let mut pairs = spans.windows(2);
        let touch = pairs.all(|pair| matches!(pair, [one, next] if one.1 <= next.0));
        let firsts = self.spans.iter();
        let firsts = firsts.map(|span| span.map_or(i128::MAX, |(first, _)| first));
        touch.then(|| firsts.collect())
    }
}

/// The numbers of each of so many tasks, such that each has those of its own of all columns after few rows were handed over; `None` if more would have to be.
pub(in crate::cluster) fn cut(parts: &[&Part], num_tasks: usize) -> Option<Vec<Option<Span>>> {
    let spans = spans(parts, num_tasks)?;
    let mut parts = parts.iter();
    let is_little =
        parts.all(|part| matches!(part.handed(&spans), Some(rows) if rows <= part.may_hand()));
    is_little.then_some(spans)
}

/// The numbers of each task: those of the scan that stays as it is, or of the one with most rows; of tasks that have none of it, those of the others.
fn spans(parts: &[&Part], num_tasks: usize) -> Option<Vec<Option<Span>>> {
    let fixed = parts.iter().find(|part| part.is_fixed);
    let leading = fixed.or_else(|| parts.iter().max_by_key(|part| part.num_rows()))?;
    let of_task = |task: usize| {
        let spans = |part: &&Part| part.spans.get(task).copied().flatten();
        spans(leading).or_else(|| parts.iter().filter_map(spans).reduce(both))
    };
    let mut tasks: Vec<(Span, usize)> = (0..num_tasks)
        .filter_map(|task| Some((of_task(task)?, task)))
        .collect();
    tasks.sort_unstable();
    let mut cut = vec![None; num_tasks];
    let mut first = i128::MIN;
    for (place, ((_, greatest), task)) in tasks.iter().enumerate() {
        let last = match place + 1 == tasks.len() {
            true => i128::MAX,
            false => *greatest,
        };
        if let Some(span) = cut.get_mut(*task) {
            *span = (first <= last).then_some((first, last));
        }
        first = first.max(last.saturating_add(1));
    }
    Some(cut)
}

fn both(one: Span, other: Span) -> Span {
    (one.0.min(other.0), one.1.max(other.1))
}

fn common(one: Span, other: Span) -> Option<Span> {
    let common = (one.0.max(other.0), one.1.min(other.1));
    (common.0 <= common.1).then_some(common)
}

fn is_inside(one: Span, other: Span) -> bool {
    common(one, other) == Some(one)
}

/// How many numbers, at least one.
fn length(span: Span) -> u128 {
    span.1.abs_diff(span.0).saturating_add(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A column whose tasks have each one row band of so many rows, with numbers at even distances.
    fn part(spans: &[Option<Span>], rows: u64, is_fixed: bool) -> Part {
        let evenly =
            |(first, last): Span| (0..=1000).map(move |at| first + (last - first) * at / 1000);
        seen(
            spans,
            rows,
            is_fixed,
            spans.iter().copied().flatten().flat_map(evenly),
        )
    }

    /// The same with any numbers, of which these were seen.
    fn seen(
        spans: &[Option<Span>],
        rows: u64,
        is_fixed: bool,
        seen: impl Iterator<Item = i128>,
    ) -> Part {
        let numbers = Numbers::elsewhere(rows * spans.len() as u64, seen.collect());
        let bands = spans.iter().enumerate().map(|(number, span)| Bands {
            all: span
                .map(|span| Band { number, rows, span })
                .into_iter()
                .collect(),
            seen: Some(numbers.clone()),
        });
        Part::of(bands.collect(), is_fixed).unwrap()
    }

    const MANY: u64 = 1_000_000;

    #[test]
    fn the_largest_column_says_where_numbers_are_cut() {
        let lines = part(
            &[Some((0, 1000)), Some((1000, 2000)), Some((2000, 3000))],
            MANY,
            false,
        );
        let orders = part(
            &[Some((0, 1005)), Some((1006, 1990)), Some((1991, 3000))],
            MANY / 4,
            false,
        );
        let spans = cut(&[&orders, &lines], 3).unwrap();
        let expected = [(i128::MIN, 1000), (1001, 2000), (2001, i128::MAX)];
        assert_eq!(spans, expected.map(Some));
        assert!(lines.hands_over(&spans) && orders.hands_over(&spans));
        assert_eq!(lines.firsts(), Some(vec![0, 1000, 2000]));
        assert_eq!(
            lines.within(&spans),
            [Some((0, 1000)), Some((1001, 2000)), Some((2001, 3000))]
        );
    }

    #[test]
    fn what_stays_as_it_is_says_where_numbers_are_cut() {
        let lines = part(&[Some((0, 1000)), Some((1000, 2000))], MANY, false);
        let fixed = part(&[Some((0, 1003)), Some((1010, 2000))], 10, true);
        let spans = cut(&[&lines, &fixed], 2).unwrap();
        assert_eq!(spans, [(i128::MIN, 1003), (1004, i128::MAX)].map(Some));
        assert!(!fixed.hands_over(&spans));
        let other = part(&[Some((0, 1500)), Some((1501, 2000))], 10, true);
        assert_eq!(cut(&[&fixed, &other, &lines], 2), None);
    }

    #[test]
    fn tasks_may_come_in_any_order_and_have_nothing() {
        let lines = part(&[Some((500, 900)), None, Some((0, 500))], MANY, false);
        let spans = cut(&[&lines], 3).unwrap();
        assert_eq!(
            spans,
            [Some((501, i128::MAX)), None, Some((i128::MIN, 500))]
        );
    }

    #[test]
    fn many_rows_are_not_handed_over() {
        let half = part(&[Some((0, 1500)), Some((500, 2000))], MANY, false);
        assert_eq!(cut(&[&half], 2), None);
        let inner = part(&[Some((0, 2000)), Some((500, 600))], MANY, false);
        assert_eq!(cut(&[&inner], 2), None);
        let few = part(&[Some((0, 1000)), Some((1000, 2000))], 100, false);
        assert_eq!(cut(&[&few], 2), None);
    }

    #[test]
    fn many_rows_of_one_number_at_a_border_are_not_handed_over() {
        let spans = [Some((0, 1000)), Some((1000, 2000))];
        // As if two rows had it, by the numbers that there are.
        let hot = (0..=2000).chain([1000; 300]);
        assert_eq!(cut(&[&seen(&spans, MANY, false, hot)], 2), None);
        let in_the_middle = (0..=2000).chain([1500; 300]);
        assert!(cut(&[&seen(&spans, MANY, false, in_the_middle)], 2).is_some());
    }

    #[test]
    fn nothing_is_handed_over_of_what_nobody_has_seen() {
        let spans = [Some((0, 1000)), Some((1000, 2000))];
        let of_few = |rows| cut(&[&seen(&spans, rows, false, 0..=2000)], 2);
        assert!(of_few(MANY).is_some());
        // Too few rows of too many were looked at.
        assert_eq!(of_few(MANY * 1000), None);
        assert_eq!(cut(&[&seen(&spans, MANY, false, [].into_iter())], 2), None);
    }

    #[test]
    fn a_row_band_that_two_tasks_read_is_nobodys_to_hand_over() {
        let band = || Band {
            number: 3,
            rows: MANY,
            span: (0, 9),
        };
        let bands = || Bands {
            all: vec![band()],
            seen: None,
        };
        assert!(Part::of(vec![bands(), bands()], false).is_none());
    }

    #[test]
    fn all_numbers_there_are_can_be_counted() {
        let most = i128::from(u64::MAX);
        let all = part(
            &[Some((i128::from(i64::MIN), 0)), Some((0, most))],
            MANY,
            false,
        );
        let spans = cut(&[&all], 2).unwrap();
        assert!(all.hands_over(&spans));
    }
}
