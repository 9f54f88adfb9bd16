//! Plans that are kept: when a text is planned once, and when anew.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow::array::{ArrayRef, Int64Array};
use arrow::datatypes::DataType;
use partgrid::query::{Function, FunctionSignature, Parameters, QueryOptions};

use super::{World, grid};

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
