//! One array of the C Data interface, read with checks.
//!
//! Comes in: an `ArrowArray` struct that another library filled. Goes out: its length, its buffers, its children, each checked against what the struct itself
//! says. Never here: Arrow types (`convert.rs`), copying (except of a buffer that is not aligned for its values).
//!
//! Follows "Structure definitions" and "Semantics" of <https://arrow.apache.org/docs/format/CDataInterface.html>.

#![expect(
    unsafe_code,
    reason = "the C Data interface hands over raw pointers; every other file of the import works on what is checked here"
)]

use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

use arrow::array::{ArrayDataBuilder, ArrayRef, make_array};
use arrow::buffer::{BooleanBuffer, Buffer, NullBuffer, ScalarBuffer};
use arrow::datatypes::ArrowNativeType;
use arrow::error::ArrowError;
use arrow::ffi::FFI_ArrowArray;

use crate::device::on_host::Memory;
use crate::error::{Error, Result};

/// One array of a tree of C arrays; buffers made from it keep the whole tree alive.
pub(super) struct Node<'a> {
    array: &'a FFI_ArrowArray,
    owner: &'a Arc<FFI_ArrowArray>,
    memory: &'a Memory,
    offset: usize,
    len: usize,
}

impl<'a> Node<'a> {
    /// The top of the tree that `owner` releases, with its buffers in `memory`.
    pub(super) fn root(owner: &'a Arc<FFI_ArrowArray>, memory: &'a Memory) -> Result<Self> {
        Self::try_new(owner, owner, memory)
    }

    fn try_new(
        array: &'a FFI_ArrowArray,
        owner: &'a Arc<FFI_ArrowArray>,
        memory: &'a Memory,
    ) -> Result<Self> {
        if array.is_released() {
            return Err(broken("the Arrow C array was released already"));
        }
        let len = count("length", array.length)?;
        let offset = count("offset", array.offset)?;
        // One more than the end is the number of list offsets.
        if offset.checked_add(len).is_none_or(|end| end == usize::MAX) {
            return Err(broken(format!(
                "offset + length of an Arrow C array must fit this machine's index type, got {offset} + {len}"
            )));
        }
        Ok(Self {
            array,
            owner,
            memory,
            offset,
            len,
        })
    }

    /// The number of values.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// How many values of the buffers come before the first one.
    pub(super) fn offset(&self) -> usize {
        self.offset
    }

    /// Offset + length: how many values the buffers hold.
    pub(super) fn end(&self) -> usize {
        self.offset + self.len
    }

    /// The number of buffers that the struct declares.
    pub(super) fn num_buffers(&self) -> Result<usize> {
        let declared = count("n_buffers", self.array.n_buffers)?;
        if declared > 0 && self.array.buffers.is_null() {
            return Err(broken(format!(
                "{declared} buffers are declared, and the list of buffers is absent"
            )));
        }
        Ok(declared)
    }

    /// Makes sure that the struct has as many buffers and children as its type wants.
    pub(super) fn expect(&self, num_buffers: usize, num_children: usize) -> Result<()> {
        let got = (self.num_buffers()?, self.num_children()?);
        if got == (num_buffers, num_children) {
            return Ok(());
        }
        Err(broken(format!(
            "the type wants {num_buffers} buffers and {num_children} children, got {} and {}",
            got.0, got.1
        )))
    }

    /// Some bytes of a buffer; a bound that is `None` does not fit this machine. `expect` or `num_buffers` must have been asked before.
    pub(super) fn buffer(&self, index: usize, bytes: Range<Option<usize>>) -> Result<Buffer> {
        let Range {
            start: Some(start),
            end: Some(end),
        } = bytes
        else {
            return Err(too_large());
        };
        if isize::try_from(end).is_err() {
            return Err(too_large());
        }
        if start >= end {
            return Ok(Buffer::from(Vec::<u8>::new()));
        }
        let pointer = NonNull::new(self.array.buffer(index).cast_mut()).ok_or_else(|| {
            broken(format!(
                "buffer {index} must hold {end} bytes, it is absent"
            ))
        })?;
        self.memory.bytes(pointer, start..end, self.owner)
    }

    /// How many of the values before `start` need not be asked for: all where bytes are copied, none where they are there anyway.
    pub(super) fn left_out(&self, start: usize) -> usize {
        if self.memory.is_copied() { start } else { 0 }
    }

    /// Whether bytes are copied, so that children are asked for the values alone that somebody needs.
    pub(super) fn is_copied(&self) -> bool {
        self.memory.is_copied()
    }

    /// Some of the values, as an array of its own.
    pub(super) fn part(&self, start: usize, len: usize) -> Result<Self> {
        check_part(start, len, self.len)?;
        Ok(Self {
            offset: self.offset + start,
            len,
            ..*self
        })
    }

    /// What the struct gives for a buffer; 0 for an absent one. `num_buffers` must have been asked before.
    pub(super) fn handle(&self, index: usize) -> usize {
        self.array.buffer(index).expose_provenance()
    }

    /// The number of nulls that the struct declares; -1 for one that is not known.
    pub(super) fn declared_nulls(&self) -> i64 {
        self.array.null_count
    }

    /// The number of children that the struct declares.
    pub(super) fn num_children(&self) -> Result<usize> {
        count("n_children", self.array.n_children)
    }

    /// Whether there is a dictionary.
    pub(super) fn has_dictionary(&self) -> bool {
        self.array.dictionary().is_some()
    }

    /// `len` values of a buffer from value `start` on; copied only when the producer did not align them.
    pub(super) fn values<T: ArrowNativeType>(
        &self,
        index: usize,
        start: usize,
        len: usize,
    ) -> Result<ScalarBuffer<T>> {
        let left_out = self.left_out(start);
        let bytes = |values: usize| values.checked_mul(size_of::<T>());
        let buffer = self.buffer(index, bytes(left_out)..bytes(start + len))?;
        let aligned = buffer.as_ptr().align_offset(align_of::<T>()) == 0;
        let buffer = if aligned {
            buffer
        } else {
            Buffer::from_slice_ref(buffer.as_slice())
        };
        Ok(ScalarBuffer::new(buffer, start - left_out, len))
    }

    /// Which values are null; `None` when the producer gives no bitmap. Counted here, whatever `null_count` says.
    pub(super) fn nulls(&self) -> Result<Option<NullBuffer>> {
        if self.array.buffer(0).is_null() {
            return match self.array.null_count {
                ..=0 => Ok(None),
                declared => Err(broken(format!(
                    "{declared} nulls are declared, and the validity bitmap is absent"
                ))),
            };
        }
        let left_out = self.left_out(self.offset / 8);
        let bits = self.buffer(0, Some(left_out)..Some(self.end().div_ceil(8)))?;
        let bits = BooleanBuffer::new(bits, self.offset - left_out * 8, self.len);
        let nulls = NullBuffer::new(bits);
        Ok((nulls.null_count() > 0).then_some(nulls))
    }

    /// A child. `expect` must have been asked before.
    pub(super) fn child(&self, index: usize) -> Result<Self> {
        if self.array.children.is_null() || index >= self.array.num_children() {
            return Err(broken(format!("child {index} is absent")));
        }
        // SAFETY: `children` is not null and has `n_children` entries.
        let slot = unsafe { self.array.children.add(index) };
        // SAFETY: as above; producers need not align the list.
        let child = unsafe { slot.read_unaligned() };
        // SAFETY: a child that is not null is an `ArrowArray` that lives until the tree is released, and `owner` outlives `'a`.
        let child: Option<&'a FFI_ArrowArray> = unsafe { child.as_ref() };
        let child = child.ok_or_else(|| broken(format!("child {index} is absent")))?;
        Self::try_new(child, self.owner, self.memory)
    }

    /// The values of a dictionary.
    pub(super) fn dictionary(&self) -> Result<Self> {
        let values = self.array.dictionary();
        let values = values.ok_or_else(|| broken("a dictionary array must have its dictionary"))?;
        Self::try_new(values, self.owner, self.memory)
    }
}

/// The array that `parts` describe, after the checks of lengths and buffer sizes, which do not read the values.
pub(super) fn assemble(parts: ArrayDataBuilder) -> Result<ArrayRef> {
    // SAFETY: sizes are checked on the next lines; that strings are UTF-8 is the producer's promise, as everywhere with the C Data interface.
    let mut data = unsafe { parts.build_unchecked() };
    data.align_buffers();
    data.validate().map_err(refused)?;
    Ok(make_array(data))
}

fn count(name: &str, number: i64) -> Result<usize> {
    usize::try_from(number).map_err(|_| {
        broken(format!(
            "{name} of an Arrow C array must be 0 or more, got {number}"
        ))
    })
}

/// Makes sure that `len` values from `start` on are among `num_values`.
pub(super) fn check_part(start: usize, len: usize, num_values: usize) -> Result<()> {
    if start.checked_add(len).is_some_and(|end| end <= num_values) {
        return Ok(());
    }
    Err(broken(format!(
        "a child must hold at least the {start} + {len} values of its parent, got {num_values}"
    )))
}

pub(super) fn too_large() -> Error {
    broken("a buffer must be smaller than the address space")
}

pub(super) fn broken(message: impl Into<String>) -> Error {
    Error::invalid_data(message)
}

/// What Arrow refuses of an imported array is the producer's fault.
pub(super) fn refused(error: ArrowError) -> Error {
    Error::invalid_data(error.to_string()).with_source(error)
}
