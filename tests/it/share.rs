//! Handles: opened where the grid is, lost when it was dropped, not local elsewhere; in threads and in forked children.

#![expect(unsafe_code, reason = "forks, to see what a child finds")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use partgrid::error::{ErrorKind, Result};
use partgrid::grid::{GridId, PartitionGrid};
use partgrid::location::{Device, Location};
use partgrid::share::{Handle, Incarnation, find, handle, open, publish};
use rustix::process::{Pid, WaitOptions, waitpid};

use crate::harm::{Random, cases};
use crate::support::{allocated_bytes, int_grid};

#[test]
fn a_handle_opens_the_very_tile() {
    let grid = shared();
    let handle = handle(&grid, &[1, 0]).unwrap();
    assert_eq!(
        (handle.grid, &handle.position[..]),
        (grid.id(), &[1, 0][..])
    );
    assert!(handle.owner.is_here());
    let tile = open(&handle).unwrap();
    assert!(Arc::ptr_eq(tile.data(), grid.tile(&[1, 0]).unwrap().data()));
}

#[test]
fn a_published_grid_is_found_until_it_is_dropped() {
    let grid = shared();
    let id = grid.id();
    assert!(find(id).is_none(), "not published yet");
    publish(&grid);
    publish(&grid);
    assert!(Arc::ptr_eq(&find(id).unwrap(), &grid));
    drop(grid);
    assert!(find(id).is_none(), "publishing keeps nothing alive");
}

#[test]
fn a_copy_of_a_grid_stands_in_for_the_one_that_was_dropped() {
    let grid = shared();
    let handle = handle(&grid, &[0, 0]).unwrap();
    let copy = Arc::new(PartitionGrid::clone(&grid));
    publish(&copy);
    drop(grid);
    assert!(open(&handle).is_ok());
    drop(copy);
    assert_eq!(open(&handle).unwrap_err().kind(), ErrorKind::PartitionLost);
}

#[test]
fn the_handle_of_a_dropped_grid_is_lost_and_says_what_to_keep() {
    let grid = shared();
    let handle = handle(&grid, &[1, 0]).unwrap();
    let id = grid.id();
    drop(grid);
    let error = open(&handle).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PartitionLost);
    assert_eq!(
        error.message(),
        format!("the grid was dropped, its tile is gone: grid {id}")
    );
    assert_eq!(error.context("position"), Some("(1, 0)"));
    assert!(
        error
            .hint()
            .unwrap()
            .starts_with("keep the grid, or the `__partitioned__` dictionary")
    );
}

#[test]
fn the_handle_of_another_process_is_not_local_and_names_it() {
    let owner = Location::new("10.9.8.7".parse().unwrap(), 4321, Device::CPU);
    let foreign = Handle {
        grid: GridId::from_bits(77),
        position: vec![2, 1],
        incarnation: Incarnation::from_bits(5),
        owner,
    };
    let error = open(&foreign).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotLocal);
    assert!(error.message().contains("10.9.8.7 pid 4321"), "{error}");
    assert!(
        error.message().contains(&foreign.grid.to_string()),
        "{error}"
    );
    assert_eq!(error.context("position"), Some("(2, 1)"));
    assert!(
        error
            .hint()
            .unwrap()
            .contains("open the handle in the process that made it")
    );
}

#[test]
fn a_position_outside_the_grid_has_no_handle_and_does_not_open() {
    let grid = shared();
    assert_eq!(
        handle(&grid, &[9, 0]).unwrap_err().kind(),
        ErrorKind::NotFound
    );
    let mut wrong = handle(&grid, &[0, 0]).unwrap();
    wrong.position = vec![9, 0];
    assert_eq!(open(&wrong).unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
fn a_handle_of_which_anything_changed_opens_the_tile_that_it_names_or_none() {
    let grid = shared();
    let good = handle(&grid, &[1, 0]).unwrap();
    let mut opened = 0;
    for case in 0..cases(20_000) / 10 {
        let mut random = Random::of(case);
        let mut changed = good.clone();
        for _ in 0..=random.below(2) {
            change(&mut random, &mut changed);
        }
        match open(&changed) {
            Ok(tile) => {
                opened += 1;
                let named = grid.tile(&changed.position).unwrap();
                assert!(changed.grid == grid.id(), "case {case}");
                assert!(Arc::ptr_eq(tile.data(), named.data()), "case {case}");
            }
            Err(error) => {
                let expected = [
                    ErrorKind::NotFound,
                    ErrorKind::NotLocal,
                    ErrorKind::PartitionLost,
                ];
                assert!(expected.contains(&error.kind()), "case {case}: {error}");
            }
        }
    }
    assert!(opened > 0);
}

/// Changes one thing that a handle says.
fn change(random: &mut Random, handle: &mut Handle) {
    match random.below(6) {
        0 => handle.grid = GridId::from_bits(u128::from(random.next())),
        1 => handle.incarnation = Incarnation::from_bits(u128::from(random.next())),
        2 => handle.position.push(random.place(3)),
        3 => drop(handle.position.pop()),
        4 => {
            let at = random.place(usize::MAX) >> random.below(64);
            handle.position = vec![at, 0];
        }
        _ => {
            let host = *random.one(&["10.9.8.7", "127.0.0.1", "::1"]);
            handle.owner = Location::new(host.parse().unwrap(), random.next(), Device::CPU);
        }
    }
}

#[test]
fn the_incarnation_is_one_for_all_threads_and_survives_its_bits() {
    let here = Incarnation::current().unwrap();
    let threads: Vec<_> = (0..8)
        .map(|_| std::thread::spawn(Incarnation::current))
        .collect();
    for thread in threads {
        assert_eq!(thread.join().unwrap().unwrap(), here);
    }
    assert_eq!(Incarnation::from_bits(here.bits()), here);
    assert_eq!(here.to_string().len(), 32);
}

#[test]
fn a_forked_child_has_its_own_incarnation_and_opens_the_handles_of_its_parent() {
    let grid = shared();
    let from_parent = handle(&grid, &[1, 0]).unwrap();
    let parent = Incarnation::current().unwrap();
    in_child(|| {
        let own = Incarnation::current()?;
        assert_ne!(own, parent);
        assert_eq!(own, Incarnation::current()?);
        assert_eq!(open(&from_parent)?.num_rows(), 2);
        let made_here = handle(&grid, &[0, 0])?;
        assert_eq!(made_here.incarnation, own);
        assert!(made_here.owner.is_here() && made_here.owner != from_parent.owner);
        Ok(())
    });
    assert_eq!(Incarnation::current().unwrap(), parent);
}

#[test]
fn in_a_forked_child_a_dropped_grid_is_lost_be_it_of_the_parent_or_its_own() {
    let grid = shared();
    let from_parent = handle(&grid, &[1, 0]).unwrap();
    drop(grid);
    in_child(|| {
        let lost = ErrorKind::PartitionLost;
        assert_eq!(open(&from_parent).unwrap_err().kind(), lost);
        let own = shared();
        let made_here = handle(&own, &[0, 0])?;
        drop(own);
        assert_eq!(
            open(&made_here).unwrap_err().kind(),
            ErrorKind::PartitionLost
        );
        Ok(())
    });
}

#[test]
fn forks_in_the_midst_of_publishing_leave_no_child_waiting() {
    let grid = shared();
    let from_parent = handle(&grid, &[1, 0]).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    publish(&grid);
                    let other = shared();
                    assert!(open(&handle(&other, &[0, 0]).unwrap()).is_ok());
                }
            });
        }
        for _ in 0..30 {
            in_child(|| {
                publish(&grid);
                open(&from_parent).map(drop)
            });
        }
        done.store(true, Ordering::Relaxed);
    });
}

// If each looked at all that are kept it would take minutes.
#[test]
fn many_short_lived_grids_are_published_beside_those_that_stay() {
    let kept: Vec<Arc<PartitionGrid>> = (0..20_000).map(|_| shared()).collect();
    kept.iter().for_each(publish);
    for _ in 0..200_000 {
        publish(&shared());
    }
    assert!(kept.iter().all(|grid| find(grid.id()).is_some()));
}

#[test]
fn what_was_dropped_is_swept_by_later_publishing() {
    let grid = shared();
    for _ in 0..5_000 {
        // One id, hence one bucket.
        publish(&Arc::new(PartitionGrid::clone(&grid)));
    }
    let ((), num_bytes) = allocated_bytes(|| publish(&grid));
    assert!(
        num_bytes < 16_000,
        "{num_bytes} bytes: the bucket still holds what is dead"
    );
}

fn shared() -> Arc<PartitionGrid> {
    Arc::new(int_grid(&[1, 2], &[1]))
}

/// Runs `check` in a forked child, which is stopped after 20 seconds, and fails if it fails there.
fn in_child(check: impl FnOnce() -> Result<()>) {
    unsafe extern "C" {
        fn fork() -> i32;
        fn alarm(seconds: u32) -> u32;
        fn _exit(code: i32) -> !;
    }
    // SAFETY: the child runs `check` alone, which waits for no other thread, and ends without running destructors of the parent.
    let child = unsafe { fork() };
    if child == 0 {
        // SAFETY: sets a timer of this process, no more.
        unsafe { alarm(20) };
        let checked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(check));
        // SAFETY: ends the child at once.
        unsafe { _exit(i32::from(!matches!(checked, Ok(Ok(()))))) };
    }
    let status = waitpid(Pid::from_raw(child), WaitOptions::empty()).unwrap();
    assert_eq!(
        status.and_then(|(_, status)| status.exit_status()),
        Some(0),
        "in the child"
    );
}
