//! Looks of one member at what it has, and what statements and callers do meanwhile; tests of `gather.rs`, `parts/mod.rs` and `copying.rs` that need no other process.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::{ArrayRef, Int64Array, RecordBatch};

use super::members::Member;
use super::parts::copies::Deal;
use super::parts::copying::Copying;
use super::parts::{PartOf, Parts};
use super::{Cluster, ClusterOptions, LOOK, scale};
use crate::error::Error;
use crate::flight::messages::GridPart;
use crate::grid::PartitionGrid;
use crate::location::Location;
use crate::query::{Session, SessionOptions};
use crate::share::Incarnation;

fn grid(first: i64) -> Arc<PartitionGrid> {
    let values: ArrayRef = Arc::new(Int64Array::from(vec![first, first + 1]));
    let batch = RecordBatch::try_from_iter([("x", values)]).unwrap();
    let schema = batch.schema();
    Arc::new(PartitionGrid::try_from_batches(schema, &[batch]).unwrap())
}

fn copy(id: u8, generation: u64) -> GridPart {
    GridPart {
        name: "sales".to_owned(),
        of: 1,
        id: vec![id; 16],
        replicas: 2,
        is_copy: true,
        generation,
        ..GridPart::default()
    }
}

fn told(id: u8) -> (String, Vec<u8>) {
    ("sales".to_owned(), vec![id; 16])
}

#[tokio::test(flavor = "multi_thread")]
async fn a_grid_waits_for_its_turn_to_be_named_and_hides_nothing_that_was_named_meanwhile() {
    let session = Session::try_new(&SessionOptions::default()).unwrap();
    let options = ClusterOptions::default();
    let cluster = Cluster::start(&session, "grpc://127.0.0.1:9", options).unwrap();
    let turn = session.naming_turn().await;
    cluster
        .contribute("sales", grid(0), PartOf::new(0, 1))
        .unwrap();
    let looking = tokio::spawn({
        let cluster = Arc::clone(&cluster);
        async move { cluster.refresh().await }
    });
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(session.named("sales").unwrap().is_none());
    // As a statement does that has the turn.
    let table = grid(10);
    session.register("sales", Arc::clone(&table)).unwrap();
    drop(turn);
    let text = looking.await.unwrap().unwrap_err().to_string();
    assert!(text.contains("another grid or view"), "{text}");
    assert_eq!(session.grid("sales").unwrap().id(), table.id());
}

#[tokio::test]
async fn plans_that_are_kept_keep_neither_the_member_nor_its_names() {
    let session = Session::try_new(&SessionOptions::default()).unwrap();
    let options = ClusterOptions::default();
    let cluster = Cluster::start(&session, "grpc://127.0.0.1:9", options).unwrap();
    let members = scale::members(cluster.members().own(), 3);
    let spread = scale::grid(&cluster.reach, &members, 6);
    cluster.set_members(members.iter().cloned());
    session.register("spread", spread).unwrap();
    session.register("here", grid(0)).unwrap();
    for text in [
        "SELECT g, sum(x) FROM spread GROUP BY g",
        "SELECT sum(x) FROM here",
    ] {
        let planned = session.sql(text).await.unwrap().explain();
        assert_eq!(
            planned.contains("members=3"),
            text.contains("spread"),
            "{planned}"
        );
    }
    let member = Arc::downgrade(&cluster);
    drop(cluster);
    // It may be looking for others at this moment.
    let end = Instant::now() + Duration::from_secs(20);
    while member.strong_count() > 0 && Instant::now() < end {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(member.strong_count(), 0);
}

#[tokio::test]
async fn what_a_statement_dropped_comes_up_again_with_the_next_contribution_and_not_before() {
    let session = Session::try_new(&SessionOptions::default()).unwrap();
    let options = ClusterOptions::default();
    let cluster = Cluster::start(&session, "grpc://127.0.0.1:9", options).unwrap();
    let contribute = || {
        cluster
            .contribute("sales", grid(0), PartOf::new(0, 1))
            .unwrap();
    };
    contribute();
    cluster.refresh().await.unwrap();
    for drops in [true, false] {
        // A table of that name keeps the grid away for as long as it is there, and is no reason for it to come after.
        match drops {
            true => assert!(session.drop_table("sales").await.unwrap()),
            false => session.register("sales", grid(10)).unwrap(),
        }
        cluster.refresh().await.unwrap();
        // What one member has it goes on to have, for others.
        assert_eq!(cluster.own_parts().len(), 1);
        assert_eq!(cluster.parts_beside().len(), 1);
        assert_eq!(session.tables().is_empty(), drops);
        let _was_there = session.deregister("sales");
        cluster.refresh().await.unwrap();
        assert!(session.tables().is_empty());
        // Who asks for it is told, and nobody that anything is wrong.
        let text = session.grid("sales").unwrap_err().to_string();
        assert!(
            text.contains("dropped or withdrawn at this member"),
            "{text}"
        );
        assert!(cluster.incomplete().is_empty());
        contribute();
        cluster.refresh().await.unwrap();
        assert_eq!(session.tables(), ["sales"]);
        let text = session.grid("salse").unwrap_err().to_string();
        assert!(text.contains("did you mean `sales`"), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_grid_that_is_dropped_while_its_parts_are_looked_at_does_not_come_back_with_that_look() {
    let session = Session::try_new(&SessionOptions::default()).unwrap();
    let options = ClusterOptions::default();
    let cluster = Cluster::start(&session, "grpc://127.0.0.1:9", options).unwrap();
    let contribute = |first| {
        cluster
            .contribute("sales", grid(first), PartOf::new(0, 1))
            .unwrap();
    };
    contribute(0);
    cluster.refresh().await.unwrap();
    contribute(10);
    let turn = session.naming_turn().await;
    let looking = tokio::spawn({
        let cluster = Arc::clone(&cluster);
        async move { cluster.refresh().await }
    });
    tokio::time::sleep(Duration::from_millis(300)).await;
    // As a statement does that has the turn.
    assert!(session.deregister("sales"));
    drop(turn);
    looking.await.unwrap().unwrap();
    assert!(session.tables().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn who_asks_for_a_grid_that_was_dropped_is_told_so_from_that_moment_on() {
    let session = Session::try_new(&SessionOptions::default()).unwrap();
    let options = ClusterOptions::default();
    let cluster = Cluster::start(&session, "grpc://127.0.0.1:9", options).unwrap();
    let contribute = |name: &str| {
        cluster
            .contribute(name, grid(0), PartOf::new(0, 1))
            .unwrap();
    };
    let is_told = || {
        let text = session.grid("sales").unwrap_err().to_string();
        assert!(text.contains("dropped or withdrawn at this"), "{text}");
    };
    contribute("sales");
    cluster.refresh().await.unwrap();
    assert!(session.drop_table("sales").await.unwrap());
    is_told();
    contribute("sales");
    cluster.refresh().await.unwrap();
    assert_eq!(session.tables(), ["sales"]);
    // Also after a look that had seen it, and ends once it was dropped: the other grid waits for its name until then.
    contribute("zones");
    let turn = session.naming_turn().await;
    let dropping = tokio::spawn({
        let session = session.clone();
        async move { session.drop_table("sales").await }
    });
    tokio::time::sleep(Duration::from_millis(100)).await;
    let looking = tokio::spawn({
        let cluster = Arc::clone(&cluster);
        async move { cluster.refresh().await }
    });
    tokio::time::sleep(Duration::from_millis(300)).await;
    drop(turn);
    assert!(dropping.await.unwrap().unwrap());
    looking.await.unwrap().unwrap();
    assert_eq!(session.tables(), ["zones"]);
    is_told();
}

/// Looks for eight statements that asked while somebody else looked; says whether it was before the member looked by itself.
async fn looks_of_others_are_enough() -> bool {
    let begun = Instant::now();
    let session = Session::try_new(&SessionOptions::default()).unwrap();
    let options = ClusterOptions::default();
    let cluster = Cluster::start(&session, "grpc://127.0.0.1:9", options).unwrap();
    let mut turn = cluster.finding.lock().await;
    let looks = (0..8).map(|_| {
        let cluster = Arc::clone(&cluster);
        tokio::spawn(async move { cluster.look_for_statement().await })
    });
    let looks: Vec<_> = looks.collect();
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    let looked = Instant::now();
    *turn = Some(looked);
    drop(turn);
    futures::future::join_all(looks).await;
    let last = *cluster.finding.lock().await;
    // That is too early for the next one.
    cluster.look_for_statement().await;
    assert!(cluster.finding.lock().await.unwrap() > looked);
    begun.elapsed() < LOOK && {
        assert_eq!(last, Some(looked));
        true
    }
}

#[tokio::test]
async fn one_look_is_enough_for_all_statements_whose_rows_were_gone_before_it() {
    for _ in 0..20 {
        if looks_of_others_are_enough().await {
            return;
        }
    }
    panic!("a member looked by itself each time, within a second");
}

#[test]
fn copies_that_come_after_a_grid_was_withdrawn_are_not_kept() {
    let mut parts = Parts::default();
    parts.withdrawn.hear([told(1)].into(), true);
    assert!(!parts.withdraw("sales"));
    assert!(!parts.add_copy(copy(1, 0), grid(0)));
    assert!(parts.refuses(&copy(1, 0)) && !parts.withdraw("sales"));
    // Another part of this name is another matter, and what is nowhere is forgotten.
    assert!(parts.add_copy(copy(2, 0), grid(0)));
    assert!(parts.withdraw("sales"));
    parts.withdrawn.hear([told(1)].into(), true);
    assert!(parts.refuses(&copy(1, 0)) && !parts.refuses(&copy(2, 0)));
    // A look at some of the members says nothing of the others.
    parts.withdrawn.hear(HashSet::new(), false);
    assert!(parts.refuses(&copy(1, 0)));
    parts.withdrawn.hear(HashSet::new(), true);
    assert!(!parts.refuses(&copy(1, 0)));
}

#[test]
fn deals_of_which_nothing_is_here_any_more_have_no_age() {
    let mut parts = Parts::default();
    let (old, new) = (copy(1, 0), copy(2, 1));
    assert!(parts.add_copy(old.clone(), grid(0)));
    let serving = Some(Deal::of(&new));
    let (begun, hour) = (Instant::now(), Duration::from_secs(3600));
    parts.expire("sales", serving, begun);
    assert_eq!(parts.aging.len(), 1);
    parts.drop_copy(&old);
    parts.age_only_own();
    assert_eq!(parts.aging.len(), 0);
    // Had it kept its age, it would go at once when it comes again.
    assert!(parts.add_copy(old, grid(0)));
    parts.expire("sales", serving, begun + hour);
    assert!(parts.withdraw("sales"));
}

#[test]
fn what_was_said_of_parts_that_are_nowhere_is_forgotten() {
    let copying = Copying::default();
    for id in [1, 2] {
        copying.say(&copy(id, 0), &Error::not_found("no such part"));
    }
    copying.say_only(&[[2_u8; 16].as_slice()].into());
    assert_eq!(copying.said.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn changes_are_counted_only_while_somebody_looks_at_them() {
    let session = Session::try_new(&SessionOptions::default()).unwrap();
    let options = ClusterOptions::default();
    let cluster = Cluster::start(&session, "grpc://127.0.0.1:9", options).unwrap();
    cluster
        .contribute("sales", grid(0), PartOf::new(0, 1))
        .unwrap();
    let (first, other) = (cluster.watch("sales"), cluster.watch("other"));
    assert!(!first.has_seen());
    assert!(cluster.withdraw("sales"));
    // Nothing is there as before, yet something was.
    let second = cluster.watch("sales");
    assert_eq!(
        [&first, &second, &other].map(|watch| watch.has_seen()),
        [true, false, false]
    );
    drop(first);
    cluster
        .contribute("sales", grid(0), PartOf::new(0, 1))
        .unwrap();
    assert!(second.has_seen());
    drop((second, other));
    assert!(cluster.parts().watched.is_empty());
}

#[tokio::test]
async fn connections_to_those_who_are_no_members_any_more_are_let_go() {
    let session = Session::try_new(&SessionOptions::default()).unwrap();
    let options = ClusterOptions::default();
    let cluster = Cluster::start(&session, "grpc://127.0.0.1:9", options).unwrap();
    // Whoever takes a connection, and says nothing.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let uri = format!("grpc://{}", listener.local_addr().unwrap());
    let other = Member::try_new(&uri, Incarnation::from_bits(7), Location::here()).unwrap();
    cluster.set_members([other.clone()]);
    cluster.reach.open(other.url()).await.unwrap();
    assert_eq!(cluster.reach.num_channels(), 1);
    cluster.set_members([]);
    assert_eq!(cluster.reach.num_channels(), 0);
}
