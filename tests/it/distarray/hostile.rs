//! Any value at all is judged without a panic, and what is judged whole makes a distribution. `PARTGRID_FUZZ_CASES` says how many are tried (100,000 without).

use std::sync::Arc;

use partgrid::distarray::check::{Mode, Severity, read_all, validate_all, validate_local};
use partgrid::distarray::{BufferFacts, Distribution, Integers, Value};

use super::{golden, notation};
use crate::harm::{Random, cases};

const SEEDS: [&str; 6] = [
    "10 4x3 b 5 0/2 0:4 padding=[0,1] ; c 7 0/2 0 block_size=3 | 10 4x3 b 5 0/2 0:4 padding=[0,1] ; c 7 1/2 3 block_size=3 | 10 2x4 b 5 1/2 2:5 padding=[1,0] ; c 7 0/2 0 block_size=3",
    "9 6 b 8 0/2 0:4 padding=[1,1] periodic=true | 9 6 b 8 1/2 4:8 padding=[1,1] periodic=true",
    "9 3x12 b 9 0/3 0:3 ; n 10 padding=[1,1] periodic=true | 9 3x12 b 9 1/3 3:6 ; n 10 padding=[1,1] periodic=true | 9 3x12 b 9 2/3 6:9 ; n 10 padding=[1,1] periodic=true",
    "10 3 u 5 0/2 @0,1,2 one_to_one=true | 10 2 u 5 1/2 @-2,7 one_to_one=true",
    "10 7x0 {} ; {}",
    "10 0 c 3 0/1 0 | 10 .",
];

#[test]
fn no_value_makes_the_validator_panic_and_whole_ones_make_a_distribution() {
    let cases = cases(100_000);
    let mut whole = golden::all();
    whole.extend(SEEDS.iter().map(|seed| notation::sections(seed)));
    let mut counts = [0_u64; 2];
    for case in 0..cases {
        let mut random = Random::of(case);
        let sections = if random.below(8) == 0 {
            let count = random.below(4);
            (0..count).map(|_| any_value(&mut random, 4)).collect()
        } else {
            let mut sections = whole[random.below(whole.len() as u64) as usize].clone();
            for _ in 0..=random.below(3) {
                mutate(&mut sections, &mut random);
            }
            sections
        };
        judge(case, &sections, &mut counts);
    }
    // Both sides of the judgement must have been tried.
    assert!(
        counts.iter().all(|count| *count > cases / 200),
        "{counts:?}"
    );
}

/// Asks everything, and holds the answers against each other.
fn judge(case: u64, sections: &[Value], counts: &mut [u64; 2]) {
    for mode in [Mode::Strict, Mode::Lenient] {
        let found = validate_all(sections, mode);
        let has_error = found.iter().any(|each| each.severity == Severity::Error);
        for finding in &found {
            assert!(
                !finding.to_string().is_empty() && finding.message.len() < 400,
                "case {case}: {finding}"
            );
            assert!(
                finding.rank.is_none_or(|rank| rank < sections.len()),
                "case {case}"
            );
        }
        let alone = sections
            .iter()
            .map(|section| validate_local(section, mode).len());
        assert!(alone.sum::<usize>() <= found.len(), "case {case}");
        match read_all(sections, mode) {
            Err(error) => {
                counts[0] += 1;
                assert!(
                    has_error && !error.to_string().is_empty(),
                    "case {case}: {error}"
                );
            }
            Ok(read) => {
                counts[1] += 1;
                assert!(!has_error, "case {case}");
                let distribution = Distribution::try_from_sections(&read);
                let distribution =
                    distribution.unwrap_or_else(|error| panic!("case {case}: {error}\n{read:#?}"));
                for (rank, section) in read.iter().enumerate() {
                    assert_eq!(
                        distribution.local_shape(rank).as_ref(),
                        Some(&section.shape),
                        "case {case}"
                    );
                    assert_eq!(distribution.held(rank), Some(section.held()), "case {case}");
                    let owned = section.owned();
                    assert_eq!(
                        distribution.owned(rank).as_ref(),
                        Some(&owned),
                        "case {case}"
                    );
                    for (part, extent) in owned.iter().zip(&section.shape) {
                        assert!(
                            (part.local + part.indices.len()) as u64 <= *extent,
                            "case {case}"
                        );
                    }
                }
            }
        }
    }
}

/// Replaces, removes, doubles or swaps something somewhere.
fn mutate(sections: &mut Vec<Value>, random: &mut Random) {
    let count = sections.len() as u64;
    match (count, random.below(12)) {
        (0, _) => sections.push(any_value(random, 3)),
        (_, 0) => drop(sections.remove(random.below(count) as usize)),
        (_, 1) => sections.push(sections[random.below(count) as usize].clone()),
        (_, 2) => sections.swap(random.below(count) as usize, 0),
        _ => mutate_value(&mut sections[random.below(count) as usize], random),
    }
}

fn mutate_value(value: &mut Value, random: &mut Random) {
    let deeper = random.below(8) > 0;
    match value {
        Value::Dict(entries) if deeper && !entries.is_empty() => {
            let place = random.below(entries.len() as u64) as usize;
            match random.below(10) {
                0 => drop(entries.remove(place)),
                1 => {
                    let key = KEYS[random.below(KEYS.len() as u64) as usize];
                    entries.push((Value::Text(key.to_owned()), any_value(random, 2)));
                }
                _ => mutate_value(&mut entries[place].1, random),
            }
        }
        Value::Tuple(items) | Value::List(items) if deeper && !items.is_empty() => {
            let place = random.below(items.len() as u64) as usize;
            mutate_value(&mut items[place], random);
        }
        Value::Int(number) if deeper => {
            *number = number.wrapping_add(i128::from(random.below(5)) - 2)
        }
        Value::Buffer(facts) if deeper && !facts.shape.is_empty() => {
            let place = random.below(facts.shape.len() as u64) as usize;
            facts.shape[place] = facts.shape[place]
                .wrapping_add(random.below(3))
                .wrapping_sub(1);
        }
        other => *other = any_value(random, 2),
    }
}

const KEYS: [&str; 16] = [
    "__version__",
    "buffer",
    "dim_data",
    "dist_type",
    "size",
    "proc_grid_size",
    "proc_grid_rank",
    "start",
    "stop",
    "padding",
    "periodic",
    "block_size",
    "indices",
    "one_to_one",
    "shape",
    "",
];
const TEXTS: [&str; 10] = [
    "0.9.0",
    "0.10.0",
    "0.10.9",
    "b",
    "c",
    "u",
    "n",
    "",
    "\u{1F980}\0\n",
    "0.10.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0",
];
const FORMATS: [&str; 8] = ["d", "q", "Q", ">i", "B", "", "@", "T{i:x:}"];

fn any_value(random: &mut Random, depth: u64) -> Value {
    let kinds = if depth == 0 { 8 } else { 11 };
    match random.below(kinds) {
        0 => Value::Null,
        1 => Value::Bool(random.below(2) == 0),
        2 | 3 => Value::Int(any_int(random)),
        4 => Value::Integral {
            value: any_int(random),
            type_name: "numpy.int64".to_owned(),
        },
        5 => Value::Float(f64::from_bits(random.next())),
        6 => Value::Text(TEXTS[random.below(10) as usize].to_owned()),
        7 => Value::Buffer(any_buffer(random)),
        8 => Value::List(
            (0..random.below(4))
                .map(|_| any_value(random, depth - 1))
                .collect(),
        ),
        9 => Value::Tuple(
            (0..random.below(4))
                .map(|_| any_value(random, depth - 1))
                .collect(),
        ),
        _ => {
            let entries = (0..random.below(8)).map(|_| {
                let key = Value::Text(KEYS[random.below(16) as usize].to_owned());
                (key, any_value(random, depth - 1))
            });
            Value::Dict(entries.collect())
        }
    }
}

fn any_int(random: &mut Random) -> i128 {
    const EDGES: [i128; 9] = [
        0,
        i64::MAX as i128,
        i64::MAX as i128 + 1,
        i64::MIN as i128,
        u64::MAX as i128,
        u64::MAX as i128 + 1,
        i128::MAX,
        i128::MIN,
        i64::MAX as i128 - 1,
    ];
    match random.below(4) {
        0 => EDGES[random.below(9) as usize],
        _ => i128::from(random.below(12)) - 2,
    }
}

fn any_buffer(random: &mut Random) -> BufferFacts {
    let shape: Vec<u64> = (0..random.below(4))
        .map(|_| {
            if random.below(9) == 0 {
                random.next()
            } else {
                random.below(6)
            }
        })
        .collect();
    let integers = match random.below(4) {
        0 => Integers::TooLarge(u64::MAX),
        1 => Integers::Unread,
        _ => {
            let count = random.below(6);
            let list: Arc<[i64]> = (0..count)
                .map(|_| {
                    if random.below(9) == 0 {
                        random.next() as i64
                    } else {
                        random.below(9) as i64 - 2
                    }
                })
                .collect();
            Integers::Read(list)
        }
    };
    BufferFacts {
        format: FORMATS[random.below(8) as usize].to_owned(),
        item_bytes: random.below(17) as usize,
        shape,
        type_name: "buffer".to_owned(),
        integers,
    }
}
