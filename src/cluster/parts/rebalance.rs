//! The rows of a grid of all, dealt out anew.
//!
//! Comes in: the name of a grid of several members. Goes out: the same rows in the same order and the same tiles, as parts of a new deal, in shares by their memory for the members that are there. Each member takes the tiles that it
//! has without copying them, and fetches the others; the new parts serve once all are there (`copies.rs`), the old ones stay for a while for statements that read them. If anybody fails, the new parts go and
//! the old ones serve on. Never here: who gets what (`shares.rs`), rows.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::{join_all, try_join_all};
use futures::{StreamExt, TryStreamExt, stream};
use prost::Message;

use super::copies::Deal;
use super::copying::brought;
use super::shares::{Run, dealt_without, runs};
use super::{MOST_PARTS, Made};
use crate::client::Rebalanced;
use crate::cluster::Cluster;
use crate::cluster::codec::message::{FORMAT, Take, TakeRun};
use crate::cluster::codec::tiles::{broken, id_bytes};
use crate::cluster::members::{Member, Members};
use crate::cluster::tile::owner::of_member;
use crate::error::{Error, ErrorKind, Result};
use crate::flight::messages::{GridPart, RebalanceResult};
use crate::grid::{GridBuilder, GridId, PartitionGrid};

/// How long is waited until the new parts serve, and between two looks.
const SEEN: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(200);

/// How many tiles a member fetches at a time.
const TILES_AT_ONCE: usize = 4;

/// What is to be done.
struct Plan {
    grid: Arc<PartitionGrid>,
    members: Arc<Members>,
    /// What the new parts have in common.
    part: GridPart,
    runs: Vec<Run>,
}

impl Cluster {
    /// Spreads the row bands of a grid of all over the members that are there now, in shares by their memory ([`Members::weights`]), and moves as few bytes as that takes: members that have more than their share give row bands from the end of
    /// what they have. Members `without` which the grid is to be, by their URIs ([`Member::uri`]), give all that they have of it, and get nothing: so that they can be taken away. The order of the rows stays. Statements go on meanwhile, over the parts as they were when they began. Where nothing has to move, nothing changes. Needs a tokio runtime, and goes on there to its end
    /// when nobody waits for it any more: what members have taken by then would be of no use, and stay.
    ///
    /// # Errors
    /// `InvalidArgument` when it is to be without who is no member, or without all of them; `NotFound` when this member knows no grid of all by this name; `PartitionLost` when a part of it is gone; whatever keeps a member from taking its share. The grid is then as it was before.
    pub async fn rebalance(&self, name: &str, without: &[String]) -> Result<Rebalanced> {
        let gone = || Error::new(ErrorKind::Cancelled, "this member ends");
        let cluster = self.own.upgrade().ok_or_else(gone)?;
        let (name, without) = (name.to_owned(), without.to_vec());
        let dealing =
            tokio::spawn(async move { Box::pin(cluster.rebalanced(&name, &without)).await });
        dealing.await.map_err(|error| {
            Error::internal("a task that dealt rows out anew ended").with_source(error)
        })?
    }

    /// As [`Cluster::rebalance`], as long as somebody waits.
    async fn rebalanced(&self, name: &str, without: &[String]) -> Result<Rebalanced> {
        let _turn = self.rebalancing.lock().await;
        if let Err(error) = self.refresh().await {
            // Of other grids, perhaps: what is known of this one is looked at below.
            tracing::debug!(%error, "a look before rebalancing did not see all");
        }
        let (grid, made) = self.made(name)?;
        let members = self.members();
        let leave = leaving(&members, without)?;
        let bands = placed(name, &grid, &members)?;
        let to = dealt_without(&bands, &members.weights(), &leave);
        if bands.iter().zip(&to).all(|((_, at), to)| at == to) {
            let kept_tiles = grid.tiles().len() as u64;
            return Ok(Rebalanced {
                kept_tiles,
                ..Rebalanced::default()
            });
        }
        let runs = runs(&to);
        if runs.len() > MOST_PARTS {
            let text = format!(
                "the grid would have more than {MOST_PARTS} parts: {}",
                runs.len()
            );
            return Err(Error::new(ErrorKind::ResourcesExhausted, text));
        }
        let plan = Plan {
            part: GridPart {
                name: name.to_owned(),
                of: runs.len() as u64,
                replicas: made.replicas,
                generation: made.deal.generation + 1,
                deal: id_bytes(GridId::try_random()?.bits()),
                data: id_bytes(made.data),
                ..GridPart::default()
            },
            grid,
            members,
            runs,
        };
        match Box::pin(self.dealt_out(&plan)).await {
            Ok(all) => {
                // From here on the new parts may serve somewhere: they stay.
                self.seen(&plan).await?;
                Ok(all)
            }
            Err(error) => {
                self.leave_all(&plan).await;
                Err(error)
            }
        }
    }

    /// Waits until the new parts serve at this member.
    async fn seen(&self, plan: &Plan) -> Result<()> {
        let until = Instant::now() + SEEN;
        loop {
            let looked = self.refresh().await;
            let made = self.parts().made.get(&plan.part.name).map(|made| made.deal);
            if made == Some(Deal::of(&plan.part)) {
                return Ok(());
            }
            if Instant::now() >= until {
                looked?;
                let text = "all members have taken their shares, but one of them does not say so: the grid is as it was until it does";
                return Err(Error::new(ErrorKind::WorkerLost, text));
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// The grid of all by this name, and how it was made.
    fn made(&self, name: &str) -> Result<(Arc<PartitionGrid>, Made)> {
        let made = self.parts().made.get(name).cloned();
        let grid = made.and_then(|made| {
            let grid = self.session.grid(name).ok();
            let grid = grid.filter(|grid| grid.id() == made.id)?;
            Some((grid, made))
        });
        grid.ok_or_else(|| {
            let text = format!("this member knows no grid of the cluster with the name {name:?}");
            Error::not_found(text)
                .with_hint("contributed grids can be rebalanced, once all their parts are there")
        })
    }

    /// Has all members take their runs; then the new parts serve.
    async fn dealt_out(&self, plan: &Plan) -> Result<Rebalanced> {
        let codec = self.tile_codec(Some(&plan.members));
        let columns: Vec<usize> = (0..plan.grid.columns().num_intervals()).collect();
        let mut takes: Vec<Vec<TakeRun>> = vec![Vec::new(); plan.members.len()];
        for (number, run) in plan.runs.iter().enumerate() {
            let row_bands: Vec<usize> = run.row_bands.clone().collect();
            let mut tiles = codec.written(&plan.grid, &row_bands, &columns)?;
            // It holds for plans; these tiles are to be fetched.
            tiles.forbids_fetching = false;
            if let Some(take) = takes.get_mut(run.to) {
                take.push(TakeRun {
                    number: number as u64,
                    tiles: Some(tiles),
                });
            }
        }
        let each = plan.members.iter().zip(takes);
        let each = each.filter(|(_, runs)| !runs.is_empty());
        let taking = each.map(|(member, runs)| self.take_at(member, plan, runs));
        let taken = try_join_all(taking).await?;
        let mut all = Rebalanced::default();
        for taken in taken {
            all.moved_bytes += taken.moved_bytes;
            all.moved_tiles += taken.moved_tiles;
            all.kept_tiles += taken.kept_tiles;
        }
        Ok(all)
    }

    async fn take_at(
        &self,
        member: &Member,
        plan: &Plan,
        runs: Vec<TakeRun>,
    ) -> Result<RebalanceResult> {
        let take = Take {
            format: FORMAT,
            part: Some(plan.part.clone()),
            runs,
        };
        let taken = match member.incarnation() == plan.members.own().incarnation() {
            true => Box::pin(self.taken(take)).await,
            false => {
                let asking = async {
                    let client = self.reach.client(member.uri()).await?;
                    client.take_tiles(take.encode_to_vec()).await
                };
                asking.await
            }
        };
        taken.map_err(|error| error.with_context("member", member.uri()))
    }

    /// Has all members let go of what they took.
    async fn leave_all(&self, plan: &Plan) {
        self.leave(&plan.part);
        let others = plan.members.iter().skip(1);
        let leaving = others.map(|member| async {
            let left = async {
                let client = self.reach.client(member.uri()).await?;
                client.leave_tiles(&plan.part).await
            };
            if let Err(error) = left.await {
                tracing::warn!(member = member.uri(), %error, "a member may hold tiles for a while of a grid that was not rebalanced");
            }
        });
        join_all(leaving).await;
    }

    /// Takes row bands that another member has dealt to this one; says what it fetched.
    ///
    /// # Errors
    /// `InvalidData` for a message that cannot be; whatever stands in the way of reading a tile. Then nothing was taken.
    pub(crate) async fn take(&self, message: &[u8]) -> Result<Vec<u8>> {
        let message = Take::decode(message).map_err(|_| broken("its bytes"))?;
        if message.format != FORMAT {
            return Err(broken("tiles in the format of another version"));
        }
        Ok(self.taken(message).await?.encode_to_vec())
    }

    async fn taken(&self, message: Take) -> Result<RebalanceResult> {
        let part = message.part.ok_or_else(|| broken("parts of no grid"))?;
        if part.generation == 0 || part.deal.len() != 16 || part.data.len() != 16 {
            return Err(broken("parts of no deal"));
        }
        let watch = self.watch(&part.name);
        let codec = self.tile_codec(None);
        let (mut told, mut grids) = (RebalanceResult::default(), Vec::new());
        for run in message.runs {
            let tiles = run.tiles.ok_or_else(|| broken("no tiles"))?;
            if run.number >= part.of {
                return Err(broken("the number of a part"));
            }
            let there = codec.read(&tiles)?;
            grids.push((run.number, held(&there, &mut told).await?));
        }
        let grids = grids.into_iter().map(|(number, grid)| {
            let part = GridPart {
                number,
                ..part.clone()
            };
            (part, Arc::new(grid))
        });
        self.keep_taken(&watch, grids.collect())?;
        Ok(told)
    }

    /// Lets the parts of a deal go that this one is of; never of grids as they were contributed.
    pub(crate) fn leave(&self, part: &GridPart) {
        if part.generation > 0 {
            self.parts().drop_deal(&part.name, Deal::of(part));
        }
    }
}

/// Of each member, whether it is to have nothing.
fn leaving(members: &Members, without: &[String]) -> Result<Vec<bool>> {
    let is = |member: &Member, uri: &String| member.uri() == uri || member.name() == uri;
    let there = || {
        let uris: Vec<&str> = members.iter().map(Member::uri).collect();
        uris.join(", ")
    };
    for uri in without {
        if !members.iter().any(|member| is(member, uri)) {
            let text = format!(
                "without must name members of the cluster, which are {}, got {uri:?}",
                there()
            );
            return Err(Error::invalid_argument(text));
        }
    }
    let leave = members.iter();
    let leave: Vec<bool> = leave
        .map(|member| without.iter().any(|uri| is(member, uri)))
        .collect();
    if !leave.contains(&false) {
        let text = format!(
            "without must leave a member for the rows, got all that there are: {}",
            there()
        );
        return Err(Error::invalid_argument(text)
            .with_hint("start another member first; what no member has is lost"));
    }
    Ok(leave)
}

/// The bytes of each row band, and the number of the member that has it.
fn placed(name: &str, grid: &PartitionGrid, members: &Members) -> Result<Vec<(u64, usize)>> {
    let bands = (0..grid.rows().num_intervals()).map(|row_band| {
        let tiles = grid.row_band(row_band);
        let bytes = tiles.iter().map(|tile| tile.data().memory_bytes()).sum();
        let at = match tiles.first().and_then(of_member) {
            None => Some(0),
            Some(handle) => members.number_of(handle.incarnation),
        };
        let lost = || {
            let text = "a part of the grid is gone, so that it cannot be rebalanced";
            let error = Error::new(ErrorKind::PartitionLost, text);
            error
                .with_context("table", name)
                .with_position(&[row_band, 0])
                .with_hint("contribute the part again, or wait until its member is back")
        };
        Ok((bytes, at.ok_or_else(lost)?))
    });
    bands.collect()
}

/// The same grid with all tiles in this process: its own as they are, the others fetched.
async fn held(there: &PartitionGrid, told: &mut RebalanceResult) -> Result<PartitionGrid> {
    let (rows, columns) = (there.rows().clone(), there.columns().clone());
    let mut builder = GridBuilder::try_new(Arc::clone(there.schema()), rows, columns)?;
    let tiles: Vec<_> = there.geometry().positions().zip(there.tiles()).collect();
    let holding = tiles.into_iter().map(|(position, tile)| async move {
        // What the tile has there: a column may be written otherwise here.
        let moved = of_member(tile).map(|_| tile.data().memory_bytes());
        let held = match moved {
            Some(_) => brought(tile).await,
            None => Ok(tile.clone()),
        };
        let held = held.map_err(|error| error.with_position(&position))?;
        Ok::<_, Error>((position, held, moved))
    });
    let holding: Vec<_> = holding.collect();
    let mut holding = stream::iter(holding).buffer_unordered(TILES_AT_ONCE);
    while let Some((position, tile, moved)) = holding.try_next().await? {
        match moved {
            Some(bytes) => {
                told.moved_tiles += 1;
                told.moved_bytes += bytes;
            }
            None => told.kept_tiles += 1,
        }
        builder.set(&position, tile)?;
    }
    builder.build()
}
