//! Which member is to have which row bands.
//!
//! Comes in: the id of a grid, the number of a row band, the members of one moment, each with its name and its memory. Goes out: the member that is to have the row band, or the first few, for copies. A
//! function of just these: whoever knows the same members gets the same answer, on every machine, so that nothing of it is stored or sent. When a member comes, row bands move to it and nowhere else; when
//! one goes, its own move and no other. Never here: who is there, what members really have, moving tiles.
//!
//! How: rendezvous hashing with weights. Each member draws a number `u` from (0, 1), which is the hash of its name, the grid and the row band, and waits for `-ln u / weight`; who waits for the shortest time
//! has the row band. Such waiting times are exponential, and the shortest of them is that of a member with a probability in proportion to its weight.
//!
//! Two members must never disagree, so there is no floating point here: `ln` of the C library differs between platforms in the last bit, and the quotient of two such numbers with it. The logarithm is a
//! series in whole numbers, to about 2^-58, and times are compared by multiplying crosswise in 128 bits, which rounds nothing. The answer is part of the format of a cluster: whoever changes a
//! number that comes out here lets members of two versions disagree (the test with golden numbers says so).
//!
//! It is asked for each row band of large grids, each time for all members. So the hash (XXH64) is worked out in two steps, of which the first is the same for all of them, and a draw that cannot win is given up before its last
//! step: two nanoseconds for a member.

pub(super) mod leaf;
pub(super) mod placed;
pub(super) mod readers;

use twox_hash::XxHash64;

/// The factors and summands of XXH64.
const PRIMES: [u64; 5] = [
    0x9E37_79B1_85EB_CA87,
    0xC2B2_AE3D_27D4_EB4F,
    0x1656_67B1_9E37_79F9,
    0x85EB_CA77_C2B2_AE63,
    0x27D4_EB2F_1656_67C5,
];

/// One is so many units, in waiting times.
const UNIT_BITS: u32 = 58;

/// One is so many units, in the series.
const SERIES_BITS: u32 = 62;

/// The natural logarithm of 2, in units of the series: `floor(ln 2 * 2^62)`.
const LN_2: u128 = 3_196_577_161_300_663_914;

/// How many terms the series has: the argument is at most 1/3, so that the next one is less than 2^-64.
const NUM_TERMS: usize = 19;

/// 1, 1/3, 1/5 and so on, in units of the series.
const ODD_PARTS: [u128; NUM_TERMS] = {
    let mut parts = [0; NUM_TERMS];
    let (mut left, mut odd) = (parts.as_mut_slice(), 1);
    while let Some((part, others)) = left.split_first_mut() {
        *part = (1 << SERIES_BITS) / odd;
        (left, odd) = (others, odd + 2);
    }
    parts
};

/// A member that can have row bands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seat<'a> {
    name: &'a str,
    weight: u64,
    /// With what the hash of a row band begins, made of the hash of the name.
    seed: u64,
}

impl<'a> Seat<'a> {
    /// The member of this name, which must be the same in all processes and no other member's; its weight is its memory in bytes, where 0 counts as 1.
    #[must_use]
    pub fn new(name: &'a str, weight: u64) -> Self {
        Self {
            name,
            weight: weight.max(1),
            seed: begun(XxHash64::oneshot(0, name.as_bytes())),
        }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &'a str {
        self.name
    }

    /// What it draws for a row band: any number but 0, of 2^64.
    fn draws(&self, band: Lane) -> u64 {
        ended(self.mixed(band)) | 1
    }

    /// The same without the last step, which leaves the upper half as it is.
    fn mixed(&self, band: Lane) -> u64 {
        mixed(self.seed, band)
    }
}

/// The hash of a row band, as it goes into the draws of all members.
#[derive(Debug, Clone, Copy)]
struct Lane(u64);

impl Lane {
    /// That of a row band of a grid, the same for all members.
    fn of(grid: u128, row_band: u64) -> Self {
        let mut bytes = [0; 24];
        let (of_grid, of_band) = bytes.split_at_mut(16);
        of_grid.copy_from_slice(&grid.to_le_bytes());
        of_band.copy_from_slice(&row_band.to_le_bytes());
        Self::new(XxHash64::oneshot(0, &bytes))
    }

    fn new(number: u64) -> Self {
        let [first, second, ..] = PRIMES;
        Self(
            number
                .wrapping_mul(second)
                .rotate_left(31)
                .wrapping_mul(first),
        )
    }
}

/// With what XXH64 of the eight bytes of a number begins, for a seed.
fn begun(seed: u64) -> u64 {
    let [.., last] = PRIMES;
    seed.wrapping_add(last).wrapping_add(8)
}

/// XXH64 of the eight bytes of a number, but for its last step.
fn mixed(begun: u64, number: Lane) -> u64 {
    let [first, second, third, fourth, _] = PRIMES;
    let mut hash = begun ^ number.0;
    hash = hash.rotate_left(27).wrapping_mul(first);
    hash = hash.wrapping_add(fourth);
    hash = (hash ^ (hash >> 33)).wrapping_mul(second);
    (hash ^ (hash >> 29)).wrapping_mul(third)
}

/// Its last step.
fn ended(mixed: u64) -> u64 {
    mixed ^ (mixed >> 32)
}

/// The place in `seats` of the member that is to have a row band of a grid; `None` if there are no seats. The order of the seats does not matter. Takes time in proportion to their number, and no memory.
#[must_use]
pub fn owner(grid: u128, row_band: u64, seats: &[Seat<'_>]) -> Option<usize> {
    let band = Lane::of(grid, row_band);
    let heaviest = heaviest(seats);
    let mut first: Option<Bid<'_>> = None;
    let mut least = 0;
    for (place, seat) in seats.iter().enumerate() {
        // Nearly all members are done here.
        if seat.mixed(band) < least {
            continue;
        }
        if let Some(bid) = Bid::of(place, seat, band, first.as_ref()) {
            least = bid.least_before(heaviest);
            first = Some(bid);
        }
    }
    first.map(|bid| bid.place)
}

/// The places in `seats` of the first `most` members for a row band, the owner first; all of them, if they are fewer. When one of them goes, the others stay in their order, so that who has the first copy is the next owner.
#[must_use]
pub fn owners(grid: u128, row_band: u64, seats: &[Seat<'_>], most: usize) -> Vec<usize> {
    let band = Lane::of(grid, row_band);
    let heaviest = heaviest(seats);
    let most = most.min(seats.len());
    let mut first: Vec<Bid<'_>> = Vec::with_capacity(most.saturating_add(1));
    let mut least = 0;
    for (place, seat) in seats.iter().enumerate() {
        if seat.mixed(band) < least {
            continue;
        }
        let last = first.last().filter(|_| first.len() >= most);
        if let Some(bid) = Bid::of(place, seat, band, last) {
            let before = first.partition_point(|other| other.is_before(&bid));
            first.insert(before, bid);
            first.truncate(most);
            let last = first.last().filter(|_| first.len() >= most);
            least = last.map_or(0, |last| last.least_before(heaviest));
        }
    }
    first.into_iter().map(|bid| bid.place).collect()
}

/// The weight of the heaviest seat.
fn heaviest(seats: &[Seat<'_>]) -> u64 {
    let weights = seats.iter().map(|seat| seat.weight);
    weights.max().unwrap_or_default()
}

/// How long a member waits for a row band: `time / weight`.
struct Bid<'a> {
    place: usize,
    seat: &'a Seat<'a>,
    time: u64,
}

impl<'a> Bid<'a> {
    /// That of a member, unless it is known not to come before another.
    fn of(place: usize, seat: &'a Seat<'a>, band: Lane, other: Option<&Bid<'_>>) -> Option<Self> {
        let drawn = seat.draws(band);
        let mut bid = Self {
            place,
            seat,
            time: least_time(drawn),
        };
        // Many are done here, without a logarithm.
        if other.is_some_and(|other| other.is_before(&bid)) {
            return None;
        }
        bid.time = time(drawn);
        let is_late = other.is_some_and(|other| other.is_before(&bid));
        (!is_late).then_some(bid)
    }

    /// Whether it comes before another; of two that wait equally long, the name decides.
    fn is_before(&self, other: &Bid<'_>) -> bool {
        // time / weight < other.time / other.weight
        let (own, others) = (
            u128::from(self.time) * u128::from(other.seat.weight),
            u128::from(other.time) * u128::from(self.seat.weight),
        );
        (own, self.seat.name) < (others, other.seat.name)
    }

    /// The least of [`Seat::mixed`] with which a member may come before it, where none weighs more than `heaviest`.
    fn least_before(&self, heaviest: u64) -> u64 {
        // Who comes before has `least_time(drawn) * self.weight <= self.time * weight`.
        let most = u128::from(self.time) * u128::from(heaviest) / u128::from(self.seat.weight);
        // `(!drawn >> 6) + 1 <= most`, so that `!drawn` is less than 64 times as much.
        let most = u64::try_from(most).unwrap_or(u64::MAX);
        let most = most.checked_mul(1 << (u64::BITS - UNIT_BITS));
        let drawn = most.map_or(0, |most| !most);
        // Only the upper half of what is drawn is known before the last step.
        drawn >> 32 << 32
    }
}

/// `1 - u`, rounded up or down: never more than [`time`].
fn least_time(drawn: u64) -> u64 {
    (!drawn >> (u64::BITS - UNIT_BITS)) + 1
}

/// `-ln u` of `u = drawn / 2^64`, where `drawn` is not 0; at least 1 and less than 2^64.
fn time(drawn: u64) -> u64 {
    // u = 2^-halvings * mantissa / 2^63, where the mantissa has its highest bit.
    let zeros = drawn.leading_zeros();
    let mantissa = u128::from(drawn << zeros);
    let halvings = u128::from(zeros) + 1;
    // ln m = 2 artanh((m - 1) / (m + 1)), and artanh z = z (1 + z²/3 + z⁴/5 + …).
    let one = 1 << (u64::BITS - 1);
    let z = ((mantissa - one) << SERIES_BITS) / (mantissa + one);
    let z_squared = (z * z) >> SERIES_BITS;
    let series = ODD_PARTS
        .iter()
        .rev()
        .fold(0, |sum, part| part + ((sum * z_squared) >> SERIES_BITS));
    let ln_mantissa = (2 * z * series) >> SERIES_BITS;
    let time = (halvings * LN_2).saturating_sub(ln_mantissa) >> (SERIES_BITS - UNIT_BITS);
    // It is less than 64 ln 2 = 44.4 units of 2^58.
    let time = u64::try_from(time).unwrap_or(u64::MAX);
    time.max(least_time(drawn))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    type Named = Vec<(String, u64)>;

    fn members(fewest: usize) -> impl Strategy<Value = Named> {
        let weight = prop_oneof![0..4_u64, 1 << 30..1_u64 << 40, Just(u64::MAX)];
        prop::collection::btree_map("[a-d]{1,3}:[0-9]", weight, fewest..9)
            .prop_map(|members| members.into_iter().collect())
    }

    fn seats(members: &Named) -> Vec<Seat<'_>> {
        let members = members.iter();
        let seats = members.map(|(name, weight)| Seat::new(name, *weight));
        seats.collect()
    }

    fn first<'a>(most: usize, grid: u128, band: u64, seats: &[Seat<'a>]) -> Vec<&'a str> {
        let places = owners(grid, band, seats, most).into_iter();
        places.map(|place| seats[place].name()).collect()
    }

    proptest! {
        #[test]
        fn owners_are_distinct_and_the_order_of_members_does_not_matter(
            one in members(1), other in any::<u64>(), grid: u128, band: u64, most in 1..10_usize,
        ) {
            let one = seats(&one);
            let found = first(most, grid, band, &one);
            let mut other_order = one.clone();
            other_order.sort_by_key(|seat| seat.seed ^ other);
            prop_assert_eq!(&found, &first(most, grid, band, &other_order));
            let distinct: std::collections::BTreeSet<_> = found.iter().collect();
            prop_assert_eq!((found.len(), distinct.len()), (most.min(one.len()), most.min(one.len())));
            prop_assert_eq!(found[0], one[owner(grid, band, &one).unwrap()].name());
            prop_assert!(first(9, grid, band, &one).starts_with(&found));
        }

        #[test]
        fn who_goes_leaves_the_others_in_their_order(
            all in members(2), gone: prop::sample::Index, grid: u128, band: u64,
        ) {
            let mut left = seats(&all);
            let gone = left.remove(gone.index(all.len()));
            let mut before = first(9, grid, band, &seats(&all));
            before.retain(|name| *name != gone.name());
            prop_assert_eq!(first(9, grid, band, &left), before);
        }

        #[test]
        fn members_are_passed_over_only_where_they_come_later(
            all in members(1), grid: u128, band: u64, most in 1..10_usize,
        ) {
            let seats = seats(&all);
            let lane = Lane::of(grid, band);
            let bids = seats.iter().enumerate();
            let mut bids: Vec<_> = bids
                .filter_map(|(place, seat)| Bid::of(place, seat, lane, None))
                .collect();
            bids.sort_by(|one, other| other.is_before(one).cmp(&one.is_before(other)));
            let places = bids.iter().map(|bid| bid.place).take(most);
            prop_assert_eq!(owners(grid, band, &seats, most), places.collect::<Vec<_>>());
        }

        #[test]
        fn draws_are_hashes(seed: u64, number: u64) {
            let hash = ended(mixed(begun(seed), Lane::new(number)));
            prop_assert_eq!(hash, XxHash64::oneshot(seed, &number.to_le_bytes()));
        }

        #[test]
        fn times_are_logarithms(drawn: u64, shift in 1..64_u32) {
            let drawn = (drawn >> shift) | 1;
            let expected = -(drawn as f64 / 2_f64.powi(64)).ln();
            let near = -(-(drawn as f64 / 2_f64.powi(64))).ln_1p();
            for (drawn, expected) in [(drawn, expected), (drawn.wrapping_neg(), near)] {
                let error = (time(drawn) as f64 / 2_f64.powi(58) - expected).abs();
                prop_assert!(error < 1e-15 * expected + 2_f64.powi(-57), "{drawn}");
                prop_assert!(least_time(drawn) <= time(drawn));
            }
        }
    }

    #[test]
    fn shares_are_in_proportion_and_who_comes_takes_only_its_own() {
        const BANDS: u64 = 100_000;
        for weights in [vec![1 << 36; 21], vec![1, 2, 84], vec![3 << 30, 0, 5 << 40]] {
            let members = (0..).zip(&weights);
            let members = members.map(|(at, weight)| (format!("grpc://m{at}:1"), *weight));
            let members: Named = members.collect();
            let (seats, last) = (seats(&members), weights.len() - 1);
            let mut shares = vec![0.0; weights.len()];
            for band in 0..BANDS {
                let place = owner(7, band, &seats).unwrap();
                shares[place] += 1.0;
                assert!(place == last || owner(7, band, &seats[..last]) == Some(place));
            }
            let sum: u64 = weights.iter().sum();
            for (share, weight) in shares.into_iter().zip(weights) {
                let expected = BANDS as f64 * weight as f64 / sum as f64;
                // Five standard deviations.
                let deviation = (share - expected).abs();
                assert!(deviation <= 1.0 + 5.0 * expected.sqrt(), "{share}");
            }
        }
    }

    #[test]
    fn answers_are_the_same_everywhere_and_in_every_version() {
        assert_eq!((owner(0, 0, &[]), owners(0, 0, &[], 3)), (None, Vec::new()));
        let times = (time(1), time(1 << 63), time(u64::MAX));
        let expected = (12_786_308_645_202_655_656, 199_786_072_581_291_494, 1);
        assert_eq!(times, expected);
        let seats = ["grpc://a:1", "grpc://b:1", "grpc://c:1"].map(|name| Seat::new(name, 1 << 30));
        let found = (0..12).filter_map(|band| owner(u128::MAX / 3, band, &seats));
        let found: Vec<usize> = found.collect();
        assert_eq!(found, [2, 2, 1, 2, 0, 2, 2, 1, 0, 0, 0, 2]);
    }
}
