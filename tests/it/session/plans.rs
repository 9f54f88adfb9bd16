//! Plans that are kept: when a text is planned once, and when anew.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Int64Type};
use futures::{StreamExt, TryStreamExt};
use partgrid::query::{Function, FunctionSignature, Parameters, QueryOptions};

use super::{World, grid, numbers};

/// A world whose SQL calls `planned(…)`, which the planner calls once for each plan, since its argument is constant.
fn counting() -> (World, Arc<AtomicUsize>) {
    let world = World::new(&[5, 5]);
    let calls = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&calls);
    let signature = FunctionSignature {
        name: "planned".to_owned(),
        arguments: vec![DataType::Int64],
        returns: DataType::Int64,
        volatile: false,
    };
    let body = move |arrays: &[ArrayRef], _: usize| {
        count.fetch_add(1, Ordering::Relaxed);
        Ok(Arc::clone(&arrays[0]))
    };
    let function = Function::try_scalar(signature, Arc::new(body)).unwrap();
    world.session.register_function(function);
    (world, calls)
}

const COUNTED: &str = "SELECT count(*) FROM t WHERE id >= planned(3)";

#[test]
fn the_same_text_is_planned_once_while_names_stay() {
    let (world, calls) = counting();
    assert_eq!(world.numbers(COUNTED), [7]);
    let once = calls.load(Ordering::Relaxed);
    assert!(once > 0, "the planner did not call the function");
    for _ in 0..3 {
        assert_eq!(world.numbers(COUNTED), [7]);
    }
    assert_eq!(calls.load(Ordering::Relaxed), once);
    assert_eq!(
        world.numbers(&format!("{COUNTED} ")),
        [7],
        "another text is another question"
    );
    assert_eq!(calls.load(Ordering::Relaxed), 2 * once);
    let options = QueryOptions::default().with_threads(1);
    let asked = world
        .session
        .sql_with(COUNTED, Parameters::default(), &options);
    world.runtime.block_on(asked).unwrap();
    assert_eq!(calls.load(Ordering::Relaxed), 3 * once);
}

#[test]
fn a_change_of_names_is_seen_at_once() {
    let (world, calls) = counting();
    assert_eq!(world.numbers(COUNTED), [7]);
    let once = calls.load(Ordering::Relaxed);
    world.session.register("t", Arc::new(grid(&[4]))).unwrap();
    assert_eq!(world.numbers(COUNTED), [1]);
    assert_eq!(calls.load(Ordering::Relaxed), 2 * once);
    world.status("CREATE VIEW v AS SELECT id FROM t WHERE id > 2");
    assert_eq!(world.numbers("SELECT count(*) FROM v"), [1]);
    world.status("CREATE OR REPLACE VIEW v AS SELECT id FROM t WHERE id > 1");
    assert_eq!(world.numbers("SELECT count(*) FROM v"), [2]);
    assert!(world.session.deregister("t"));
    assert_eq!(world.error(COUNTED).message(), "no table `t`");
}

#[test]
fn a_kept_plan_keeps_no_grid_whose_name_is_gone() {
    let (world, _) = counting();
    let other = Arc::new(grid(&[6]));
    let weak = Arc::downgrade(&other);
    world.session.register("u", other).unwrap();
    assert_eq!(world.numbers("SELECT count(*) FROM u WHERE id > 1"), [4]);
    assert!(weak.upgrade().is_some());
    assert!(world.session.deregister("u"));
    assert!(weak.upgrade().is_none());
    let weak = Arc::downgrade(&world.session.grid("t").unwrap());
    assert_eq!(world.numbers(COUNTED), [7]);
    for sql in [
        "SELECT count(*) FROM information_schema.tables",
        "SHOW TABLES",
    ] {
        world.batch(sql);
    }
    drop(world);
    assert!(
        weak.upgrade().is_none(),
        "a plan and the names hold one another"
    );
}

#[test]
fn values_that_belong_to_a_moment_are_never_kept() {
    let (world, calls) = counting();
    let of_moment = format!("{COUNTED} AND now() > '2020-01-01T00:00:00Z'");
    let within = format!("SELECT n FROM ({of_moment}) AS s (n) WHERE n IN (SELECT 7)");
    for sql in [of_moment, within] {
        let before = calls.load(Ordering::Relaxed);
        assert_eq!(world.numbers(&sql), [7]);
        let once = calls.load(Ordering::Relaxed) - before;
        assert_eq!(world.numbers(&sql), [7]);
        assert_eq!(calls.load(Ordering::Relaxed), before + 2 * once, "{sql}");
    }
    let value = |number: i64| Parameters::InOrder(vec![Arc::new(Int64Array::from(vec![number]))]);
    let sql = "SELECT count(*) FROM t WHERE id >= $1";
    assert_eq!(world.numbers_with(sql, value(3)), [7]);
    assert_eq!(world.numbers_with(sql, value(9)), [1]);
}

#[test]
fn many_texts_push_out_those_not_asked_for_longest() {
    let (world, calls) = counting();
    world.numbers(COUNTED);
    let once = calls.load(Ordering::Relaxed);
    for number in 0..63 {
        world.numbers(&format!("SELECT count(*) FROM t WHERE id > {number}"));
    }
    world.numbers(COUNTED);
    assert_eq!(calls.load(Ordering::Relaxed), once);
    for number in 63..127 {
        world.numbers(&format!("SELECT count(*) FROM t WHERE id > {number}"));
    }
    world.numbers(COUNTED);
    assert_eq!(calls.load(Ordering::Relaxed), 2 * once);
}

/// Two subqueries in place of values; the rows of all that are between them.
const BETWEEN: &str = "SELECT id, (SELECT max(id) FROM t) AS most FROM t WHERE id BETWEEN (SELECT min(id) + 1 FROM t) AND (SELECT max(id) - 1 FROM t)";

fn ids(batches: &[RecordBatch]) -> Vec<i64> {
    let ids = batches.iter().flat_map(|batch| {
        batch
            .column(0)
            .as_primitive::<Int64Type>()
            .values()
            .to_vec()
    });
    let mut ids: Vec<i64> = ids.collect();
    ids.sort_unstable();
    ids
}

#[test]
fn runs_of_one_query_at_one_moment_have_values_of_subqueries_of_their_own() {
    let world = World::new(&[100_000, 100_000, 100_000]);
    let query = world.sql_with(BETWEEN, Parameters::default()).unwrap();
    let _entered = world.runtime.enter();
    let expected: Vec<i64> = (1..299_999).collect();
    let slow_and_quick = async {
        let mut slow = query.stream().unwrap();
        let mut first = vec![slow.next().await.unwrap().unwrap()];
        // Begins, and takes the values away that the slow one still looks at, if there is one place for both.
        assert_eq!(ids(&query.collect().await.unwrap()), expected);
        let rest: Vec<RecordBatch> = slow.try_collect().await.unwrap();
        first.extend(rest);
        assert_eq!(ids(&first), expected);
    };
    world.runtime.block_on(slow_and_quick);
    let many: Vec<_> = (0..24)
        .map(|_| {
            let query = query.clone();
            tokio::spawn(async move { query.collect().await })
        })
        .collect();
    for run in many {
        let batches = world.runtime.block_on(run).unwrap().unwrap();
        assert_eq!(ids(&batches), expected);
    }
}

#[test]
fn each_run_of_a_query_with_values_of_subqueries_has_the_rows_it_was_planned_over() {
    let world = World::new(&[5, 5]);
    let text = "SELECT max(id) - (SELECT min(id) FROM t) AS a, now() FROM t";
    let query = world.sql_with(text, Parameters::default()).unwrap();
    let before: Vec<RecordBatch> = world.runtime.block_on(query.collect()).unwrap();
    world.session.register("t", Arc::new(grid(&[2]))).unwrap();
    for _ in 0..3 {
        assert_eq!(world.runtime.block_on(query.collect()).unwrap(), before);
    }
    assert_eq!(numbers(&world.runtime, &query), [9]);
    assert_eq!(world.numbers(text), [1]);
}
