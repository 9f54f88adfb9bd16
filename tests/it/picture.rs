//! Pictures of grids: what is drawn, what is left out, what is escaped.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use partgrid::error::{Error, ErrorKind, Result};
use partgrid::grid::{Axis, GridBuilder, PartitionGrid, Tile, TileData, picture};
use partgrid::location::{Device, Location};

#[test]
fn a_grid_of_one_tile_is_one_box() {
    let expected = "\
28,064 rows x 2 columns in 1 x 1 tile, 449.0 kB
    a, b
  ┌───────────────────────┐
0 │ 28,064 rows, 449.0 kB │
  └───────────────────────┘
192.0.2.7 pid 4711: 1 tile";
    assert_eq!(
        picture::text(&grid(&["a", "b"], &[28_064], &[2]), 100),
        expected
    );
}

#[test]
fn bands_have_their_first_row_and_their_column_names() {
    let expected = "\
2,500 rows x 3 columns in 3 x 2 tiles, 60.0 kB
        a, b                  c
      ┌─────────────────────┬─────────────────────┐
    0 │ 1,000 rows, 16.0 kB │ 1,000 rows, 8.0 kB  │
      ├─────────────────────┼─────────────────────┤
1,000 │ 1,000 rows, 16.0 kB │ 1,000 rows, 8.0 kB  │
      ├─────────────────────┼─────────────────────┤
2,000 │ 500 rows, 8.0 kB    │ 500 rows, 4.0 kB    │
      └─────────────────────┴─────────────────────┘
192.0.2.7 pid 4711: 6 tiles";
    let picture = picture::text(&grid(&["a", "b", "c"], &[1_000, 1_000, 500], &[2, 1]), 100);
    assert_eq!(picture, expected);
    assert!(
        picture.lines().all(|line| line.chars().count() <= 100),
        "{picture}"
    );
}

#[test]
fn tiles_that_nobody_has_any_more_are_marked_as_lost() {
    let (schema, mut builder) = (schema(&["a"]), builder(&["a"], &[1_000, 1_000, 500], &[1]));
    let rows = [1_000, 1_000, 500];
    for (row_band, num_rows) in rows.into_iter().enumerate() {
        let tile = match row_band {
            0 => tile(&schema, num_rows, &[here(1)]),
            _ => lost_tile(&schema, num_rows, here(2)),
        };
        builder.set(&[row_band, 0], tile).unwrap();
    }
    let grid = builder.build().unwrap();
    let expected = "\
2,500 rows x 1 column in 3 x 1 tiles, 20.0 kB, 2 of 3 tiles lost
        a
      ┌──────────────────────────────┐
    0 │ 1,000 rows, 8.0 kB [1]       │
      ├──────────────────────────────┤
1,000 │ 1,000 rows, 8.0 kB, lost [2] │
      ├──────────────────────────────┤
2,000 │ 500 rows, 4.0 kB, lost [2]   │
      └──────────────────────────────┘
[1] 192.0.2.7 pid 1: 1 tile
[2] 192.0.2.7 pid 2: 2 tiles, lost";
    assert_eq!(picture::text(&grid, 100), expected);
    let svg = picture::svg(&grid);
    let lost = rectangles(&svg).filter(|line| line.contains("pid 2, lost</title>"));
    assert_eq!(lost.count(), 2, "{svg}");
    assert!(svg.contains(">2 of 3 tiles lost</text>"), "{svg}");
    assert!(
        svg.contains(">192.0.2.7 pid 2: 2 tiles, lost</text>"),
        "{svg}"
    );
    let summary = picture::summary(&grid);
    assert!(
        summary.starts_with(
            "Grid of 2,500 rows x 1 column in 3 x 1 tiles, 20.0 kB, 2 of 3 tiles lost\n"
        ),
        "{summary}"
    );
}

#[test]
fn a_frame_without_rows_and_columns_is_still_drawn() {
    let grid = grid(&[], &[0], &[0]);
    let picture = picture::text(&grid, 100);
    assert!(
        picture.starts_with("0 rows x 0 columns in 1 x 1 tile, 0 B\n"),
        "{picture}"
    );
    assert!(picture.contains("│ 0 rows, 0 B │"), "{picture}");
    assert_eq!(num_rectangles(&picture::svg(&grid)), 1);
}

#[test]
fn row_bands_in_the_middle_are_left_out_and_counted() {
    let picture = picture::text(&grid(&["a"], &[10; 100], &[1]), 100);
    let cells = picture
        .lines()
        .filter(|line| line.contains("│ 10 rows, 80 B │"));
    assert_eq!(cells.count(), 16, "{picture}");
    assert!(
        picture.contains("    ⋮ 84 row bands left out\n920 │ 10 rows"),
        "{picture}"
    );
    assert!(picture.contains(" 70 │ 10 rows"), "{picture}");
}

#[test]
fn column_bands_that_do_not_fit_are_left_out_and_counted() {
    let names: Vec<String> = (0..50).map(|number| format!("c{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let grid = grid(&names, &[10, 10], &[1; 50]);
    for width in [40, 57, 58, 80, 200, 500] {
        let picture = picture::text(&grid, width);
        let cells = picture
            .lines()
            .nth(3)
            .unwrap()
            .matches("10 rows, 80 B")
            .count();
        let left_out = format!("… {} column bands left out", 50 - cells);
        assert!(
            cells > 0 && picture.contains(&left_out),
            "{width}\n{picture}"
        );
        let drawn = picture.lines().skip(1).filter(|line| !line.contains("pid"));
        let longest = drawn.map(|line| line.chars().count()).max().unwrap();
        assert!(longest <= width, "{width} {longest}\n{picture}");
    }
}

#[test]
fn names_that_would_shift_the_borders_are_counted_instead() {
    for name in ["宽", "e\u{301}", "a\nb", "\u{1b}[31m"] {
        let picture = picture::text(&grid(&[name], &[1], &[1]), 100);
        assert!(
            picture.contains("1 column\n") && !picture.contains(name),
            "{picture}"
        );
    }
}

#[test]
fn several_locations_are_numbered() {
    let mut builder = builder(&["a"], &[5, 5, 5], &[1]);
    let schema = schema(&["a"]);
    builder
        .set(&[0, 0], tile(&schema, 5, &[here(1), here(2)]))
        .unwrap();
    builder.set(&[1, 0], tile(&schema, 5, &[here(2)])).unwrap();
    builder.set(&[2, 0], tile(&schema, 5, &[])).unwrap();
    let grid = builder.build().unwrap();
    let picture = picture::text(&grid, 100);
    assert!(picture.contains("│ 5 rows, 40 B [1] │") && picture.contains("│ 5 rows, 40 B [2] │"));
    let places = "[1] 192.0.2.7 pid 1: 1 tile\n[2] 192.0.2.7 pid 2: 2 tiles\nnot in memory: 1 tile";
    assert!(picture.ends_with(places), "{picture}");
    let svg = picture::svg(&grid);
    let colours: Vec<&str> = rectangles(&svg)
        .map(|line| attribute(line, "fill"))
        .collect();
    assert_eq!(colours.len(), 3);
    assert!(colours[0] != colours[1] && colours[1] != colours[2] && colours[0] != colours[2]);
}

#[test]
fn every_tile_is_a_rectangle_whose_sides_grow_with_rows_and_columns() {
    let svg = picture::svg(&grid(&["a", "b", "c"], &[1_000, 3_000, 0], &[2, 1]));
    assert_eq!(num_rectangles(&svg), 6);
    let side = |name| -> Vec<f64> {
        rectangles(&svg)
            .map(|line| attribute(line, name).parse().unwrap())
            .collect()
    };
    let (widths, heights) = (side("width"), side("height"));
    assert!((widths[0] + widths[1] - 240.0).abs() < 0.2, "{widths:?}");
    assert!((1.8..2.1).contains(&(widths[0] / widths[1])), "{widths:?}");
    assert!(
        (2.5..3.1).contains(&(heights[2] / heights[0])),
        "{heights:?}"
    );
    assert!(heights.iter().chain(&widths).all(|side| *side >= 3.0));
    let title =
        "<title>tile (1, 0): 3,000 rows, 2 columns (a, b), 48.0 kB, 192.0.2.7 pid 4711</title>";
    assert!(svg.contains(title), "{svg}");
}

#[test]
fn names_in_a_page_are_escaped() {
    let svg = picture::svg(&grid(
        &["<script>alert('1')</script>", "a&\"b\u{0}"],
        &[1],
        &[2],
    ));
    assert!(!svg.contains("<script"), "{svg}");
    let title = "&lt;script&gt;alert(&#39;1&#39;)&lt;/script&gt;, a&amp;&quot;b\u{fffd}";
    assert!(svg.contains(title), "{svg}");
    assert!(svg.contains("role=\"img\"") && !svg.contains("href"));
}

#[test]
fn more_tiles_than_rectangles_are_drawn_in_blocks() {
    let names: Vec<String> = (0..30).map(|number| format!("c{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    for (rows, columns) in [(401, 1), (81, 1), (40, 30), (3, 30), (50, 15), (1_000, 30)] {
        let mut bands = vec![1; columns - 1];
        bands.push(31 - columns as u64);
        let svg = picture::svg(&grid(&names, &vec![2; rows], &bands));
        let (drawn, all) = (num_rectangles(&svg), rows * columns);
        assert!((80..=400).contains(&drawn), "{rows} {columns} {drawn}");
        assert_eq!(
            svg.contains("blocks of neighbouring tiles"),
            drawn < all,
            "{rows} {columns}"
        );
        let shown: f64 = rectangles(&svg)
            .filter(|line| attribute(line, "x") == "0.0")
            .map(|line| attribute(line, "height").parse::<f64>().unwrap())
            .sum();
        assert!(
            (shown - 240.0).abs() < 5.0 || rows < 10,
            "{rows} {columns} {shown}"
        );
    }
}

// In a time that grows with the square of its row bands it would not end.
#[test]
fn a_great_grid_is_drawn() {
    let schema = schema(&["a"]);
    let one = tile(&schema, 1, &[here(4711)]);
    let mut builder = builder(&["a"], &vec![1; 1_000_000], &[1]);
    for row_band in 0..1_000_000 {
        builder.set(&[row_band, 0], one.clone()).unwrap();
    }
    let grid = builder.build().unwrap();
    let (text, svg) = (picture::text(&grid, 100), picture::svg(&grid));
    assert!(text.contains("⋮ 999,984 row bands left out"), "{text}");
    assert_eq!(num_rectangles(&svg), 80);
}

/// Tiles of 8 bytes a value that live in process 4711 of another host.
fn grid(names: &[&str], rows: &[u64], bands: &[u64]) -> PartitionGrid {
    let mut builder = builder(names, rows, bands);
    for (row_band, num_rows) in rows.iter().enumerate() {
        let mut start = 0;
        for (column_band, width) in bands.iter().enumerate() {
            let stop = start + *width as usize;
            let part = schema(&names[start..stop]);
            let tile = tile(&part, *num_rows, &[here(4711)]);
            builder.set(&[row_band, column_band], tile).unwrap();
            start = stop;
        }
    }
    builder.build().unwrap()
}

fn builder(names: &[&str], rows: &[u64], bands: &[u64]) -> GridBuilder {
    let rows = Axis::try_from_lengths(rows.iter().copied()).unwrap();
    let columns = Axis::try_from_lengths(bands.iter().copied()).unwrap();
    GridBuilder::try_new(schema(names), rows, columns).unwrap()
}

fn schema(names: &[&str]) -> SchemaRef {
    let field = |name: &&str| Field::new(*name, DataType::Int64, true);
    Arc::new(Schema::new(names.iter().map(field).collect::<Vec<_>>()))
}

fn here(process: u64) -> Location {
    Location::new(
        IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7)),
        process,
        Device::CPU,
    )
}

fn tile(schema: &SchemaRef, num_rows: u64, locations: &[Location]) -> Tile {
    Tile::new(Arc::new(Elsewhere {
        schema: Arc::clone(schema),
        num_rows,
        locations: locations.to_vec(),
        is_lost: false,
    }))
}

fn lost_tile(schema: &SchemaRef, num_rows: u64, location: Location) -> Tile {
    Tile::new(Arc::new(Elsewhere {
        schema: Arc::clone(schema),
        num_rows,
        locations: vec![location],
        is_lost: true,
    }))
}

#[derive(Debug)]
struct Elsewhere {
    schema: SchemaRef,
    num_rows: u64,
    locations: Vec<Location>,
    is_lost: bool,
}

#[async_trait::async_trait]
impl TileData for Elsewhere {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn num_rows(&self) -> u64 {
        self.num_rows
    }

    fn memory_bytes(&self) -> u64 {
        self.num_rows * self.schema.fields().len() as u64 * 8
    }

    fn locations(&self) -> Vec<Location> {
        self.locations.clone()
    }

    fn is_lost(&self) -> bool {
        self.is_lost
    }

    fn open(&self) -> Result<RecordBatch> {
        Err(Error::new(
            ErrorKind::NotLocal,
            "a picture must not open a tile",
        ))
    }
}

/// The rectangles of tiles, without those of the legend.
fn rectangles(svg: &str) -> impl Iterator<Item = &str> {
    svg.lines()
        .filter(|line| line.starts_with("<rect") && line.contains("<title>"))
}

fn num_rectangles(svg: &str) -> usize {
    rectangles(svg).count()
}

fn attribute<'a>(line: &'a str, name: &str) -> &'a str {
    let (_, rest) = line.split_once(&format!(" {name}=\"")).unwrap();
    rest.split_once('"').unwrap().0
}
