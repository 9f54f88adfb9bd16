//! Work at the tiles of a load that all members share.
//!
//! Comes in: numbers of row bands, or of groups of rows, and what is to be done with them. Goes out: what each member said that did some of it: each with the first of its owners, as placement says. What a member that is
//! lost has not done, others do. Never here: what is done.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::try_join_all;

use crate::cluster::Cluster;
use crate::cluster::members::join::alive;
use crate::cluster::members::{Member, Members};
use crate::cluster::placement::leaf::seats;
use crate::cluster::placement::{Seat, owner};
use crate::error::{Error, ErrorKind, Result};

/// How long is waited before a member is asked again, at first; it is asked four times at most.
const PAUSE: Duration = Duration::from_secs(1);

/// What members do with tiles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::cluster) enum Doing {
    /// Write them as they are.
    Write,
    /// Bring their rows into an order.
    Arrange,
}

/// What a member is told of some numbers.
type Telling<'a> = &'a (dyn Fn(&[usize]) -> Result<Vec<u8>> + Sync);

/// Takes what a member said when it had done some numbers.
type Hearing<'a> = &'a (dyn Fn(&[usize], &[u8]) -> Result<()> + Sync);

/// Work for all members.
pub(in crate::cluster) struct Work<'a> {
    pub(in crate::cluster) doing: Doing,
    /// By which its numbers are placed.
    pub(in crate::cluster) placement: u128,
    /// How many numbers a member is asked for at a time: so many are lost with it at most.
    pub(in crate::cluster) at_once: usize,
    pub(in crate::cluster) message: Telling<'a>,
    pub(in crate::cluster) done: Hearing<'a>,
}

/// The numbers that a member has not done, and why it is taken for lost.
type Left = Option<(Vec<usize>, Error)>;

impl Cluster {
    /// Has the members do work for all these numbers.
    ///
    /// # Errors
    /// The first that stands in the way at a member that is there.
    pub(in crate::cluster) async fn by_all(
        &self,
        members: &Arc<Members>,
        work: &Work<'_>,
        numbers: Vec<usize>,
    ) -> Result<()> {
        let mut is_lost = vec![false; members.len()];
        let mut left = numbers;
        while !left.is_empty() {
            let dealt = dealt(work.placement, &left, members, &is_lost);
            left.clear();
            let working = members.iter().zip(&dealt);
            let working = working.map(|(member, some)| self.by_one(members, member, some, work));
            for (number, lost) in try_join_all(working).await?.into_iter().enumerate() {
                if let (Some((more, error)), Some(is_lost), Some(member)) =
                    (lost, is_lost.get_mut(number), members.iter().nth(number))
                {
                    tracing::warn!(member = member.uri(), tiles = more.len(), %error, "a member was lost during a load, others take its part");
                    *is_lost = true;
                    left.extend(more);
                }
            }
        }
        Ok(())
    }

    /// Has one member do its work.
    async fn by_one(
        &self,
        members: &Members,
        member: &Member,
        numbers: &[usize],
        work: &Work<'_>,
    ) -> Result<Left> {
        let is_own = member.incarnation() == members.own().incarnation();
        let at_once = work.at_once.max(1);
        for (turn, some) in numbers.chunks(at_once).enumerate() {
            let message = (work.message)(some)?;
            let said = match is_own {
                true => Bytes::from(self.by_itself(work.doing, &message).await?),
                false => match self.ask(member, work.doing, &message).await? {
                    Ok(said) => said,
                    Err(error) => {
                        let left = numbers.get(turn * at_once..).unwrap_or_default();
                        return Ok(Some((left.to_vec(), error)));
                    }
                },
            };
            (work.done)(some, &said)?;
        }
        Ok(None)
    }

    async fn by_itself(&self, doing: Doing, message: &[u8]) -> Result<Vec<u8>> {
        match doing {
            Doing::Write => Box::pin(self.write_part(message)).await,
            Doing::Arrange => Box::pin(self.arrange_part(message)).await,
        }
    }

    /// Asks a member, again where the network or a store failed; the inner error says that it is lost.
    ///
    /// # Errors
    /// That of a member that is there.
    async fn ask(&self, member: &Member, doing: Doing, message: &[u8]) -> Result<Result<Bytes>> {
        let mut pause = PAUSE;
        loop {
            let asked = async {
                let client = self.reach.client(member.uri()).await?;
                match doing {
                    Doing::Write => client.write_tiles(message.to_vec()).await,
                    Doing::Arrange => client.arrange_tiles(message.to_vec()).await,
                }
            };
            let error = match asked.await {
                Ok(said) => return Ok(Ok(said)),
                Err(error) => error,
            };
            let (there, _) = alive(&self.reach, &[member.uri().to_owned()]).await;
            let lives = there.iter().map(Member::incarnation);
            if !lives.into_iter().any(|life| life == member.incarnation()) {
                return Ok(Err(error));
            }
            // Written a second time they have other names.
            let may_pass = matches!(error.kind(), ErrorKind::Storage { retryable: true });
            if !may_pass || pause > PAUSE * 4 {
                return Err(error.with_context("member", member.uri()));
            }
            tracing::warn!(member = member.uri(), %error, "a member could not write tiles, it is asked again");
            tokio::time::sleep(pause).await;
            pause *= 2;
        }
    }
}

/// The numbers of each member that is there: each with the first of its owners.
fn dealt(
    placement: u128,
    numbers: &[usize],
    members: &Members,
    is_lost: &[bool],
) -> Vec<Vec<usize>> {
    let seats = seats(members, members.len()).into_iter().enumerate();
    let there = seats.filter(|(number, _)| !is_lost.get(*number).copied().unwrap_or(true));
    // Who is lost leaves the others in their order: the first of all owners that is there is the owner among these.
    let (there, seats): (Vec<usize>, Vec<Seat<'_>>) = there.unzip();
    let mut dealt = vec![Vec::new(); members.len()];
    for number in numbers {
        let place = owner(placement, *number as u64, &seats);
        let member = place.and_then(|place| there.get(place).copied());
        if let Some(of_member) = member.and_then(|member| dealt.get_mut(member)) {
            of_member.push(*number);
        }
    }
    dealt
}
