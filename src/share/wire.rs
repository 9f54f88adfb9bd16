//! What readers and owners of shared tiles say to each other, one packet for each message.
//!
//! Comes in: a message, or the bytes of a packet from whoever is at the other end. Goes out: the bytes, or the message. Numbers are little-endian, every length is checked. Never here:
//! sockets; panics, whatever the bytes are.

use std::ops::Range;

use super::SharedSegment;
use crate::error::{Error, ErrorKind, Result};
use crate::grid::GridId;

/// No packet is longer.
pub(super) const MAX_PACKET_BYTES: usize = 1 << 16;

/// What both sides must have in common: the messages, and how segments are written.
pub(super) const VERSION: u16 = 1;

const MAGIC: [u8; 4] = *b"PGSM";

/// Texts of errors are cut to this.
const MAX_TEXT_BYTES: usize = 4096;

/// The kinds of errors that an owner tells of, with their numbers; others are `Internal`.
const KINDS: [(u8, ErrorKind); 11] = [
    (1, ErrorKind::InvalidArgument),
    (2, ErrorKind::InvalidData),
    (3, ErrorKind::Protocol),
    (4, ErrorKind::NotFound),
    (5, ErrorKind::PermissionDenied),
    (6, ErrorKind::NotLocal),
    (7, ErrorKind::PartitionLost),
    (8, ErrorKind::Unsupported),
    (9, ErrorKind::ResourcesExhausted),
    (10, ErrorKind::Storage { retryable: false }),
    (11, ErrorKind::Storage { retryable: true }),
];

/// The rows and columns of a segment that make a tile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) rows: Range<u64>,
    pub(super) columns: Vec<u32>,
}

/// What a reader says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Request {
    /// The first thing.
    Hello,
    /// Wants the tile; answered by `Segment` or `Failure`, after any number of `Working`.
    Acquire { grid: GridId, position: Vec<usize> },
    /// Does not need the tiles of these leases any more. Has no answer.
    Release(Vec<u64>),
    /// Wants to know what the owner shares; answered by any number of `Entry`, and `End`.
    List,
}

/// What an owner says.
#[derive(Debug, Clone)]
pub(super) enum Reply {
    /// Answers `Hello`: what only the owner and those to whom it gave a handle know.
    Hello { proof: u64 },
    /// The owner is alive, and not done yet.
    Working,
    /// The tile; a descriptor comes with it.
    Segment(Grant),
    /// There is no such tile for this reader.
    Failure(Error),
    /// A segment of the owner.
    Entry(SharedSegment),
    /// That was all.
    End,
}

/// What a reader is told of the descriptor that it gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Grant {
    pub(super) lease: u64,
    pub(super) segment_bytes: u64,
    /// Where the tile begins in its grid.
    pub(super) start: Vec<u64>,
    pub(super) part: Option<Part>,
}

impl Part {
    /// So many columns fit a packet.
    pub(super) const MAX_COLUMNS: usize = 4096;
}

impl Request {
    /// So many leases fit a packet.
    pub(super) const MAX_RELEASED: usize = 4096;

    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut packet = Writer::default();
        match self {
            Self::Hello => packet.u8(1).raw(&MAGIC).u16(VERSION),
            Self::Acquire { grid, position } => packet.u8(2).u128(grid.bits()).position(position),
            Self::Release(leases) => packet.u8(3).numbers(leases.iter().copied()),
            Self::List => packet.u8(4),
        };
        packet.0
    }

    /// # Errors
    /// `Protocol` for anything else than a request; `Unsupported` for another version.
    pub(super) fn read(packet: &[u8]) -> Result<Self> {
        let mut packet = Reader(packet);
        let request = match packet.u8()? {
            1 => {
                packet.version()?;
                Self::Hello
            }
            2 => Self::Acquire {
                grid: GridId::from_bits(packet.u128()?),
                position: packet.position()?,
            },
            3 => Self::Release(packet.numbers()?),
            4 => Self::List,
            other => return Err(strange(&format!("request {other}"))),
        };
        packet.end()?;
        Ok(request)
    }
}

impl Reply {
    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut packet = Writer::default();
        match self {
            Self::Hello { proof } => packet.u8(1).raw(&MAGIC).u16(VERSION).u64(*proof),
            Self::Working => packet.u8(2),
            Self::Segment(grant) => packet.u8(3).grant(grant),
            Self::Failure(error) => packet.u8(4).error(error),
            Self::Entry(entry) => packet.u8(5).entry(entry),
            Self::End => packet.u8(6),
        };
        packet.0
    }

    /// # Errors
    /// `Protocol` for anything else than a reply; `Unsupported` for another version.
    pub(super) fn read(packet: &[u8]) -> Result<Self> {
        let mut packet = Reader(packet);
        let reply = match packet.u8()? {
            1 => {
                packet.version()?;
                let proof = packet.u64()?;
                Self::Hello { proof }
            }
            2 => Self::Working,
            3 => Self::Segment(packet.grant()?),
            4 => Self::Failure(packet.error()?),
            5 => Self::Entry(packet.entry()?),
            6 => Self::End,
            other => return Err(strange(&format!("reply {other}"))),
        };
        packet.end()?;
        Ok(reply)
    }
}

/// What came is not what partgrid says.
pub(super) fn strange(what: &str) -> Error {
    let text = format!("the process at the other end does not speak as partgrid does: {what}");
    Error::new(ErrorKind::Protocol, text)
}

#[derive(Default)]
struct Writer(Vec<u8>);

impl Writer {
    fn raw(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.extend_from_slice(bytes);
        self
    }

    fn u8(&mut self, number: u8) -> &mut Self {
        self.raw(&[number])
    }

    fn u16(&mut self, number: u16) -> &mut Self {
        self.raw(&number.to_le_bytes())
    }

    fn u32(&mut self, number: u32) -> &mut Self {
        self.raw(&number.to_le_bytes())
    }

    fn u64(&mut self, number: u64) -> &mut Self {
        self.raw(&number.to_le_bytes())
    }

    fn u128(&mut self, number: u128) -> &mut Self {
        self.raw(&number.to_le_bytes())
    }

    fn numbers(&mut self, numbers: impl ExactSizeIterator<Item = u64>) -> &mut Self {
        self.u32(u32::try_from(numbers.len()).unwrap_or(u32::MAX));
        numbers.fold(self, |packet, number| packet.u64(number))
    }

    fn position(&mut self, position: &[usize]) -> &mut Self {
        self.numbers(position.iter().map(|at| *at as u64))
    }

    fn text(&mut self, text: &str) -> &mut Self {
        let end = text.floor_char_boundary(MAX_TEXT_BYTES);
        let bytes = text.as_bytes().get(..end).unwrap_or_default();
        self.u32(u32::try_from(bytes.len()).unwrap_or(0)).raw(bytes)
    }

    fn grant(&mut self, grant: &Grant) -> &mut Self {
        self.u64(grant.lease)
            .u64(grant.segment_bytes)
            .numbers(grant.start.iter().copied());
        match &grant.part {
            None => self.u8(0),
            Some(part) => self
                .u8(1)
                .u64(part.rows.start)
                .u64(part.rows.end)
                .numbers(part.columns.iter().map(|column| u64::from(*column))),
        }
    }

    fn error(&mut self, error: &Error) -> &mut Self {
        let known = KINDS.iter().find(|(_, kind)| *kind == error.kind());
        self.u8(known.map_or(0, |(number, _)| *number))
            .text(error.message())
            .text(error.context("position").unwrap_or_default())
            .text(error.hint().unwrap_or_default())
    }

    fn entry(&mut self, entry: &SharedSegment) -> &mut Self {
        let readers = entry.readers.iter().map(|reader| u64::from(*reader));
        self.u128(entry.grid.bits())
            .position(&entry.position)
            .u64(entry.segment_bytes)
            .u8(entry.is_copy.into())
            .numbers(readers)
    }
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn raw(&mut self, count: usize) -> Result<&'a [u8]> {
        let short = || strange("a packet is cut short");
        let (taken, rest) = self.0.split_at_checked(count).ok_or_else(short)?;
        self.0 = rest;
        Ok(taken)
    }

    fn fixed<const N: usize>(&mut self) -> Result<[u8; N]> {
        let bytes = self.raw(N)?;
        bytes
            .try_into()
            .map_err(|_| strange("a packet is cut short"))
    }

    fn u8(&mut self) -> Result<u8> {
        Ok(u8::from_le_bytes(self.fixed()?))
    }

    fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_le_bytes(self.fixed()?))
    }

    fn u64(&mut self) -> Result<u64> {
        Ok(u64::from_le_bytes(self.fixed()?))
    }

    fn u128(&mut self) -> Result<u128> {
        Ok(u128::from_le_bytes(self.fixed()?))
    }

    fn version(&mut self) -> Result<()> {
        if self.fixed::<4>()? != MAGIC {
            return Err(strange("no greeting"));
        }
        let version = u16::from_le_bytes(self.fixed()?);
        if version != VERSION {
            let text = format!(
                "tiles are shared by processes with one version of partgrid: version {version} of the messages came, {VERSION} was expected"
            );
            return Err(Error::unsupported(text));
        }
        Ok(())
    }

    fn numbers(&mut self) -> Result<Vec<u64>> {
        let count = self.count(size_of::<u64>())?;
        (0..count).map(|_| self.u64()).collect()
    }

    /// A count of things of so many bytes each, which must be there.
    fn count(&mut self, bytes: usize) -> Result<usize> {
        let count = usize::try_from(self.u32()?).unwrap_or(usize::MAX);
        match count.checked_mul(bytes) {
            Some(wanted) if wanted <= self.0.len() => Ok(count),
            _ => Err(strange("a length is longer than its packet")),
        }
    }

    fn position(&mut self) -> Result<Vec<usize>> {
        let numbers = self.numbers()?.into_iter().map(usize::try_from);
        let position: Result<Vec<usize>, _> = numbers.collect();
        position.map_err(|_| strange("a position is past this machine's range"))
    }

    fn text(&mut self) -> Result<String> {
        let count = self.count(1)?;
        let bytes = self.raw(count)?;
        Ok(String::from_utf8_lossy(bytes).into_owned())
    }

    fn grant(&mut self) -> Result<Grant> {
        let (lease, segment_bytes) = (self.u64()?, self.u64()?);
        let start = self.numbers()?;
        let part = match self.u8()? {
            0 => None,
            _ => Some(Part {
                rows: self.u64()?..self.u64()?,
                columns: self.small_numbers()?,
            }),
        };
        Ok(Grant {
            lease,
            segment_bytes,
            start,
            part,
        })
    }

    fn small_numbers(&mut self) -> Result<Vec<u32>> {
        let numbers = self.numbers()?.into_iter().map(u32::try_from);
        let numbers: Result<Vec<u32>, _> = numbers.collect();
        numbers.map_err(|_| strange("a number is too large"))
    }

    fn error(&mut self) -> Result<Error> {
        let number = self.u8()?;
        let known = KINDS.iter().find(|(known, _)| *known == number);
        let kind = known.map_or(ErrorKind::Internal, |(_, kind)| *kind);
        let (message, position, hint) = (self.text()?, self.text()?, self.text()?);
        let mut error = Error::new(kind, message);
        if !position.is_empty() {
            error = error.with_context("position", position);
        }
        Ok(match hint.is_empty() {
            true => error,
            false => error.with_hint(hint),
        })
    }

    fn entry(&mut self) -> Result<SharedSegment> {
        Ok(SharedSegment {
            grid: GridId::from_bits(self.u128()?),
            position: self.position()?,
            segment_bytes: self.u64()?,
            is_copy: self.u8()? != 0,
            readers: self.small_numbers()?,
        })
    }

    fn end(&self) -> Result<()> {
        match self.0.is_empty() {
            true => Ok(()),
            false => Err(strange("a packet is too long")),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn grant() -> Grant {
        let part = Part {
            rows: 3..9,
            columns: vec![1, 0],
        };
        Grant {
            lease: 7,
            segment_bytes: 1 << 40,
            start: vec![5, 0],
            part: Some(part),
        }
    }

    #[test]
    fn messages_read_back() {
        let acquire = Request::Acquire {
            grid: GridId::from_bits(1 << 100),
            position: vec![3, 1],
        };
        for request in [
            Request::Hello,
            acquire,
            Request::Release(vec![1, 2]),
            Request::List,
        ] {
            assert_eq!(Request::read(&request.bytes()).unwrap(), request);
        }
        let read = Reply::read(&Reply::Segment(grant()).bytes()).unwrap();
        assert!(matches!(read, Reply::Segment(found) if found == grant()));
        let lost = Error::new(ErrorKind::PartitionLost, "gone").with_hint("keep it");
        let lost = lost.with_position(&[1, 0]);
        let Reply::Failure(error) = Reply::read(&Reply::Failure(lost.clone()).bytes()).unwrap()
        else {
            panic!("another reply");
        };
        assert_eq!(error.to_string(), lost.to_string());
        assert_eq!(error.kind(), lost.kind());
    }

    #[test]
    fn a_packet_that_is_cut_short_or_too_long_is_refused() {
        let whole = Reply::Segment(grant()).bytes();
        for length in 0..whole.len() {
            let error = Reply::read(&whole[..length]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Protocol);
        }
        let long = [whole.as_slice(), &[0]].concat();
        assert_eq!(Reply::read(&long).unwrap_err().kind(), ErrorKind::Protocol);
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_message_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            drop(Request::read(&bytes));
            drop(Reply::read(&bytes));
        }
    }
}
