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
