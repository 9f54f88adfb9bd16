//! How operators of ours over two inputs travel.
//!
//! Comes in: which rows belong to which task, or what the nearest row is. Goes out: a message, and on the other side the same operator over the inputs that came with it. Never here: scans.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::error::Result;
use datafusion::physical_plan::ExecutionPlan;
use prost::Message;

use super::message::{Bordered, FORMAT, NearestRow, Numbers, OverTwo};
use super::{broken, check_format, small};
use crate::cluster::plan::border::{Border, BorderExec};
use crate::query::{AsofJoinExec, Nearest};

/// What is written of an operator; nothing of one that is not ours, or has not two inputs.
///
/// # Errors
/// For places of columns beyond what there can be.
pub(super) fn written(node: &Arc<dyn ExecutionPlan>) -> Result<Option<OverTwo>> {
    let mut message = OverTwo {
        format: FORMAT,
        ..OverTwo::default()
    };
    if let Some(bordered) = node.downcast_ref::<BorderExec>() {
        message.border = Some(written_border(bordered.border())?);
    } else if let Some(join) = node.downcast_ref::<AsofJoinExec>() {
        message.nearest = Some(written_nearest(join.nearest())?);
    } else {
        return Ok(None);
    }
    Ok(Some(message))
}

/// The operator over two inputs.
///
/// # Errors
/// `InvalidData` for what does not fit together.
pub(super) fn read(
    buffer: &[u8],
    one: &Arc<dyn ExecutionPlan>,
    other: &Arc<dyn ExecutionPlan>,
) -> Result<Arc<dyn ExecutionPlan>> {
    let message = OverTwo::decode(buffer).map_err(|_| broken("its bytes"))?;
    check_format(message.format)?;
    match (message.border, message.nearest) {
        (Some(border), None) => bordered(&border, one, other),
        (None, Some(nearest)) => joined(&nearest, one, other),
        _ => Err(broken("what is done with two inputs")),
    }
}

/// A nearest join.
fn joined(
    message: &NearestRow,
    left: &Arc<dyn ExecutionPlan>,
    right: &Arc<dyn ExecutionPlan>,
) -> Result<Arc<dyn ExecutionPlan>> {
    if message.left.len() != message.right.len() {
        return Err(broken("the columns of a nearest join"));
    }
    let pairs = message.left.iter().zip(&message.right);
    let mut pairs: Vec<_> = pairs
        .map(|(left, right)| (*left as usize, *right as usize))
        .collect();
    let compared = pairs
        .pop()
        .ok_or_else(|| broken("the columns of a nearest join"))?;
    let nearest = Nearest {
        equal: pairs,
        compared,
        is_next: message.is_next,
        is_other: message.is_other,
        keeps_left: message.keeps_left,
    };
    let (left, right) = (Arc::clone(left), Arc::clone(right));
    Ok(Arc::new(AsofJoinExec::try_new(left, right, nearest)?))
}

fn written_nearest(nearest: &Nearest) -> Result<NearestRow> {
    let pairs = || nearest.equal.iter().chain([&nearest.compared]);
    Ok(NearestRow {
        left: pairs().map(|pair| small(pair.0)).collect::<Result<_>>()?,
        right: pairs().map(|pair| small(pair.1)).collect::<Result<_>>()?,
        is_next: nearest.is_next,
        is_other: nearest.is_other,
        keeps_left: nearest.keeps_left,
    })
}

/// A scan whose rows at borders are handed over.
fn bordered(
    message: &Bordered,
    own: &Arc<dyn ExecutionPlan>,
    handed: &Arc<dyn ExecutionPlan>,
) -> Result<Arc<dyn ExecutionPlan>> {
    let column = message.column as usize;
    let schema = own.schema();
    let kind = schema.fields().get(column).map(|field| field.data_type());
    if !kind.is_some_and(DataType::is_integer) || handed.schema().fields() != schema.fields() {
        return Err(broken("a border of no column of whole numbers"));
    }
    let spans = message
        .spans
        .iter()
        .map(|span| match span.first.is_empty() {
            true => Ok(None),
            false => Ok(Some((whole(&span.first)?, whole(&span.last)?))),
        });
    let firsts = message.firsts.iter().map(|first| whole(first));
    let firsts: Vec<i128> = firsts.collect::<Result<_>>()?;
    let border = Border {
        column,
        spans: spans.collect::<Result<_>>()?,
        firsts: (!firsts.is_empty()).then_some(firsts),
    };
    let (own, handed) = (Arc::clone(own), Arc::clone(handed));
    Ok(Arc::new(BorderExec::new(own, handed, Arc::new(border))))
}

fn whole(bytes: &[u8]) -> Result<i128> {
    let bytes: [u8; 16] = bytes.try_into().map_err(|_| broken("a whole number"))?;
    Ok(i128::from_le_bytes(bytes))
}

fn written_border(border: &Border) -> Result<Bordered> {
    let bytes = |number: &i128| number.to_le_bytes().to_vec();
    let spans = border.spans.iter().map(|span| match span {
        None => Numbers::default(),
        Some((first, last)) => Numbers {
            first: bytes(first),
            last: bytes(last),
        },
    });
    let firsts = border.firsts.iter().flatten();
    Ok(Bordered {
        column: small(border.column)?,
        spans: spans.collect(),
        firsts: firsts.map(bytes).collect(),
    })
}
