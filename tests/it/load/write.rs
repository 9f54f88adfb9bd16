//! Batches written as Parquet while they come.

use arrow::datatypes::Int64Type;
use futures::stream;
use partgrid::load::{FileCompression, WriteOptions, write_batches};

use super::*;

/// Writes what comes, and says how many files that were.
fn written(
    batches: Vec<Result<RecordBatch>>,
    folder: &Path,
    options: &WriteOptions,
) -> Result<u64> {
    let (schema, url) = (frame(0..0).schema(), folder.to_str().unwrap());
    block_on(write_batches(schema, stream::iter(batches), url, options))
}

#[test]
fn small_batches_share_a_file_and_a_large_one_has_several() {
    let folder = tempfile::tempdir().unwrap();
    let small: Vec<_> = (0..40).map(|start| Ok(frame(start..start + 1))).collect();
    let options = WriteOptions::default();
    assert_eq!(written(small, folder.path(), &options).unwrap(), 1);
    assert_eq!(rows_of(&load_path(folder.path()).unwrap()), frame(0..40));

    let folder = tempfile::tempdir().unwrap();
    let large = vec![Ok(frame(0..0)), Ok(frame(0..2_500_000))];
    let options = options.with_compression(FileCompression::Lz4);
    assert_eq!(written(large, folder.path(), &options).unwrap(), 3);
    let grid = load_path(folder.path()).unwrap();
    assert_eq!(grid.num_rows(), 2_500_000);
    let rows = rows_of(&grid);
    let numbers = rows.column(0).as_primitive::<Int64Type>();
    assert!(numbers.values().iter().copied().eq(0..2_500_000));
}

#[test]
fn no_batch_is_a_file_without_rows() {
    let folder = tempfile::tempdir().unwrap();
    let options = WriteOptions::default();
    assert_eq!(written(Vec::new(), folder.path(), &options).unwrap(), 1);
    let grid = load_path(folder.path()).unwrap();
    assert_eq!(grid.num_rows(), 0);
    assert_eq!(column_names(&grid), ["number", "text"]);
}

#[test]
fn an_error_among_the_batches_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let late = Error::invalid_argument("the last batch is broken");
    let batches = vec![Ok(frame(0..2_000_000)), Err(late)];
    let error = written(batches, &out, &WriteOptions::default()).unwrap_err();
    assert_eq!(error.message(), "the last batch is broken");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn batches_have_no_tiles_with_files_of_their_own() {
    let folder = tempfile::tempdir().unwrap();
    let options = WriteOptions::default().with_file_per_tile(true);
    let error = written(vec![Ok(frame(0..3))], folder.path(), &options).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}
