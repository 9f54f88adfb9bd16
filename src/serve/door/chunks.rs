//! Bytes in pieces that are sent as one.
//!
//! Comes in: pieces. Goes out: a [`Chunks`], which HTTP/2 writes as one frame with few calls of the system, and the body of an answer made of such. Never here: what the bytes are.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use http_body::{Frame, SizeHint};
use tonic::Status;
use tonic::body::Body;

/// Pieces, one behind the other; none is empty.
#[derive(Debug, Default)]
pub(super) struct Chunks {
    pieces: VecDeque<Bytes>,
    remaining: usize,
}

impl Chunks {
    pub(super) fn push(&mut self, piece: Bytes) {
        if !piece.is_empty() {
            self.remaining += piece.len();
            self.pieces.push_back(piece);
        }
    }
}

impl From<Bytes> for Chunks {
    fn from(bytes: Bytes) -> Self {
        let mut chunks = Self::default();
        chunks.push(bytes);
        chunks
    }
}

impl Buf for Chunks {
    fn remaining(&self) -> usize {
        self.remaining
    }

    fn chunk(&self) -> &[u8] {
        self.pieces.front().map_or(&[], AsRef::as_ref)
    }

    fn chunks_vectored<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let pairs = slices.iter_mut().zip(&self.pieces);
        pairs
            .map(|(slice, piece)| *slice = IoSlice::new(piece))
            .count()
    }

    fn advance(&mut self, mut count: usize) {
        assert!(
            count <= self.remaining,
            "{count} bytes are behind the end of {}",
            self.remaining
        );
        self.remaining -= count;
        while let Some(first) = self.pieces.front_mut() {
            if count < first.len() {
                first.advance(count);
                return;
            }
            count -= first.len();
            self.pieces.pop_front();
        }
    }
}

/// The body of an answer.
pub(super) enum Answer<B> {
    /// Its bytes are in pieces.
    Pieces(B),
    /// Written by tonic.
    Whole(Body),
}

impl<B> http_body::Body for Answer<B>
where
    B: http_body::Body<Data = Chunks, Error = Status> + Unpin,
{
    type Data = Chunks;
    type Error = Status;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Chunks>, Status>>> {
        match self.get_mut() {
            Self::Pieces(body) => Pin::new(body).poll_frame(context),
            Self::Whole(body) => {
                let next = Pin::new(body).poll_frame(context);
                next.map(|next| next.map(|frame| frame.map(|frame| frame.map_data(Chunks::from))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Pieces(body) => body.is_end_stream(),
            Self::Whole(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Pieces(body) => body.size_hint(),
            Self::Whole(body) => body.size_hint(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn three() -> Chunks {
        let mut chunks = Chunks::default();
        for piece in ["one", "", "two", "three"] {
            chunks.push(Bytes::from_static(piece.as_bytes()));
        }
        chunks
    }

    #[test]
    fn pieces_are_read_as_one_wherever_they_are_cut() {
        for count in 0..=11 {
            let mut chunks = three();
            chunks.advance(count);
            assert_eq!(chunks.remaining(), 11 - count);
            let rest = chunks.copy_to_bytes(11 - count);
            assert_eq!(rest, "onetwothree".as_bytes()[count..]);
            assert!(!chunks.has_remaining() && chunks.chunk().is_empty());
        }
    }

    #[test]
    fn as_many_pieces_are_written_at_once_as_there_is_room_for() {
        let mut chunks = three();
        chunks.advance(1);
        let mut slices = [IoSlice::new(&[]); 2];
        assert_eq!(chunks.chunks_vectored(&mut slices), 2);
        assert_eq!(slices.map(|slice| slice.to_vec()), [b"ne", &b"two"[..]]);
        let mut slices = [IoSlice::new(&[]); 5];
        assert_eq!(chunks.chunks_vectored(&mut slices), 3);
    }

    #[test]
    #[should_panic(expected = "3 bytes are behind the end of 2")]
    fn nobody_reads_past_the_end() {
        Chunks::from(Bytes::from_static(b"ab")).advance(3);
    }
}
