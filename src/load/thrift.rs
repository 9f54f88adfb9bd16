//! A look over the bytes of a Parquet footer before the Parquet reader sees them.
//!
//! Comes in: the Thrift compact bytes of `FileMetaData` (parquet-format, `parquet.thrift`). Goes out: nothing, or what is implausible about them. Needed because
//! parquet 59 reserves memory for as many row groups as the bytes claim, and descends into nested columns by recursion: both end the process, and cannot be
//! caught. Never here: meaning beyond that.

/// Columns nested deeper than this are refused; Arrow's own schema messages end at 64.
const MAX_COLUMN_DEPTH: usize = 64;
/// Structs and lists of `FileMetaData` itself are nested less than ten deep.
const MAX_VALUE_DEPTH: usize = 32;
/// Numbers of the fields within their structs.
const FILE_SCHEMA: i64 = 2;
const ELEMENT_NUM_CHILDREN: i64 = 5;

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
        let (first, rest) = self.rest.split_first().ok_or("the footer ends too early")?;
        self.rest = rest;
        Ok(*first)
    }

    fn skip(&mut self, num_bytes: u64) -> Scanned<()> {
        let count = usize::try_from(num_bytes).unwrap_or(usize::MAX);
        self.rest = self
            .rest
            .get(count..)
            .ok_or("a value is longer than the footer")?;
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
        Kind::try_new(header & 0x0f).map(Some)
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
    use super::{check_footer, check_struct};

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
