//! How operators of ours over one input travel.
//!
//! Comes in: how a join looks up, or what is known of rows, or more of windows, or lists as they travel. Goes out: a message, and on the other side the same operator over the input that came with it. Never here: scans.

use std::sync::Arc;

use datafusion::error::Result;
use datafusion::execution::TaskContext;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion_proto::physical_plan::{PhysicalPlanDecodeContext, PhysicalProtoConverterExtension};
use datafusion_proto::protobuf::PhysicalExprNode;
use prost::Message;

use super::message::{Equal, FORMAT, Over, Window};
use super::{Codec, broken, check_format};
use crate::cluster::plan::known::{Class, Constant, KnownExec};
use crate::cluster::plan::lists::ListsExec;
use crate::cluster::plan::windows::{More, WindowsExec};
use crate::query::LookupExec;

impl Codec {
    /// What is written of an operator; nothing of one that is not ours, or has not one input.
    ///
    /// # Errors
    /// As the engine says, of expressions.
    pub(super) fn written_over(
        &self,
        node: &Arc<dyn ExecutionPlan>,
        converter: &dyn PhysicalProtoConverterExtension,
    ) -> Result<Option<Over>> {
        let mut message = Over {
            format: FORMAT,
            ..Over::default()
        };
        if let Some(lookup) = node.downcast_ref::<LookupExec>() {
            message.is_by_number = Some(lookup.is_by_number());
        } else if let Some(known) = node.downcast_ref::<KnownExec>() {
            let known = known.classes().iter();
            let known = known.map(|class| self.written_class(class, converter));
            message.known = known.collect::<Result<_>>()?;
        } else if let Some(windows) = node.downcast_ref::<WindowsExec>() {
            message.windows = windows.more().iter().map(written_more).collect();
        } else if let Some(lists) = node.downcast_ref::<ListsExec>() {
            message.are_views = Some(lists.are_views());
        } else {
            return Ok(None);
        }
        Ok(Some(message))
    }

    /// A join with how it looks up, or rows with what is known of them, or windows with what is not written of them, or lists as they travel.
    ///
    /// # Errors
    /// `InvalidData` for what does not fit together.
    pub(super) fn over(
        &self,
        buffer: &[u8],
        input: &Arc<dyn ExecutionPlan>,
        context: &TaskContext,
        converter: &dyn PhysicalProtoConverterExtension,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let message = Over::decode(buffer).map_err(|_| broken("its bytes"))?;
        check_format(message.format)?;
        if let Some(are_views) = message.are_views {
            return Ok(Arc::new(ListsExec::new(Arc::clone(input), are_views)));
        }
        if !message.windows.is_empty() {
            let more = message.windows.iter().map(more_of).collect();
            return Ok(Arc::new(WindowsExec::try_read(input, more)?));
        }
        let input = Arc::clone(input);
        let Some(is_by_number) = message.is_by_number else {
            let decoding = PhysicalPlanDecodeContext::new(context, self);
            let schema = input.schema();
            let classes = message.known.iter().map(|equal| {
                let parts = equal.parts.iter().map(|part| {
                    let node = PhysicalExprNode::decode(part.as_slice());
                    let node = node.map_err(|_| broken("what is known"))?;
                    converter.proto_to_physical_expr(&node, &schema, &decoding)
                });
                Ok(Class {
                    parts: parts.collect::<Result<_>>()?,
                    constant: constant_of(equal),
                })
            });
            let classes = classes.collect::<Result<_>>()?;
            return Ok(Arc::new(KnownExec::try_new(input, classes)?));
        };
        match input.is::<HashJoinExec>() {
            true => Ok(Arc::new(LookupExec::new(input, is_by_number))),
            false => Err(broken("a way to look up that is of no join")),
        }
    }

    fn written_class(
        &self,
        class: &Class,
        converter: &dyn PhysicalProtoConverterExtension,
    ) -> Result<Equal> {
        let parts = class.parts.iter().map(|part| {
            let node = converter.physical_expr_to_proto(part, self)?;
            Ok(node.encode_to_vec())
        });
        Ok(Equal {
            parts: parts.collect::<Result<_>>()?,
            is_constant: class.constant != Constant::No,
            is_everywhere: class.constant == Constant::Everywhere,
        })
    }
}

fn constant_of(equal: &Equal) -> Constant {
    match (equal.is_constant, equal.is_everywhere) {
        (false, _) => Constant::No,
        (true, false) => Constant::InEachPartition,
        (true, true) => Constant::Everywhere,
    }
}

fn written_more(more: &More) -> Window {
    Window {
        skips_nulls: more.skips_nulls,
        is_reversed: more.is_reversed,
    }
}

fn more_of(window: &Window) -> More {
    More {
        skips_nulls: window.skips_nulls,
        is_reversed: window.is_reversed,
    }
}
