//! Bounds of a session: time, memory, turns, cancelling.

use std::time::{Duration, Instant};

use arrow::array::AsArray;
use arrow::datatypes::Int64Type;
use futures::StreamExt;
use partgrid::error::ErrorKind;
use partgrid::query::{Parameters, Query, QueryOptions, Session, SessionOptions};

use super::World;

#[test]
fn a_query_ends_at_its_timeout_and_when_it_is_cancelled() {
    let world = World::new(&[60_000]);
    let sql = "SELECT count(*) FROM t a, t b WHERE a.id * b.id % 7 = 9";
    let options = QueryOptions::default().with_timeout(Duration::from_millis(200));
    let query = world
        .runtime
        .block_on(world.session.sql_with(sql, Parameters::default(), &options))
        .unwrap();
    let begun = Instant::now();
    let error = world.runtime.block_on(query.collect()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ResourcesExhausted);
    assert_eq!(
        error.message(),
        "the query took longer than its timeout of 0.2 seconds"
    );
    let query = world.runtime.block_on(world.session.sql(sql)).unwrap();
    let other = query.clone();
    let cancelling = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(200));
        other.cancel();
    });
    let error = world.runtime.block_on(query.collect()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Cancelled);
    cancelling.join().unwrap();
    assert!(begun.elapsed() < Duration::from_secs(60));
    assert_eq!(world.numbers("SELECT count(*) FROM t"), [60_000]);
}

#[test]
fn a_sort_over_its_memory_limit_spills_to_the_named_folder_and_finishes() {
    let folder = tempfile::tempdir().unwrap();
    let options = SessionOptions::default()
        .with_threads(2)
        .with_memory_limit_bytes(8_000_000)
        .with_spill_to(folder.path());
    // One tile, of which each slice counts as the whole for DataFusion.
    let world = World::with(&options, &[1_000_000]);
    let query = world
        .sql_with(
            "SELECT id, name FROM t ORDER BY name DESC",
            Parameters::default(),
        )
        .unwrap();
    let (mut rows, mut last) = (0, None::<String>);
    let mut stream = {
        let _entered = world.runtime.enter();
        query.stream().unwrap()
    };
    while let Some(batch) = world.runtime.block_on(stream.next()) {
        let batch = batch.unwrap();
        rows += batch.num_rows();
        for name in batch.column(1).as_string::<i32>().iter().flatten() {
            assert!(last.as_deref().is_none_or(|last| last >= name));
            last = Some(name.to_owned());
        }
    }
    assert_eq!(rows, 1_000_000);
    drop(stream);
    let analyzed = world.runtime.block_on(query.explain_analyze()).unwrap();
    let spilled = analyzed
        .split("spill_count=")
        .nth(1)
        .and_then(|rest| rest.chars().next());
    assert!(spilled.is_some_and(|count| count != '0'), "{analyzed}");
    assert_eq!(world.session.memory_bytes(), 0);
    let metrics = query.metrics().unwrap();
    assert!(metrics.is_done && metrics.spilled_files > 0, "{metrics}");
    assert!(metrics.spilled_bytes > 1_000_000, "{metrics}");
    let peak = metrics.peak_memory_bytes;
    assert!((1_000_000..=8_000_000).contains(&peak), "{metrics}");
    // The files have no name, and no folder is made for them.
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn what_queries_spill_has_a_limit_that_all_who_share_a_session_share() {
    const SORT: &str = "SELECT id, name FROM t ORDER BY name DESC";
    let options = SessionOptions::default()
        .with_threads(2)
        .with_memory_limit_bytes(8_000_000);
    let few = World::with(
        &options.clone().with_spill_limit_bytes(500_000),
        &[1_000_000],
    );
    let query = few.sql_with(SORT, Parameters::default()).unwrap();
    let error = few.runtime.block_on(query.collect()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ResourcesExhausted, "{error}");
    let limit = "the files that queries spill to may have 500.0 kB together, there is no room for ";
    assert!(error.message().starts_with(limit), "{error}");
    assert!(error.hint().unwrap().contains("spill_limit"), "{error}");
    assert_eq!(few.numbers("SELECT count(*) FROM t"), [1_000_000]);
    let none = SessionOptions::default().with_spill_limit_bytes(0);
    let error = Session::try_new(&none).err().unwrap();
    assert_eq!(error.message(), "spill_limit must be at least 1, got 0");

    let many = World::with(&options.with_spill_limit_bytes(1 << 30), &[1_000_000]);
    assert_eq!(many.session.spill_limit_bytes(), 1 << 30);
    let seeing = many.session.seeing(|_| true).unwrap();
    let query = many.runtime.block_on(seeing.sql(SORT)).unwrap();
    let mut stream = {
        let _entered = many.runtime.enter();
        query.stream().unwrap()
    };
    drop(many.runtime.block_on(stream.next()).unwrap().unwrap());
    assert!(many.session.spilled_bytes() > 1_000_000);
    drop(stream);
    for world in [few, many] {
        let stop = Instant::now() + Duration::from_secs(20);
        while world.session.spilled_bytes() > 0 {
            assert!(Instant::now() < stop, "files are kept that nobody reads");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

#[test]
fn a_folder_that_cannot_be_spilled_to_is_an_error_at_once() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let options = SessionOptions::default().with_spill_to(file.path());
    let error = Session::try_new(&options).err().unwrap();
    assert!(matches!(error.kind(), ErrorKind::Storage { .. }), "{error}");
    let named = error.to_string();
    assert!(named.contains(file.path().to_str().unwrap()), "{named}");
}

#[test]
fn many_queries_at_once_are_all_answered_within_the_limit() {
    let options = SessionOptions::default()
        .with_threads(2)
        .with_memory_limit_bytes(30_000_000)
        .with_max_queries(8);
    let world = World::with(&options, &[50_000, 50_000]);
    let queries: Vec<Query> = (0..40)
        .map(|number| {
            let sql = format!("SELECT count(*) FROM (SELECT name, count(*) FROM t WHERE id >= {number} GROUP BY name)");
            world.runtime.block_on(world.session.sql(&sql)).unwrap()
        })
        .collect();
    let running = futures::future::join_all(queries.iter().map(Query::collect));
    let answers = world.runtime.block_on(running);
    for (number, answer) in answers.into_iter().enumerate() {
        let batches = answer.unwrap();
        let count = batches[0].column(0).as_primitive::<Int64Type>().value(0);
        assert_eq!(count, 100_000 - number as i64);
    }
    assert_eq!(world.session.memory_bytes(), 0);
}

#[test]
fn readers_who_wait_for_one_another_do_not_wait_for_turns() {
    let options = SessionOptions::default()
        .with_threads(1)
        .with_max_queries(1);
    let world = World::with(&options, &[200_000]);
    let query = world
        .sql_with("SELECT id FROM t", Parameters::default())
        .unwrap();
    let _entered = world.runtime.enter();
    let both = async {
        let (mut one, mut other) = (query.stream().unwrap(), query.stream().unwrap());
        let mut rows = 0;
        while let (Some(first), Some(second)) = (one.next().await, other.next().await) {
            assert_eq!(first.unwrap(), second.as_ref().unwrap().clone());
            rows += second.unwrap().num_rows();
        }
        rows
    };
    let read = world
        .runtime
        .block_on(async { tokio::time::timeout(Duration::from_secs(60), both).await });
    assert_eq!(read.unwrap(), 200_000);
}

#[test]
fn what_grows_without_end_is_a_typed_error_and_the_session_goes_on() {
    let options = SessionOptions::default()
        .with_threads(2)
        .with_memory_limit_bytes(50_000_000)
        .with_timeout(Duration::from_secs(1));
    let world = World::with(&options, &[10]);
    for sql in [
        "SELECT length(repeat('x', 3000000000))",
        "SELECT length(repeat(name, 100000000)) FROM t",
        "SELECT length(lpad('x', 2000000000)), length(rpad(name, 1000000000)) FROM t",
        "SELECT replace(repeat('a', 1000000), 'a', repeat('b', 1000000))",
        "SELECT max(length(n || n || n || n || n || n)) FROM (SELECT repeat(name, 2000000) AS n FROM t)",
        "SELECT length(n || repeat('y', 40000000)) FROM (SELECT repeat('x', 40000000) AS n)",
        "SELECT array_concat(n, n, n) FROM (SELECT array_repeat(1, 5000000) AS n)",
        "SELECT max(cardinality(a)) FROM (SELECT array_agg(value) OVER (ORDER BY value ROWS UNBOUNDED PRECEDING) AS a FROM generate_series(1, 9000000))",
        "SELECT max(length(s)) FROM (SELECT string_agg(repeat(name, 100), ',') OVER (PARTITION BY id % 2) AS s FROM t, generate_series(1, 9000))",
        "SELECT max(length(x)) FROM (SELECT unnest(generate_series(1, 100000)), repeat('x', 1000000) AS x)",
        "SELECT array_repeat(1, 1000000000000)",
        "SELECT generate_series(1, 1000000000000000000)",
        "SELECT generate_series(timestamp '2000-01-01', timestamp '2020-01-01', interval '1 millisecond')",
        "SELECT * FROM generate_series(1, 1000000000000000000)",
        "SELECT max(value) FROM generate_series(1, 1000000000000000000)",
        "SELECT array_agg(value) FROM generate_series(1, 1000000000000)",
        "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r) SELECT count(*) FROM r",
        "WITH RECURSIVE r AS (SELECT 'x' AS n UNION ALL SELECT n || n FROM r) SELECT max(length(n)) FROM r",
        "CREATE TABLE big AS SELECT * FROM generate_series(1, 1000000000000000000)",
    ] {
        let planned = world.sql_with(sql, Parameters::default());
        let error = planned
            .and_then(|query| world.runtime.block_on(query.collect()))
            .unwrap_err();
        assert_eq!(
            error.kind(),
            ErrorKind::ResourcesExhausted,
            "{sql}: {error}"
        );
    }
    assert_eq!(world.numbers("SELECT length(repeat('x', 1000))"), [1000]);
    assert_eq!(world.session.tables(), ["t"]);
}

#[test]
fn what_fits_in_portions_goes_through_however_many_there_are() {
    let options = SessionOptions::default()
        .with_threads(2)
        .with_memory_limit_bytes(50_000_000);
    let world = World::with(&options, &[300]);
    let all = "SELECT sum(u) FROM (SELECT unnest(generate_series(1, 100000)) AS u FROM t)";
    assert_eq!(world.numbers(all), [300 * 100_000 * 100_001 / 2]);
    let literals = "SELECT sum(CAST(length(x || id) AS BIGINT)) FROM (SELECT repeat('x', 1000000) AS x, id FROM t)";
    let digits = 10 + 2 * 90 + 3 * 200;
    assert_eq!(world.numbers(literals), [300 * 1_000_000 + digits]);
    // How long a value is shows only when it is made.
    let calls = "SELECT max(length(t || t)) FROM (SELECT repeat('x', 10000 + CAST(value % 2 AS INT)) AS t FROM generate_series(1, 20000))";
    assert_eq!(world.numbers(calls), [20_002]);
    let groups = "SELECT count(*) FROM (SELECT length(concat(t, value)) > 3 AS t FROM (SELECT value, lpad('', 10000, 'ab') || value AS t FROM generate_series(1, 20000)) GROUP BY 1)";
    assert_eq!(world.numbers(groups), [1]);
    let deep = "SELECT count(u) FROM (SELECT unnest(unnest(l)) AS u FROM (SELECT array_repeat(array_repeat(id, 100), 100) AS l FROM t))";
    assert_eq!(world.numbers(deep), [3_000_000]);
    let lists = "SELECT sum(CAST(cardinality(a) AS BIGINT)) FROM (SELECT array_agg(value) OVER (PARTITION BY value % 300 ORDER BY value) AS a FROM generate_series(1, 60000))";
    assert_eq!(world.numbers(lists), [300 * 200 * 201 / 2]);
    let framed = "SELECT sum(CAST(cardinality(a) AS BIGINT)) FROM (SELECT array_agg(value) OVER (ORDER BY value ROWS 9 PRECEDING) AS a FROM generate_series(1, 200000))";
    assert_eq!(world.numbers(framed), [199_991 * 10 + 45]);
}

#[test]
fn an_answer_that_lies_in_a_grid_needs_no_memory_of_its_own() {
    let options = SessionOptions::default().with_memory_limit_bytes(100_000);
    let world = World::with(&options, &[300_000]);
    assert_eq!(world.batch("SELECT * FROM t").num_rows(), 300_000);
    let error = world.run_error("SELECT id + 1 FROM t");
    assert_eq!(error.kind(), ErrorKind::ResourcesExhausted);
    assert!(error.message().contains("(the answer)"), "{error}");
}
