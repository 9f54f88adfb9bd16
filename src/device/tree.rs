//! C arrays whose buffers lie on a device.
//!
//! Comes in: an array of the host, whose buffers are put on a device one by one, or the C array of another library. Goes out: a C array over the buffers of the device, which keeps
//! their owner until it is released. Its children may be moved out of it, as the C Data interface allows. Never here: reading of what lies on a device.

#![expect(unsafe_code, reason = "fills C structs and is called to release them")]

use std::any::Any;
use std::ffi::c_void;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, ArrayData, AsArray, MutableArrayData, layout, make_array};
use arrow::datatypes::DataType;
use arrow::ffi::FFI_ArrowArray;

use crate::device::node::{Node, broken};
use crate::error::Result;

/// What keeps the buffers alive.
pub(super) type Owner = Arc<dyn Any + Send + Sync>;

/// Bytes that an array may hold beyond its own values before it is rebuilt without them.
const MAX_SLACK_BYTES: usize = 64 * 1024;

/// One array of a tree, as the C struct will say it. Buffers are what the driver knows them by; 0 is an absent one.
pub(super) struct Part {
    len: usize,
    null_count: i64,
    offset: usize,
    buffers: Vec<usize>,
    children: Vec<Part>,
    dictionary: Option<Box<Part>>,
}

/// An array of a type of one width. Buffers are as in [`Part`].
pub(super) struct FixedWidth {
    /// How many values of the buffers come before the first one.
    pub(super) offset: usize,
    /// -1 when nobody has counted.
    pub(super) declared_nulls: i64,
    pub(super) validity: usize,
    pub(super) values: usize,
}

impl Part {
    /// A struct of some rows of the columns, without nulls of its own.
    pub(super) fn of_columns(rows: Range<usize>, columns: Vec<Self>) -> Self {
        Self {
            len: rows.len(),
            null_count: 0,
            offset: rows.start,
            buffers: vec![0],
            children: columns,
            dictionary: None,
        }
    }

    /// The tree of an imported C array.
    pub(super) fn of_node(node: &Node<'_>) -> Result<Self> {
        let num_buffers = node.num_buffers()?;
        let children = (0..node.num_children()?).map(|index| Self::of_node(&node.child(index)?));
        let children: Result<Vec<Self>> = children.collect();
        let dictionary = match node.has_dictionary() {
            true => Some(Box::new(Self::of_node(&node.dictionary()?)?)),
            false => None,
        };
        Ok(Self {
            len: node.len(),
            null_count: node.declared_nulls(),
            offset: node.offset(),
            buffers: (0..num_buffers).map(|index| node.handle(index)).collect(),
            children: children?,
            dictionary,
        })
    }

    /// What an array of a type of one width is made of.
    pub(super) fn fixed_width(&self) -> Result<FixedWidth> {
        match self.buffers.as_slice() {
            [validity, values] if self.children.is_empty() => Ok(FixedWidth {
                offset: self.offset,
                declared_nulls: self.null_count,
                validity: *validity,
                values: *values,
            }),
            other => Err(broken(format!(
                "the type wants 2 buffers and 0 children, got {} and {}",
                other.len(),
                self.children.len()
            ))),
        }
    }

    /// Some of its values, over the same buffers.
    pub(super) fn sliced(self, start: usize, len: usize) -> Result<Self> {
        let end = start.checked_add(len);
        if end.is_none_or(|end| end > self.len) {
            return Err(broken(format!(
                "a column must have the rows of its batch, {len} from {start} on, got {} in all",
                self.len
            )));
        }
        let is_whole = len == self.len;
        let null_count = match self.null_count {
            0 => 0,
            count if is_whole => count,
            _ => -1,
        };
        Ok(Self {
            len,
            null_count,
            offset: self.offset + start,
            ..self
        })
    }

    /// Puts the buffers of an array of the host on a device, without what the array does not use of them.
    pub(super) fn put(
        data: &ArrayData,
        put: &mut dyn FnMut(&[u8]) -> Result<usize>,
    ) -> Result<Self> {
        let data = &settled(data)?;
        let layout = layout(data.data_type());
        let nulls = data.nulls().filter(|nulls| nulls.null_count() > 0);
        let mut buffers = Vec::new();
        if layout.can_contain_null_mask {
            buffers.push(match nulls {
                Some(nulls) => put(nulls.inner().sliced().as_slice())?,
                None => 0,
            });
        }
        let mut put_all = |buffer: &[u8]| match buffer {
            [] => Ok(0),
            bytes => put(bytes),
        };
        for buffer in data.buffers() {
            buffers.push(put_all(buffer.as_slice())?);
        }
        if layout.variadic {
            let lengths = data.buffers().iter().skip(1);
            let lengths: Vec<u8> = lengths
                .flat_map(|buffer| (buffer.len() as u64).to_ne_bytes())
                .collect();
            buffers.push(put_all(&lengths)?);
        }
        let mut below = data.child_data().iter().map(|child| Self::put(child, put));
        let dictionary = match data.data_type() {
            DataType::Dictionary(..) => below.next().transpose()?.map(Box::new),
            _ => None,
        };
        Ok(Self {
            len: data.len(),
            null_count: nulls.map_or(0, |nulls| i64::try_from(nulls.null_count()).unwrap_or(-1)),
            offset: data.offset(),
            children: below.collect::<Result<_>>()?,
            buffers,
            dictionary,
        })
    }

    /// The C array, which keeps `owner` until it and all children that were moved out of it are released.
    pub(super) fn into_c(self, owner: &Owner) -> Result<FFI_ArrowArray> {
        let boxed = |part: Self| -> Result<_> { Ok(Box::into_raw(Box::new(part.into_c(owner)?))) };
        let length = i64::try_from(self.len).map_err(|_| broken("an array is too long"))?;
        let offset = i64::try_from(self.offset).map_err(|_| broken("an offset is too large"))?;
        let mut private = Box::new(Private {
            _owner: Arc::clone(owner),
            buffers: (self.buffers.into_iter())
                .map(std::ptr::with_exposed_provenance)
                .collect(),
            children: Vec::with_capacity(self.children.len()),
            dictionary: std::ptr::null_mut(),
        });
        // A part that fails leaves those before it to `Private`, which frees them.
        for child in self.children {
            private.children.push(boxed(child)?);
        }
        if let Some(dictionary) = self.dictionary {
            private.dictionary = boxed(*dictionary)?;
        }
        let count = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
        Ok(FFI_ArrowArray {
            length,
            null_count: self.null_count,
            offset,
            n_buffers: count(private.buffers.len()),
            n_children: count(private.children.len()),
            buffers: private.buffers.as_mut_ptr(),
            children: private.children.as_mut_ptr(),
            dictionary: private.dictionary,
            release: Some(release),
            private_data: Box::into_raw(private).cast(),
        })
    }
}

/// What a C array of ours points to.
struct Private {
    _owner: Owner,
    buffers: Vec<*const c_void>,
    children: Vec<*mut FFI_ArrowArray>,
    dictionary: *mut FFI_ArrowArray,
}

impl Drop for Private {
    fn drop(&mut self) {
        let below = self.children.drain(..).chain([self.dictionary]);
        for array in below.filter(|array| !array.is_null()) {
            // SAFETY: `into_c` made the box, and it is freed once. Dropping the array releases it, unless a consumer has moved it out.
            drop(unsafe { Box::from_raw(array) });
        }
    }
}

unsafe extern "C" fn release(array: *mut FFI_ArrowArray) {
    // SAFETY: the consumer calls this with the array that it is part of.
    let Some(array) = (unsafe { array.as_mut() }) else {
        return;
    };
    let private = std::mem::replace(&mut array.private_data, std::ptr::null_mut());
    array.release = None;
    if !private.is_null() {
        // SAFETY: `into_c` put the box there, and the pointer is null from now on.
        drop(unsafe { Box::from_raw(private.cast::<Private>()) });
    }
}

/// The same values without an offset, and without much else in their buffers.
fn settled(data: &ArrayData) -> Result<ArrayData> {
    // Runs carry their offset along: their buffers are those of their children.
    if matches!(data.data_type(), DataType::RunEndEncoded(..)) {
        return Ok(data.clone());
    }
    let needed = data.get_slice_memory_size().unwrap_or(usize::MAX);
    let held = data.get_buffer_memory_size();
    if data.offset() == 0 && held <= needed.saturating_add(needed / 4 + MAX_SLACK_BYTES) {
        return Ok(data.clone());
    }
    Ok(match data.data_type() {
        DataType::Utf8View => make_array(data.clone()).as_string_view().gc().to_data(),
        DataType::BinaryView => make_array(data.clone()).as_binary_view().gc().to_data(),
        _ => {
            let mut copy = MutableArrayData::new(vec![data], false, data.len());
            copy.try_extend(0, 0, data.len())?;
            copy.freeze()
        }
    })
}
