//! Redistribution between the printed examples of one array: from the buffers of each to those of every other, as `data/protocol` has them.

use partgrid::distarray::check::{Mode, read_all};
use partgrid::distarray::redistribute::{Layout, Plan, Source};
use partgrid::distarray::{Distribution, Value, from_json};
use serde_json::Value as Json;

/// The examples of the array of 5 x 9 elements.
const NAMES: [&str; 8] = ["2.4", "2.5", "2.6", "2.7", "2.8", "2.9", "2.10", "2.11"];

/// An example: how it is distributed, and the bytes of each rank.
fn example(name: &str) -> (Distribution, Vec<Vec<u8>>) {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/data/protocol");
    let text = std::fs::read_to_string(format!("{folder}/0.10.0-{name}.json")).unwrap();
    let Value::Tuple(sections) = from_json(&text).unwrap() else {
        panic!("{name} is not a list of sections");
    };
    let read = read_all(&sections, Mode::Lenient).unwrap();
    let json: Json = serde_json::from_str(&text).unwrap();
    let bytes = json.as_array().unwrap().iter().map(|section| {
        let values = section["buffer"]["values"].as_array().unwrap().iter();
        let doubles = values.map(|value| value.as_f64().unwrap().to_ne_bytes());
        doubles.flatten().collect()
    });
    (
        Distribution::try_from_sections(&read).unwrap(),
        bytes.collect(),
    )
}

#[test]
fn every_printed_example_becomes_every_other() {
    let examples = NAMES.map(example);
    for (name, (from, bytes)) in NAMES.iter().zip(&examples) {
        let sources: Vec<Source> = bytes
            .iter()
            .enumerate()
            .map(|(rank, bytes)| {
                let shape = from.local_shape(rank).unwrap();
                let shape: Vec<usize> = shape.iter().map(|len| *len as usize).collect();
                Source {
                    bytes,
                    layout: Layout::try_c_order(&shape, 8).unwrap(),
                }
            })
            .collect();
        for (other, (to, expected)) in NAMES.iter().zip(&examples) {
            let plan = Plan::try_new(from, to).unwrap();
            assert_eq!(plan.num_elements(), 45, "{name} to {other}");
            assert_eq!(plan.messages() == 0, name == other, "{name} to {other}");
            assert!(
                &plan.execute(&sources).unwrap() == expected,
                "{name} to {other}"
            );
        }
    }
}

#[test]
fn the_counts_that_are_known_of_printed_examples_come_out() {
    let counts = |from: &str, to: &str| {
        let plan = Plan::try_new(&example(from).0, &example(to).0).unwrap();
        plan.counts().unwrap()
    };
    assert_eq!(counts("2.4", "2.5"), [[6, 6, 6], [6, 6, 6], [3, 3, 3]]);
    let irregular = [[2, 3, 4, 6], [0, 4, 0, 8], [0, 0, 4, 6], [0, 0, 0, 8]];
    assert_eq!(counts("2.6", "2.9"), irregular);
}
