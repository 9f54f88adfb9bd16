//! A short way to write sections down.
//!
//! A section is `VERSION SHAPE DIMENSION ; DIMENSION`, sections are separated by ` | `. The version is `9` or `10`, or written out; the shape is `2x10`, or `.` without dimensions, with the element
//! format behind a colon unless it is `d`. A dimension is `{}`, `n SIZE`, `b SIZE RANK/RANKS START:STOP`, `c SIZE RANK/RANKS START` or `u SIZE RANK/RANKS @1,2,3`; behind it `key=JSON` sets
//! a key and `-key` takes one away.

use partgrid::distarray::{Value, from_json};

/// Reads sections.
pub(crate) fn sections(text: &str) -> Vec<Value> {
    let parts = text.split(" | ");
    parts
        .map(|part| {
            from_json(&section_json(part.trim())).unwrap_or_else(|error| panic!("{part}: {error}"))
        })
        .collect()
}

fn section_json(text: &str) -> String {
    let mut words = text.splitn(3, ' ');
    let version = match words.next().unwrap() {
        "9" => "0.9.0",
        "10" => "0.10.0",
        other => other,
    };
    let (shape, format) = match words.next().unwrap() {
        shape if shape.contains(':') => shape.split_once(':').unwrap(),
        shape => (shape, "d"),
    };
    let shape = shape.replace('x', ",").replace('.', "");
    let dims: Vec<String> = match words.next() {
        None => Vec::new(),
        Some(dims) => dims
            .split(" ; ")
            .map(|dim| dimension_json(dim.trim()))
            .collect(),
    };
    format!(
        r#"{{"__version__": "{version}", "buffer": {{"shape": [{shape}], "format": "{format}"}}, "dim_data": [{}]}}"#,
        dims.join(", ")
    )
}

fn dimension_json(text: &str) -> String {
    let mut keys: Vec<(String, String)> = Vec::new();
    let mut set = |key: &str, value: String| {
        keys.retain(|(known, _)| known != key);
        keys.push((key.to_owned(), value));
    };
    let mut removed = Vec::new();
    for (place, word) in text.split(' ').enumerate() {
        match (place, word) {
            (0, "{}") => return "{}".to_owned(),
            (0, dist_type) => set("dist_type", format!("{dist_type:?}")),
            (1, size) => set("size", size.to_owned()),
            (2, grid) if grid.contains('/') => {
                let (rank, ranks) = grid.split_once('/').unwrap();
                set("proc_grid_rank", rank.to_owned());
                set("proc_grid_size", ranks.to_owned());
            }
            (_, pair) if pair.contains('=') => {
                let (key, value) = pair.split_once('=').unwrap();
                set(key, value.to_owned());
            }
            (_, indices) if indices.starts_with('@') => {
                let list = &indices[1..];
                let count = list.split(',').filter(|each| !each.is_empty()).count();
                set(
                    "indices",
                    format!(r#"{{"shape": [{count}], "format": "q", "values": [{list}]}}"#),
                );
            }
            (3, bounds) if !bounds.starts_with('-') || bounds.contains(':') => {
                match bounds.split_once(':') {
                    Some((start, stop)) => {
                        set("start", start.to_owned());
                        set("stop", stop.to_owned());
                    }
                    None => set("start", bounds.to_owned()),
                }
            }
            (_, key) if key.starts_with('-') => removed.push(key[1..].to_owned()),
            (_, other) => panic!("{other:?} in {text:?}"),
        }
    }
    let kept = keys.into_iter().filter(|(key, _)| !removed.contains(key));
    let pairs: Vec<String> = kept
        .map(|(key, value)| format!("{key:?}: {value}"))
        .collect();
    format!("{{{}}}", pairs.join(", "))
}
