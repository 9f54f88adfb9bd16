//! A grid in a few lines: for a prompt ([`summary`]) and for a notebook ([`html`]).

use super::svg::{escaped, svg};
use super::{Places, head_line, visible};
use crate::grid::PartitionGrid;

/// How many columns and how many places are named.
const NAMED_COLUMNS: usize = 24;
const NAMED_PLACES: usize = 4;

/// Shape, tiling, bytes, where the tiles are, and the schema. Never values; at most some 30 lines.
#[must_use]
pub fn summary(grid: &PartitionGrid) -> String {
    let mut lines = vec![format!("Grid of {}", head_line(grid))];
    lines.extend(places(grid).into_iter().map(|place| format!("  {place}")));
    let fields = grid.schema().fields();
    let named = fields.iter().take(NAMED_COLUMNS);
    let named: Vec<(String, String)> = named
        .map(|field| {
            let nullable = if field.is_nullable() { "" } else { " not null" };
            let kind = format!("{}{nullable}", field.data_type());
            (visible(field.name()), visible(&kind))
        })
        .collect();
    let widths = named.iter().map(|(name, _)| name.chars().count());
    let width = widths.max().unwrap_or(0);
    let columns = named.iter();
    lines.extend(columns.map(|(name, kind)| format!("  {name:width$}  {kind}")));
    if fields.len() > NAMED_COLUMNS {
        lines.push(format!(
            "  and {} more columns",
            fields.len() - NAMED_COLUMNS
        ));
    }
    lines.join("\n")
}

/// The picture of the tiles and, folded, the schema, as one HTML element without script or outside resources.
#[must_use]
pub fn html(grid: &PartitionGrid) -> String {
    let rows = grid.schema().fields().iter().map(|field| {
        let nullable = if field.is_nullable() { "" } else { "not null" };
        let (name, kind) = (
            escaped(field.name()),
            escaped(&field.data_type().to_string()),
        );
        format!("<tr><td>{name}</td><td>{kind}</td><td>{nullable}</td></tr>")
    });
    format!(
        "<div>{}<details><summary>{}</summary><table><tbody>{}</tbody></table></details></div>",
        svg(grid),
        super::counted(grid.num_columns() as u64, "column"),
        rows.collect::<String>()
    )
}

/// A line for each place, the last for those left out.
fn places(grid: &PartitionGrid) -> Vec<String> {
    let places = Places::of(grid);
    let all: Vec<String> = places.lines().chain(places.nowhere_line()).collect();
    let mut named: Vec<String> = all.iter().take(NAMED_PLACES).cloned().collect();
    if all.len() > NAMED_PLACES {
        named.push(format!("and {} more places", all.len() - NAMED_PLACES));
    }
    named
}
