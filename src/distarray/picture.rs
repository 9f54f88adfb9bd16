//! A distribution drawn: which rank has which elements.
//!
//! Comes in: a distribution. Goes out: one `<svg>` element: of one dimension a line for each rank, of two a plane of elements with the number of the rank that owns them, of more the first such
//! plane. Padding is drawn for one dimension. Never here: names from elsewhere; elements one by one where there are too many.

use crate::distarray::distribution::Distribution;
use crate::distarray::map::Map;
use crate::distarray::version::Version;
use crate::grid::Axis;
use crate::grid::picture::{counted, thousands};

/// How many cells are drawn along a dimension at most.
const MAX_CELLS: usize = 48;
/// How many ranks have a line of their own at most.
const MAX_LINES: usize = 24;
/// Width and height of a cell, in pixels.
const SIDE: f64 = 16.0;
/// Width of all cells together where they are drawn to scale, in pixels.
const SCALE: f64 = 480.0;
/// The least width of a cell that is drawn to scale, in pixels.
const LEAST: f64 = 3.0;
/// Of how many cells one has its index above it.
const EVERY: usize = 5;
/// Height of a line of text, in pixels.
const LINE: f64 = 14.0;
/// Width of what stands before a line, in pixels.
const LABEL: f64 = 52.0;
/// The colours of Okabe and Ito, which people with any kind of colour vision tell apart, without the yellow that white pages swallow.
const COLOURS: [&str; 6] = [
    "#56b4e9", "#e69f00", "#009e73", "#cc79a7", "#0072b2", "#d55e00",
];

impl Distribution {
    /// The distribution as an inline SVG. Each cell tells its global index when pointed at. Along a dimension of more than 48 indices, blocks are drawn to scale, and of other distributions
    /// the first 48 indices; the picture says so.
    #[must_use]
    pub fn plot(&self) -> String {
        let sides: Vec<Side> = self.maps().iter().map(Side::of).collect();
        let shape: Vec<String> = self.shape().iter().map(|size| thousands(*size)).collect();
        let mut captions = vec![format!(
            "{} on {}",
            match shape.as_slice() {
                [] => "1 element".to_owned(),
                [one] => format!("{one} elements"),
                several => format!("{} elements", several.join(" x ")),
            },
            counted(self.num_ranks() as u64, "rank")
        )];
        captions.extend(sides.iter().enumerate().filter_map(|(dimension, side)| {
            let note = side.note.as_ref()?;
            Some(match sides.len() {
                1 => note.clone(),
                _ => format!("dimension {dimension}: {note}"),
            })
        }));
        let drawn = match (self.maps(), sides.as_slice()) {
            ([], _) => Drawn::single(),
            ([map], [side]) => lines(map, side, &mut captions),
            (_, [down, across, rest @ ..]) => {
                if !rest.is_empty() {
                    captions.push("index 0 along the other dimensions".to_owned());
                }
                self.plane(down, across)
            }
            _ => Drawn::default(),
        };
        drawn.framed(&captions)
    }

    /// The elements along the first two dimensions, at the first index of the others.
    fn plane(&self, down: &Side, across: &Side) -> Drawn {
        let mut drawn = Drawn::default();
        let firsts: Vec<i64> = self
            .maps()
            .iter()
            .skip(2)
            .map(|map| Side::of(map).first())
            .collect();
        let mut y = 0.0;
        for row in &down.cells {
            let mut x = 0.0;
            for column in &across.cells {
                let mut index = vec![row.index, column.index];
                index.extend(&firsts);
                if let Some((rank, local)) = self.locate(&index) {
                    drawn.cell(
                        &Cell {
                            x,
                            y,
                            width: column.width,
                            height: row.width,
                        },
                        rank,
                        Kind::Owned,
                        &format!(
                            "({}, {}): rank {rank}, local {local:?}",
                            row.label, column.label
                        ),
                    );
                    if row.width >= LINE && column.width >= LINE {
                        drawn.number(x + column.width / 2.0, y + row.width / 2.0, rank);
                    }
                }
                x += column.width;
            }
            y += row.width;
        }
        drawn
    }
}

/// One dimension cut into cells.
struct Side {
    cells: Vec<Piece>,
    note: Option<String>,
}

struct Piece {
    /// The first global index of it.
    index: i64,
    label: String,
    /// In pixels, or of a row its height.
    width: f64,
}

impl Side {
    fn of(map: &Map) -> Self {
        let single = |index: i64| Piece {
            index,
            label: index.to_string(),
            width: SIDE,
        };
        if map.is_unstructured() {
            let ranks = 0..map.num_ranks();
            let owned = ranks.filter_map(|rank| map.owned(rank));
            let mut labels: Vec<i64> = owned
                .flat_map(|part| part.indices.iter().collect::<Vec<_>>())
                .collect();
            labels.sort_unstable();
            labels.dedup();
            let note = shown(labels.len() as u64);
            labels.truncate(MAX_CELLS);
            return Self {
                cells: labels.into_iter().map(single).collect(),
                note,
            };
        }
        match map.cuts() {
            Some(cuts) if map.size() > MAX_CELLS as u64 && cuts.num_intervals() <= MAX_CELLS => {
                Self {
                    cells: to_scale(cuts),
                    note: Some(format!(
                        "{} drawn to scale",
                        counted(cuts.num_intervals() as u64, "block")
                    )),
                }
            }
            _ => {
                let count = map.size().min(MAX_CELLS as u64);
                let cells = (0..i64::try_from(count).unwrap_or(0)).map(single);
                Self {
                    cells: cells.collect(),
                    note: shown(map.size()),
                }
            }
        }
    }

    fn first(&self) -> i64 {
        self.cells.first().map_or(0, |cell| cell.index)
    }
}

/// What the picture says when it does not show all of so many indices.
fn shown(count: u64) -> Option<String> {
    (count > MAX_CELLS as u64)
        .then(|| format!("the first {MAX_CELLS} of {} indices", thousands(count)))
}

fn to_scale(cuts: &Axis) -> Vec<Piece> {
    let extent = cuts.extent().max(1) as f64;
    let blocks = cuts.intervals().filter(|block| !block.is_empty());
    let pieces = blocks.map(|block| Piece {
        index: i64::try_from(block.start).unwrap_or(i64::MAX),
        label: format!("{}..{}", block.start, block.end),
        width: ((block.end - block.start) as f64 / extent * SCALE).max(LEAST),
    });
    pieces.collect()
}

/// A line for each rank: what it owns, and what it holds of others.
fn lines(map: &Map, side: &Side, captions: &mut Vec<String>) -> Drawn {
    let mut drawn = Drawn::default();
    let count = map.num_ranks().min(MAX_LINES);
    if count < map.num_ranks() {
        captions.push(format!(
            "the first {MAX_LINES} of {} ranks",
            thousands(map.num_ranks() as u64)
        ));
    }
    let mut marks = [false; 2];
    drawn.indices(side);
    for rank in 0..count {
        let y = LINE + rank as f64 * SIDE;
        drawn.text(0.0, y + SIDE - 4.0, &format!("rank {rank}"));
        let held = map.held(rank).unwrap_or_default();
        let mut x = LABEL;
        for cell in &side.cells {
            let owner = map
                .owners(cell.index)
                .iter()
                .find(|place| place.rank == rank)
                .copied();
            let place = held.iter().find_map(|part| {
                let place = part.indices.place(cell.index)?;
                Some(part.local + place)
            });
            let kind = match (owner, place) {
                (Some(_), _) if is_boundary(map, rank, cell.index) => Kind::Boundary,
                (Some(_), _) => Kind::Owned,
                (None, Some(_)) => Kind::Halo,
                (None, None) => Kind::Absent,
            };
            marks[0] |= kind == Kind::Halo;
            marks[1] |= kind == Kind::Boundary;
            let local = owner.map(|place| place.local).or(place);
            let title = match local {
                Some(local) => format!("{}: rank {rank}, local {local}", cell.label),
                None => format!("{}: not on rank {rank}", cell.label),
            };
            let place = Cell {
                x,
                y,
                width: cell.width,
                height: SIDE,
            };
            drawn.cell(&place, rank, kind, &title);
            x += cell.width;
        }
    }
    if marks[0] {
        captions.push("pale: communication padding".to_owned());
    }
    if marks[1] {
        captions.push("dotted: boundary padding".to_owned());
    }
    drawn
}

/// Whether an index that the rank owns is within boundary padding: the outer padding that is no communication padding.
fn is_boundary(map: &Map, rank: usize, index: i64) -> bool {
    let stated = [Version::V0_10, Version::V0_9]
        .into_iter()
        .find_map(|version| {
            let data = map.dim_data(rank, version).ok()?;
            Some((data.padding()?, data.communication(version)))
        });
    let (Some((widths, communication)), Ok(index)) = (stated, u64::try_from(index)) else {
        return false;
    };
    let [left, right] = [0, 1].map(|side| match communication.get(side) {
        Some(0) => widths.get(side).copied().unwrap_or(0),
        _ => 0,
    });
    let first = rank == 0 && index < left;
    let last = rank + 1 == map.num_ranks() && index.saturating_add(right) >= map.size();
    first || last
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Owned,
    Boundary,
    Halo,
    Absent,
}

struct Cell {
    x: f64,
    y: f64,
    width: f64,
    height: f64,
}

/// What is drawn, and how large it is.
#[derive(Default)]
struct Drawn {
    text: String,
    width: f64,
    height: f64,
}

impl Drawn {
    /// An array without dimensions: one element.
    fn single() -> Self {
        let mut drawn = Self::default();
        let place = Cell {
            x: 0.0,
            y: 0.0,
            width: SIDE,
            height: SIDE,
        };
        drawn.cell(&place, 0, Kind::Owned, "(): rank 0");
        drawn
    }

    fn cell(&mut self, place: &Cell, rank: usize, kind: Kind, title: &str) {
        let colour = COLOURS
            .get(rank % COLOURS.len())
            .copied()
            .unwrap_or_default();
        let opacity = match kind {
            Kind::Owned | Kind::Boundary => "1",
            Kind::Halo => "0.3",
            Kind::Absent => "0",
        };
        let Cell {
            x,
            y,
            width,
            height,
        } = *place;
        self.text.push_str(&format!(
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" fill=\"{colour}\" fill-opacity=\"{opacity}\" stroke=\"#808080\" stroke-width=\"0.5\"><title>{title}</title></rect>\n"
        ));
        if kind == Kind::Boundary {
            let (middle, centre) = (x + width / 2.0, y + height / 2.0);
            self.text.push_str(&format!(
                "<circle cx=\"{middle:.1}\" cy=\"{centre:.1}\" r=\"2\" fill=\"#000000\"/>\n"
            ));
        }
        self.width = self.width.max(x + width);
        self.height = self.height.max(y + height);
    }

    /// The indices of some cells, above them.
    fn indices(&mut self, side: &Side) {
        let mut x = LABEL;
        for (number, cell) in side.cells.iter().enumerate() {
            if number % EVERY == 0 {
                self.text(x + 2.0, LINE - 4.0, &cell.index.to_string());
            }
            x += cell.width;
        }
    }

    fn number(&mut self, x: f64, y: f64, number: usize) {
        self.text.push_str(&format!(
            "<text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\" fill=\"#000000\">{number}</text>\n",
            y + 4.0
        ));
    }

    fn text(&mut self, x: f64, y: f64, text: &str) {
        self.text
            .push_str(&format!("<text x=\"{x:.1}\" y=\"{y:.1}\">{text}</text>\n"));
    }

    fn framed(&self, captions: &[String]) -> String {
        let top = LINE * captions.len() as f64 + 4.0;
        let widest = captions
            .iter()
            .map(|line| line.chars().count())
            .max()
            .unwrap_or(0);
        let width = self.width.max(widest as f64 * 6.5).ceil() + 2.0;
        let height = (top + self.height).ceil() + 2.0;
        let lines = captions.iter().enumerate().map(|(number, line)| {
            let y = LINE * (number as f64 + 1.0) - 3.0;
            format!("<text x=\"0\" y=\"{y:.0}\">{line}</text>\n")
        });
        let lines: String = lines.collect();
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" role=\"img\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\">\n\
             <title>{}</title>\n\
             <g font-family=\"sans-serif\" font-size=\"11\" fill=\"currentColor\">\n{lines}\
             <g transform=\"translate(1 {top})\">\n{}</g>\n</g>\n\
             </svg>",
            captions.join(", "),
            self.text
        )
    }
}
