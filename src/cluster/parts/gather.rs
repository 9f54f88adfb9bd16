//! One grid of what several processes have.
//!
//! Comes in: the members of a moment. Goes out: each grid all of whose parts somebody has, under its name in this process, over tiles that say who has them; what `copies.rs` decides is done: copies that
//! nobody needs go, missing ones are asked for (`copying.rs`). What members say beside of what they do is remembered (`figures.rs`), and so is what is wrong with parts (`incomplete.rs`). Never here: bringing tiles, keeping parts.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::RecordBatch;
use futures::future::{join_all, try_join_all};
use futures::try_join;
use tokio::sync::OwnedMutexGuard;

use super::copies::{Choice, Deal, Dealt, Survey, Told, data_of};
use super::{Made, of_parts, sample_rows, sample_told};
use crate::cluster::Cluster;
use crate::cluster::members::channel::lost;
use crate::cluster::members::{Member, Members};
use crate::cluster::tile::MemberTile;
use crate::cluster::tile::outline::{Access, There};
use crate::error::{Error, ErrorKind, Result};
use crate::flight::messages::GridPart;
use crate::grid::{GridId, PartitionGrid};
use crate::query::{sample, sample_of_parts};
use crate::share::{Heard, Incarnation};

/// How many parts are asked for at a time.
const AT_ONCE: usize = 16;

/// How long a member may take to say which parts it has.
const ANSWER: Duration = Duration::from_secs(10);

/// How long others may take to give names to grids.
const TURN: Duration = Duration::from_secs(10);

/// How many grids with the same rows are remembered under a name.
const MOST_SAME: usize = 16;

/// What all members said, grid by grid.
#[derive(Default)]
struct Said {
    told: BTreeMap<String, Vec<Told>>,
    /// Those that did not answer.
    silent: HashSet<Incarnation>,
}

impl Cluster {
    /// Puts every grid under its name all of whose parts some member has. One that was made before stays as it was while parts of it are missing: statements over it fail rather than leave rows out. It goes
    /// once nobody has any part of it, if these are all members (`are_all`), those that had parts among them, and each has answered.
    ///
    /// # Errors
    /// What stands in the way of any of them, once the others were looked at.
    pub(in crate::cluster) async fn gather(&self, members: &Members, are_all: bool) -> Result<()> {
        let (said, mut failed) = self.asked(members).await;
        self.heed_drops(&mut self.parts(), &said.told);
        self.hear(&said, are_all && said.silent.is_empty());
        let Said { told, silent } = said;
        let (mut there, mut wishes) = (BTreeSet::new(), Vec::new());
        let (mut lacking, mut choices) = (BTreeMap::new(), BTreeMap::new());
        for (name, told) in &told {
            let survey = Survey {
                members,
                silent: &silent,
                name,
                told,
            };
            let choice = survey.choice();
            if !choice.is_empty() {
                there.insert(name.as_str());
            }
            let made = match choice.serving() {
                Ok(Some((deal, dealt))) => Box::pin(self.make(&survey, deal, dealt)).await,
                Ok(None) => Ok(()),
                Err(error) => Err(error),
            };
            if let Some(error) = self.lacking(name, &choice, &made) {
                lacking.insert(name.clone(), error);
            }
            failed = failed.and(made.map_err(|error| error.with_context("grid", name.as_str())));
            // Whatever came of it: what nobody needs goes.
            wishes.extend(self.settled(&survey, &choice));
            choices.insert(name.as_str(), choice);
        }
        // Of a look at some of the members nobody knows whether parts are missing.
        let now = self.members();
        if now
            .iter()
            .all(|member| members.number_of(member.incarnation()).is_some())
        {
            self.lack(&lacking, &told, &choices);
        }
        self.parts().age_only_own();
        if are_all && silent.is_empty() {
            let ids = told.values().flatten();
            let ids = ids.map(|told| told.part.id.as_slice());
            let ids: HashSet<&[u8]> = ids.collect();
            self.copying.say_only(&ids);
            self.parts().withdrawn.remember_only(&ids);
            self.forget_others(members, &there);
        }
        self.copy(wishes);
        failed
    }

    /// Remembers of which parts there may be copies, all of them (`are_all`) or some.
    fn hear(&self, said: &Said, are_all: bool) {
        let told = said.told.values().flatten();
        let copied = told.filter(|told| told.part.num_holders() > 1);
        let ids = copied.map(|told| (told.part.name.clone(), told.part.id.clone()));
        self.parts().withdrawn.hear(ids.collect(), are_all);
    }

    /// Takes the grids from this member of which these members, all of which have answered, have no part any more. Those of members that are not among them stay: nobody knows what these have.
    fn forget_others(&self, members: &Members, there: &BTreeSet<&str>) {
        let lives: HashSet<Incarnation> = members.iter().map(Member::incarnation).collect();
        let mut parts = self.parts();
        let gone = parts.made.iter().filter(|(name, made)| {
            let mut had = made.of.iter().map(|(_, life)| life);
            !there.contains(name.as_str()) && had.all(|life| lives.contains(life))
        });
        let gone: Vec<String> = gone.map(|(name, _)| name.clone()).collect();
        for name in gone {
            let _was_there = self.unmake(&mut parts, &name, None);
        }
    }

    /// Asks all members what they have.
    async fn asked(&self, members: &Members) -> (Said, Result<()>) {
        self.figures.let_go_of_old(Instant::now());
        let own = members.own().incarnation();
        let asking = members.iter().map(|member| async move {
            match member.incarnation() == own {
                true => Ok(self.own_parts()),
                false => self.parts_at(member).await,
            }
        });
        let answers = join_all(asking).await;
        let (mut said, mut failed) = (Said::default(), Ok(()));
        for (at, (member, parts)) in members.iter().zip(answers).enumerate() {
            match parts {
                Ok(parts) => {
                    for part in parts {
                        let of_grid = said.told.entry(part.name.clone()).or_default();
                        of_grid.push(Told { part, at });
                    }
                }
                Err(error) => {
                    said.silent.insert(member.incarnation());
                    failed = failed.and(Err(error));
                }
            }
        }
        (said, failed)
    }

    async fn parts_at(&self, member: &Member) -> Result<Vec<GridPart>> {
        let asking = async { self.reach.client(member.uri()).await?.parts().await };
        let answer = tokio::time::timeout(ANSWER, asking).await;
        let silent = |_| lost(member.url(), "it did not say within 10 seconds what it has");
        let told = answer.map_err(silent)??;
        let now = Instant::now();
        self.figures.hear(member.incarnation(), told.figures, now);
        Ok(told.parts)
    }

    /// The grid of these parts, under its name, if they are others than before, or other members serve them.
    async fn make(&self, survey: &Survey<'_>, deal: Deal, dealt: &Dealt) -> Result<()> {
        let name = survey.name;
        let members: Vec<&Member> = survey.members.iter().collect();
        let parts = dealt.parts.values();
        let parts = parts.filter_map(|told| Some((&told.part, *members.get(told.at)?)));
        let parts: Vec<(&GridPart, &Member)> = parts.collect();
        let of = parts.iter();
        let of = of.map(|(part, member)| (part.id.clone(), member.incarnation()));
        let of: Vec<(Vec<u8>, Incarnation)> = of.collect();
        let before = {
            let parts = self.parts();
            match parts.made.get(name) {
                Some(made) if made.of == of => return Ok(()),
                None if parts.withdrawn.is_all(name, of.iter().map(|(id, _)| id)) => {
                    return Ok(());
                }
                made => made.cloned(),
            }
        };
        let watch = self.watch(name);
        self.check_name(name, before.as_ref())?;
        let mut grids = Vec::with_capacity(parts.len());
        for some in parts.chunks(AT_ONCE) {
            let asked = some.iter().map(|(part, member)| self.part_of(part, member));
            grids.extend(try_join_all(asked).await?);
        }
        let (grids, samples): (Vec<_>, Vec<_>) = grids.into_iter().unzip();
        let grid = of_parts(&grids).map_err(|error| error.with_context("grid", name))?;
        let grid = Arc::new(grid);
        let lengths = grids.iter().map(|grid| grid.num_rows());
        let samples: Vec<_> = samples.into_iter().zip(lengths).collect();
        let sample = sample_of_parts(&samples);
        let data = data_of(parts.iter().map(|(part, _)| *part));
        let replicas = parts.iter().map(|(part, _)| part.replicas).max();
        // While members were asked a statement may have named something else so.
        let _turn = self.naming_turn().await?;
        self.check_name(name, before.as_ref())?;
        if watch.has_seen() || self.was_dropped(name, before.as_ref()) {
            // It was contributed to, withdrawn or dropped here: the next look sees what there is now.
            return Ok(());
        }
        let made = Made {
            id: grid.id(),
            of,
            deal,
            data,
            replicas: replicas.unwrap_or_default().max(1),
            same: before.map(|before| before.then(data)).unwrap_or_default(),
            is_dropped: false,
        };
        self.session.register_sampled(name, grid, sample);
        self.parts().made.insert(name.to_owned(), made);
        Ok(())
    }

    /// Waits until nobody gives names to grids.
    ///
    /// # Errors
    /// `Storage` when that takes long, since the store of a catalog does: looks are not to stand still with it.
    async fn naming_turn(&self) -> Result<OwnedMutexGuard<()>> {
        let turn = tokio::time::timeout(TURN, self.session.naming_turn()).await;
        turn.map_err(|_| {
            let text = "a statement has been giving a name to a grid for more than 10 seconds, so that none of the cluster could get its own; the next look tries again";
            Error::new(ErrorKind::Storage { retryable: true }, text)
        })
    }

    /// # Errors
    /// `InvalidArgument` when something else has the name: what a statement put there is not ours.
    fn check_name(&self, name: &str, made: Option<&Made>) -> Result<()> {
        let ours = made.map(|made| made.id);
        let is_ours = ours.is_some() && self.session.grid(name).ok().map(|grid| grid.id()) == ours;
        if !is_ours && self.session.tables().iter().any(|known| known == name) {
            let text = "this member has another grid or view under the name of one of the cluster";
            return Err(Error::invalid_argument(text)
                .with_hint("drop it, or contribute the parts under another name"));
        }
        Ok(())
    }

    /// A part, and some of its rows.
    async fn part_of(
        &self,
        part: &GridPart,
        member: &Member,
    ) -> Result<(Arc<PartitionGrid>, Option<RecordBatch>)> {
        if member.incarnation() == self.members().own().incarnation() {
            let own = self.own_part(part)?;
            let sample = sample(&own, sample_rows(part));
            return Ok((own, sample));
        }
        let client = self.reach.client(member.uri()).await?;
        let (described, told) = try_join!(client.part(part), client.part_statistics(part))?;
        let sample = async { sample_told(&client.part_sample(part).await?) };
        // It only makes plans better.
        let sample = sample.await.unwrap_or_else(|error| {
            tracing::debug!(grid = part.name, number = part.number, %error, "no sample of a part could be had");
            None
        });
        let heard = Heard::read(&told, described.schema(), described.rows().num_intervals())?;
        let access = Access {
            forbids_fetching: self.forbids_fetching,
            is_near: self.near.is_on(),
        };
        let there = There {
            uri: member.uri(),
            table: &part.name,
            access,
        };
        let part = MemberTile::of_part(&described, heard, there, &self.reach)?;
        Ok((Arc::new(part), sample))
    }

    /// Lets go of what nobody needs any more of a grid; gives the parts of which this member is to make copies, each with a member that has it.
    fn settled(&self, survey: &Survey<'_>, choice: &Choice) -> Vec<(GridPart, Member)> {
        let (surplus, wishes) = (survey.surplus(choice), survey.wishes(choice));
        let mut parts = self.parts();
        for copy in &surplus {
            parts.drop_copy(copy);
        }
        parts.expire(survey.name, choice.serving_deal(), Instant::now());
        let wishes = wishes.into_iter();
        let reaches = self.anywhere.is_any();
        let wishes = wishes.filter(|told| reaches || !told.part.is_read_again());
        let wishes = wishes.filter(|told| !parts.refuses(&told.part));
        let wishes = wishes.filter_map(|told| {
            let member = survey.members.iter().nth(told.at)?;
            Some((told.part, member.clone()))
        });
        wishes.collect()
    }

    /// The grid that has taken the place of another one of this member, with the same rows in the same row bands.
    pub(in crate::cluster) fn successor(&self, of: GridId) -> Option<Arc<PartitionGrid>> {
        let parts = self.parts();
        let mut made = parts.made.iter();
        let (name, id) = made.find_map(|(name, made)| {
            let is_it = made.same.contains(&of);
            is_it.then(|| (name.clone(), made.id))
        })?;
        drop(parts);
        let grid = self.session.grid(&name).ok();
        grid.filter(|grid| grid.id() == id)
    }
}

impl Made {
    /// The ids of grids with the same rows, for one that takes the place of this one and has these.
    fn then(self, data: u128) -> Vec<GridId> {
        if self.data != data {
            return Vec::new();
        }
        let mut same = self.same;
        same.push(self.id);
        let surplus = same.len().saturating_sub(MOST_SAME);
        same.split_off(surplus)
    }
}
