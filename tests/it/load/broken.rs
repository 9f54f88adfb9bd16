//! Files that are broken or do not fit together: always an error that says where, never other values.

use std::time::{Duration, Instant};

use arrow::array::Float64Array;
use parquet::basic::{BrotliLevel, Compression, GzipLevel, ZstdLevel};
use parquet::file::properties::{WriterPropertiesBuilder, WriterVersion};

use super::*;
use crate::columns::column_of_every_type;

/// A load of a small file that takes so long hangs.
const HANG: Duration = Duration::from_secs(10);

#[test]
fn what_is_not_parquet_is_refused_with_its_size() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.parquet");
    for bytes in [
        "",
        "PAR1",
        "PAR1PAR1",
        "hello, this is just a text",
        "PAR1\0\0\0\0\0\0\0\0PAR1",
    ] {
        fs::write(&path, bytes).unwrap();
        let error = load_path(folder.path()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidData, "{bytes:?}: {error}");
        assert_eq!(error.context("file"), path.to_str());
    }
    fs::write(&path, "hello, this is just a text").unwrap();
    refused(
        load_path(&path),
        ErrorKind::InvalidData,
        &["no Parquet file", "26 bytes", "PAR1"],
    );
    fs::write(&path, "PARE and much more text behind it\x08\0\0\0PARE").unwrap();
    refused(load_path(&path), ErrorKind::Unsupported, &["encrypted"]);
}

#[test]
fn a_file_cut_off_anywhere_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.parquet");
    write(&path, &frame(0..50), 20);
    let bytes = fs::read(&path).unwrap();
    for length in 0..bytes.len() {
        fs::write(&path, &bytes[..length]).unwrap();
        let error = load_path(&path).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidData, "{length}: {error}");
        // Cut off in front: the footer is whole and points to other bytes.
        fs::write(&path, &bytes[length.max(1)..]).unwrap();
        let error = load_path(&path).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidData, "{length}: {error}");
    }
}

#[test]
fn a_turned_byte_in_a_page_with_a_checksum_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.parquet");
    let bytes = fs::read(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/data/airlines.parquet"
    ))
    .unwrap();
    fs::write(&path, &bytes).unwrap();
    let good = rows_of(&load_path(&path).unwrap());
    let mut refusals = 0;
    // The pages of the first column chunks come right behind the magic, each behind its header.
    for place in 4..bytes.len() - 8 {
        let mut turned = bytes.clone();
        turned[place] ^= 0x10;
        fs::write(&path, &turned).unwrap();
        match load_path(&path) {
            Ok(grid) => assert_same_values(&rows_of(&grid), &good, place),
            Err(error) => {
                assert_ne!(error.kind(), ErrorKind::Internal, "{place}: {error}");
                assert_eq!(error.context("file"), path.to_str(), "{place}: {error}");
                refusals += usize::from(error.to_string().contains("checksum"));
            }
        }
    }
    assert!(refusals > 100, "{refusals} refusals for checksums");
}

/// A turned byte in the footer may change a name or what is not read; values never.
fn assert_same_values(got: &RecordBatch, good: &RecordBatch, place: usize) {
    for (got, good) in got.columns().iter().zip(good.columns()) {
        if got.data_type() == good.data_type() {
            assert_eq!(got, good, "byte {place}");
        }
    }
}

#[test]
fn turned_bytes_never_end_the_process() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.parquet");
    let files = good_files();
    assert_eq!(files.len(), 20);
    for good in &files {
        fs::write(&path, good).unwrap();
        load_path(&path).unwrap();
    }
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for bytes in files.iter().cycle().take(10_000) {
        let mut turned = bytes.clone();
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let place = (state >> 33) as usize % bytes.len();
        turned[place] = (state >> 24) as u8;
        fs::write(&path, &turned).unwrap();
        let start = Instant::now();
        let result = load_path(&path);
        assert!(start.elapsed() < HANG, "byte {place}");
        if let Err(error) = result {
            assert_ne!(error.kind(), ErrorKind::Internal, "byte {place}: {error}");
            assert_eq!(
                error.context("file"),
                path.to_str(),
                "byte {place}: {error}"
            );
        }
    }
}

/// Numbers and texts, packed in each way, with a dictionary and without, and columns of other types in pages of the second version.
fn good_files() -> Vec<Vec<u8>> {
    let ways = [
        Compression::UNCOMPRESSED,
        Compression::SNAPPY,
        Compression::LZ4_RAW,
        Compression::ZSTD(ZstdLevel::default()),
        Compression::GZIP(GzipLevel::default()),
        Compression::BROTLI(BrotliLevel::default()),
    ];
    let rows = frame(0..50);
    let packed = ways.into_iter().flat_map(|way| {
        [true, false].map(|has_dictionary| {
            let properties = WriterProperties::builder().set_compression(way);
            bytes_of(&rows, properties.set_dictionary_enabled(has_dictionary), 20)
        })
    });
    let columns = column_of_every_type();
    let kinds = [
        "boolean",
        "uint16",
        "float32",
        "decimal128",
        "timestamp_tz",
        "binary",
        "list_of_struct",
        "map",
    ];
    let others = kinds.iter().map(|kind| {
        let (_, column) = columns.iter().find(|(name, _)| name == kind).unwrap();
        let batch = RecordBatch::try_from_iter([(*kind, Arc::clone(column))]).unwrap();
        let properties = WriterProperties::builder();
        let properties = properties.set_writer_version(WriterVersion::PARQUET_2_0);
        bytes_of(&batch, properties, 4)
    });
    packed.chain(others).collect()
}

fn bytes_of(batch: &RecordBatch, properties: WriterPropertiesBuilder, rows: usize) -> Vec<u8> {
    let properties = properties.set_max_row_group_row_count(Some(rows)).build();
    let mut bytes = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut bytes, batch.schema(), Some(properties)).unwrap();
    writer.write(batch).unwrap();
    writer.close().unwrap();
    bytes
}

#[test]
fn footers_that_ask_for_endless_memory_or_stack_are_refused() {
    // Thrift compact: repetition required, name `x`, one child.
    let group = [0x35, 0x00, 0x18, 0x01, b'x', 0x15, 0x02, 0x00];
    let column = [0x15, 0x02, 0x25, 0x00, 0x18, 0x01, b'x', 0x00];
    // Version 1, a schema of one column, no rows, and 2^31 - 1 row groups.
    let two_elements = [&[0x15, 0x02, 0x19, 0x2c], &group[..], &column[..]].concat();
    let no_rows = [0x16, 0x00, 0x19, 0xfc, 0xff, 0xff, 0xff, 0xff, 0x07];
    let groups = [two_elements.as_slice(), &no_rows].concat();
    // Version 1, a schema of 300,000 groups, each within the one before.
    let mut nested = vec![0x15, 0x02, 0x19, 0xfc, 0xe0, 0xa7, 0x12];
    (0..300_000).for_each(|_| nested.extend(group));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.parquet");
    for (mut footer, text) in [
        (groups, "claims 2147483647 elements"),
        (nested, "nested deeper"),
    ] {
        footer.push(0);
        let length = u32::try_from(footer.len()).unwrap().to_le_bytes();
        fs::write(
            &path,
            [b"PAR1", footer.as_slice(), &length, b"PAR1"].concat(),
        )
        .unwrap();
        refused(
            load_path(&path),
            ErrorKind::InvalidData,
            &[text, "a.parquet"],
        );
    }
}

#[test]
fn all_differences_between_files_are_listed() {
    let folder = tempfile::tempdir().unwrap();
    let column = |name: &str, column: ArrayRef| (name.to_owned(), column);
    let numbers = || Arc::new(Int64Array::from(vec![1])) as ArrayRef;
    let floats = || Arc::new(Float64Array::from(vec![1.0])) as ArrayRef;
    let put = |name: &str, columns: Vec<(String, ArrayRef)>| {
        write(
            &folder.path().join(name),
            &RecordBatch::try_from_iter(columns).unwrap(),
            9,
        );
    };
    put(
        "a.parquet",
        vec![column("x", numbers()), column("y", numbers())],
    );
    put(
        "b.parquet",
        vec![
            column("x", floats()),
            column("y", numbers()),
            column("z", numbers()),
        ],
    );
    put("c.parquet", vec![column("y", numbers())]);
    let error = refused(load_path(folder.path()), ErrorKind::InvalidData, &[]);
    let lines: Vec<&str> = error.message().lines().map(str::trim).collect();
    let file = |name: &str| folder.path().join(name).display().to_string();
    let (a, b, c) = (file("a.parquet"), file("b.parquet"), file("c.parquet"));
    assert_eq!(
        lines,
        [
            format!("the files differ from the first, {a}:"),
            format!("{b}: column `x` is column 0 and Float64, expected Int64"),
            format!("{b}: column `z` is column 2 (Int64), not expected"),
            format!("{c}: column `x` missing, expected Int64"),
        ]
    );
    assert_eq!(
        (error.context("file"), error.context("column")),
        (Some(b.as_str()), Some("x"))
    );
}

#[test]
fn many_differences_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    for (file, start) in [("a", 0), ("b", 100)] {
        let columns = (start..start + 15).map(|number| {
            (
                format!("c{number}"),
                Arc::new(Int64Array::from(vec![1])) as ArrayRef,
            )
        });
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        write(&folder.path().join(format!("{file}.parquet")), &batch, 9);
    }
    let error = refused(
        load_path(folder.path()),
        ErrorKind::InvalidData,
        &["and 10 more"],
    );
    assert_eq!(error.message().lines().count(), 22);
}

#[test]
fn repeated_column_names_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.parquet");
    let field = Field::new("x", DataType::Int64, false);
    let schema = Schema::new(vec![field.clone(), field]);
    let column: ArrayRef = Arc::new(Int64Array::from(vec![1]));
    let batch = RecordBatch::try_new(Arc::new(schema), vec![Arc::clone(&column), column]).unwrap();
    write(&path, &batch, 9);
    refused(
        load_path(&path),
        ErrorKind::InvalidData,
        &["have the same name", "column: x"],
    );
}
