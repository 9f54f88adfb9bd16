//! How a scan looks in a plan.
//!
//! Comes in: a scan. Goes out: one line: how many tiles it keeps and leaves out, by how near they are, its columns, conditions and order. Never here: what a run did (`count.rs`).

use std::fmt;
use std::sync::Arc;

use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType};

use super::GridScanExec;
use crate::query::running::metrics::LocalityMetrics;

/// Expressions with AND between them.
pub(super) fn joined(expressions: &[Arc<dyn PhysicalExpr>]) -> String {
    let texts: Vec<String> = expressions.iter().map(ToString::to_string).collect();
    texts.join(" AND ")
}

/// The tiles of one locality: `memory: 1 kept, 11 pruned`.
fn of_group(group: &LocalityMetrics) -> String {
    let counts = [
        (group.kept_tiles, "kept"),
        (group.pruned_tiles, "pruned"),
        (group.other_tiles(), "of other columns"),
    ];
    let counts = counts.iter().filter(|(count, _)| *count > 0);
    let counts: Vec<String> = counts
        .map(|(count, what)| format!("{count} {what}"))
        .collect();
    format!("{}: {}", group.locality, counts.join(", "))
}

impl DisplayAs for GridScanExec {
    fn fmt_as(&self, _: DisplayFormatType, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let groups = self.groups_of_tiles();
        let kept: u64 = groups.iter().map(|group| group.kept_tiles).sum();
        let all = self.facts.grid().tiles().len();
        let groups: Vec<String> = groups.iter().map(of_group).collect();
        let groups = groups.join("; ");
        let schema = self.narrow_schema();
        let names: Vec<&str> = schema
            .fields()
            .iter()
            .map(|field| field.name().as_str())
            .collect();
        let names = names.join(", ");
        let rows: u64 = self.bands().map(|(_, rows)| rows).sum();
        let shares = self.shares.len();
        write!(
            formatter,
            "GridScanExec: tiles={kept}/{all}, from=[{groups}], rows={rows}, shares={shares}, columns=[{names}]"
        )?;
        if let Some(limit) = self.limit {
            write!(formatter, ", limit={limit}")?;
        }
        if !self.conditions.is_empty() {
            write!(formatter, ", where={}", joined(&self.conditions))?;
        }
        match &self.learnt {
            Some(learnt) => write!(formatter, ", dynamic={learnt}")?,
            None if self.dynamic.is_empty() => {}
            None => write!(formatter, ", dynamic={}", joined(&self.dynamic))?,
        }
        if let Some(order) = self.properties.output_ordering() {
            write!(formatter, ", sorted_by=[{order}]")?;
        }
        if let Some(condition) = &self.kept.condition {
            write!(formatter, ", kept_where={condition}")?;
        }
        Ok(())
    }
}
