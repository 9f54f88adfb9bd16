//! Which rows change the task where parts of a grid end within a value.
//!
//! Comes in: what the tasks of a stage make, columns whose values are to lie apart, of scans whose tasks have values in common at their ends only. Goes out: the same, in which each task hands the few rows over that have values of another task, before
//! anything else is done with them: rows of one value are with one member, and need not be sent to meet. Where more than a few rows would have to be, nothing is changed. Never here: how rows are handed over (`border.rs`), which numbers belong to whom (`cuts.rs`), what follows from values
//! that lie apart (`fewer.rs`).

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::error::Result;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{BinaryExpr, Column, Literal, lit};
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};
use datafusion_distributed::{
    BroadcastExec, DistributedLeafExec, NetworkBoundary, NetworkBroadcastExec, Stage,
};

use super::border::{Border, BorderExec, value};
use super::cuts::{Bands, Part, Span, cut};
use super::together::{Made, sources};
use crate::query::GridScanExec;

/// How scans are cut.
pub(in crate::cluster) struct Borders<'a> {
    pub(in crate::cluster) num_tasks: usize,
    pub(in crate::cluster) batch_rows: usize,
    /// Scans of which somebody relies on which task has which rows.
    pub(in crate::cluster) relied: &'a [Arc<dyn ExecutionPlan>],
    /// A stage of the plan, as which those are that are added.
    pub(in crate::cluster) like: &'a Stage,
}

impl Borders<'_> {
    /// The plans, in which the values of these columns lie apart; `None` if that would take more than a few rows.
    ///
    /// # Errors
    /// As the engine says.
    pub(in crate::cluster) fn apart(
        &self,
        made: &[Made],
    ) -> Result<Option<Vec<Arc<dyn ExecutionPlan>>>> {
        let scans = made.iter().map(|(plan, column)| self.scan(plan, *column));
        let Some(scans) = scans.collect::<Option<Vec<Scan>>>() else {
            return Ok(None);
        };
        let parts: Vec<&Part> = scans.iter().map(|scan| &scan.part).collect();
        let Some(spans) = cut(&parts, self.num_tasks) else {
            return Ok(None);
        };
        let plans =
            made.iter()
                .zip(&scans)
                .map(|((plan, _), scan)| match scan.part.hands_over(&spans) {
                    false => Ok(Arc::clone(plan)),
                    true => replaced(plan, &scan.leaf, self.bordered(scan, &spans)?),
                });
        plans.collect::<Result<_>>().map(Some)
    }

    /// The scan that a column is read by.
    fn scan(&self, plan: &Arc<dyn ExecutionPlan>, column: usize) -> Option<Scan> {
        let (leaf, column) = scan_of(plan, column)?;
        if let Some(border) = leaf.downcast_ref::<BorderExec>() {
            let border = border.border();
            let spans = (border.column == column).then(|| border.spans.clone())?;
            let part = Part::fixed(spans);
            return Some(Scan { leaf, column, part });
        }
        let is_fixed = self.relied.iter().any(|other| Arc::ptr_eq(other, &leaf));
        let scans = leaf.downcast_ref::<DistributedLeafExec>()?.variants();
        let scans = scans.iter().map(|scan| scan.downcast_ref::<GridScanExec>());
        let scans = scans.collect::<Option<Vec<_>>>()?;
        let is_limited = scans.iter().any(|scan| scan.row_limit().is_some());
        if scans.len() != self.num_tasks || is_limited {
            return None;
        }
        let bands = scans.iter().map(|scan| {
            let number = scan.columns_out().get(column)?;
            Bands::of(scan.facts(), scan.kept_row_bands(), *number)
        });
        let part = Part::of(bands.collect::<Option<Vec<_>>>()?, is_fixed)?;
        Some(Scan { leaf, column, part })
    }

    /// A scan whose tasks hand over what has numbers of others.
    fn bordered(&self, scan: &Scan, spans: &[Option<Span>]) -> Result<Arc<dyn ExecutionPlan>> {
        let (part, column) = (&scan.part, scan.column);
        let Some(leaf) = scan.leaf.downcast_ref::<DistributedLeafExec>() else {
            return Ok(Arc::clone(&scan.leaf));
        };
        let num_shares = scan.leaf.output_partitioning().partition_count();
        let mut own: Vec<Arc<dyn ExecutionPlan>> = Vec::with_capacity(self.num_tasks);
        let mut handed: Vec<Arc<dyn ExecutionPlan>> = Vec::with_capacity(self.num_tasks);
        let tasks = leaf.variants().iter().zip(&part.bands).zip(spans);
        for ((variant, bands), span) in tasks {
            let Some(read) = variant.downcast_ref::<GridScanExec>() else {
                return Ok(Arc::clone(&scan.leaf));
            };
            let key = key_of(read, column);
            let kept = bands.kept(*span);
            let inside = ends(&key, bands, *span, Side::Inside)?;
            own.push(Arc::new(read.part_where(
                kept,
                inside,
                num_shares,
                self.batch_rows,
            )?));
            let given = bands.given(*span);
            let outside = ends(&key, bands, *span, Side::Outside)?;
            let outside = outside.into_iter().reduce(|one, other| {
                Arc::new(BinaryExpr::new(one, Operator::Or, other)) as Arc<dyn PhysicalExpr>
            });
            let outside = outside.into_iter().collect();
            handed.push(Arc::new(read.part_where(
                given,
                outside,
                1,
                self.batch_rows,
            )?));
        }
        let original = Arc::clone(leaf.original());
        let own = DistributedLeafExec::try_new(Arc::clone(&original), own)?;
        let handed = DistributedLeafExec::try_new(original, handed)?;
        let border = Border {
            column,
            spans: part.within(spans),
            firsts: part.firsts(),
        };
        let handed = self.sent_to_all(Arc::new(handed))?;
        let bordered = BorderExec::new(Arc::new(own), handed, Arc::new(border));
        Ok(Arc::new(bordered))
    }

    /// What all tasks make, sent to all of them: a stage more, whose number is still to be given.
    fn sent_to_all(&self, leaf: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
        let Stage::Local(mut stage) = self.like.clone() else {
            return Ok(leaf);
        };
        stage.tasks = self.num_tasks;
        stage.plan = Arc::new(BroadcastExec::new(Arc::clone(&leaf), self.num_tasks));
        let to_one = Arc::new(BroadcastExec::new(leaf, 1));
        let sent = NetworkBroadcastExec::try_new(to_one, self.num_tasks)?;
        Ok(sent.with_input_stage(Stage::Local(stage))? as Arc<dyn ExecutionPlan>)
    }
}

/// A scan, and the column of it whose values are to lie apart.
struct Scan {
    leaf: Arc<dyn ExecutionPlan>,
    column: usize,
    part: Part,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Inside,
    Outside,
}

/// The column by which rows are told apart, with its type.
type Key = (Arc<dyn PhysicalExpr>, DataType);

fn key_of(scan: &GridScanExec, column: usize) -> Key {
    let schema = scan.schema();
    let field = schema.field(column);
    let key = Arc::new(Column::new(field.name(), column));
    (key, field.data_type().clone())
}

/// Conditions on the number of a row at the ends of a task that rows of the row bands lie beyond: on which side it is.
fn ends(
    key: &Key,
    bands: &Bands,
    span: Option<Span>,
    side: Side,
) -> Result<Vec<Arc<dyn PhysicalExpr>>> {
    let Some(span) = span else {
        return Ok(Vec::new());
    };
    let (before, behind) = bands.beyond(span);
    let (first, last) = match side {
        Side::Inside => (Operator::GtEq, Operator::LtEq),
        Side::Outside => (Operator::Lt, Operator::Gt),
    };
    let ends = [(before, first, span.0), (behind, last, span.1)];
    let ends = ends.into_iter().filter(|(is_beyond, ..)| *is_beyond);
    let ends = ends.map(|(_, operator, end)| {
        let Ok(end) = value(end, &key.1) else {
            // All numbers of the type are on one side of it.
            let is_less = matches!(operator, Operator::Lt | Operator::LtEq);
            return Ok(lit(is_less == (end > 0)));
        };
        let end = Arc::new(Literal::new(end));
        let compared = BinaryExpr::new(Arc::clone(&key.0), operator, end);
        Ok(Arc::new(compared) as Arc<dyn PhysicalExpr>)
    });
    ends.collect()
}

/// The scan by which a column is read in the same task, and its place there.
fn scan_of(
    plan: &Arc<dyn ExecutionPlan>,
    column: usize,
) -> Option<(Arc<dyn ExecutionPlan>, usize)> {
    if plan.is::<DistributedLeafExec>() || plan.is::<BorderExec>() {
        return Some((Arc::clone(plan), column));
    }
    let mut sources = sources(plan, column).into_iter();
    sources.find_map(|(input, column)| scan_of(&input, column))
}

/// The plan with another scan in place of one.
fn replaced(
    plan: &Arc<dyn ExecutionPlan>,
    scan: &Arc<dyn ExecutionPlan>,
    by: Arc<dyn ExecutionPlan>,
) -> Result<Arc<dyn ExecutionPlan>> {
    let replaced = Arc::clone(plan).transform_down(|node| match Arc::ptr_eq(&node, scan) {
        true => Ok(Transformed::new(
            Arc::clone(&by),
            true,
            TreeNodeRecursion::Jump,
        )),
        false => Ok(Transformed::no(node)),
    });
    replaced.data()
}
