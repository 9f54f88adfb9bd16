//! Files of twenty kinds with something wrong with them: rows, or an error that names the file; never a panic, a hang, or a fault of ours. `PARTGRID_FUZZ_CASES` says how many are tried: one of fifty.

use std::time::{Duration, Instant};

use arrow::array::{BooleanArray, FixedSizeBinaryArray, Float64Array};
use parquet::arrow::arrow_writer::ArrowWriterOptions;
use parquet::basic::{BrotliLevel, Compression, Encoding, GzipLevel, ZstdLevel};
use parquet::file::properties::{EnabledStatistics, WriterPropertiesBuilder, WriterVersion};
use parquet::schema::types::ColumnPath;
use partgrid::load::{FilterCondition, FilterOperator};

use super::types::{flat_columns, nested_columns};
use super::*;
use crate::harm::{Random, cases, harmed};

const NUM_ROWS: i64 = 50;

/// A load of a small file that takes so long hangs.
const HANG: Duration = Duration::from_secs(10);

/// 2^58, as Parquet writes it.
const ENDLESS: [u8; 9] = [0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x04];

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
                // What would not fit into memory is a matter of all files.
                if error.kind() != ErrorKind::ResourcesExhausted {
                    assert_eq!(error.context("file"), path.to_str(), "{text}");
                }
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

#[test]
fn lengths_in_deltas_are_read_however_they_are_packed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.parquet");
    let fixed = (0..NUM_ROWS).map(|row| (row % 4 != 1).then_some([row as u8; 5]));
    let fixed = FixedSizeBinaryArray::try_from_sparse_iter_with_size(fixed, 5).unwrap();
    let nested = nullable(nested_columns()).project(&[3]).unwrap();
    let batches = [
        (frame(0..1000).project(&[1]).unwrap(), true),
        (frame(0..0).project(&[1]).unwrap(), true),
        (texts(1000), true),
        (single(Arc::new(fixed)), false),
        (nested, false),
    ];
    let versions = [WriterVersion::PARQUET_1_0, WriterVersion::PARQUET_2_0];
    for (batch, has_lengths) in &batches {
        for version in versions {
            for compression in [Compression::UNCOMPRESSED, Compression::SNAPPY] {
                let mut encodings = vec![Encoding::DELTA_BYTE_ARRAY];
                encodings.extend(has_lengths.then_some(Encoding::DELTA_LENGTH_BYTE_ARRAY));
                for encoding in encodings {
                    let bytes = file(batch, |wishes| {
                        let wishes = wishes.set_compression(compression);
                        let wishes = wishes.set_writer_version(version);
                        let leaf = batch.schema().field(0).name().clone();
                        let leaf = match batch.column(0).data_type() {
                            DataType::Struct(_) => vec![leaf, "inner".into(), "text".into()],
                            _ => vec![leaf],
                        };
                        let leaf = ColumnPath::new(leaf);
                        wishes
                            .set_dictionary_enabled(false)
                            .set_column_encoding(leaf, encoding)
                    });
                    fs::write(&path, bytes).unwrap();
                    assert_eq!(rows_of(&load_path(&path).unwrap()), *batch, "{encoding}");
                }
            }
        }
    }
}

#[test]
fn pages_that_claim_endless_values_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.parquet");
    // Blocks of 128 numbers in four parts, and how many numbers there are: those of a row group.
    let lengths = [0x80, 0x01, 0x04, 20];
    for encoding in [
        Encoding::DELTA_LENGTH_BYTE_ARRAY,
        Encoding::DELTA_BYTE_ARRAY,
    ] {
        for version in [WriterVersion::PARQUET_1_0, WriterVersion::PARQUET_2_0] {
            let good = file(&texts(NUM_ROWS), |wishes| {
                wishes
                    .set_dictionary_enabled(false)
                    .set_encoding(encoding)
                    .set_writer_version(version)
            });
            let places = good.windows(4).enumerate();
            let places = places.filter(|(_, bytes)| *bytes == lengths);
            for (place, _) in places.collect::<Vec<_>>() {
                let mut bytes = good.clone();
                bytes[place + 3..place + 12].copy_from_slice(&ENDLESS);
                fs::write(&path, bytes).unwrap();
                let told = ["claims to have 288230376151711744 lengths", "a.parquet"];
                refused(load_path(&path), ErrorKind::InvalidData, &told);
            }
        }
    }
    // Field 7 of the header, a dictionary, whose field 1 is the number of its values: 3, and then 2,000,000,000.
    let numbers = single(Arc::new(Int64Array::from_iter_values(
        (0..20).map(|row| row % 3),
    )));
    let mut bytes = file(&numbers, |wishes| wishes);
    let header = [0x4c, 0x15, 0x06];
    let place = bytes.windows(3).position(|bytes| bytes == header).unwrap();
    drop(bytes.splice(place + 2..place + 3, [0x80, 0xd0, 0xac, 0xf3, 0x0e]));
    fs::write(&path, bytes).unwrap();
    let told = [
        "a dictionary claims 2000000000 values in 24 bytes",
        "a.parquet",
    ];
    refused(load_path(&path), ErrorKind::InvalidData, &told);
}

#[test]
fn pages_that_a_filter_leaves_are_looked_at_as_well() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.parquet");
    let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(0..20));
    let text = Arc::clone(texts(20).column(0));
    let batch = RecordBatch::try_from_iter([("number", numbers), ("text", text)]).unwrap();
    let good = file(&batch, |wishes| {
        wishes
            .set_dictionary_enabled(false)
            .set_column_encoding(ColumnPath::from("text"), Encoding::DELTA_LENGTH_BYTE_ARRAY)
            .set_data_page_row_count_limit(7)
            .set_write_batch_size(7)
    });
    let condition = FilterCondition {
        column: "number".to_owned(),
        operator: FilterOperator::Equal,
        values: Arc::new(Int64Array::from(vec![10])),
    };
    let options = LoadOptions::default().with_filters(vec![vec![condition]]);
    fs::write(&path, &good).unwrap();
    let grid = load_with(&path, &options).unwrap();
    assert_eq!(rows_of(&grid), batch.slice(10, 1));
    // Seven lengths in each page but the last.
    let places = good.windows(4).enumerate();
    let places = places.filter(|(_, bytes)| *bytes == [0x80, 0x01, 0x04, 7]);
    let mut bytes = good.clone();
    for (place, _) in places {
        bytes[place + 3..place + 12].copy_from_slice(&ENDLESS);
    }
    fs::write(&path, bytes).unwrap();
    let told = ["claims to have 288230376151711744 lengths", "a.parquet"];
    refused(load_with(&path, &options), ErrorKind::InvalidData, &told);
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

/// Texts that are all there.
fn texts(num_rows: i64) -> RecordBatch {
    let texts = (0..num_rows).map(|row| format!("row {:04}", row * 7 % 1000));
    single(Arc::new(StringArray::from_iter_values(texts)))
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
