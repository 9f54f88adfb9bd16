//! A look over the bytes of a Parquet footer, and of the headers of pages, before the Parquet reader sees them.
//!
//! Comes in: the Thrift compact bytes of `FileMetaData` or `PageHeader` (parquet-format, `parquet.thrift`). Goes out: nothing, or what is implausible about them; what a page claims to be. Needed because
//! parquet 59 reserves memory for as many row groups as the bytes claim, and descends into nested columns by recursion: both end the process, and cannot be
//! caught. Never here: meaning beyond that.

/// Columns nested deeper than this are refused; Arrow's own schema messages end at 64.
const MAX_COLUMN_DEPTH: usize = 64;
/// Structs and lists of `FileMetaData` itself are nested less than ten deep.
const MAX_VALUE_DEPTH: usize = 32;
/// Numbers of the fields within their structs.
const FILE_SCHEMA: i64 = 2;
const ELEMENT_NUM_CHILDREN: i64 = 5;
const PAGE_DATA: i64 = 5;
const PAGE_DICTIONARY: i64 = 7;
const PAGE_DATA_V2: i64 = 8;
const DICTIONARY_NUM_VALUES: i64 = 1;
const DATA_ENCODING: i64 = 2;
const DATA_V2_ENCODING: i64 = 4;

type Scanned<T> = Result<T, String>;

/// Checks that lists are not longer than their bytes and that columns are not nested without end.
pub(super) fn check_footer(bytes: &[u8]) -> Scanned<()> {
    let mut scanner = Scanner { rest: bytes };
    let mut number = 0;
    while let Some(kind) = scanner.field(&mut number)? {
        if number == FILE_SCHEMA && kind == Kind::List {
            scanner.schema()?;
        } else {
            scanner.value(kind, 0)?;
        }
    }
    Ok(())
}

/// Checks any other struct of the format at the start of the bytes, a page index for instance: that lists are not longer than their bytes.
pub(super) fn check_struct(bytes: &[u8]) -> Scanned<()> {
    let mut scanner = Scanner { rest: bytes };
    let mut number = 0;
    while let Some(kind) = scanner.field(&mut number)? {
        scanner.value(kind, 0)?;
    }
    Ok(())
}

/// What the header of a page says of the page.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct PageHeader {
    /// How long the header is.
    pub(super) num_bytes: usize,
    /// How many values are in a dictionary.
    pub(super) dictionary_values: Vec<i32>,
    /// The encodings of data, by number.
    pub(super) encodings: Vec<i32>,
}

/// Reads the header of a page at the start of the bytes. What it says several times is there several times: readers do not agree which one counts.
pub(super) fn page_header(bytes: &[u8]) -> Scanned<PageHeader> {
    let mut scanner = Scanner { rest: bytes };
    let mut header = PageHeader::default();
    let mut number = 0;
    while let Some(kind) = scanner.field(&mut number)? {
        let (found, wanted) = match number {
            PAGE_DICTIONARY => (&mut header.dictionary_values, DICTIONARY_NUM_VALUES),
            PAGE_DATA => (&mut header.encodings, DATA_ENCODING),
            PAGE_DATA_V2 => (&mut header.encodings, DATA_V2_ENCODING),
            _ => {
                scanner.value(kind, 0)?;
                continue;
            }
        };
        scanner.numbers(kind, wanted, found)?;
    }
    header.num_bytes = bytes.len() - scanner.rest.len();
    Ok(header)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    True,
    False,
    Byte,
    Varint,
    Double,
    Binary,
    List,
    Map,
    Struct,
    Uuid,
}

impl Kind {
    fn try_new(nibble: u8) -> Scanned<Self> {
        Ok(match nibble {
            1 => Self::True,
            2 => Self::False,
            3 => Self::Byte,
            4..=6 => Self::Varint,
            7 => Self::Double,
            8 => Self::Binary,
            9 | 10 => Self::List,
            11 => Self::Map,
            12 => Self::Struct,
            13 => Self::Uuid,
            _ => return Err(format!("there is no Thrift type {nibble}")),
        })
    }
}

struct Scanner<'a> {
    rest: &'a [u8],
}

impl Scanner<'_> {
    fn byte(&mut self) -> Scanned<u8> {
        let (first, rest) = self.rest.split_first().ok_or("it ends too early")?;
        self.rest = rest;
        Ok(*first)
    }

    fn skip(&mut self, num_bytes: u64) -> Scanned<()> {
        let count = usize::try_from(num_bytes).unwrap_or(usize::MAX);
        self.rest = self
            .rest
            .get(count..)
            .ok_or("a value is longer than what is left")?;
        Ok(())
    }

    fn varint(&mut self) -> Scanned<u64> {
        let mut value = 0_u64;
        for shift in (0..70).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            value |= bits.checked_shl(shift).unwrap_or(0);
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err("a number has more than ten bytes".to_owned())
    }

    fn signed(&mut self) -> Scanned<i64> {
        let value = self.varint()?;
        let magnitude = i64::try_from(value >> 1).unwrap_or(i64::MAX);
        Ok(if value & 1 == 0 {
            magnitude
        } else {
            !magnitude
        })
    }

    /// The kind of the next field of a struct, whose number replaces the last one; `None` at its end.
    fn field(&mut self, number: &mut i64) -> Scanned<Option<Kind>> {
        let header = self.byte()?;
        if header == 0 {
            return Ok(None);
        }
        *number = match header >> 4 {
            0 => self.signed()?,
            step => number.saturating_add(i64::from(step)),
        };
        // The reader would take another number that ends in the same bits.
        if i16::try_from(*number).is_err() {
            return Err(format!("there is no field {number}"));
        }
        Kind::try_new(header & 0x0f).map(Some)
    }

    /// The numbers of one field of a struct. The reader takes it for a number, whatever its kind says.
    fn numbers(&mut self, kind: Kind, wanted: i64, found: &mut Vec<i32>) -> Scanned<()> {
        let wrong = || "the header of a page has a field of another kind".to_owned();
        if kind != Kind::Struct {
            return Err(wrong());
        }
        let mut number = 0;
        while let Some(kind) = self.field(&mut number)? {
            match (number == wanted, kind) {
                (true, Kind::Varint) => {
                    let value = self.signed()?;
                    found.push(i32::try_from(value).map_err(|_| wrong())?);
                }
                (true, _) => return Err(wrong()),
                (false, kind) => self.value(kind, 1)?,
            }
        }
        Ok(())
    }

    /// Kind and number of the elements of a list.
    fn list(&mut self) -> Scanned<(Kind, u64)> {
        let header = self.byte()?;
        if header == 0 {
            return Ok((Kind::Byte, 0));
        }
        let size = match header >> 4 {
            15 => self.varint()?,
            size => u64::from(size),
        };
        self.plausible(size)?;
        Ok((Kind::try_new(header & 0x0f)?, size))
    }

    /// Every element takes a byte at least.
    fn plausible(&self, size: u64) -> Scanned<()> {
        if size > self.rest.len() as u64 {
            let rest = self.rest.len();
            return Err(format!(
                "a list claims {size} elements, with {rest} bytes left"
            ));
        }
        Ok(())
    }

    fn value(&mut self, kind: Kind, depth: usize) -> Scanned<()> {
        if depth > MAX_VALUE_DEPTH {
            return Err(format!("values are nested deeper than {MAX_VALUE_DEPTH}"));
        }
        match kind {
            Kind::True | Kind::False => Ok(()),
            Kind::Byte => self.skip(1),
            Kind::Varint => self.varint().map(|_| ()),
            Kind::Double => self.skip(8),
            Kind::Uuid => self.skip(16),
            Kind::Binary => {
                let length = self.varint()?;
                self.skip(length)
            }
            Kind::List => {
                let (kind, size) = self.list()?;
                (0..size).try_for_each(|_| self.element(kind, depth + 1))
            }
            Kind::Map => self.map(depth),
            Kind::Struct => {
                let mut number = 0;
                while let Some(kind) = self.field(&mut number)? {
                    self.value(kind, depth + 1)?;
                }
                Ok(())
            }
        }
    }

    /// Within lists and maps, a boolean takes a byte.
    fn element(&mut self, kind: Kind, depth: usize) -> Scanned<()> {
        match kind {
            Kind::True | Kind::False => self.skip(1),
            other => self.value(other, depth),
        }
    }

    fn map(&mut self, depth: usize) -> Scanned<()> {
        let size = self.varint()?;
        if size == 0 {
            return Ok(());
        }
        self.plausible(size)?;
        let kinds = self.byte()?;
        let (key, value) = (Kind::try_new(kinds >> 4)?, Kind::try_new(kinds & 0x0f)?);
        (0..size).try_for_each(|_| {
            self.element(key, depth + 1)?;
            self.element(value, depth + 1)
        })
    }

    /// The list of schema elements: the columns as a tree, depth first, each with the number of its children.
    fn schema(&mut self) -> Scanned<()> {
        let (kind, size) = self.list()?;
        if kind != Kind::Struct {
            return Err("the schema is no list of structs".to_owned());
        }
        let mut open: Vec<i64> = Vec::new();
        for _ in 0..size {
            while open.last() == Some(&0) {
                open.pop();
            }
            if let Some(missing) = open.last_mut() {
                *missing -= 1;
            }
            let num_children = self.schema_element()?;
            if num_children > 0 {
                open.push(num_children);
            }
            if open.len() > MAX_COLUMN_DEPTH {
                return Err(format!("columns are nested deeper than {MAX_COLUMN_DEPTH}"));
            }
        }
        Ok(())
    }

    fn schema_element(&mut self) -> Scanned<i64> {
        let (mut number, mut num_children) = (0, 0);
        while let Some(kind) = self.field(&mut number)? {
            if number == ELEMENT_NUM_CHILDREN && kind == Kind::Varint {
                num_children = self.signed()?;
            } else {
                self.value(kind, 0)?;
            }
        }
        Ok(num_children)
    }
}

#[cfg(test)]
mod tests {
    use super::{check_footer, check_struct, page_header};

    #[test]
    fn a_list_longer_than_its_bytes_is_refused() {
        // Field 4, a list of structs that claims 2^28 row groups.
        let footer = [0x49, 0xfc, 0x80, 0x80, 0x80, 0x80, 0x01, 0x00];
        assert!(
            check_footer(&footer)
                .unwrap_err()
                .contains("claims 268435456 elements")
        );
    }

    #[test]
    fn a_list_in_any_struct_is_not_longer_than_its_bytes() {
        // Field 1, a list of three bytes, and the end; other bytes may follow.
        assert_eq!(check_struct(&[0x19, 0x33, 1, 2, 3, 0, 9, 9]), Ok(()));
        assert!(check_struct(&[0x19, 0x33, 1, 2]).is_err());
        assert!(check_struct(&[0x19, 0xf3, 0xff, 0xff, 0xff, 0x7f, 1, 2]).is_err());
        assert!(check_struct(&[]).is_err());
    }

    #[test]
    fn a_page_says_what_it_is() {
        // Field 1, a number; field 7, a struct whose field 1 is 3; the end; other bytes may follow.
        let header = page_header(&[0x15, 0x04, 0x6c, 0x15, 0x06, 0x15, 0x00, 0, 0, 9]).unwrap();
        assert_eq!(header.dictionary_values, [3]);
        assert_eq!((header.num_bytes, header.encodings.len()), (9, 0));
        // Field 5, whose field 2 is 7, and once more, whose field 2 is 0.
        let twice = [
            0x5c, 0x25, 0x0e, 0, 0x0c, 0x0a, 0x25, 0x00, 0, 0x3c, 0x45, 0x0c, 0, 0,
        ];
        assert_eq!(page_header(&twice).unwrap().encodings, [7, 0, 6]);
        // A number that is said to be text, one of more than 32 bits, a field whose number ends in the bits of another's.
        assert!(page_header(&[0x5c, 0x28, 0x0e, 0, 0]).is_err());
        assert!(page_header(&[0x5c, 0x25, 0x8e, 0x80, 0x80, 0x80, 0x20, 0, 0]).is_err());
        assert!(page_header(&[0x0c, 0x8a, 0x80, 0x08, 0x25, 0x0e, 0, 0]).is_err());
    }

    #[test]
    fn columns_nested_without_end_are_refused() {
        // Field 2, a list of 10,000 elements of one child each.
        let mut footer = vec![0x29, 0xfc, 0x90, 0x4e];
        (0..10_000).for_each(|_| footer.extend([0x55, 0x02, 0x00]));
        footer.push(0);
        assert!(
            check_footer(&footer)
                .unwrap_err()
                .contains("nested deeper than 64")
        );
    }
}
