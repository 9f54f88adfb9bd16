//! Which rows change the task where parts of a grid end within a value.
//!
//! Comes in: what the tasks of a stage make, columns whose values are to lie apart, of scans whose tasks have values in common at their ends only. Goes out: the same, in which each task hands the few rows over that have values of another task, before
//! anything else is done with them: rows of one value are with one member, and need not be sent to meet. Where more than a few rows would have to be, nothing is changed. Never here: how rows are handed over (`border.rs`), what follows from values
//! that lie apart (`fewer.rs`).

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::error::Result;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{BinaryExpr, Column, Literal};
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};
use datafusion_distributed::{
    BroadcastExec, DistributedLeafExec, NetworkBoundary, NetworkBoundaryExt, NetworkBroadcastExec,
    Stage,
};

use super::border::{Border, BorderExec, Span, value};
use super::together::{Made, sources};
use crate::query::GridScanExec;

/// One row of so many may be handed over.
const ONE_OF: u64 = 32;
/// And no more than so many, which are kept in memory where they arrive.
const MOST_ROWS: u64 = 250_000;
/// Scans of fewer rows hand none over: sending all of them costs as little as one more stage.
const LEAST_ROWS: u64 = 50_000;

/// How scans are cut.
pub(super) struct Borders<'a> {
    pub(super) num_tasks: usize,
    pub(super) batch_rows: usize,
    /// Scans of which somebody relies on which task has which rows.
    pub(super) relied: &'a [Arc<dyn ExecutionPlan>],
    /// A stage of the plan, as which those are that are added.
    pub(super) like: &'a Stage,
}

impl Borders<'_> {
    /// The plans, in which the values of these columns lie apart; `None` if they do already, or cannot for little.
    ///
    /// # Errors
    /// As the engine says.
    pub(super) fn apart(&self, made: &[Made]) -> Result<Option<Vec<Arc<dyn ExecutionPlan>>>> {
        let parts = made.iter().map(|(plan, column)| self.part(plan, *column));
        let Some(parts) = parts.collect::<Option<Vec<Part>>>() else {
            return Ok(None);
        };
        let Some(spans) = self.spans(&parts) else {
            return Ok(None);
        };
        let handed = parts.iter().map(|part| part.handed(&spans));
        let is_worth_it = |rows: &Vec<u64>| {
            let all: u64 = rows.iter().sum();
            all > 0
                && parts
                    .iter()
                    .zip(rows)
                    .all(|(part, rows)| *rows <= part.may_hand())
        };
        if !handed
            .collect::<Option<Vec<u64>>>()
            .is_some_and(|rows| is_worth_it(&rows))
        {
            return Ok(None);
        }
        let plans = made
            .iter()
            .zip(&parts)
            .map(|((plan, _), part)| match part.handed(&spans) {
                None | Some(0) => Ok(Arc::clone(plan)),
                Some(_) => replaced(plan, &part.leaf, self.bordered(part, &spans)?),
            });
        plans.collect::<Result<_>>().map(Some)
    }

    /// The scan that a column is read by.
    fn part(&self, plan: &Arc<dyn ExecutionPlan>, column: usize) -> Option<Part> {
        let (leaf, column) = scan_of(plan, column)?;
        let is_fixed = self.relied.iter().any(|other| Arc::ptr_eq(other, &leaf));
        if let Some(border) = leaf.downcast_ref::<BorderExec>() {
            let border = border.border();
            let spans = (border.column == column).then(|| border.spans.clone())?;
            return Some(Part {
                leaf,
                column,
                bands: Vec::new(),
                spans,
                is_fixed: true,
            });
        }
        let scans = leaf.downcast_ref::<DistributedLeafExec>()?.variants();
        let scans = scans.iter().map(|scan| scan.downcast_ref::<GridScanExec>());
        let scans = scans.collect::<Option<Vec<_>>>()?;
        let is_limited = scans.iter().any(|scan| scan.row_limit().is_some());
        if scans.len() != self.num_tasks || is_limited {
            return None;
        }
        let bands = scans.iter().map(|scan| Bands::of(scan, column));
        let bands = bands.collect::<Option<Vec<_>>>()?;
        // What all read whole is nobody's to hand over.
        let mut read: Vec<usize> = bands.iter().flat_map(Bands::numbers).collect();
        read.sort_unstable();
        if read.windows(2).any(|pair| pair.first() == pair.last()) {
            return None;
        }
        let spans = bands.iter().map(Bands::span).collect();
        Some(Part {
            leaf,
            column,
            bands,
            spans,
            is_fixed,
        })
    }

    /// The numbers of each task: those of the scan that stays as it is, or of the one with most rows; of tasks that have none of it, those of the others.
    fn spans(&self, parts: &[Part]) -> Option<Vec<Option<Span>>> {
        let fixed = parts.iter().find(|part| part.is_fixed);
        let leading = fixed.or_else(|| parts.iter().max_by_key(|part| part.num_rows()))?;
        let of_task = |task: usize| {
            let spans = |part: &Part| part.spans.get(task).copied().flatten();
            spans(leading).or_else(|| parts.iter().filter_map(spans).reduce(both))
        };
        let spans = (0..self.num_tasks).map(of_task);
        let spans: Vec<Option<Span>> = spans.collect();
        let mut tasks: Vec<usize> = (0..self.num_tasks).collect();
        tasks.retain(|task| spans.get(*task).is_some_and(Option::is_some));
        tasks.sort_by_key(|task| spans.get(*task).copied().flatten());
        let mut cut = vec![None; self.num_tasks];
        let mut first = i128::MIN;
        for (place, task) in tasks.iter().enumerate() {
            let (_, greatest) = spans.get(*task).copied().flatten()?;
            let last = match place + 1 == tasks.len() {
                true => i128::MAX,
                false => greatest,
            };
            if let Some(span) = cut.get_mut(*task) {
                *span = (first <= last).then_some((first, last));
            }
            first = first.max(last.saturating_add(1));
        }
        Some(cut)
    }

    /// A scan whose tasks hand over what has numbers of others.
    fn bordered(&self, part: &Part, spans: &[Option<Span>]) -> Result<Arc<dyn ExecutionPlan>> {
        let Some(leaf) = part.leaf.downcast_ref::<DistributedLeafExec>() else {
            return Ok(Arc::clone(&part.leaf));
        };
        let num_shares = part.leaf.output_partitioning().partition_count();
        let mut own: Vec<Arc<dyn ExecutionPlan>> = Vec::with_capacity(self.num_tasks);
        let mut handed: Vec<Arc<dyn ExecutionPlan>> = Vec::with_capacity(self.num_tasks);
        let tasks = leaf.variants().iter().zip(&part.bands).zip(spans);
        for ((variant, bands), span) in tasks {
            let Some(scan) = variant.downcast_ref::<GridScanExec>() else {
                return Ok(Arc::clone(&part.leaf));
            };
            let key = key_of(scan, part.column)?;
            let kept = bands.kept(*span);
            let inside = ends(&key, bands, *span, Side::Inside)?;
            own.push(Arc::new(scan.part_where(
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
            handed.push(Arc::new(scan.part_where(
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
            column: part.column,
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

/// The row bands that a task reads, and their numbers.
struct Bands(Vec<Band>);

struct Band {
    number: usize,
    rows: u64,
    span: Span,
}

impl Bands {
    fn of(scan: &GridScanExec, column: usize) -> Option<Self> {
        let bands = scan.kept_row_bands();
        if bands.is_empty() {
            return Some(Self(Vec::new()));
        }
        let [least, greatest] = scan.numbers_of_bands(column)?;
        let rows = scan.grid().rows();
        let bands = bands.iter().zip(least.into_iter().zip(greatest));
        let bands = bands.map(|(number, span)| {
            let rows = rows.interval(*number)?;
            Some(Band {
                number: *number,
                rows: rows.end - rows.start,
                span,
            })
        });
        bands.collect::<Option<_>>().map(Self)
    }

    fn numbers(&self) -> impl Iterator<Item = usize> + '_ {
        self.0.iter().map(|band| band.number)
    }

    fn span(&self) -> Option<Span> {
        self.0.iter().map(|band| band.span).reduce(both)
    }

    /// Those with rows of the task.
    fn kept(&self, span: Option<Span>) -> Vec<usize> {
        let kept = self.0.iter();
        let kept = kept.filter(|band| span.is_some_and(|span| common(band.span, span).is_some()));
        kept.map(|band| band.number).collect()
    }

    /// Those with rows of other tasks.
    fn given(&self, span: Option<Span>) -> Vec<usize> {
        let given = self.0.iter();
        let given = given.filter(|band| !span.is_some_and(|span| is_inside(band.span, span)));
        given.map(|band| band.number).collect()
    }

    /// About how many of their rows are those of other tasks, as if numbers came at even distances.
    fn handed(&self, span: Option<Span>) -> u64 {
        let handed = self.0.iter().map(|band| {
            let inside = span.and_then(|span| common(band.span, span));
            let (inside, all) = (inside.map_or(0, length), length(band.span));
            let handed = u128::from(band.rows).saturating_mul(all.saturating_sub(inside));
            u64::try_from(handed.div_ceil(all)).unwrap_or(u64::MAX)
        });
        handed.fold(0, u64::saturating_add)
    }

    /// Whether some of their rows are before the first number of a task, and behind the last.
    fn beyond(&self, span: Span) -> (bool, bool) {
        let all = self.span().unwrap_or(span);
        (all.0 < span.0, all.1 > span.1)
    }
}

/// A scan, and the column of it whose values are to lie apart.
struct Part {
    leaf: Arc<dyn ExecutionPlan>,
    column: usize,
    /// For each task; none of a scan of which rows are handed over already.
    bands: Vec<Bands>,
    /// The least and the greatest number of each task.
    spans: Vec<Option<Span>>,
    /// Whether it stays as it is.
    is_fixed: bool,
}

impl Part {
    fn num_rows(&self) -> u64 {
        let bands = self.bands.iter().flat_map(|bands| &bands.0);
        bands.map(|band| band.rows).fold(0, u64::saturating_add)
    }

    fn may_hand(&self) -> u64 {
        let rows = self.num_rows();
        match rows < LEAST_ROWS {
            true => 0,
            false => MOST_ROWS.min(rows / ONE_OF),
        }
    }

    /// About how many rows tasks have to hand over; `None` if they cannot.
    fn handed(&self, spans: &[Option<Span>]) -> Option<u64> {
        if self.is_fixed {
            let mut own = self.spans.iter().zip(spans);
            let stays = own.all(|(own, span)| match (own, span) {
                (None, _) => true,
                (Some(own), Some(span)) => is_inside(*own, *span),
                (Some(_), None) => false,
            });
            return stays.then_some(0);
        }
        let tasks = self.bands.iter().zip(spans);
        let handed = tasks.map(|(bands, span)| bands.handed(*span));
        Some(handed.fold(0, u64::saturating_add))
    }

    /// The numbers of each task, of those that there are.
    fn within(&self, spans: &[Option<Span>]) -> Vec<Option<Span>> {
        let all = self.spans.iter().copied().flatten().reduce(both);
        let within = |span: &Option<Span>| common((*span)?, all?);
        spans.iter().map(within).collect()
    }

    /// The least number of each task, if tasks have at most their ends in common, so that rows of others come before or behind all of its own.
    fn firsts(&self) -> Option<Vec<i128>> {
        let mut spans: Vec<Span> = self.spans.iter().copied().flatten().collect();
        spans.sort_unstable();
        let mut pairs = spans.windows(2);
        let touch = pairs.all(|pair| matches!(pair, [one, next] if one.1 <= next.0));
        let firsts = self.spans.iter();
        let firsts = firsts.map(|span| span.map_or(i128::MAX, |(first, _)| first));
        touch.then(|| firsts.collect())
    }
}

fn both(one: Span, other: Span) -> Span {
    (one.0.min(other.0), one.1.max(other.1))
}

fn common(one: Span, other: Span) -> Option<Span> {
    let common = (one.0.max(other.0), one.1.min(other.1));
    (common.0 <= common.1).then_some(common)
}

fn is_inside(one: Span, other: Span) -> bool {
    common(one, other) == Some(one)
}

fn length(span: Span) -> u128 {
    span.1.abs_diff(span.0).saturating_add(1)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Inside,
    Outside,
}

/// The column by which rows are told apart, with its type.
type Key = (Arc<dyn PhysicalExpr>, DataType);

fn key_of(scan: &GridScanExec, column: usize) -> Result<Key> {
    let schema = scan.schema();
    let field = schema.field(column);
    let key = Arc::new(Column::new(field.name(), column));
    Ok((key, field.data_type().clone()))
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
        let end = Arc::new(Literal::new(value(end, &key.1)?));
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
