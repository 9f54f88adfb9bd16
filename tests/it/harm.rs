//! Bytes as somebody who means harm sends them: good ones that were cut, changed, made longer, given lengths that lie, or put together with others.
//!
//! Comes in: good bytes, and the number of a case. Goes out: other bytes, for each number the same on every machine. `PARTGRID_FUZZ_CASES` says how many cases are tried. The unit tests of the crate take this file in as well.

/// How many cases are tried: as many as the environment says, or so many.
pub(crate) fn cases(without: u64) -> u64 {
    let said = std::env::var("PARTGRID_FUZZ_CASES").ok();
    said.map_or(without, |text| {
        text.parse().expect("PARTGRID_FUZZ_CASES must be a number")
    })
}

/// xorshift64*: the same cases on every machine.
pub(crate) struct Random(u64);

impl Random {
    /// The source of a case.
    pub(crate) fn of(case: u64) -> Self {
        Self(
            case.wrapping_mul(0x9e37_79b9_7f4a_7c15)
                .wrapping_add(1)
                .max(1),
        )
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        (self.next() >> 8) % bound
    }

    /// A place in something of a length; 0 in nothing.
    pub(crate) fn place(&mut self, length: usize) -> usize {
        usize::try_from(self.below(length.max(1) as u64)).expect("it is below a length")
    }

    /// One of several.
    pub(crate) fn one<'a, T>(&mut self, several: &'a [T]) -> &'a T {
        &several[self.place(several.len())]
    }
}

/// Numbers at which lengths and offsets go wrong.
const EDGES: [u64; 12] = [
    0,
    1,
    7,
    0x7F,
    0xFF,
    0xFFFF,
    1 << 31,
    (1 << 31) - 1,
    1 << 40,
    1 << 62,
    (1 << 63) - 1,
    u64::MAX,
];

/// Good bytes with one to four things wrong with them; `other` are good bytes of something else.
pub(crate) fn harmed(random: &mut Random, good: &[u8], other: &[u8]) -> Vec<u8> {
    let mut bytes = good.to_vec();
    for _ in 0..=random.below(4) {
        harm(random, &mut bytes, other);
    }
    bytes
}

fn harm(random: &mut Random, bytes: &mut Vec<u8>, other: &[u8]) {
    let at = random.place(bytes.len());
    match random.below(10) {
        0 => bytes.truncate(at),
        1 | 2 => {
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= 1 << random.below(8);
            }
        }
        3 => {
            if let Some(byte) = bytes.get_mut(at) {
                *byte = *random.one(&[0, 1, 0x7F, 0x80, 0xFF]);
            }
        }
        4 | 5 => overwrite(random, bytes, at),
        6 => {
            let some: Vec<u8> = random.next().to_le_bytes().into();
            drop(bytes.splice(at..at, some));
        }
        7 => {
            let number = varint(*random.one(&EDGES));
            drop(bytes.splice(at..at, number));
        }
        8 => {
            let stop = (at + 1 + random.place(16)).min(bytes.len());
            drop(bytes.drain(at..stop));
        }
        _ => {
            bytes.truncate(at);
            bytes.extend_from_slice(&other[random.place(other.len())..]);
        }
    }
}

/// A number of two, four or eight bytes where one may have been.
fn overwrite(random: &mut Random, bytes: &mut [u8], at: usize) {
    let width = *random.one(&[2, 4, 8]);
    let number = random.one(&EDGES).to_le_bytes();
    let at = at / width * width;
    for (byte, new) in bytes.iter_mut().skip(at).zip(&number[..width]) {
        *byte = *new;
    }
}

/// A number as protobuf writes it.
fn varint(mut number: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    loop {
        let [low, ..] = number.to_le_bytes();
        number >>= 7;
        match number {
            0 => {
                bytes.push(low & 0x7F);
                return bytes;
            }
            _ => bytes.push(low | 0x80),
        }
    }
}
