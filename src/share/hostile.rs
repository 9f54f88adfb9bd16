//! Packets that somebody has changed: read as something that makes sense, or refused.
//!
//! Comes in: good packets. Goes out: nothing. `PARTGRID_FUZZ_CASES` says how many are tried. Never here: sockets and processes (`tests/python/share/test_shared_memory_lies.py`).

use super::SharedSegment;
use super::wire::{Grant, Part, Reply, Request};
use crate::counting::allocated_bytes;
use crate::error::{Error, ErrorKind, Result};
use crate::grid::GridId;
use crate::harm::{Random, cases, harmed};

/// What reading a packet of so many bytes may ask for: its numbers, some of them twice, and the text of an error.
const MOST_PER_BYTE: usize = 16;
const MOST_BESIDE: usize = 16 * 1024;

fn requests() -> Vec<Vec<u8>> {
    let acquire = Request::Acquire {
        grid: GridId::from_bits(1 << 100),
        position: vec![3, 1],
    };
    let release = Request::Release(vec![1, 2, u64::MAX]);
    let all = [Request::Hello, acquire, release, Request::List];
    all.iter().map(Request::bytes).collect()
}

fn replies() -> Vec<Vec<u8>> {
    let part = Part {
        rows: 3..9,
        columns: vec![1, 0],
    };
    let grant = |part| Grant {
        lease: 7,
        segment_bytes: 1 << 40,
        start: vec![5, 0],
        part,
    };
    let lost = Error::new(ErrorKind::PartitionLost, "gone").with_hint("keep it");
    let entry = SharedSegment {
        grid: GridId::from_bits(9),
        position: vec![0, 2],
        segment_bytes: 4096,
        is_copy: true,
        readers: vec![1, 1, 77],
    };
    let all = [
        Reply::Hello { proof: 5 },
        Reply::Working,
        Reply::Segment(grant(None)),
        Reply::Segment(grant(Some(part))),
        Reply::Failure(lost.with_position(&[1, 0])),
        Reply::Entry(entry),
        Reply::End,
    ];
    all.iter().map(Reply::bytes).collect()
}

/// Changes packets and has each read and written again.
fn tried(good: &[Vec<u8>], read: impl Fn(&[u8]) -> Result<Vec<u8>>) {
    let cases = cases(100_000);
    let mut taken = 0;
    for case in 0..cases {
        let mut random = Random::of(case);
        let (packet, other) = (random.one(good), random.place(good.len()));
        let packet = harmed(&mut random, packet, &good[other]);
        let (found, asked) = allocated_bytes(|| read(&packet));
        let most = MOST_BESIDE + MOST_PER_BYTE * packet.len();
        assert!(asked < most, "case {case}: {asked} of {}", packet.len());
        match found {
            Ok(written) => {
                taken += 1;
                // What was taken means the same when it is said again.
                assert_eq!(read(&written).unwrap(), written, "case {case}");
            }
            Err(error) => {
                let kind = error.kind();
                let expected = [ErrorKind::Protocol, ErrorKind::Unsupported];
                assert!(expected.contains(&kind), "case {case}: {error}");
            }
        }
    }
    assert!(taken > cases / 100 && taken < cases, "{taken}");
}

#[test]
fn changed_requests_are_read_or_refused() {
    tried(&requests(), |packet| Ok(Request::read(packet)?.bytes()));
}

#[test]
fn changed_replies_are_read_or_refused() {
    tried(&replies(), |packet| Ok(Reply::read(packet)?.bytes()));
}
