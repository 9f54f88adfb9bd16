//! Whether members are there as long as a statement runs.
//!
//! Comes in: a statement, and its members. Goes out: its rows, until a part could not be sent, or a member was not there for some seconds. Who reads from a connection that breaks is told at once; but that is done on the
//! threads that run parts of plans, and a join may keep all of them busy. Here it is looked for on those that carry connections. Never here: what becomes of the statement then (`again.rs`).

use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use arrow::array::RecordBatch;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::SendableRecordBatchStream;
use futures::future::select_all;
use futures::{FutureExt, Stream, StreamExt, stream};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::channel::{Reach, Unsent, lost};
use super::join::ping;
use super::{Member, Members};
use crate::cluster::Cluster;
use crate::error::{Error, ErrorKind};
use crate::query::{Stop, traveling};

/// How often a member is asked, from when on a statement runs for so long.
const ASK: Duration = Duration::from_secs(2);

/// How long it may say nothing. With a last look whether it is there (`again.rs`) these are less than 10 seconds.
const SILENCE: Duration = Duration::from_secs(7);

/// The rows, until it is told why there can be no more.
pub(in crate::cluster) fn until_told(
    mut rows: SendableRecordBatchStream,
    told: oneshot::Receiver<DataFusionError>,
) -> impl Stream<Item = Result<RecordBatch>> + Send {
    let mut told = told.fuse();
    stream::poll_fn(move |context| {
        // Whoever would tell it may be gone.
        if let Poll::Ready(Ok(error)) = told.poll_unpin(context) {
            return Poll::Ready(Some(Err(error)));
        }
        rows.poll_next_unpin(context)
    })
}

/// Ends what runs of a statement here once one of its members is not there any more, and tells why. Looks as long as what it gives is there.
pub(in crate::cluster) fn watching(
    cluster: &Cluster,
    members: &Arc<Members>,
    tells: Unsent,
    stop: Stop,
) -> JoinSet<()> {
    let mut watching = JoinSet::new();
    if members.len() > 1 {
        let lost = until_lost(Arc::clone(&cluster.reach), Arc::clone(members));
        let telling = async move {
            // It is told first: what is ended says only that it was.
            drop(tells.tell(traveling(lost.await)));
            stop.set();
        };
        watching.spawn_on(telling, &cluster.runtime);
    }
    watching
}

/// Why one of the members is not there any more, once it is not.
async fn until_lost(reach: Arc<Reach>, members: Arc<Members>) -> Error {
    let begun = Instant::now();
    sleep(ASK).await;
    let others = members.iter().skip(1);
    let lost = others.map(|member| Box::pin(until_silent(&reach, member, begun)));
    let lost: Vec<_> = lost.collect();
    match lost.is_empty() {
        true => std::future::pending().await,
        false => select_all(lost).await.0,
    }
}

/// Why a member is not there any more, which was there at a moment.
async fn until_silent(reach: &Arc<Reach>, member: &Member, mut heard: Instant) -> Error {
    loop {
        let left = SILENCE.saturating_sub(heard.elapsed()).max(ASK);
        match ping(reach, member.uri(), left).await {
            Ok(there) if there.incarnation() == member.incarnation() => heard = Instant::now(),
            Ok(_) => return lost(member.url(), "another process answers there"),
            // Whatever else it says, it is there.
            Err(error) if error.kind() != ErrorKind::WorkerLost => heard = Instant::now(),
            Err(error) if heard.elapsed() >= SILENCE => return error,
            Err(_) => {}
        }
        sleep(ASK).await;
    }
}
