//! Who sends which elements to whom.
//!
//! Comes in: two distributions of one global shape. Goes out: a [`Plan`]: counts, and the [`Transfer`]s one by one. What two ranks share along one dimension is kept once for the dimension;
//! the transfers are the product of the dimensions and exist only while somebody looks at them. Never here: bytes (`execute.rs`), messages on their way.

use crate::distarray::distribution::Distribution;
use crate::distarray::map::Map;
use crate::distarray::redistribute::dimension::{Dimension, Wanted};
use crate::distarray::redistribute::transfer::Transfer;
use crate::error::{Error, ErrorKind, Result};

/// How many numbers [`Plan::counts`] returns at most.
const MAX_COUNTS: usize = 1 << 24;

/// What has to move so that an array that lies as one distribution says lies as another says. Every element of each destination buffer, halo included, comes from one rank that owns it;
/// elements of source halos are never sent. An index that several ranks of an unstructured dimension own comes from the same grid rank where that is one of them, otherwise from the first;
/// what no destination rank holds is not sent. Costs 16 bytes for each pair of grid ranks of a dimension that share anything, whatever the size of the array, and 24 more for each run of
/// neighbours where an unstructured dimension takes part.
#[derive(Debug, Clone)]
pub struct Plan {
    from: Distribution,
    to: Distribution,
    dimensions: Vec<Dimension>,
    num_elements: u64,
}

impl Plan {
    /// The plan from one distribution to another of the same global shape. Only an unstructured dimension of the destination may hold other numbers of indices than the source: a selection, or
    /// some of them on several ranks.
    ///
    /// # Errors
    /// `InvalidArgument` when the global shapes differ, or when an unstructured dimension of the destination has an index that the source lacks; `Unsupported` when the destination
    /// buffers have 2^64 elements or more, or a dimension more than 2^24 ranks.
    pub fn try_new(from: &Distribution, to: &Distribution) -> Result<Self> {
        let wanted = vec![Wanted::Held; from.maps().len()];
        Self::of_parts(from, to, &wanted)
    }

    /// The plan that writes the wanted part along each dimension.
    pub(super) fn of_parts(
        from: &Distribution,
        to: &Distribution,
        wanted: &[Wanted],
    ) -> Result<Self> {
        let fits = |(from, to): (&Map, &Map)| from.size() == to.size() || to.is_unstructured();
        let one_shape =
            from.maps().len() == to.maps().len() && from.maps().iter().zip(to.maps()).all(fits);
        if !one_shape {
            return Err(Error::invalid_argument(format!(
                "source and destination must have one global shape, got {:?} and {:?}",
                from.shape(),
                to.shape()
            )));
        }
        let maps = from.maps().iter().zip(to.maps()).zip(wanted).enumerate();
        let dimensions: Vec<Dimension> = maps
            .map(|(number, ((from, to), wanted))| {
                Dimension::try_new(from, to, *wanted)
                    .map_err(|error| error.with_context("dimension", number.to_string()))
            })
            .collect::<Result<_>>()?;
        let mut lens = dimensions.iter().map(|each| each.links.num_elements());
        let num_elements = match lens.clone().any(|len| len == 0) {
            true => Some(0),
            false => lens.try_fold(1_u64, u64::checked_mul),
        };
        let num_elements = num_elements.ok_or_else(|| {
            Error::unsupported(format!(
                "the destination must have less than 2^64 elements, got the shape {:?}",
                to.shape()
            ))
        })?;
        Ok(Self {
            from: from.clone(),
            to: to.clone(),
            dimensions,
            num_elements,
        })
    }

    /// How the array lies before.
    #[must_use]
    pub fn from(&self) -> &Distribution {
        &self.from
    }

    /// How the array lies afterwards.
    #[must_use]
    pub fn to(&self) -> &Distribution {
        &self.to
    }

    /// Number of elements that are written, in all destination buffers together: the global elements when the destination is one to one and has no halo.
    #[must_use]
    pub fn num_elements(&self) -> u64 {
        self.num_elements
    }

    /// Number of transfers, local ones included.
    #[must_use]
    pub fn num_transfers(&self) -> u64 {
        let pairs = self.dimensions.iter();
        product(pairs.map(|each| each.links.num_pairs() as u64))
    }

    /// Number of transfers between different ranks.
    #[must_use]
    pub fn messages(&self) -> u64 {
        self.num_transfers() - self.local().0
    }

    /// Number of elements that stay on their rank, and are copied there.
    #[must_use]
    pub fn local_elements(&self) -> u64 {
        self.local().1
    }

    /// Number of elements that go to another rank.
    #[must_use]
    pub fn elements_moved(&self) -> u64 {
        self.num_elements - self.local().1
    }

    /// Number of elements that a rank sends to others; `None` for a rank that does not exist.
    #[must_use]
    pub fn sent_by(&self, rank: usize) -> Option<u64> {
        let coordinates = self.from.coordinates(rank)?;
        let sums = self.dimensions.iter().zip(coordinates);
        let all = product(sums.map(|(each, at)| each.links.sent(at)));
        Some(all - self.count(rank, rank))
    }

    /// Number of elements that a rank gets from others; `None` for a rank that does not exist.
    #[must_use]
    pub fn received_by(&self, rank: usize) -> Option<u64> {
        let coordinates = self.to.coordinates(rank)?;
        let sums = self.dimensions.iter().zip(coordinates);
        let all = product(sums.map(|(each, at)| each.links.received(at)));
        Some(all - self.count(rank, rank))
    }

    /// Number of elements that a destination rank gets from a source rank; 0 also for ranks that do not exist.
    #[must_use]
    pub fn count(&self, from: usize, to: usize) -> u64 {
        let places = self.from.coordinates(from).zip(self.to.coordinates(to));
        places.map_or(0, |(from, to)| {
            let pairs = self.dimensions.iter().zip(from.iter().zip(to));
            product(pairs.map(|(each, (from, to))| each.links.len(*from, to)))
        })
    }

    /// Number of elements from each source rank (outer) to each destination rank (inner).
    ///
    /// # Errors
    /// `ResourcesExhausted` when that would be more than 2^24 numbers.
    pub fn counts(&self) -> Result<Vec<Vec<u64>>> {
        let (rows, columns) = (self.from.num_ranks(), self.to.num_ranks());
        if rows.saturating_mul(columns) > MAX_COUNTS {
            let text = format!(
                "the matrix of counts must have at most {MAX_COUNTS} numbers, got {rows} x {columns} ranks"
            );
            return Err(Error::new(ErrorKind::ResourcesExhausted, text)
                .with_hint("ask for single counts, or for the transfers of single ranks"));
        }
        let mut counts = vec![vec![0; columns]; rows];
        for (from, row) in counts.iter_mut().enumerate() {
            for (to, count) in self.pairs_from(from) {
                if let Some(place) = row.get_mut(to) {
                    *place = count;
                }
            }
        }
        Ok(counts)
    }

    /// All transfers by source rank, then by destination rank; local ones included.
    pub fn transfers(&self) -> impl Iterator<Item = Transfer> + '_ {
        (0..self.from.num_ranks()).flat_map(|rank| self.transfers_from(rank))
    }

    /// The transfers of one source rank by destination rank, the local one included; none for a rank that does not exist.
    pub fn transfers_from(&self, rank: usize) -> impl Iterator<Item = Transfer> + '_ {
        let place = self.from.coordinates(rank);
        let others = self.rows(place.as_deref(), |each, at| each.links.destinations(at));
        others.filter_map(move |to| {
            Some(self.between([rank, self.to.rank(&to)?], [place.as_deref()?, &to]))
        })
    }

    /// The transfers to one destination rank by source rank, the local one included; none for a rank that does not exist.
    pub fn transfers_to(&self, rank: usize) -> impl Iterator<Item = Transfer> + '_ {
        let place = self.to.coordinates(rank);
        let others = self.rows(place.as_deref(), |each, at| each.links.sources(at));
        others.filter_map(move |from| {
            Some(self.between([self.from.rank(&from)?, rank], [&from, place.as_deref()?]))
        })
    }

    /// The transfer between two ranks; `None` when they share nothing.
    #[must_use]
    pub fn transfer(&self, from: usize, to: usize) -> Option<Transfer> {
        let places = [self.from.coordinates(from)?, self.to.coordinates(to)?];
        let [source, destination] = [&places[0], &places[1]];
        (self.count(from, to) > 0).then(|| self.between([from, to], [source, destination]))
    }

    pub(super) fn dimensions(&self) -> &[Dimension] {
        &self.dimensions
    }

    /// Destination ranks of a source rank with the number of elements.
    fn pairs_from(&self, rank: usize) -> impl Iterator<Item = (usize, u64)> + '_ {
        let place = self.from.coordinates(rank);
        let others = self.rows(place.as_deref(), |each, at| each.links.destinations(at));
        others.filter_map(move |to| {
            let pairs = self.dimensions.iter().zip(place.as_deref()?).zip(&to);
            let lens = pairs.map(|((each, from), to)| each.links.len(*from, *to));
            Some((self.to.rank(&to)?, product(lens)))
        })
    }

    fn between(&self, [from, to]: [usize; 2], [source, destination]: [&[usize]; 2]) -> Transfer {
        let sources = self.from.maps().iter().zip(source.iter().copied());
        let destinations = self.to.maps().iter().zip(destination.iter().copied());
        let sides = self.dimensions.iter().zip(sources.zip(destinations));
        let combs = sides.map(|(each, (source, destination))| each.combs(source, destination));
        Transfer::new(from, to, combs.collect())
    }

    /// The coordinates of all ranks that share something with the one at `place`.
    fn rows<'a>(
        &'a self,
        place: Option<&[usize]>,
        row: impl Fn(&'a Dimension, usize) -> &'a [u32],
    ) -> Product<'a> {
        let rows = place.map(|place| {
            let pairs = self.dimensions.iter().zip(place);
            pairs.map(|(each, at)| row(each, *at)).collect()
        });
        Product::new(rows)
    }

    /// Transfers from ranks to themselves, and their elements. With grids of one shape they are a product too; otherwise a rank has other coordinates before and after.
    fn local(&self) -> (u64, u64) {
        let maps = self.from.maps().iter().zip(self.to.maps());
        let same_grid = maps
            .clone()
            .all(|(from, to)| from.num_ranks() == to.num_ranks());
        if same_grid {
            let of_one = |dimension: &Dimension| {
                let pairs = dimension.links.pairs();
                let own = pairs.filter(|(from, to, _)| from == to);
                own.fold((0_u64, 0_u64), |(pairs, sum), (_, _, len)| {
                    (pairs + 1, sum + len)
                })
            };
            let each = self.dimensions.iter().map(of_one);
            return each.fold((1, 1), |(pairs, sum), (more, len)| {
                (pairs.saturating_mul(more), sum.saturating_mul(len))
            });
        }
        let ranks = 0..self.from.num_ranks().min(self.to.num_ranks());
        ranks.fold((0, 0), |(pairs, sum), rank| {
            let len = self.count(rank, rank);
            (pairs + u64::from(len > 0), sum + len)
        })
    }
}

/// The product over all dimensions. It can pass 64 bits only on the way to 0, as the number of all elements does not.
fn product(factors: impl Iterator<Item = u64>) -> u64 {
    factors.fold(1, u64::saturating_mul)
}

/// Every choice of one rank from each row, the last row varying fastest.
struct Product<'a> {
    rows: Vec<&'a [u32]>,
    /// Places in the rows; `None` at the end.
    at: Option<Vec<usize>>,
}

impl<'a> Product<'a> {
    fn new(rows: Option<Vec<&'a [u32]>>) -> Self {
        let exists = rows
            .as_ref()
            .is_some_and(|rows| rows.iter().all(|row| !row.is_empty()));
        let rows = rows.unwrap_or_default();
        Self {
            at: exists.then(|| vec![0; rows.len()]),
            rows,
        }
    }
}

impl Iterator for Product<'_> {
    type Item = Vec<usize>;

    fn next(&mut self) -> Option<Vec<usize>> {
        let at = self.at.as_mut()?;
        let chosen = self
            .rows
            .iter()
            .zip(at.iter())
            .map(|(row, at)| row.get(*at));
        let chosen = chosen.map(|rank| rank.map(|rank| *rank as usize)).collect();
        let advanced = self.rows.iter().zip(at.iter_mut()).rev().any(|(row, at)| {
            *at += 1;
            let inside = *at < row.len();
            if !inside {
                *at = 0;
            }
            inside
        });
        if !advanced {
            self.at = None;
        }
        chosen
    }
}
