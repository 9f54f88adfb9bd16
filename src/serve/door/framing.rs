//! Where the messages of a body begin and end, before anybody reads them.
//!
//! Comes in: the bytes of a body, in pieces, and how long messages may be. Goes out: how many messages came, how much there is of the next one, or what is too long, as soon as it says how long it wants to be. Nothing is kept and nothing copied.
//! Never here: what messages say.

use bytes::Buf;

/// What stands before a message of gRPC: how it is packed, and its length.
const HEAD_BYTES: u8 = 5;

/// The descriptor in `FlightData`.
const DESCRIPTOR: u64 = 1;

/// The bits of a number that a byte of Protobuf has; the last that a number may have.
const BITS: u32 = 7;
const LAST_BIT: u32 = 63;

/// Why a body is not read on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refused {
    /// A message of so many bytes.
    Message(u64),
    /// Descriptors of so many bytes in one message of rows.
    Descriptor(u64),
    /// What is no message of rows.
    Torn,
}

/// How far a body is.
#[derive(Debug)]
pub(super) struct Framing {
    most_bytes: u64,
    /// Looks for descriptors in messages of rows.
    fields: Option<Fields>,
    num_head: u8,
    /// What the message has that came in part.
    len: u64,
    missing: u64,
    num_whole: u64,
    first_len: Option<u64>,
}

impl Framing {
    /// Of messages that have at most so many bytes.
    pub(super) fn of(most_bytes: u64) -> Self {
        Self {
            most_bytes,
            fields: None,
            num_head: 0,
            len: 0,
            missing: 0,
            num_whole: 0,
            first_len: None,
        }
    }

    /// The messages are `FlightData`, whose descriptors have at most so many bytes.
    pub(super) fn with_descriptors(self, most_bytes: u64) -> Self {
        let fields = Some(Fields::of(most_bytes));
        Self { fields, ..self }
    }

    /// The most bytes that a message may have.
    pub(super) fn most_bytes(&self) -> u64 {
        self.most_bytes
    }

    /// How many messages came whole.
    pub(super) fn num_whole(&self) -> u64 {
        self.num_whole
    }

    /// The length of the first message, once, when it is whole.
    pub(super) fn first_len(&mut self) -> Option<u64> {
        self.first_len.take()
    }

    /// What there is of the message that came in part.
    pub(super) fn begun_bytes(&self) -> u64 {
        u64::from(self.num_head) + (self.len - self.missing)
    }

    /// Goes on past bytes that came.
    ///
    /// # Errors
    /// What is too long, or no message.
    pub(super) fn pass(&mut self, mut bytes: &[u8]) -> Result<(), Refused> {
        while bytes.has_remaining() {
            if self.num_head < HEAD_BYTES {
                self.head(bytes.get_u8())?;
            } else {
                let step = usize::try_from(self.missing).unwrap_or(usize::MAX);
                let (here, rest) = bytes.split_at(step.min(bytes.len()));
                if let Some(fields) = &mut self.fields {
                    fields.pass(here)?;
                }
                self.missing -= here.len() as u64;
                bytes = rest;
            }
            if self.num_head == HEAD_BYTES && self.missing == 0 {
                self.end();
            }
        }
        Ok(())
    }

    fn head(&mut self, byte: u8) -> Result<(), Refused> {
        self.num_head += 1;
        if self.num_head == 1 {
            return Ok(());
        }
        self.len = self.len << 8 | u64::from(byte);
        self.missing = self.len;
        match self.num_head == HEAD_BYTES && self.len > self.most_bytes {
            true => Err(Refused::Message(self.len)),
            false => Ok(()),
        }
    }

    /// A message is whole.
    fn end(&mut self) {
        if self.num_whole == 0 {
            self.first_len = Some(self.len);
        }
        self.num_whole += 1;
        (self.num_head, self.len) = (0, 0);
        if let Some(fields) = &mut self.fields {
            *fields = Fields::of(fields.most_bytes);
        }
    }
}

/// Where in the fields of a message.
#[derive(Debug, Clone, Copy)]
enum At {
    Key,
    Len,
    /// A number, which is not looked at.
    Number,
    /// So many bytes, which are not looked at.
    Bytes(u64),
}

/// How far a message of rows is: the lengths of its fields.
#[derive(Debug)]
struct Fields {
    most_bytes: u64,
    at: At,
    field: u64,
    /// A number of which bytes are missing.
    number: u64,
    shift: u32,
    /// What its descriptors have together.
    described_bytes: u64,
}

impl Fields {
    fn of(most_bytes: u64) -> Self {
        Self {
            most_bytes,
            at: At::Key,
            field: 0,
            number: 0,
            shift: 0,
            described_bytes: 0,
        }
    }

    fn pass(&mut self, mut bytes: &[u8]) -> Result<(), Refused> {
        while bytes.has_remaining() {
            self.at = match self.at {
                At::Bytes(left) => {
                    let step = left.min(bytes.len() as u64);
                    bytes.advance(usize::try_from(step).unwrap_or(usize::MAX));
                    past(left - step)
                }
                At::Number => match bytes.get_u8() {
                    0..0x80 => At::Key,
                    _ => At::Number,
                },
                at => match (at, self.number(bytes.get_u8())?) {
                    (at, None) => at,
                    (At::Len, Some(len)) => self.value(len)?,
                    (_, Some(key)) => self.key(key)?,
                },
            };
        }
        Ok(())
    }

    /// A number, with its last byte.
    fn number(&mut self, byte: u8) -> Result<Option<u64>, Refused> {
        if self.shift > LAST_BIT {
            return Err(Refused::Torn);
        }
        self.number |= u64::from(byte & 0x7f) << self.shift;
        self.shift += BITS;
        if byte >= 0x80 {
            return Ok(None);
        }
        self.shift = 0;
        Ok(Some(std::mem::take(&mut self.number)))
    }

    fn key(&mut self, key: u64) -> Result<At, Refused> {
        self.field = key >> 3;
        match key & 7 {
            0 => Ok(At::Number),
            1 => Ok(At::Bytes(8)),
            2 => Ok(At::Len),
            5 => Ok(At::Bytes(4)),
            // Groups, which Flight has none of, could hide what comes after them.
            _ => Err(Refused::Torn),
        }
    }

    fn value(&mut self, len: u64) -> Result<At, Refused> {
        if self.field == DESCRIPTOR {
            self.described_bytes = self.described_bytes.saturating_add(len);
            if self.described_bytes > self.most_bytes {
                return Err(Refused::Descriptor(self.described_bytes));
            }
        }
        Ok(past(len))
    }
}

fn past(left: u64) -> At {
    match left {
        0 => At::Key,
        left => At::Bytes(left),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A message as gRPC sends it.
    fn framed(message: &[u8]) -> Vec<u8> {
        let mut out = vec![0];
        out.extend(u32::try_from(message.len()).unwrap().to_be_bytes());
        out.extend(message);
        out
    }

    /// Passes bytes in pieces of a length.
    fn passed(mut framing: Framing, bytes: &[u8], piece: usize) -> Result<Framing, Refused> {
        for piece in bytes.chunks(piece) {
            framing.pass(piece)?;
        }
        Ok(framing)
    }

    #[test]
    fn messages_are_counted_however_they_are_cut() {
        let three = [framed(b"first"), framed(b""), framed(&[7; 300])].concat();
        for piece in [1, 2, 7, 1000] {
            let mut framing = passed(Framing::of(300), &three, piece).unwrap();
            assert_eq!((framing.num_whole(), framing.begun_bytes()), (3, 0));
            assert_eq!((framing.first_len(), framing.first_len()), (Some(5), None));
            let mut begun = passed(Framing::of(300), &three[..three.len() - 1], piece).unwrap();
            assert_eq!((begun.num_whole(), begun.begun_bytes()), (2, 304));
            begun.pass(&[7, 0]).unwrap();
            assert_eq!((begun.num_whole(), begun.begun_bytes()), (3, 1));
        }
    }

    #[test]
    fn a_message_is_refused_when_it_says_how_long_it_is() {
        let mut framing = Framing::of(300);
        framing.pass(&[0, 0, 0, 1]).unwrap();
        assert_eq!(framing.pass(&[45]), Err(Refused::Message(301)));
    }

    #[test]
    fn descriptors_are_found_among_other_fields() {
        let other = [
            &[0x12, 3, 0x0a, 50, 9][..],
            &[0x18, 0x80, 1],
            &[0xc2, 0x3e, 0],
        ];
        let described = [&[0x0a, 4][..], &[1; 4]].concat();
        let fits = [&other.concat()[..], &described, &other.concat()].concat();
        let twice = [&fits[..], &described].concat();
        for piece in [1, 3, 1000] {
            let framing = || Framing::of(300).with_descriptors(7);
            let two = [framed(&fits), framed(&fits)].concat();
            assert_eq!(passed(framing(), &two, piece).unwrap().num_whole(), 2);
            let refused = passed(framing(), &framed(&twice), piece).unwrap_err();
            assert_eq!(refused, Refused::Descriptor(8));
            let group = framed(&[0x0b]);
            assert_eq!(passed(framing(), &group, piece).unwrap_err(), Refused::Torn);
            let endless = framed(&[0xff; 11]);
            assert_eq!(
                passed(framing(), &endless, piece).unwrap_err(),
                Refused::Torn
            );
        }
    }
}
