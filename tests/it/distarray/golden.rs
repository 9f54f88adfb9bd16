//! The fifteen examples that the protocol documents print, as `data/protocol` has them: their faults, and that their buffers are what the maps say.

use std::path::PathBuf;

use partgrid::distarray::check::{Mode, SectionInfo, read_all, validate_all};
use partgrid::distarray::{DimData, Distribution, Value, Version, from_json, translate};
use serde_json::Value as Json;

use super::check::expect;

/// Each file with what is wrong as printed: strictly, and leniently.
const PRINTED: [(&str, &str, &str); 15] = [
    ("0.9.0-7.1", "T7", "T7"),
    ("0.9.0-7.2", "T5", "T5"),
    ("0.9.0-7.3", "D11", "~D11"),
    ("0.10.0-2.1", "T7", "T7"),
    ("0.10.0-2.2", "T5", "T5"),
    ("0.10.0-2.3", "", ""),
    ("0.10.0-2.4", "D7", "~D7"),
    ("0.10.0-2.5", "D7", "~D7"),
    ("0.10.0-2.6", "", ""),
    ("0.10.0-2.7", "", ""),
    ("0.10.0-2.8", "", ""),
    ("0.10.0-2.9", "D7", "~D7"),
    ("0.10.0-2.10", "", ""),
    ("0.10.0-2.11", "", ""),
    ("0.10.0-2.12", "", ""),
];

#[test]
fn the_printed_examples_have_exactly_their_known_faults() {
    for (name, strict, lenient) in PRINTED {
        let sections = sections_of(&text(name));
        expect(name, &validate_all(&sections, Mode::Strict), strict);
        expect(name, &validate_all(&sections, Mode::Lenient), lenient);
    }
}

#[test]
fn every_element_of_the_printed_arrays_is_where_the_map_says() {
    for (name, _, _) in &PRINTED[6..] {
        let text = text(name);
        let read = read_all(&sections_of(&text), Mode::Lenient).unwrap();
        let distribution = Distribution::try_from_sections(&read).unwrap();
        let shape = distribution.shape();
        let mut seen = vec![0; shape.iter().product::<u64>() as usize];
        for (rank, values) in values_of(&text).iter().enumerate() {
            assert_eq!(
                distribution.local_shape(rank).unwrap(),
                read[rank].shape,
                "{name}"
            );
            for_each_local(&read[rank].shape, |place, local| {
                let coordinates = distribution.coordinates(rank).unwrap();
                let maps = distribution.maps().iter();
                let index: Vec<i64> = maps
                    .zip(coordinates.iter().zip(local))
                    .map(|(map, (rank, local))| map.global(*rank, *local).unwrap())
                    .collect();
                let flat = index
                    .iter()
                    .zip(&shape)
                    .fold(0, |flat, (at, size)| flat * size + *at as u64);
                assert_eq!(values[place], flat as f64, "{name} rank {rank}");
                assert_eq!(
                    distribution.locate(&index),
                    Some((rank, local.to_vec())),
                    "{name}"
                );
                seen[flat as usize] += 1;
            });
        }
        assert!(seen.iter().all(|count| *count == 1), "{name}");
    }
}

#[test]
fn the_examples_with_padding_agree_on_their_halos_and_across_versions() {
    let padded = |name: &str| {
        let text = text(name)
            .replace("\"dim_data\": {", "\"dim_data\": [{")
            .replace("]}\n", "]}]\n");
        let read = read_all(&sections_of(&text), Mode::Strict).unwrap();
        (read, values_of(&text))
    };
    let (old, values) = padded("0.9.0-7.2");
    let (new, new_values) = padded("0.10.0-2.2");
    assert_eq!(values, new_values);
    let dims = |read: &[SectionInfo]| -> Vec<DimData> {
        read.iter()
            .map(|section| section.dim_data[0].clone())
            .collect()
    };
    assert_eq!(translate(&dims(&old)).unwrap(), dims(&new));
    assert_eq!(old[0].version, Version::V0_9);
    let map = Distribution::try_from_sections(&new).unwrap().maps()[0].clone();
    assert_eq!(
        map,
        Distribution::try_from_sections(&old).unwrap().maps()[0]
    );
    for (rank, values_here) in values.iter().enumerate() {
        assert_eq!(map.num_owned(rank), Some(9));
        for (local, value) in values_here.iter().enumerate() {
            let owner = map.locate(map.global(rank, local).unwrap()).unwrap();
            assert_eq!(values[owner.rank][owner.local], *value, "{rank} {local}");
        }
    }
}

#[test]
fn the_examples_with_one_dimension_too_many_are_whole_with_buffers_of_two() {
    for name in ["0.9.0-7.1", "0.10.0-2.1"] {
        let text = text(name).replace("\"shape\": [10]", "\"shape\": [1, 10]");
        let read = read_all(&sections_of(&text), Mode::Strict).unwrap();
        let distribution = Distribution::try_from_sections(&read).unwrap();
        assert_eq!(
            (distribution.shape(), distribution.num_ranks()),
            (vec![2, 10], 2)
        );
    }
}

#[test]
fn the_unstructured_examples_hold_each_index_once() {
    for name in ["0.9.0-7.3", "0.10.0-2.3"] {
        let read = read_all(&sections_of(&text(name)), Mode::Lenient).unwrap();
        let map = Distribution::try_from_sections(&read).unwrap().maps()[0].clone();
        assert_eq!(
            [0, 1, 2].map(|rank| map.num_owned(rank)),
            [Some(7), Some(3), Some(20)]
        );
        for index in 0..30 {
            let place = map.locate(index).unwrap();
            assert_eq!(map.global(place.rank, place.local), Some(index));
        }
    }
}

pub(super) fn all() -> Vec<Vec<Value>> {
    PRINTED
        .iter()
        .map(|(name, _, _)| sections_of(&text(name)))
        .collect()
}

fn text(name: &str) -> String {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(root.join(format!("data/protocol/{name}.json"))).unwrap()
}

fn sections_of(text: &str) -> Vec<Value> {
    match from_json(text).unwrap() {
        Value::Tuple(sections) => sections,
        other => panic!("{other}"),
    }
}

/// The elements of each buffer, in C order.
fn values_of(text: &str) -> Vec<Vec<f64>> {
    let json: Json = serde_json::from_str(text).unwrap();
    let sections = json.as_array().unwrap().iter();
    let values = sections.map(|section| section["buffer"]["values"].as_array().unwrap().iter());
    values
        .map(|each| each.map(|value| value.as_f64().unwrap()).collect())
        .collect()
}

/// Calls with the place in C order and the local index of each element.
fn for_each_local(shape: &[u64], mut each: impl FnMut(usize, &[usize])) {
    let count: u64 = shape.iter().product();
    for place in 0..count as usize {
        let mut rest = place;
        let mut local = vec![0; shape.len()];
        for (at, extent) in local.iter_mut().zip(shape).rev() {
            *at = rest % *extent as usize;
            rest /= *extent as usize;
        }
        each(place, &local);
    }
}
