//! A plan carried out: within one process, or as messages that others carry.
//!
//! Comes in: the bytes of all sections of the source, or of one of them. Goes out: the bytes of the sections of the destination, or messages. Never here: a buffer that was not checked;
//! how messages travel.

use crate::distarray::distribution::Distribution;
use crate::distarray::redistribute::buffer::{Layout, Source, Target, zeroed};
use crate::distarray::redistribute::comb::{packed, unpacked};
use crate::distarray::redistribute::copy::copy;
use crate::distarray::redistribute::plan::Plan;
use crate::distarray::redistribute::transfer::Transfer;
use crate::error::{Error, Result};

/// The largest message that a count of 31 bits can state, in bytes: the limit of most libraries that pass messages. See [`Transfer::pieces`].
pub const MAX_MESSAGE_BYTES: usize = 0x7fff_ffff;

/// Less than this is copied by one thread.
const MIN_PARALLEL_BYTES: usize = 4 << 20;

impl Plan {
    /// Copies everything into new buffers, one for each destination rank: the elements of its section in C order, halo included.
    ///
    /// # Errors
    /// As of [`Plan::execute_into`]; `ResourcesExhausted` when memory for the buffers is lacking.
    pub fn execute(&self, sources: &[Source]) -> Result<Vec<Vec<u8>>> {
        let item_bytes = self.check_sources(sources)?;
        let ranks = 0..self.to().num_ranks();
        let layouts: Vec<Layout> = ranks
            .map(|rank| {
                let layout = Layout::try_c_order(&local_shape(self.to(), rank)?, item_bytes);
                layout.map_err(|error| of_rank(error, "destination", rank))
            })
            .collect::<Result<_>>()?;
        let mut buffers: Vec<Vec<u8>> = layouts
            .iter()
            .enumerate()
            .map(|(rank, layout)| {
                zeroed(layout.num_bytes()).map_err(|error| of_rank(error, "destination", rank))
            })
            .collect::<Result<_>>()?;
        let pairs = buffers.iter_mut().zip(layouts);
        let mut targets: Vec<Target> = pairs
            .map(|(bytes, layout)| Target { bytes, layout })
            .collect();
        self.copy_all(sources, &mut targets)?;
        Ok(buffers)
    }

    /// Copies everything into the given buffers, one for each destination rank, with any strides. Every element of them is written, halo included.
    ///
    /// # Errors
    /// `InvalidArgument`, with the rank, unless there is one buffer for each rank on both sides, with the shape that the rank holds, with room for all elements, all of them of one
    /// size, and those that are written without overlap.
    pub fn execute_into(&self, sources: &[Source], targets: &mut [Target]) -> Result<()> {
        let item_bytes = self.check_sources(sources)?;
        check_targets(self.to(), targets, "destination", Some(item_bytes))?;
        self.copy_all(sources, targets)
    }

    /// The size of the elements.
    fn check_sources(&self, sources: &[Source]) -> Result<usize> {
        check_count("source", sources.len(), self.from().num_ranks())?;
        let first = sources.first().map_or(1, |each| each.layout.item_bytes());
        for (rank, source) in sources.iter().enumerate() {
            let shape = local_shape(self.from(), rank)?;
            let checked = source.check(&shape);
            checked
                .and_then(|()| check_item(source.layout.item_bytes(), first))
                .map_err(|error| of_rank(error, "source", rank))?;
        }
        Ok(first)
    }

    /// Several threads, of which each writes the buffers of some ranks, where there is much to copy.
    fn copy_all(&self, sources: &[Source], targets: &mut [Target]) -> Result<()> {
        let bytes: usize = targets.iter().map(|target| target.layout.num_bytes()).sum();
        let threads = match std::thread::available_parallelism() {
            Ok(cores) if bytes >= MIN_PARALLEL_BYTES => cores.get().min(targets.len()),
            _ => 1,
        };
        let mut shares: Vec<(usize, &mut [Target])> = Vec::with_capacity(threads);
        let (mut rest, mut first) = (targets, 0);
        for left in (1..=threads.max(1)).rev() {
            let wanted: usize = rest.iter().map(|target| target.layout.num_bytes()).sum();
            let mut taken = 0;
            let enough = rest.iter().position(|target| {
                taken += target.layout.num_bytes();
                taken >= wanted.div_ceil(left)
            });
            let count = match left {
                1 => rest.len(),
                _ => enough.map_or(rest.len(), |last| last + 1),
            };
            let (share, behind) = rest.split_at_mut(count);
            shares.push((first, share));
            (rest, first) = (behind, first + count);
        }
        let Some((first, own)) = shares.pop() else {
            return Ok(());
        };
        std::thread::scope(|scope| {
            let others: Vec<_> = shares
                .into_iter()
                .map(|(first, share)| scope.spawn(move || self.copy_to(sources, share, first)))
                .collect();
            let mut done = self.copy_to(sources, own, first);
            for other in others {
                let lost = |_| Error::internal("a thread that copied panicked");
                done = done.and(other.join().map_err(lost).flatten());
            }
            done
        })
    }

    /// Writes the buffers of the ranks from `first` on.
    fn copy_to(&self, sources: &[Source], targets: &mut [Target], first: usize) -> Result<()> {
        for (number, target) in targets.iter_mut().enumerate() {
            for transfer in self.transfers_to(first + number) {
                let source = sources
                    .get(transfer.from_rank())
                    .ok_or_else(|| Error::internal("every rank of a transfer has a buffer"))?;
                copy(
                    transfer.combs(),
                    (source.bytes, &source.layout),
                    (target.bytes, &target.layout),
                )?;
            }
        }
        Ok(())
    }
}

impl Transfer {
    /// Copies the elements from one buffer to the other, without a message.
    ///
    /// # Errors
    /// `InvalidArgument`, with the rank, when a buffer is too small, or elements have other sizes.
    pub fn carry(&self, source: &Source, target: &mut Target) -> Result<()> {
        self.check_place(source.layout.shape(), |comb| (comb.from, comb.from_step))
            .and_then(|()| source.check(source.layout.shape()))
            .map_err(|error| of_rank(error, "source", self.from_rank()))?;
        self.check_place(target.layout.shape(), |comb| (comb.to, comb.to_step))
            .and_then(|()| target.check(target.layout.shape()))
            .and_then(|()| check_item(target.layout.item_bytes(), source.layout.item_bytes()))
            .map_err(|error| of_rank(error, "destination", self.to_rank()))?;
        copy(
            self.combs(),
            (source.bytes, &source.layout),
            (target.bytes, &target.layout),
        )
    }

    /// Writes the elements into `message`, which then holds nothing else, in the order of [`Transfer::combs`].
    ///
    /// # Errors
    /// `InvalidArgument`, with the rank, when the buffer of the source rank is too small; `ResourcesExhausted` when memory is lacking.
    pub fn pack(&self, source: &Source, message: &mut Vec<u8>) -> Result<()> {
        let wrong = |error| of_rank(error, "source", self.from_rank());
        self.check_place(source.layout.shape(), |comb| (comb.from, comb.from_step))
            .and_then(|()| source.check(source.layout.shape()))
            .map_err(wrong)?;
        let layout = self
            .message_layout(source.layout.item_bytes())
            .map_err(wrong)?;
        if message.len() != layout.num_bytes() {
            *message = zeroed(layout.num_bytes()).map_err(wrong)?;
        }
        let combs: Vec<_> = self.combs().iter().map(|combs| packed(combs)).collect();
        copy(&combs, (source.bytes, &source.layout), (message, &layout))
    }

    /// Writes the elements of a message that `pack` made to their places.
    ///
    /// # Errors
    /// `InvalidArgument`, with the rank, when the message has another length than the elements, or when the buffer of the destination rank is too small.
    pub fn unpack(&self, message: &[u8], target: &mut Target) -> Result<()> {
        let wrong = |error| of_rank(error, "destination", self.to_rank());
        self.check_place(target.layout.shape(), |comb| (comb.to, comb.to_step))
            .and_then(|()| target.check(target.layout.shape()))
            .map_err(wrong)?;
        let layout = self
            .message_layout(target.layout.item_bytes())
            .map_err(wrong)?;
        if message.len() != layout.num_bytes() {
            return Err(wrong(Error::invalid_argument(format!(
                "the message must have {} bytes, for {:?} elements of {}, got {}",
                layout.num_bytes(),
                self.shape(),
                layout.item_bytes(),
                message.len()
            ))));
        }
        let combs: Vec<_> = self.combs().iter().map(|combs| unpacked(combs)).collect();
        copy(&combs, (message, &layout), (target.bytes, &target.layout))
    }

    fn message_layout(&self, item_bytes: usize) -> Result<Layout> {
        Layout::try_c_order(&self.shape(), item_bytes)
    }

    /// That all places lie within a buffer of this shape.
    fn check_place(
        &self,
        shape: &[usize],
        place: impl Fn(&crate::distarray::redistribute::Comb) -> (usize, usize),
    ) -> Result<()> {
        let ends = self.combs().iter().map(|combs| {
            let end = combs.iter().map(|comb| {
                let (first, step) = place(comb);
                first + (comb.count - 1) * step + comb.len
            });
            end.max().unwrap_or(0)
        });
        let needed: Vec<usize> = ends.collect();
        let fits =
            needed.len() == shape.len() && needed.iter().zip(shape).all(|(end, len)| end <= len);
        if fits {
            return Ok(());
        }
        Err(Error::invalid_argument(format!(
            "the buffer of the section must have at least the shape {needed:?}, got {shape:?}"
        )))
    }
}

/// Holds buffers that are written against the ranks of a distribution.
///
/// # Errors
/// `InvalidArgument`, with the rank.
pub(super) fn check_targets(
    distribution: &Distribution,
    targets: &[Target],
    side: &'static str,
    item_bytes: Option<usize>,
) -> Result<()> {
    check_count(side, targets.len(), distribution.num_ranks())?;
    let first = targets.first().map_or(1, |each| each.layout.item_bytes());
    for (rank, target) in targets.iter().enumerate() {
        let checked = target.check(&local_shape(distribution, rank)?);
        checked
            .and_then(|()| check_item(target.layout.item_bytes(), item_bytes.unwrap_or(first)))
            .map_err(|error| of_rank(error, side, rank))?;
    }
    Ok(())
}

fn check_count(side: &str, count: usize, num_ranks: usize) -> Result<()> {
    if count == num_ranks {
        return Ok(());
    }
    Err(Error::invalid_argument(format!(
        "there must be one {side} buffer for each of the {num_ranks} ranks, got {count}, the first without is rank {}",
        count.min(num_ranks)
    )))
}

fn check_item(item_bytes: usize, expected: usize) -> Result<()> {
    if item_bytes == expected {
        return Ok(());
    }
    Err(Error::invalid_argument(format!(
        "all elements must have one size, got {item_bytes} bytes and {expected}"
    )))
}

/// The extents of the buffer of a rank.
fn local_shape(distribution: &Distribution, rank: usize) -> Result<Vec<usize>> {
    let shape = distribution.local_shape(rank).unwrap_or_default();
    let lens: Option<Vec<usize>> = shape.iter().map(|len| usize::try_from(*len).ok()).collect();
    lens.ok_or_else(|| {
        Error::unsupported(format!(
            "the buffer of rank {rank} must fit the memory, got the shape {shape:?}"
        ))
    })
}

fn of_rank(error: Error, side: &'static str, rank: usize) -> Error {
    error
        .with_context("side", side)
        .with_context("rank", rank.to_string())
}
