//! How many bytes the buffers of a C array hold.
//!
//! Comes in: a C array and its type. Goes out: a number; what only a device knows is read there, a few bytes of it. Never here: values.

use arrow::array::{BufferSpec, layout};
use arrow::datatypes::DataType;

use crate::device::node::{Node, too_large};
use crate::device::on_host::Memory;
use crate::error::Result;

/// Bytes of the buffers of an array and of those below it.
pub(super) fn num_bytes(
    node: &Node<'_>,
    data_type: &DataType,
    memory: Option<&Memory>,
) -> Result<u64> {
    let layout = layout(data_type);
    let mut buffers = 0..node.num_buffers()?;
    let mut bytes = 0_u64;
    if layout.can_contain_null_mask
        && let Some(index) = buffers.next()
        && node.handle(index) != 0
    {
        bytes = node.end().div_ceil(8) as u64;
    }
    // Text and lists have one offset more than values.
    let offsets = matches!(layout.buffers.as_slice(), [_, BufferSpec::VariableWidth])
        || matches!(
            data_type,
            DataType::List(_) | DataType::LargeList(_) | DataType::Map(..)
        );
    let num_values = node.end() + usize::from(offsets && node.end() > 0);
    let mut before = None;
    for (index, spec) in buffers.clone().zip(&layout.buffers) {
        let more = match spec {
            BufferSpec::FixedWidth { byte_width, .. } => {
                before = Some((index, *byte_width));
                num_values.checked_mul(*byte_width).ok_or_else(too_large)? as u64
            }
            BufferSpec::BitMap => node.end().div_ceil(8) as u64,
            BufferSpec::VariableWidth => match (before, memory) {
                (Some((offsets, width)), Some(memory)) if node.end() > 0 => {
                    let last = node.end().checked_mul(width).ok_or_else(too_large)?;
                    memory.number(node.handle(offsets), last, width)?
                }
                _ => 0,
            },
            BufferSpec::AlwaysNull => 0,
        };
        bytes = bytes.saturating_add(more);
    }
    if layout.variadic
        && let (Some(memory), Some(lengths)) = (memory, buffers.last())
    {
        for number in 0..lengths.saturating_sub(2) {
            let more = memory.number(node.handle(lengths), number * 8, 8)?;
            bytes = bytes.saturating_add(more);
        }
    }
    let below = types_below(data_type).into_iter().enumerate();
    for (index, data_type) in below {
        let child = match data_type {
            _ if node.has_dictionary() => node.dictionary()?,
            _ => node.child(index)?,
        };
        bytes = bytes.saturating_add(num_bytes(&child, data_type, memory)?);
    }
    Ok(bytes)
}

fn types_below(data_type: &DataType) -> Vec<&DataType> {
    match data_type {
        DataType::Struct(fields) => fields.iter().map(|field| field.data_type()).collect(),
        DataType::Union(fields, _) => fields.iter().map(|(_, field)| field.data_type()).collect(),
        DataType::List(field)
        | DataType::LargeList(field)
        | DataType::ListView(field)
        | DataType::LargeListView(field)
        | DataType::FixedSizeList(field, _)
        | DataType::Map(field, _) => vec![field.data_type()],
        DataType::RunEndEncoded(ends, values) => vec![ends.data_type(), values.data_type()],
        DataType::Dictionary(_, values) => vec![values],
        _ => Vec::new(),
    }
}
