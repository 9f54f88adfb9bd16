//! Copies the elements of a product of combs from one buffer to another.
//!
//! Comes in: combs along each dimension, two layouts, the bytes. Goes out: the bytes, copied in as few and as long runs as the layouts allow. Never here: ranks; a place that was not checked.

use crate::distarray::redistribute::buffer::Layout;
use crate::distarray::redistribute::comb::Comb;
use crate::error::{Error, Result};

/// Elements along each side of the squares in which two dimensions are transposed, so that the lines of both stay in the cache.
const TILE: usize = 32;

/// Copies the elements. Layouts and combs are those of buffers that were checked.
///
/// # Errors
/// `Internal` when a place lies outside the bytes, which the checks exclude.
pub(super) fn copy(
    combs: &[Vec<Comb>],
    (source, from): (&[u8], &Layout),
    (target, to): (&mut [u8], &Layout),
) -> Result<()> {
    if combs.iter().any(Vec::is_empty) {
        return Ok(());
    }
    let walk = Walk::new(combs, from, to);
    let mut bytes = Bytes {
        source,
        target,
        unit: walk.unit,
    };
    let done = walk.start.and_then(|at| bytes.walk(&walk.levels, at));
    done.ok_or_else(|| Error::internal("the elements of a transfer lie within the checked buffers"))
}

/// Bytes from the start of source and target.
#[derive(Debug, Clone, Copy)]
struct At {
    from: isize,
    to: isize,
}

impl At {
    /// The place `number` steps on.
    fn step(self, by: At, number: usize) -> Option<Self> {
        let number = isize::try_from(number).ok()?;
        Some(Self {
            from: self.from.checked_add(by.from.checked_mul(number)?)?,
            to: self.to.checked_add(by.to.checked_mul(number)?)?,
        })
    }
}

/// One level of the nested loops.
#[derive(Debug, Clone, Copy)]
enum Level<'a> {
    /// `count` times, a step on each time.
    Loop { count: usize, step: At },
    /// The elements of several combs, whose places count in steps.
    Table { combs: &'a [Comb], step: At },
}

/// Nested loops around a unit of neighbouring bytes.
struct Walk<'a> {
    start: Option<At>,
    /// The outermost first.
    levels: Vec<Level<'a>>,
    unit: usize,
}

impl<'a> Walk<'a> {
    fn new(combs: &'a [Vec<Comb>], from: &Layout, to: &Layout) -> Self {
        let mut start = isize::try_from(from.offset()).ok();
        let mut start = start.take().zip(isize::try_from(to.offset()).ok());
        let mut levels = Vec::new();
        let strides = from.strides().iter().zip(to.strides());
        for (combs, (from, to)) in combs.iter().zip(strides) {
            let step = At {
                from: *from,
                to: *to,
            };
            let [comb] = &combs[..] else {
                levels.push(Level::Table { combs, step });
                continue;
            };
            let at =
                start.and_then(|(from, to)| place(At { from, to }, step, [comb.from, comb.to]));
            start = at.map(|at| (at.from, at.to));
            let runs = place(At { from: 0, to: 0 }, step, [comb.from_step, comb.to_step]);
            let loops = [(comb.count, runs), (comb.len, Some(step))];
            for (count, step) in loops.into_iter().filter(|(count, _)| *count > 1) {
                match step {
                    Some(step) => levels.push(Level::Loop { count, step }),
                    None => start = None,
                }
            }
        }
        let mut walk = Self {
            start: start.map(|(from, to)| At { from, to }),
            levels,
            unit: to.item_bytes(),
        };
        walk.turn();
        walk.levels
            .sort_by_key(|level| std::cmp::Reverse(level.target_step()));
        walk.join();
        walk.take_run();
        walk.put_source_line_second();
        walk
    }

    /// Runs all loops forwards in the target.
    fn turn(&mut self) {
        for level in &mut self.levels {
            if let Level::Loop { count, step } = level
                && step.to < 0
            {
                self.start = self.start.and_then(|at| at.step(*step, *count - 1));
                (step.from, step.to) = (-step.from, -step.to);
            }
        }
    }

    /// Makes one loop of two where the outer goes on where the inner ends, on both sides.
    fn join(&mut self) {
        self.levels.dedup_by(|inner, outer| {
            let (
                Level::Loop { count, step },
                Level::Loop {
                    count: outer_count,
                    step: outer_step,
                },
            ) = (inner, outer)
            else {
                return false;
            };
            let ends = (At { from: 0, to: 0 }).step(*step, *count);
            let goes_on =
                ends.is_some_and(|at| (at.from, at.to) == (outer_step.from, outer_step.to));
            if goes_on {
                *outer_count *= *count;
                *outer_step = *step;
            }
            goes_on
        });
    }

    /// An innermost loop over neighbours is one run of bytes.
    fn take_run(&mut self) {
        if let Some(Level::Loop { count, step }) = self.levels.last().copied()
            && is_unit(step, self.unit)
        {
            self.unit *= count;
            self.levels.pop();
        }
    }

    /// Where the innermost loop jumps in the source, the loop with the shortest steps there comes next to it, so that both can go in squares.
    fn put_source_line_second(&mut self) {
        let Some((Level::Loop { step, .. }, outer)) = self.levels.split_last() else {
            return;
        };
        let steps = outer
            .iter()
            .enumerate()
            .filter_map(|(number, level)| match level {
                Level::Loop { step, .. } => Some((step.from.unsigned_abs(), number)),
                Level::Table { .. } => None,
            });
        if let Some((shortest, number)) = steps.min()
            && shortest < step.from.unsigned_abs()
        {
            let last = self.levels.len() - 1;
            if let Some(rest) = self.levels.get_mut(number..last) {
                rest.rotate_left(1);
            }
        }
    }
}

impl Level<'_> {
    fn target_step(&self) -> usize {
        match self {
            Self::Loop { step, .. } | Self::Table { step, .. } => step.to.unsigned_abs(),
        }
    }
}

/// The place `from` and `to` steps on.
fn place(at: At, step: At, [from, to]: [usize; 2]) -> Option<At> {
    let [from, to] = [isize::try_from(from).ok()?, isize::try_from(to).ok()?];
    Some(At {
        from: at.from.checked_add(step.from.checked_mul(from)?)?,
        to: at.to.checked_add(step.to.checked_mul(to)?)?,
    })
}

fn is_unit(step: At, unit: usize) -> bool {
    let unit = isize::try_from(unit).ok();
    unit == Some(step.from) && unit == Some(step.to)
}

struct Bytes<'a> {
    source: &'a [u8],
    target: &'a mut [u8],
    /// How many neighbouring bytes are copied together.
    unit: usize,
}

/// All of these give `None` when a place lies outside.
impl Bytes<'_> {
    fn walk(&mut self, levels: &[Level], at: At) -> Option<()> {
        match levels {
            [] => self.run(at, self.unit),
            [Level::Loop { count, step }] => self.line(at, *step, *count),
            [
                Level::Loop { count, step },
                Level::Loop {
                    count: inner_count,
                    step: inner_step,
                },
            ] if step.from.unsigned_abs() < inner_step.from.unsigned_abs() && self.unit <= 16 => {
                self.squares(at, (*count, *step), (*inner_count, *inner_step))
            }
            [Level::Loop { count, step }, inner @ ..] => {
                (0..*count).try_for_each(|number| self.walk(inner, at.step(*step, number)?))
            }
            [Level::Table { combs, step }] => {
                combs.iter().try_for_each(|comb| self.comb(comb, at, *step))
            }
            [Level::Table { combs, step }, inner @ ..] => combs.iter().try_for_each(|comb| {
                (0..comb.count).try_for_each(|number| {
                    let run = run_of(comb, number, at, *step)?;
                    (0..comb.len).try_for_each(|number| self.walk(inner, run.step(*step, number)?))
                })
            }),
        }
    }

    /// Two loops of which the outer follows the source and the inner the target.
    fn squares(&mut self, at: At, outer: (usize, At), inner: (usize, At)) -> Option<()> {
        for down in (0..outer.0).step_by(TILE) {
            for across in (0..inner.0).step_by(TILE) {
                let corner = at.step(outer.1, down)?.step(inner.1, across)?;
                let count = TILE.min(inner.0 - across);
                for number in 0..TILE.min(outer.0 - down) {
                    self.line(corner.step(outer.1, number)?, inner.1, count)?;
                }
            }
        }
        Some(())
    }

    /// The elements of a comb, without loops within them.
    fn comb(&mut self, comb: &Comb, at: At, step: At) -> Option<()> {
        if comb.len == 1 {
            let runs = place(At { from: 0, to: 0 }, step, [comb.from_step, comb.to_step])?;
            return self.line(run_of(comb, 0, at, step)?, runs, comb.count);
        }
        let neighbours = is_unit(step, self.unit);
        (0..comb.count).try_for_each(|number| {
            let run = run_of(comb, number, at, step)?;
            match neighbours {
                true => self.run(run, comb.len.checked_mul(self.unit)?),
                false => self.line(run, step, comb.len),
            }
        })
    }

    /// One run of neighbouring bytes.
    #[inline]
    fn run(&mut self, at: At, len: usize) -> Option<()> {
        let (from, to) = (usize::try_from(at.from).ok()?, usize::try_from(at.to).ok()?);
        let source = self.source.get(from..from.checked_add(len)?)?;
        let target = self.target.get_mut(to..to.checked_add(len)?)?;
        target.copy_from_slice(source);
        Some(())
    }

    /// `count` units, a step on each time.
    fn line(&mut self, at: At, step: At, count: usize) -> Option<()> {
        match self.unit {
            1 => self.items::<1>(at, step, count),
            2 => self.items::<2>(at, step, count),
            3 => self.items::<3>(at, step, count),
            4 => self.items::<4>(at, step, count),
            6 => self.items::<6>(at, step, count),
            8 => self.items::<8>(at, step, count),
            12 => self.items::<12>(at, step, count),
            16 => self.items::<16>(at, step, count),
            24 => self.items::<24>(at, step, count),
            32 => self.items::<32>(at, step, count),
            48 => self.items::<48>(at, step, count),
            64 => self.items::<64>(at, step, count),
            unit => (0..count).try_for_each(|number| self.run(at.step(step, number)?, unit)),
        }
    }

    /// As `line`, for units of `N` bytes. Steps of whole units need no check for each of them.
    fn items<const N: usize>(&mut self, at: At, step: At, count: usize) -> Option<()> {
        let last = at.step(step, count.checked_sub(1)?)?;
        let whole = |step: isize| {
            let step = usize::try_from(step).ok()?;
            (step > 0 && step % N == 0).then_some(step / N)
        };
        let (Some(from_step), Some(to_step)) = (whole(step.from), whole(step.to)) else {
            return (0..count).try_for_each(|number| {
                let at = at.step(step, number)?;
                let (from, to) = (usize::try_from(at.from).ok()?, usize::try_from(at.to).ok()?);
                let item: &[u8; N] = self.source.get(from..)?.first_chunk()?;
                *self.target.get_mut(to..)?.first_chunk_mut()? = *item;
                Some(())
            });
        };
        let range = |first: isize, last: isize| {
            let stop = usize::try_from(last).ok()?.checked_add(N)?;
            Some(usize::try_from(first).ok()?..stop)
        };
        let (source, _) = self
            .source
            .get(range(at.from, last.from)?)?
            .as_chunks::<N>();
        let target = self.target.get_mut(range(at.to, last.to)?)?;
        let (target, _) = target.as_chunks_mut::<N>();
        match (from_step, to_step) {
            (1, _) => assign(source.iter(), target.iter_mut().step_by(to_step)),
            (_, 1) => assign(source.iter().step_by(from_step), target.iter_mut()),
            _ => assign(
                source.iter().step_by(from_step),
                target.iter_mut().step_by(to_step),
            ),
        }
        Some(())
    }
}

/// Where run number `number` of a comb starts.
fn run_of(comb: &Comb, number: usize, at: At, step: At) -> Option<At> {
    let from = comb.from + number * comb.from_step;
    let to = comb.to + number * comb.to_step;
    place(at, step, [from, to])
}

#[inline]
fn assign<'a, 'b, const N: usize>(
    source: impl Iterator<Item = &'a [u8; N]>,
    target: impl Iterator<Item = &'b mut [u8; N]>,
) {
    for (target, source) in target.zip(source) {
        *target = *source;
    }
}
