//! What is there after a server ended.

use std::path::Path;
use std::time::Duration;

use partgrid::catalog::Catalog;
use partgrid::client::{Client, ClientOptions, IfExists};
use partgrid::error::ErrorKind;
use partgrid::serve::Server;

use super::{numbers, options, runtime};

fn files(folder: &Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap();
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

#[test]
fn a_catalog_has_what_was_acknowledged_and_nothing_that_was_dropped() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().display().to_string();
    runtime().block_on(async {
        let options = options().with_catalog(&place);
        let server = Server::start(&options).await.unwrap();
        let client = Client::connect(server.uri(), &ClientOptions::default())
            .await
            .unwrap();
        let done = client
            .upload(&numbers(), "kept", IfExists::Fail)
            .await
            .unwrap();
        assert!(done.is_durable);
        client
            .upload(&numbers(), "gone", IfExists::Fail)
            .await
            .unwrap();
        client
            .sql("CREATE TABLE made AS SELECT n * 2 AS m FROM kept")
            .await
            .unwrap();
        client.sql("DROP TABLE gone").await.unwrap();
        drop(server);

        let catalog = Catalog::open(&place).await.unwrap();
        let grids = catalog.grids().await.unwrap();
        assert_eq!(grids.keys().collect::<Vec<_>>(), ["kept", "made"]);
        let kept = &grids["kept"];
        assert_eq!(kept.rows().cuts(), [0, 10, 20, 30]);
        let (before, after) = (numbers(), kept.open_row_band(1).unwrap());
        assert_eq!(before.open_row_band(1).unwrap(), after);
        let busy = Catalog::open(&place).await.unwrap_err();
        assert_eq!(busy.kind(), ErrorKind::ResourcesExhausted, "{busy}");
    });
}

#[test]
fn a_damaged_tile_is_an_error_that_names_its_file() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().display().to_string();
    runtime().block_on(async {
        let catalog = Catalog::open(&place).await.unwrap();
        catalog.keep("kept", &numbers()).await.unwrap();
        let tile = files(&folder.path().join("tiles")).remove(0);
        let mut bytes = std::fs::read(&tile).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        std::fs::write(&tile, &bytes).unwrap();
        catalog.close();
        let catalog = Catalog::open(&place).await.unwrap();
        let grid = catalog.grids().await.unwrap().remove("kept").unwrap();
        let mut faults = 0;
        for tile in grid.tiles() {
            if let Err(error) = tile.data().fetch(&[0]).await {
                assert_eq!(error.kind(), ErrorKind::InvalidData, "{error}");
                assert!(error.context("file").unwrap().ends_with(".arrow"));
                assert!(error.hint().unwrap().contains("put the file back"));
                faults += 1;
            }
        }
        assert_eq!(faults, 1);
        std::fs::write(&tile, &bytes[..middle]).unwrap();
        let short = catalog.grids().await.unwrap_err();
        assert_eq!(short.kind(), ErrorKind::InvalidData, "{short}");
    });
}

#[test]
fn what_is_no_place_of_a_catalog_is_refused_with_a_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    runtime().block_on(async {
        for place in ["shared://mnt/catalog", "shared://", "file://localhost/mnt"] {
            let error = Catalog::open(place).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
            assert!(error.message().ends_with(&format!("got {place:?}")));
            assert!(error.hint().unwrap().contains(":///mnt/catalog"), "{error}");
        }
        for place in [file.clone(), file.join("below")] {
            let opened = Catalog::open(&place.display().to_string()).await;
            let error = opened.unwrap_err();
            let hint = error.hint().unwrap();
            assert!(hint.contains("is kept in a folder"), "{error}");
            assert!(hint.ends_with(&format!("{} is a file", file.display())));
        }
    });
}

#[test]
fn files_of_others_in_the_folder_stay() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().display().to_string();
    std::fs::create_dir_all(folder.path().join("tiles")).unwrap();
    std::fs::create_dir_all(folder.path().join("grids/mine")).unwrap();
    let others = [
        "tiles/photo.arrow",
        "grids/mine/notes.json",
        "tiles/.writing",
        "a.txt",
    ];
    for name in others {
        std::fs::write(folder.path().join(name), "mine").unwrap();
    }
    runtime().block_on(async {
        let catalog = Catalog::open(&place).await.unwrap();
        catalog.keep("kept", &numbers()).await.unwrap();
        catalog.keep("kept", &numbers()).await.unwrap();
        catalog.close();
        let catalog = Catalog::open(&place).await.unwrap();
        assert_eq!(catalog.grids().await.unwrap()["kept"].num_rows(), 30);
    });
    for name in others {
        assert_eq!(
            std::fs::read_to_string(folder.path().join(name)).unwrap(),
            "mine"
        );
    }
    // The tiles of the first version are gone.
    let tiles = files(&folder.path().join("tiles"));
    assert_eq!(
        tiles
            .iter()
            .filter(|path| path.to_string_lossy().contains("-0-"))
            .count(),
        3
    );
}

/// Places that several processes may have, each empty.
fn shared(folder: &Path) -> [String; 2] {
    [
        format!("shared://{}", folder.display()),
        format!("memory:///{}", folder.display()),
    ]
}

#[test]
fn who_has_not_heard_of_a_change_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    for place in shared(folder.path()) {
        runtime().block_on(async {
            let one = Catalog::open(&place).await.unwrap();
            let other = Catalog::open(&place).await.unwrap();
            one.keep("a", &numbers()).await.unwrap();
            let late = other.keep("a", &numbers()).await.unwrap_err();
            let expected = ErrorKind::Storage { retryable: true };
            assert_eq!(late.kind(), expected, "{place}: {late}");
            let late = other.drop_grid("a").await.unwrap_err();
            assert_eq!(late.kind(), expected, "{place}: {late}");

            assert_eq!(heard(&other, false).await, [("a".to_owned(), Some(30))]);
            // It was not taken in: nothing may be changed by who goes by something else.
            let late = other.keep("a", &numbers()).await.unwrap_err();
            assert_eq!(late.kind(), expected, "{place}: {late}");
            assert_eq!(heard(&other, true).await, [("a".to_owned(), Some(30))]);
            assert!(heard(&other, true).await.is_empty());
            other.drop_grid("a").await.unwrap();
            assert_eq!(heard(&one, true).await, [("a".to_owned(), None)]);
            one.keep("a", &numbers()).await.unwrap();
        });
    }
}

#[test]
fn what_no_name_has_any_more_goes_after_the_grace_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    for place in shared(folder.path()) {
        runtime().block_on(async {
            let catalog = Catalog::open(&place).await.unwrap();
            let reader = Catalog::open(&place).await.unwrap();
            for _ in 0..2 {
                catalog.keep("a", &numbers()).await.unwrap();
            }
            assert_eq!(catalog.collect(Duration::from_secs(3600)).await.unwrap(), 0);
            // Three tiles and a manifest of the first version.
            assert_eq!(reader.collect(Duration::ZERO).await.unwrap(), 4, "{place}");
            let grids = reader.grids().await.unwrap();
            assert_eq!(
                grids["a"].open_row_band(1).unwrap(),
                numbers().open_row_band(1).unwrap()
            );
            catalog.drop_grid("a").await.unwrap();
            assert_eq!(catalog.collect(Duration::from_secs(3600)).await.unwrap(), 0);
            // What says that it was dropped stays: numbers go on from it.
            assert_eq!(reader.collect(Duration::ZERO).await.unwrap(), 4, "{place}");
            catalog.keep("a", &numbers()).await.unwrap();
            assert_eq!(heard(&reader, true).await, [("a".to_owned(), Some(30))]);
        });
    }
}

#[test]
fn names_may_have_any_letters() {
    let folder = tempfile::tempdir().unwrap();
    for place in shared(folder.path()) {
        runtime().block_on(async {
            let one = Catalog::open(&place).await.unwrap();
            let other = Catalog::open(&place).await.unwrap();
            let names = ["a b", "café/ü", "100%25", "sales.2024"];
            for name in names {
                one.keep(name, &numbers()).await.unwrap();
            }
            let mut heard = heard(&other, true).await;
            heard.sort();
            let mut expected = names.map(|name| (name.to_owned(), Some(30)));
            expected.sort();
            assert_eq!(heard, expected, "{place}");
            let grids = Catalog::open(&place).await.unwrap().grids().await.unwrap();
            assert_eq!(grids.len(), names.len(), "{place}");
            for name in names {
                other.drop_grid(name).await.unwrap();
            }
            // Three tiles and a manifest of each.
            let collected = other.collect(Duration::ZERO).await.unwrap();
            assert_eq!(collected, names.len() * 4, "{place}");
        });
    }
}

#[test]
fn one_damaged_manifest_stands_in_the_way_of_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let place = format!("shared://{}", folder.path().display());
    runtime().block_on(async {
        let one = Catalog::open(&place).await.unwrap();
        let other = Catalog::open(&place).await.unwrap();
        for name in ["a", "b", "c"] {
            one.keep(name, &numbers()).await.unwrap();
        }
        let manifest = files(&folder.path().join("grids").join("b")).remove(0);
        let whole = std::fs::read(&manifest).unwrap();
        std::fs::write(&manifest, &whole[..whole.len() / 2]).unwrap();
        let grids = Catalog::open(&place).await.unwrap().grids().await.unwrap();
        assert_eq!(grids.keys().collect::<Vec<_>>(), ["a", "c"]);
        let changes = other.changes().await.unwrap();
        let names: Vec<_> = changes
            .iter()
            .flatten()
            .map(|changed| changed.name())
            .collect();
        assert_eq!(names, ["a", "c"]);
        let failed: Vec<_> = changes
            .iter()
            .filter_map(|changed| changed.as_ref().err())
            .collect();
        assert_eq!(failed.len(), 1);
        assert_eq!(failed[0].kind(), ErrorKind::InvalidData);
        // No tile goes as long as nobody knows what is wanted.
        assert!(other.collect(Duration::ZERO).await.is_err());
        std::fs::write(&manifest, &whole).unwrap();
        assert_eq!(heard(&other, true).await.len(), 3);
    });
}

/// What a catalog hears of the others, by name; with the number of rows of what there is now.
async fn heard(catalog: &Catalog, is_taken: bool) -> Vec<(String, Option<u64>)> {
    let changes = catalog.changes().await.unwrap();
    let changes = changes.into_iter().map(|changed| {
        let changed = changed.unwrap();
        if is_taken {
            catalog.take_in(&changed);
        }
        let rows = changed.grid().map(|grid| grid.num_rows());
        (changed.name().to_owned(), rows)
    });
    changes.collect()
}

#[test]
fn statistics_are_known_without_reading_tiles() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().display().to_string();
    runtime().block_on(async {
        let catalog = Catalog::open(&place).await.unwrap();
        catalog.keep("kept", &numbers()).await.unwrap();
        catalog.close();
        let catalog = Catalog::open(&place).await.unwrap();
        let grid = catalog.grids().await.unwrap().remove("kept").unwrap();
        for file in files(&folder.path().join("tiles")) {
            std::fs::remove_file(file).unwrap();
        }
        for (before, after) in numbers().tiles().iter().zip(grid.tiles()) {
            let known = after.known_statistics(0).expect("it was written");
            let expected = before.statistics_at_hand(0).unwrap();
            assert_eq!(known.null_count, expected.null_count);
            assert_eq!(known.bounds, expected.bounds);
        }
    });
}
