//! SQL over grids: answers, pruning, statistics, limits of the text, errors.

use std::sync::Arc;

use arrow::array::{Array, AsArray, Float64Array, Int64Array, RecordBatch, StringArray};
use arrow::compute::concat_batches;
use arrow::datatypes::{DataType, Field, Int64Type, Schema};
use partgrid::error::{Error, ErrorKind};
use partgrid::grid::{Axis, GridBuilder, PartitionGrid, Tile};
use partgrid::query::{MAX_SQL_BYTES, Query, Session, SessionOptions};

#[test]
fn a_count_is_answered_without_a_scan() {
    let (session, runtime) = session_with("t", grid(&[3, 0, 4]));
    let query = runtime
        .block_on(session.sql("SELECT count(*) AS n FROM t"))
        .unwrap();
    assert!(
        !query.explain().contains("GridScanExec"),
        "{}",
        query.explain()
    );
    assert_eq!(numbers(&runtime, &query), [7]);
}

#[test]
fn least_and_greatest_come_from_the_statistics() {
    let (session, runtime) = session_with("t", grid(&[3, 4]));
    let query = runtime
        .block_on(session.sql("SELECT max(id) - min(id) FROM t"))
        .unwrap();
    assert!(
        !query.explain().contains("GridScanExec"),
        "{}",
        query.explain()
    );
    assert_eq!(numbers(&runtime, &query), [6]);
}

#[test]
fn a_filter_reads_only_tiles_that_may_match() {
    let (session, runtime) = session_with("t", grid(&[10, 10, 10, 10]));
    let query = runtime
        .block_on(session.sql("SELECT id FROM t WHERE id >= 35"))
        .unwrap();
    assert!(query.explain().contains("tiles=1/4"), "{}", query.explain());
    assert_eq!(numbers(&runtime, &query), [35, 36, 37, 38, 39]);
}

#[test]
fn a_tile_with_only_nulls_is_not_read_for_a_comparison() {
    let schema = Arc::new(Schema::new(vec![Field::new("id", DataType::Int64, true)]));
    let batch = |values: Vec<Option<i64>>| {
        RecordBatch::try_new(
            Arc::clone(&schema),
            vec![Arc::new(Int64Array::from(values))],
        )
        .unwrap()
    };
    let batches = [batch(vec![None, None]), batch(vec![Some(1), None])];
    let grid = PartitionGrid::try_from_batches(Arc::clone(&schema), &batches).unwrap();
    let (session, runtime) = session_with("t", grid);
    let query = runtime
        .block_on(session.sql("SELECT id FROM t WHERE id < 5"))
        .unwrap();
    assert!(query.explain().contains("tiles=1/2"), "{}", query.explain());
    assert_eq!(numbers(&runtime, &query), [1]);
}

#[test]
fn nan_is_greater_than_every_number_and_never_pruned_away() {
    let schema = Arc::new(Schema::new(vec![Field::new("x", DataType::Float64, false)]));
    let values = Arc::new(Float64Array::from(vec![1.0, f64::NAN]));
    let batch = RecordBatch::try_new(Arc::clone(&schema), vec![values]).unwrap();
    let (session, runtime) = session_with(
        "t",
        PartitionGrid::try_from_batches(schema, &[batch]).unwrap(),
    );
    let query = runtime
        .block_on(session.sql("SELECT count(*) FROM t WHERE x > 5"))
        .unwrap();
    assert_eq!(numbers(&runtime, &query), [1]);
}

#[test]
fn only_the_column_bands_that_are_asked_for_are_read() {
    let (session, runtime) = session_with("t", banded(&[4, 4]));
    let query = runtime
        .block_on(session.sql("SELECT id FROM t ORDER BY id"))
        .unwrap();
    assert!(
        query
            .explain()
            .contains("tiles=2/4, from=[memory: 2 kept, 2 of other columns], rows=8"),
        "{}",
        query.explain()
    );
    assert_eq!(numbers(&runtime, &query), [0, 1, 2, 3, 4, 5, 6, 7]);
}

#[test]
fn columns_of_several_bands_come_back_in_the_order_asked_for() {
    let (session, runtime) = session_with("t", banded(&[2, 1]));
    let query = runtime
        .block_on(session.sql("SELECT name, id FROM t WHERE id = 2"))
        .unwrap();
    let batch = collect(&runtime, &query);
    assert_eq!(batch.column(0).as_string::<i32>().value(0), "row 2");
    assert_eq!(batch.column(1).as_primitive::<Int64Type>().value(0), 2);
}

#[test]
fn one_large_tile_is_read_by_all_threads_and_gives_each_row_once() {
    let (session, runtime) = session_with("t", grid(&[100_000]));
    let query = runtime
        .block_on(session.sql("SELECT count(*), sum(id) FROM t WHERE id % 2 = 0"))
        .unwrap();
    assert!(query.explain().contains("shares=4"), "{}", query.explain());
    let batch = collect(&runtime, &query);
    assert_eq!(batch.column(0).as_primitive::<Int64Type>().value(0), 50_000);
    assert_eq!(
        batch.column(1).as_primitive::<Int64Type>().value(0),
        2_499_950_000
    );
}

#[test]
fn a_limit_stops_the_scan() {
    let (session, runtime) = session_with("t", grid(&[50, 50]));
    let query = runtime
        .block_on(session.sql("SELECT id FROM t LIMIT 3"))
        .unwrap();
    assert!(query.explain().contains("limit=3"), "{}", query.explain());
    assert_eq!(numbers(&runtime, &query), [0, 1, 2]);
}

#[test]
fn a_query_runs_again_with_the_same_answer() {
    let (session, runtime) = session_with("t", grid(&[5, 5]));
    let sql = "SELECT a.id FROM t a JOIN t b ON a.id = b.id + 5 ORDER BY a.id";
    let query = runtime.block_on(session.sql(sql)).unwrap();
    assert_eq!(numbers(&runtime, &query), [5, 6, 7, 8, 9]);
    assert_eq!(numbers(&runtime, &query), [5, 6, 7, 8, 9]);
}

#[test]
fn a_query_that_spreads_its_rows_anew_runs_again_and_twice_at_once() {
    let (session, runtime) = session_with("t", grid(&[60_000, 60_000]));
    let sql = "SELECT id % 7 AS k FROM t GROUP BY id % 7 ORDER BY k";
    let query = runtime.block_on(session.sql(sql)).unwrap();
    assert!(query.explain().contains("RepartitionExec"));
    let expected = [0, 1, 2, 3, 4, 5, 6];
    assert_eq!(numbers(&runtime, &query), expected);
    assert_eq!(numbers(&runtime, &query), expected);
    let both = async { futures::join!(query.collect(), query.collect()) };
    let (first, second) = runtime.block_on(both);
    let rows = |batches: Vec<RecordBatch>| batches.iter().map(RecordBatch::num_rows).sum::<usize>();
    assert_eq!((rows(first.unwrap()), rows(second.unwrap())), (7, 7));
}

#[test]
fn an_empty_grid_gives_no_rows() {
    let (session, runtime) = session_with("t", grid(&[]));
    let query = runtime
        .block_on(session.sql("SELECT id FROM t WHERE id > 3"))
        .unwrap();
    assert_eq!(collect(&runtime, &query).num_rows(), 0);
}

#[test]
fn a_name_can_be_given_to_another_grid() {
    let (session, runtime) = session_with("t", grid(&[2]));
    session.register("t", Arc::new(grid(&[5]))).unwrap();
    let query = runtime
        .block_on(session.sql("SELECT count(*) FROM t"))
        .unwrap();
    assert_eq!(numbers(&runtime, &query), [5]);
    assert!(session.deregister("t"));
    assert!(!session.deregister("t"));
    let gone = error(&session, &runtime, "SELECT * FROM t");
    assert_eq!(
        gone.to_string(),
        "no table `t` (table: t)\nline 1, column 15:\n  SELECT * FROM t\n                ^\nhint: no grid is registered: pg.sql(text, NAME=frame) and session.register(NAME, grid) name one"
    );
    session.register("Big", Arc::new(grid(&[1]))).unwrap();
    for sql in ["SELECT count(*) FROM Big", "SELECT count(*) FROM \"Big\""] {
        let query = runtime.block_on(session.sql(sql)).unwrap();
        assert_eq!(numbers(&runtime, &query), [1]);
    }
    assert_eq!(
        error(&session, &runtime, "SELECT * FROM x").hint(),
        Some("the tables are Big")
    );
    session.register("big", Arc::new(grid(&[1, 1]))).unwrap();
    let query = runtime
        .block_on(session.sql("SELECT count(*) FROM Big"))
        .unwrap();
    assert_eq!(numbers(&runtime, &query), [2]);
}

#[test]
fn an_unknown_column_is_an_error_that_names_the_near_one() {
    let (session, runtime) = session_with("t", grid(&[2]));
    let error = error(&session, &runtime, "SELECT nmae FROM t");
    assert_eq!(error.kind(), ErrorKind::Query);
    assert_eq!(
        error.to_string(),
        "no column `nmae` (column: nmae)\nline 1, column 8:\n  SELECT nmae FROM t\n         ^^^^\nhint: did you mean `name`?"
    );
}

#[test]
fn a_division_by_zero_is_the_users_error() {
    let (session, runtime) = session_with("t", grid(&[2]));
    let query = runtime
        .block_on(session.sql("SELECT 1 / id FROM t"))
        .unwrap();
    let error = runtime.block_on(query.collect()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Query, "{error}");
}

#[test]
fn statements_that_change_something_are_refused() {
    let (session, runtime) = session_with("t", grid(&[2]));
    let statements = [
        "INSERT INTO t VALUES (1, 'a')",
        "DELETE FROM t",
        "UPDATE t SET id = 1",
        "TRUNCATE TABLE t",
        "COPY t TO 'x.csv'",
        "EXPLAIN COPY t TO 'x.csv'",
        "CREATE EXTERNAL TABLE x STORED AS CSV LOCATION 'x.csv'",
        "SET datafusion.execution.batch_size = 1",
        "RESET datafusion.execution.batch_size",
        "SELECT 1; SELECT 2",
        "",
        ";",
    ];
    for statement in statements {
        assert_eq!(
            error(&session, &runtime, statement).kind(),
            ErrorKind::Query,
            "{statement}"
        );
    }
    assert_eq!(
        error(&session, &runtime, "SELECT * FROM '/etc/passwd'").kind(),
        ErrorKind::Query
    );
}

#[test]
fn long_chains_are_an_error_and_the_session_goes_on() {
    let (session, runtime) = session_with("t", grid(&[2]));
    let chains = [
        format!("SELECT 1{}", "+1".repeat(20_000)),
        format!("SELECT 1 WHERE true{}", " AND true".repeat(20_000)),
        format!("SELECT 1 WHERE true{}", " OR true".repeat(20_000)),
        format!("SELECT 'a'{}", "||'a'".repeat(20_000)),
        format!("SELECT 1{}", "::int".repeat(20_000)),
        format!("SELECT 1{}", " IS NULL".repeat(20_000)),
        format!("SELECT 1{}", " UNION ALL SELECT 1".repeat(12_000)),
        format!("SELECT 1 FROM t{}", " JOIN t ON true".repeat(15_000)),
        format!("SELECT 1{}", "+1".repeat(700)),
        format!("SELECT {}1", "- ".repeat(5_000)),
        format!("SELECT {}1", "NOT ".repeat(5_000)),
    ];
    for chain in chains {
        let error = error(&session, &runtime, &chain);
        assert_eq!(
            error.kind(),
            ErrorKind::ResourcesExhausted,
            "{}: {error}",
            &chain[..40]
        );
    }
    let query = runtime
        .block_on(session.sql("SELECT count(*) FROM t"))
        .unwrap();
    assert_eq!(numbers(&runtime, &query), [2]);
}

#[test]
fn a_chain_within_the_limit_is_answered() {
    let (session, runtime) = session_with("t", grid(&[2]));
    let sum = format!("SELECT 1{}", "+1".repeat(490));
    let query = runtime.block_on(session.sql(&sum)).unwrap();
    assert_eq!(numbers(&runtime, &query), [491]);
    let list: Vec<String> = (0..20_000).map(|number| number.to_string()).collect();
    let sql = format!("SELECT id FROM t WHERE id IN ({})", list.join(","));
    let query = runtime.block_on(session.sql(&sql)).unwrap();
    assert_eq!(numbers(&runtime, &query), [0, 1]);
}

#[test]
fn deep_parentheses_and_long_texts_are_errors() {
    let (session, runtime) = session_with("t", grid(&[2]));
    let deep = format!("SELECT {}1{}", "(".repeat(3_000), ")".repeat(3_000));
    assert_eq!(
        error(&session, &runtime, &deep).kind(),
        ErrorKind::ResourcesExhausted
    );
    let long = format!("SELECT '{}'", "x".repeat(MAX_SQL_BYTES));
    assert_eq!(
        error(&session, &runtime, &long).kind(),
        ErrorKind::ResourcesExhausted
    );
}

#[test]
fn a_query_over_its_memory_limit_is_refused_by_name() {
    let options = SessionOptions::default()
        .with_threads(2)
        .with_memory_limit_bytes(200_000);
    let session = Session::try_new(&options).unwrap();
    session.register("t", Arc::new(grid(&[200_000]))).unwrap();
    let runtime = runtime();
    let query = runtime
        .block_on(session.sql("SELECT array_agg(name) FROM t"))
        .unwrap();
    let error = runtime.block_on(query.collect()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ResourcesExhausted, "{error}");
}

#[test]
fn no_threads_too_many_and_no_memory_are_errors() {
    let options = SessionOptions::default;
    for (wrong, text) in [
        (options().with_threads(0), "threads must be at least 1"),
        (
            options().with_threads(5_000),
            "threads must be at most 1024",
        ),
        (
            options().with_memory_limit_bytes(0),
            "memory_limit must be at least 1",
        ),
    ] {
        let error = Session::try_new(&wrong).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.message().starts_with(text), "{error}");
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .build()
        .unwrap()
}

fn session_with(name: &str, grid: PartitionGrid) -> (Session, tokio::runtime::Runtime) {
    let session = Session::try_new(&SessionOptions::default().with_threads(4)).unwrap();
    session.register(name, Arc::new(grid)).unwrap();
    (session, runtime())
}

fn schema() -> Arc<Schema> {
    let name = Field::new("name", DataType::Utf8, false);
    Arc::new(Schema::new(vec![
        Field::new("id", DataType::Int64, false),
        name,
    ]))
}

/// Rows numbered through all tiles: id, and name `row <id>`.
fn batches(rows: &[i64]) -> Vec<RecordBatch> {
    let mut start = 0;
    let batch = |length: &i64| {
        let ids: Vec<i64> = (start..start + length).collect();
        start += length;
        let names: StringArray = ids.iter().map(|id| Some(format!("row {id}"))).collect();
        let columns = vec![Arc::new(Int64Array::from(ids)) as _, Arc::new(names) as _];
        RecordBatch::try_new(schema(), columns).unwrap()
    };
    rows.iter().map(batch).collect()
}

fn grid(rows: &[i64]) -> PartitionGrid {
    PartitionGrid::try_from_batches(schema(), &batches(rows)).unwrap()
}

/// The same, with each column in a band of its own.
fn banded(rows: &[i64]) -> PartitionGrid {
    let row_axis = Axis::try_from_lengths(rows.iter().map(|rows| *rows as u64)).unwrap();
    let mut builder =
        GridBuilder::try_new(schema(), row_axis, Axis::try_even(2, 2).unwrap()).unwrap();
    for (row_band, batch) in batches(rows).iter().enumerate() {
        for column in 0..2 {
            let tile = Tile::try_from_batch(&batch.project(&[column]).unwrap()).unwrap();
            builder.set(&[row_band, column], tile).unwrap();
        }
    }
    builder.build().unwrap()
}

fn collect(runtime: &tokio::runtime::Runtime, query: &Query) -> RecordBatch {
    let batches = runtime.block_on(query.collect()).unwrap();
    concat_batches(&query.schema(), &batches).unwrap()
}

fn numbers(runtime: &tokio::runtime::Runtime, query: &Query) -> Vec<i64> {
    let batch = collect(runtime, query);
    let column = batch.column(0).as_primitive::<Int64Type>();
    assert_eq!(column.null_count(), 0);
    column.values().to_vec()
}

fn error(session: &Session, runtime: &tokio::runtime::Runtime, sql: &str) -> Error {
    match runtime.block_on(session.sql(sql)) {
        Err(error) => error,
        Ok(query) => panic!("{sql} was planned: {}", query.explain()),
    }
}
