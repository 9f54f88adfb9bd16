//! Telling the others that the catalog that all members share has changed.
//!
//! Comes in: that something of it was changed, and is named here. Goes out: all others have taken that in, so that any of them can be asked at once; or a second is over. Who has not done it by then is told all the same, and
//! looks by itself as well, but nobody waits for it again for a while. Never here: what is taken in, which is the server's.

use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::join_all;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::channel::Reach;
use super::silent::Silent;
use super::{Member, Members};
use crate::cluster::Cluster;

/// How long whoever has changed the catalog waits for the others.
const PATIENCE: Duration = Duration::from_secs(1);

/// How long it is listened afterwards for the answer of a member that nobody waits for.
const LATE: Duration = Duration::from_secs(10);

impl Cluster {
    /// Tells all other members that the catalog that they share has changed, all at once, and waits until they have taken in what was, a second at most. They are told to the end also when nobody waits any more.
    pub(crate) async fn tell_of_catalog(&self) {
        if self.anywhere.catalog.is_none() {
            return;
        }
        let (members, now) = (self.members(), Instant::now());
        let waiting = members.iter().skip(1).filter_map(|member| {
            let is_waited_for = !self.silent.has(member.incarnation(), now);
            let heard = self.tell(member.clone());
            is_waited_for.then_some(heard)
        });
        let waiting: Vec<_> = waiting.collect();
        // Whoever has answered, or is waited for no longer, drops its end.
        drop(join_all(waiting).await);
    }

    /// Tells those who were no members before, or were lost for a while, and heard of nothing meanwhile.
    pub(in crate::cluster) fn tell_those_who_came(&self, before: &Members, now: &Members) {
        if self.anywhere.catalog.is_none() {
            return;
        }
        let came = now.iter();
        let came = came.filter(|member| before.number_of(member.incarnation()).is_none());
        for member in came {
            drop(self.tell(member.clone()));
        }
    }

    /// Tells a member, in the background; what it gives ends once that has looked, or is waited for no longer.
    fn tell(&self, member: Member) -> oneshot::Receiver<()> {
        let (waited_for, heard) = oneshot::channel();
        let (reach, silent) = (Arc::clone(&self.reach), Arc::clone(&self.silent));
        self.runtime.spawn(told(reach, silent, member, waited_for));
        heard
    }
}

async fn told(
    reach: Arc<Reach>,
    silent: Arc<Silent>,
    member: Member,
    waited_for: oneshot::Sender<()>,
) {
    let (uri, life) = (member.uri(), member.incarnation());
    let mut telling = pin!(async { reach.client(uri).await?.look_at_catalog().await });
    let told = match timeout(PATIENCE, telling.as_mut()).await {
        Ok(told) => Ok(told),
        Err(_) => {
            // Before its end is dropped: whoever changes something next does not wait.
            if silent.add(life, Instant::now()) {
                tracing::warn!(
                    member = uri,
                    "a member does not take in what was changed in the catalog: for a while it is told, and not waited for"
                );
            }
            drop(waited_for);
            timeout(LATE, telling).await
        }
    };
    match told {
        Ok(Ok(())) => silent.remove(life),
        Ok(Err(error)) => {
            tracing::debug!(member = uri, %error, "a member did not take in a change of the catalog");
        }
        Err(_) => {
            tracing::debug!(
                member = uri,
                "a member said nothing when it was told of a change of the catalog"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;
    use crate::catalog::Catalog;
    use crate::cluster::ClusterOptions;
    use crate::location::Location;
    use crate::query::{Session, SessionOptions};
    use crate::share::Incarnation;

    /// A member with a catalog that others may have, which knows one that takes connections and says nothing.
    async fn beside_a_mute(folder: &std::path::Path) -> (Arc<Cluster>, TcpListener) {
        let session = Session::try_new(&SessionOptions::default()).unwrap();
        let url = format!("shared://{}", folder.display());
        let options = ClusterOptions {
            catalog: Some(Catalog::open(&url).await.unwrap()),
            ..ClusterOptions::default()
        };
        let cluster = Cluster::start(&session, "grpc://127.0.0.1:9", options).unwrap();
        let mute = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let uri = format!("grpc://{}", mute.local_addr().unwrap());
        let life = Incarnation::from_bits(7);
        cluster.set_members([Member::try_new(&uri, life, Location::here()).unwrap()]);
        (cluster, mute)
    }

    async fn told_within(cluster: &Cluster) -> Duration {
        let began = Instant::now();
        cluster.tell_of_catalog().await;
        began.elapsed()
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn who_says_nothing_is_waited_for_once() {
        let folder = tempfile::tempdir().unwrap();
        let (cluster, mute) = beside_a_mute(folder.path()).await;
        let first = told_within(&cluster).await;
        assert!(first >= PATIENCE && first < PATIENCE * 5, "{first:?}");
        assert!(told_within(&cluster).await < first / 2);
        drop(mute);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_member_is_told_when_it_comes_and_also_if_nobody_waits_for_it() {
        let folder = tempfile::tempdir().unwrap();
        let (cluster, mute) = beside_a_mute(folder.path()).await;
        // Nor is it asked what it has.
        let turn = cluster.looking.lock().await;
        let heard = || timeout(PATIENCE * 10, mute.accept());
        let came = heard().await.unwrap().unwrap();
        // Whoever told it goes away at once.
        let given_up = timeout(Duration::ZERO, cluster.tell_of_catalog()).await;
        assert!(given_up.is_err());
        let told = heard().await.unwrap().unwrap();
        drop((came, told, turn));
    }

    #[tokio::test]
    async fn without_a_catalog_that_others_have_nobody_is_told() {
        let session = Session::try_new(&SessionOptions::default()).unwrap();
        let options = ClusterOptions::default();
        let cluster = Cluster::start(&session, "grpc://127.0.0.1:9", options).unwrap();
        let mute = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let uri = format!("grpc://{}", mute.local_addr().unwrap());
        let life = Incarnation::from_bits(7);
        cluster.set_members([Member::try_new(&uri, life, Location::here()).unwrap()]);
        assert!(told_within(&cluster).await < PATIENCE);
        assert!(timeout(PATIENCE / 4, mute.accept()).await.is_err());
    }
}
