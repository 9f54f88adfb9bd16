//! What a load refuses: sources that are not there, files that are damaged.

use std::fs;
use std::path::Path;

use partgrid::error::ErrorKind;
use partgrid::load::{LoadOptions, load};

use super::{block_on, folder, load_with, loaded, refused, whole, write};
use crate::parquet_types::all_types;

#[test]
fn nothing_there_is_an_error_that_names_the_path() {
    let folder = folder();
    for name in ["absent.parquet", "absent/*.parquet", "a/b/c"] {
        let path = folder.path().join(name);
        let error = refused(&path);
        assert_eq!(
            (error.kind(), error.context("file")),
            (ErrorKind::NotFound, path.to_str())
        );
    }
    assert_eq!(refused(folder.path()).kind(), ErrorKind::NotFound);
    fs::write(folder.path().join("_SUCCESS"), "").unwrap();
    let error = refused(folder.path());
    assert!(error.message().contains("*.parquet"), "{error}");
}

#[test]
fn other_stores_and_senseless_options_are_refused() {
    let unsupported =
        |source: &str| block_on(load(&[source.to_owned()], &LoadOptions::default())).unwrap_err();
    assert_eq!(unsupported("s3://bucket/x").kind(), ErrorKind::Unsupported);
    assert_eq!(unsupported("").kind(), ErrorKind::InvalidArgument);
    let none = block_on(load(&[], &LoadOptions::default())).unwrap_err();
    assert_eq!(none.kind(), ErrorKind::InvalidArgument);
    let folder = folder();
    for options in [
        LoadOptions::default().with_tile_rows(0),
        LoadOptions::default().with_concurrency(0),
    ] {
        let error = load_with(folder.path(), &options).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    }
}

#[test]
fn files_that_are_no_parquet_are_refused_by_name() {
    let folder = folder();
    for (name, content) in [
        ("empty.parquet", &b""[..]),
        ("text.parquet", b"this is no Parquet file at all, only text"),
        ("magic.parquet", b"PAR1PAR1PAR1"),
        ("long.parquet", b"PAR1\xff\xff\xff\x7fPAR1"),
        ("negative.parquet", b"PAR1\xff\xff\xff\xffPAR1"),
        ("locked.parquet", b"PAR1aaaaaaaaPARE"),
    ] {
        let path = folder.path().join(name);
        fs::write(&path, content).unwrap();
        let error = refused(&path);
        let kinds = [ErrorKind::InvalidData, ErrorKind::Unsupported];
        assert!(kinds.contains(&error.kind()), "{error}");
        assert_eq!(error.context("file"), path.to_str(), "{error}");
    }
}

#[test]
fn a_truncated_file_is_refused_wherever_it_ends() {
    let folder = folder();
    let whole = write(folder.path(), "a.parquet", &[all_types(20)]);
    let bytes = fs::read(&whole).unwrap();
    let path = folder.path().join("cut.parquet");
    for length in (0..bytes.len()).step_by(7) {
        fs::write(&path, &bytes[..length]).unwrap();
        assert_eq!(
            refused(&path).kind(),
            ErrorKind::InvalidData,
            "{length} bytes"
        );
    }
}

#[test]
fn flipped_bytes_give_an_error_or_a_whole_grid_and_never_a_panic() {
    let folder = folder();
    let path = write(folder.path(), "a.parquet", &[all_types(20)]);
    let bytes = fs::read(&path).unwrap();
    let (mut refusals, step) = (0, 3);
    for place in (0..bytes.len()).step_by(step) {
        let mut damaged = bytes.clone();
        damaged[place] ^= 0x5a;
        fs::write(&path, &damaged).unwrap();
        match load_with(&path, &LoadOptions::default()) {
            Ok(grid) => assert_eq!(whole(&grid).num_rows() as u64, grid.num_rows()),
            Err(_) => refusals += 1,
        }
    }
    assert!(
        refusals > bytes.len() / step / 20,
        "{refusals} of {}",
        bytes.len() / step
    );
}

#[test]
fn a_page_with_a_wrong_checksum_is_refused() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/airlines.parquet");
    let mut bytes = fs::read(source).unwrap();
    let place = bytes.windows(8).position(|window| window == b"Endeavor");
    // The strings are compressed; the first page's body starts some bytes after the file's mark.
    let place = place.unwrap_or(60);
    let folder = folder();
    let path = folder.path().join("a.parquet");
    fs::write(&path, &bytes).unwrap();
    assert_eq!(loaded(&path).num_rows(), 16);
    bytes[place] ^= 1;
    fs::write(&path, &bytes).unwrap();
    let error = refused(&path);
    assert_eq!(error.kind(), ErrorKind::InvalidData);
    assert!(
        error.to_string().contains("CRC checksum mismatch"),
        "{error}"
    );
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
    let folder = folder();
    let path = folder.path().join("a.parquet");
    for (mut footer, text) in [
        (groups, "claims 2147483647 elements"),
        (nested, "nested deeper"),
    ] {
        footer.push(0);
        let length = u32::try_from(footer.len()).unwrap().to_le_bytes();
        let file = [b"PAR1", footer.as_slice(), &length, b"PAR1"].concat();
        fs::write(&path, file).unwrap();
        let error = refused(&path);
        assert_eq!(error.kind(), ErrorKind::InvalidData);
        assert!(error.message().contains(text), "{error}");
        assert_eq!(error.context("file"), path.to_str());
    }
}
