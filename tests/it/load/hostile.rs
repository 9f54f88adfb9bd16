//! Files of twenty kinds with something wrong with them: rows, or an error that names the file; never a panic, a hang, or a fault of ours. `PARTGRID_FUZZ_CASES` says how many are tried: one of fifty.

use std::time::{Duration, Instant};

use arrow::array::{BooleanArray, Float64Array};
use parquet::arrow::arrow_writer::ArrowWriterOptions;
use parquet::basic::{BrotliLevel, Compression, Encoding, GzipLevel, ZstdLevel};
use parquet::file::properties::{EnabledStatistics, WriterPropertiesBuilder, WriterVersion};

use super::types::{flat_columns, nested_columns};
use super::*;
use crate::harm::{Random, cases, harmed};

const NUM_ROWS: i64 = 50;

/// A load of a small file that takes so long hangs.
const HANG: Duration = Duration::from_secs(10);

#[test]
fn a_changed_file_of_any_kind_is_read_or_refused_by_name() {
    let kinds = kinds();
    assert_eq!(kinds.len(), 20);
    let cases = cases(500_000) / 50;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.parquet");
    for (kind, good) in &kinds {
        fs::write(&path, good).unwrap();
        load_path(&path).unwrap_or_else(|error| panic!("{kind}: {error}"));
    }
    let (mut num_read, mut num_refused) = (0, 0);
    for case in 0..cases {
        let mut random = Random::of(case);
        let (kind, good) = &kinds[case as usize % kinds.len()];
        let (_, other) = random.one(&kinds);
        fs::write(&path, harmed(&mut random, good, other)).unwrap();
        let start = Instant::now();
        let result = load_path(&path);
        assert!(start.elapsed() < HANG, "case {case}, {kind}");
        match result {
            Ok(_) => num_read += 1,
            Err(error) => {
                num_refused += 1;
                let text = format!("case {case}, {kind}: {error}");
                assert_ne!(error.kind(), ErrorKind::Internal, "{text}");
                assert_eq!(error.context("file"), path.to_str(), "{text}");
            }
        }
    }
    // Both ends must have been tried.
    let few = cases / 200;
    assert!(
        num_read > few && num_refused > few,
        "{num_read} read, {num_refused} refused"
    );
}

/// A good file of each kind.
fn kinds() -> Vec<(&'static str, Vec<u8>)> {
    let rows = frame(0..NUM_ROWS);
    let numbers = rows.project(&[0]).unwrap();
    let texts = rows.project(&[1]).unwrap();
    let floats = single(Arc::new(Float64Array::from_iter_values(
        (0..NUM_ROWS).map(|row| row as f64 / 3.0),
    )));
    let booleans: BooleanArray = (0..NUM_ROWS)
        .map(|row| (row % 4 != 1).then_some(row % 7 < 5))
        .collect();
    let booleans = single(Arc::new(booleans));
    let (flat, nested) = (nullable(flat_columns()), nullable(nested_columns()));
    let packed = |compression| file(&rows, |wishes| wishes.set_compression(compression));
    let encoded = |batch: &RecordBatch, encoding| {
        file(batch, |wishes| {
            wishes.set_dictionary_enabled(false).set_encoding(encoding)
        })
    };
    let brotli = Compression::BROTLI(BrotliLevel::default());
    let second = |wishes: WriterPropertiesBuilder| {
        wishes
            .set_writer_version(WriterVersion::PARQUET_2_0)
            .set_compression(Compression::SNAPPY)
    };
    let small_pages = |wishes: WriterPropertiesBuilder| {
        wishes
            .set_data_page_row_count_limit(7)
            .set_write_batch_size(7)
    };
    let uncounted =
        |wishes: WriterPropertiesBuilder| wishes.set_statistics_enabled(EnabledStatistics::None);
    let untyped = ArrowWriterOptions::new().with_skip_arrow_metadata(true);
    vec![
        ("as it comes", file(&rows, |wishes| wishes)),
        ("no compression", packed(Compression::UNCOMPRESSED)),
        ("snappy", packed(Compression::SNAPPY)),
        ("gzip", packed(Compression::GZIP(GzipLevel::default()))),
        ("brotli", packed(brotli)),
        ("lz4", packed(Compression::LZ4_RAW)),
        ("zstd", packed(Compression::ZSTD(ZstdLevel::default()))),
        ("pages of version 2", file(&rows, second)),
        ("plain", encoded(&rows, Encoding::PLAIN)),
        (
            "differences",
            encoded(&numbers, Encoding::DELTA_BINARY_PACKED),
        ),
        (
            "lengths",
            encoded(&texts, Encoding::DELTA_LENGTH_BYTE_ARRAY),
        ),
        ("prefixes", encoded(&texts, Encoding::DELTA_BYTE_ARRAY)),
        ("split bytes", encoded(&floats, Encoding::BYTE_STREAM_SPLIT)),
        ("runs", encoded(&booleans, Encoding::RLE)),
        ("small pages", file(&rows, small_pages)),
        ("no statistics", file(&rows, uncounted)),
        (
            "bloom filters",
            file(&rows, |wishes| {
                wishes
                    .set_bloom_filter_enabled(true)
                    .set_bloom_filter_max_ndv(50)
            }),
        ),
        ("no Arrow schema", written(&rows, untyped)),
        ("flat types", file(&flat, |wishes| wishes)),
        ("nested types", file(&nested, |wishes| wishes)),
    ]
}

fn single(column: ArrayRef) -> RecordBatch {
    RecordBatch::try_from_iter([("x", column)]).unwrap()
}

fn nullable(columns: Vec<(String, ArrayRef)>) -> RecordBatch {
    let columns = columns.into_iter();
    let columns = columns.map(|(name, column)| (name, column, true));
    RecordBatch::try_from_iter_with_nullable(columns).unwrap()
}

/// A file in row groups of twenty rows.
fn file(
    batch: &RecordBatch,
    wish: impl Fn(WriterPropertiesBuilder) -> WriterPropertiesBuilder,
) -> Vec<u8> {
    let wishes = WriterProperties::builder().set_max_row_group_row_count(Some(20));
    let options = ArrowWriterOptions::new().with_properties(wish(wishes).build());
    written(batch, options)
}

fn written(batch: &RecordBatch, options: ArrowWriterOptions) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer =
        ArrowWriter::try_new_with_options(&mut bytes, batch.schema(), options).unwrap();
    writer.write(batch).unwrap();
    writer.close().unwrap();
    bytes
}
