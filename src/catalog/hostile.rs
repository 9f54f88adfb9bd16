//! Manifests that somebody has changed, with a checksum that fits: read as the outline of a grid, or refused.
//!
//! Comes in: a good manifest. Goes out: nothing. `PARTGRID_FUZZ_CASES` says how many are tried. Never here: files (`tests/python/catalog/test_hostile_catalog.py`).

use std::collections::BTreeMap;
use std::panic::{catch_unwind, set_hook, take_hook};
use std::sync::{Arc, Once};

use arrow::array::RecordBatch;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::manifest::{Contents, Manifest, TileFile, checksum};
use crate::columns::column_of_every_type;
use crate::counting::allocated_bytes;
use crate::error::{ErrorKind, Result};
use crate::grid::{LoadMark, PartitionGrid};
use crate::harm::{Random, cases, harmed};
use crate::share::told;

/// What reading a manifest of so many bytes may ask for.
const MOST_PER_BYTE: usize = 64;
const MOST_BESIDE: usize = 256 * 1024;

/// The manifests of grids of two row bands, each of one column; every type has one.
fn manifests() -> Vec<Vec<u8>> {
    let columns = column_of_every_type().into_iter();
    let each = columns.map(|(name, column)| {
        let batch = RecordBatch::try_from_iter([(name, column)]).unwrap();
        let parts = [batch.slice(0, 4), batch.slice(4, 3)];
        let grid = PartitionGrid::try_from_batches(batch.schema(), &parts).unwrap();
        let mark = LoadMark {
            id: "monday".to_owned(),
            digest: "0123".to_owned(),
            num_rows: 7,
        };
        let grid = Arc::new(grid.with_loads(vec![mark]));
        let files = [0_usize, 1].map(|band| TileFile {
            position: vec![band, 0],
            path: format!("tiles/{}-{band}-0-{:016x}.arrow", grid.id(), 5),
            bytes: 1000,
            checksum: checksum(b"rows"),
            rows: 4 - band as u64,
            memory_bytes: 500,
        });
        let contents = Contents::of(&grid, files.to_vec(), &told(&grid).unwrap()).unwrap();
        let manifest = Manifest {
            name: name.to_owned(),
            number: 3,
            contents: Some(contents),
        };
        manifest.to_bytes().unwrap().to_vec()
    });
    each.collect()
}

/// All that is read from a manifest before its grid is there.
fn read(bytes: &[u8]) -> Result<()> {
    let Some(contents) = Manifest::read(bytes)?.contents else {
        return Ok(());
    };
    drop(contents.check_lengths(&BTreeMap::new()));
    drop(contents.loads());
    let outline = contents.outline()?;
    let mut heard = contents.statistics(&outline)?;
    for tile in &contents.tiles {
        let schema = outline.band(&tile.position)?;
        let (row_band, column_band) = (tile.position[0], tile.position[1]);
        let columns = outline.columns.interval(column_band);
        let known = heard.as_mut().map(|heard| heard.take(row_band, columns));
        let known = known.unwrap_or_default();
        assert!(known.is_empty() || known.len() == schema.fields().len());
        for (known, field) in known.iter().flatten().zip(schema.fields()) {
            let bounds = known.bounds.as_ref();
            assert!(bounds.is_none_or(|bounds| bounds.data_type() == field.data_type()));
        }
    }
    Ok(())
}

/// As a manifest, whose checksum is that of the text.
fn forged(json: &str) -> Vec<u8> {
    format!("partgrid manifest {}\n{json}", checksum(json.as_bytes())).into_bytes()
}

fn json_of(manifest: &[u8]) -> &str {
    let text = std::str::from_utf8(manifest).unwrap();
    text.split_once('\n').unwrap().1
}

/// Panics of Arrow say nothing from now on: to write where one was takes memory.
fn hush_arrow() {
    static HUSHED: Once = Once::new();
    HUSHED.call_once(|| {
        let before = take_hook();
        set_hook(Box::new(move |panic| {
            let place = panic.location();
            if !place.is_some_and(|place| place.file().contains("/arrow-")) {
                before(panic);
            }
        }));
    });
}

/// Reads it; whether it was taken.
fn is_taken(case: u64, bytes: &[u8]) -> bool {
    hush_arrow();
    let (found, asked) = allocated_bytes(|| catch_unwind(|| read(bytes)));
    let found = found.unwrap_or_else(|_| panic!("case {case}: a panic got out"));
    let most = MOST_BESIDE + MOST_PER_BYTE * bytes.len();
    assert!(asked < most, "case {case}: {asked} of {}", bytes.len());
    if let Err(error) = &found {
        assert_ne!(error.kind(), ErrorKind::Internal, "case {case}: {error}");
    }
    found.is_ok()
}

#[test]
fn a_manifest_of_which_a_byte_changed_is_refused() {
    let manifests = manifests();
    for case in 0..cases(20_000) {
        let mut random = Random::of(case);
        let (good, other) = (random.one(&manifests), random.place(manifests.len()));
        let bytes = harmed(&mut random, good, &manifests[other]);
        let is_good = manifests.contains(&bytes);
        assert_eq!(is_taken(case, &bytes), is_good, "case {case}");
    }
}

#[test]
fn text_that_changed_under_a_checksum_that_fits_is_refused_or_makes_sense() {
    let manifests = manifests();
    for case in 0..cases(20_000) {
        let mut random = Random::of(case);
        let (good, other) = (random.one(&manifests), random.place(manifests.len()));
        let other = json_of(&manifests[other]).as_bytes();
        let json = harmed(&mut random, json_of(good).as_bytes(), other);
        is_taken(case, &forged(&String::from_utf8_lossy(&json)));
    }
}

#[test]
fn fields_that_lie_are_refused_or_make_sense() {
    let manifests = manifests();
    let (cases, mut taken) = (cases(20_000), 0);
    for case in 0..cases {
        let mut random = Random::of(case);
        let json = json_of(random.one(&manifests).as_slice());
        let mut told: Value = serde_json::from_str(json).unwrap();
        for _ in 0..=random.below(2) {
            lie(&mut random, &mut told);
        }
        taken += u64::from(is_taken(case, &forged(&told.to_string())));
    }
    assert!(taken > cases / 200 && taken < cases / 2, "{taken}");
}

const NUMBERS: [u64; 8] = [0, 1, 2, 7, 1 << 31, 1 << 53, (1 << 63) - 1, u64::MAX];
const TEXTS: [&str; 5] = ["", "..", "tiles/../../a.arrow", "/etc/passwd", "\u{0}"];

/// Changes something within a value.
fn lie(random: &mut Random, value: &mut Value) {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            let key = fields
                .keys()
                .nth(random.place(fields.len()))
                .unwrap()
                .clone();
            match random.below(12) {
                0 => drop(fields.remove(&key)),
                1 => drop(fields.insert("more".to_owned(), Value::Null)),
                _ => lie(random, fields.get_mut(&key).unwrap()),
            }
        }
        Value::Array(items) if !items.is_empty() => {
            let place = random.place(items.len());
            match random.below(8) {
                0 => drop(items.remove(place)),
                1 => items.push(items[place].clone()),
                2 => items.swap(0, place),
                _ => lie(random, &mut items[place]),
            }
        }
        Value::String(text) => *text = lied(random, text),
        other if random.below(8) == 0 => *other = Value::from(*random.one(&TEXTS)),
        other => *other = Value::from(*random.one(&NUMBERS)),
    }
}

/// Another text; what is written in base64 is changed as bytes.
fn lied(random: &mut Random, text: &str) -> String {
    match STANDARD.decode(text) {
        Ok(bytes) if bytes.len() > 100 => STANDARD.encode(harmed(random, &bytes, &bytes)),
        _ if random.below(2) == 0 => (*random.one(&TEXTS)).to_owned(),
        _ => {
            let bytes = harmed(random, text.as_bytes(), b"zzz");
            String::from_utf8_lossy(&bytes).into_owned()
        }
    }
}
