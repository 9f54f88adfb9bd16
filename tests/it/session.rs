//! Sessions: parameters, views, tables, prepared statements, functions, errors that show the place, bounds.

mod bounds;
mod names;
mod nulls;
mod plans;
mod sums;
mod units;

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int64Array, RecordBatch, StringArray};
use arrow::compute::concat_batches;
use arrow::datatypes::{DataType, Field, Int64Type, Schema, UInt64Type};
use partgrid::error::{Error, ErrorKind};
use partgrid::grid::PartitionGrid;
use partgrid::query::{
    Aggregate, Function, FunctionSignature, Parameters, Query, QueryOptions, Session,
    SessionOptions,
};
use tokio::runtime::Runtime;

#[test]
fn values_take_the_place_of_parameters_in_order_and_by_name() {
    let world = World::new(&[5, 5]);
    let value = |number: i64| Arc::new(Int64Array::from(vec![number])) as ArrayRef;
    let in_order = Parameters::InOrder(vec![value(6), value(8)]);
    for sql in [
        "SELECT id FROM t WHERE id BETWEEN $1 AND $2",
        "SELECT id FROM t WHERE id BETWEEN ? AND ?",
        "SELECT id FROM t WHERE id>=? AND id<=?",
    ] {
        assert_eq!(
            world.numbers_with(sql, in_order.clone()),
            [6, 7, 8],
            "{sql}"
        );
    }
    let by_name = [("low".to_owned(), value(2)), ("n".to_owned(), value(2))];
    let sql = "SELECT id FROM t WHERE id > $low ORDER BY id LIMIT $n";
    let by_name = Parameters::ByName(by_name.into_iter().collect());
    assert_eq!(world.numbers_with(sql, by_name), [3, 4]);
    let text: ArrayRef = Arc::new(StringArray::from(vec!["' OR true --"]));
    let sql = "SELECT count(*) FROM t WHERE name = $1";
    assert_eq!(
        world.numbers_with(sql, Parameters::InOrder(vec![text])),
        [0]
    );
}

#[test]
fn values_and_parameters_must_fit() {
    let world = World::new(&[1]);
    let one = Parameters::InOrder(vec![Arc::new(Int64Array::from(vec![1]))]);
    for (sql, values, message) in [
        (
            "SELECT $1, $2",
            one.clone(),
            "the parameters of the statement are $1, $2, values came for $1",
        ),
        (
            "SELECT 1",
            one.clone(),
            "the parameters of the statement are none, values came for $1",
        ),
        (
            "SELECT $a",
            one.clone(),
            "the parameters of the statement are $a, values came for $1",
        ),
        (
            "SELECT $1",
            Parameters::default(),
            "the parameters of the statement are $1, values came for none",
        ),
        (
            "SELECT ?, $1",
            one,
            "parameters must all be written `?`, or all `$1` or `$name`, got both",
        ),
    ] {
        let error = world.sql_with(sql, values).err().unwrap();
        assert_eq!((error.kind(), error.message()), (ErrorKind::Query, message));
    }
}

#[test]
fn a_view_follows_the_names_that_it_uses() {
    let world = World::new(&[3]);
    assert_eq!(
        world.status("CREATE VIEW v (n) AS SELECT id FROM t WHERE id > 0"),
        "view v"
    );
    assert_eq!(world.numbers("SELECT n FROM v ORDER BY n"), [1, 2]);
    world.session.register("t", Arc::new(grid(&[5]))).unwrap();
    assert_eq!(world.numbers("SELECT count(*) FROM v"), [4]);
    world.status("CREATE VIEW w AS SELECT n + 10 AS n FROM v");
    assert_eq!(world.numbers("SELECT max(n) FROM w"), [14]);
    assert_eq!(world.session.tables(), ["t", "v", "w"]);
    let definition = "SELECT count(*) FROM information_schema.views WHERE table_name = 'v' AND definition LIKE '%id > 0%'";
    assert_eq!(world.numbers(definition), [1]);
    for sql in [
        "CREATE OR REPLACE VIEW v AS SELECT n FROM w",
        "CREATE OR REPLACE VIEW v AS SELECT n FROM V",
        "CREATE OR REPLACE VIEW v AS SELECT (SELECT max(n) FROM w) AS n",
    ] {
        let error = world.error(sql);
        assert_eq!(error.message(), "the view `v` would read itself");
    }
    assert_eq!(world.numbers("SELECT max(n) FROM w"), [14]);
    world.status("CREATE OR REPLACE VIEW v AS WITH v AS (SELECT 7 AS n) SELECT n FROM v");
    assert_eq!(world.numbers("SELECT n FROM w"), [17]);
    world.status("DROP VIEW v");
    assert_eq!(world.error("SELECT * FROM w").message(), "no table `v`");
}

#[test]
fn create_table_keeps_an_answer_as_a_grid() {
    let world = World::new(&[3, 4]);
    assert_eq!(
        world.status("CREATE TABLE x AS SELECT id * 2 AS d FROM t"),
        "table x, 7 rows"
    );
    let made = world.session.grid("x").unwrap();
    assert_eq!((made.num_rows(), made.num_columns()), (7, 1));
    assert_eq!(
        world.error("CREATE TABLE x AS SELECT 1 AS d").message(),
        "there is a table `x` already"
    );
    world.status("CREATE TABLE IF NOT EXISTS x AS SELECT 1 AS d");
    assert_eq!(world.numbers("SELECT max(d) FROM x"), [12]);
    world.status("CREATE OR REPLACE TABLE x AS SELECT max(d) AS d FROM x");
    assert_eq!(world.numbers("SELECT d FROM x"), [12]);
    assert_eq!(world.error("DROP VIEW x").hint(), Some("DROP TABLE x"));
    world.status("DROP TABLE x");
    assert_eq!(
        world.session.grid("x").unwrap_err().message(),
        "no table `x`"
    );
    let listed = world.batch("SHOW TABLES");
    assert_eq!(listed.column(0).as_string::<i32>().value(0), "t");
    assert_eq!(listed.column(2).as_primitive::<UInt64Type>().value(0), 7);
    assert_eq!(world.batch("DESCRIBE t").num_rows(), 2);
}

#[test]
fn a_failed_create_table_names_nothing() {
    let world = World::new(&[3]);
    assert_eq!(
        world
            .error("CREATE TABLE x AS SELECT 1 / (id - id) AS q FROM t")
            .kind(),
        ErrorKind::Query
    );
    assert_eq!(world.session.tables(), ["t"]);
}

#[test]
fn prepared_statements_take_typed_values() {
    let world = World::new(&[9]);
    world.status("PREPARE above(BIGINT) AS SELECT id FROM t WHERE id > $1 ORDER BY id");
    assert_eq!(world.numbers("EXECUTE above(6)"), [7, 8]);
    assert_eq!(world.numbers("EXECUTE above('6')"), [7, 8]);
    assert_eq!(
        world.error("EXECUTE above('x')").message(),
        "the value of $1 must be Int64, got Utf8"
    );
    assert_eq!(
        world.error("EXECUTE above(1, 2)").message(),
        "the statement must get 1 values, got 2"
    );
    assert_eq!(
        world.error("EXECUTE abve(1)").hint(),
        Some("did you mean `above`?")
    );
    world.status("DEALLOCATE above");
    assert_eq!(
        world.error("EXECUTE above(6)").message(),
        "no prepared statement `above`"
    );
    let runtime = &world.runtime;
    let prepared = runtime
        .block_on(
            world
                .session
                .prepare("SELECT count(*) FROM t WHERE id > $1"),
        )
        .unwrap();
    assert_eq!(
        prepared.parameters().unwrap(),
        [("$1".to_owned(), Some(DataType::Int64))]
    );
    let count = |above: i64| {
        let values = Parameters::InOrder(vec![Arc::new(Int64Array::from(vec![above]))]);
        let query = runtime
            .block_on(prepared.query(values, &QueryOptions::default()))
            .unwrap();
        numbers(runtime, &query)
    };
    assert_eq!((count(5), count(0)), (vec![3], vec![8]));
    world.session.register("t", Arc::new(grid(&[20]))).unwrap();
    assert_eq!(count(0), [19]);
    let error = runtime
        .block_on(world.session.prepare("DROP TABLE t"))
        .err()
        .unwrap();
    assert_eq!(error.message(), "only statements that read can be prepared");
}

#[test]
fn tiles_says_where_the_data_is() {
    let world = World::new(&[3, 4]);
    let tiles = world
        .batch("SELECT row_band, first_row, rows, here, lost FROM tiles('t') ORDER BY row_band");
    let column = |number: usize| {
        tiles
            .column(number)
            .as_primitive::<UInt64Type>()
            .values()
            .to_vec()
    };
    assert_eq!(
        (column(0), column(1), column(2)),
        (vec![0, 1], vec![0, 3], vec![3, 4])
    );
    assert!(
        tiles
            .column(3)
            .as_boolean()
            .iter()
            .all(|here| here == Some(true))
    );
    let mut lost = tiles.column(4).as_boolean().iter();
    assert!(lost.all(|lost| lost == Some(false)));
    let sql = "SELECT s.\"column\", s.min, s.max FROM (SELECT unnest(statistics) AS s FROM tiles('t') WHERE row_band = 1)";
    let known = world.batch(sql);
    let text = |column: usize, row: usize| {
        known
            .column(column)
            .as_string::<i32>()
            .value(row)
            .to_owned()
    };
    assert_eq!(
        (text(0, 0), text(1, 0), text(2, 0)),
        ("id".into(), "3".into(), "6".into())
    );
    world.status("CREATE VIEW v AS SELECT * FROM t");
    assert_eq!(
        world.error("SELECT * FROM tiles('v')").message(),
        "`v` is a view, which has no tiles"
    );
    assert_eq!(
        world.error("SELECT * FROM tiles('tt')").hint(),
        Some("did you mean `t`?")
    );
}

#[test]
fn errors_show_the_place_and_name_what_is_near() {
    let world = World::new(&[2]);
    for (sql, text) in [
        (
            "SELECT\n  id,\n  nmae FROM t",
            "no column `nmae` (column: nmae)\nline 3, column 3:\n    nmae FROM t\n    ^^^^\nhint: did you mean `name`?",
        ),
        (
            "SELECT x.name FROM t",
            "no column `x.name` (column: name)\nline 1, column 8:\n  SELECT x.name FROM t\n         ^^^^^^\nhint: did you mean `t.name`?",
        ),
        (
            "SELECT abss(id) FROM t",
            "no function `abss`\nline 1, column 8:\n  SELECT abss(id) FROM t\n         ^^^^\nhint: did you mean `abs`?",
        ),
        (
            "SELECT name + 1 FROM t",
            "these types do not go together: Utf8 + Int64\nline 1, column 8:\n  SELECT name + 1 FROM t\n         ^^^^\nhint: cast one of them: cast(… AS …)",
        ),
        (
            "SELECT abs(name) FROM t",
            "no function takes these arguments: abs(Utf8)\nline 1, column 8:\n  SELECT abs(name) FROM t\n         ^^^\nhint: it takes abs(number)",
        ),
        (
            "SELECT id, count(*) FROM t",
            "the column t.id must be in GROUP BY, or within an aggregate\nline 1, column 8:\n  SELECT id, count(*) FROM t\n         ^^\nhint: add it to GROUP BY, or take one value of each group: first_value(t.id)",
        ),
        (
            "SELECT 1 +",
            "Expected: an expression, found: EOF\nline 1, column 11:\n  SELECT 1 +\n            ^",
        ),
        (
            "SELEC 1",
            "Expected: an SQL statement, found: SELEC\nline 1, column 1:\n  SELEC 1\n  ^",
        ),
    ] {
        let error = world.error(sql);
        assert_eq!(
            (error.kind(), error.to_string().as_str()),
            (ErrorKind::Query, text)
        );
    }
    let long = format!("SELECT {} nmae FROM t", "1, ".repeat(1_000));
    let place = world.error(&long).place().unwrap().to_owned();
    assert!(
        place.lines().all(|line| line.chars().count() <= 110),
        "{place}"
    );
    let lines: Vec<&str> = place.lines().collect();
    assert_eq!(
        lines[1]
            .find("nmae")
            .map(|at| lines[1][..at].chars().count()),
        lines[2].find('^')
    );
}

#[test]
fn functions_of_users_are_called_and_checked() {
    let world = World::new(&[40_000]);
    let signature = |name: &str| FunctionSignature {
        name: name.to_owned(),
        arguments: vec![DataType::Int64],
        returns: DataType::Int64,
        volatile: false,
    };
    let double = |arrays: &[ArrayRef], _: usize| {
        let doubled = arrays[0]
            .as_primitive::<Int64Type>()
            .unary::<_, Int64Type>(|value| value * 2);
        Ok(Arc::new(doubled) as ArrayRef)
    };
    let function = Function::try_scalar(signature("twice"), Arc::new(double)).unwrap();
    world.session.register_function(function);
    assert_eq!(
        world.numbers("SELECT sum(twice(id)) FROM t"),
        [39_999 * 40_000]
    );
    let short = |arrays: &[ArrayRef], _: usize| Ok(arrays[0].slice(0, 1));
    let function = Function::try_scalar(signature("short"), Arc::new(short)).unwrap();
    world.session.register_function(function);
    let error = world.run_error("SELECT short(id) FROM t");
    assert!(
        error.message().starts_with("the function short must give ")
            && error.message().ends_with(" values, got 1"),
        "{error}"
    );
    let group = || Ok(Box::new(Product(1)) as Box<dyn Aggregate>);
    let function = Function::try_aggregate(signature("product"), Arc::new(group)).unwrap();
    world.session.register_function(function);
    assert_eq!(
        world.numbers("SELECT product(id + 1) FROM t WHERE id < 10"),
        [3_628_800]
    );
    assert_eq!(
        world.numbers("SELECT product(id % 2 + 1) FROM t WHERE id < 8 GROUP BY id % 2 ORDER BY 1"),
        [1, 16]
    );
    // A session over the same names knows them as well.
    let again = world.session.try_again().unwrap();
    let query = world
        .runtime
        .block_on(again.sql("SELECT twice(id) FROM t WHERE id = 4"))
        .unwrap();
    assert_eq!(numbers(&world.runtime, &query), [8]);
}

/// The product of numbers, modulo nothing.
#[derive(Debug)]
struct Product(i64);

impl Aggregate for Product {
    fn update(&mut self, arguments: &[ArrayRef]) -> Result<(), Error> {
        self.0 *= arguments[0]
            .as_primitive::<Int64Type>()
            .iter()
            .flatten()
            .product::<i64>();
        Ok(())
    }

    fn state(&mut self) -> Result<Vec<u8>, Error> {
        Ok(self.0.to_le_bytes().to_vec())
    }

    fn merge(&mut self, state: &[u8]) -> Result<(), Error> {
        self.0 *= i64::from_le_bytes(state.try_into().unwrap());
        Ok(())
    }

    fn evaluate(&mut self) -> Result<ArrayRef, Error> {
        Ok(Arc::new(Int64Array::from(vec![self.0])))
    }
}

/// A session with a grid `t` of the columns id and name.
struct World {
    session: Session,
    runtime: Runtime,
}

impl World {
    fn new(rows: &[i64]) -> Self {
        Self::with(&SessionOptions::default().with_threads(3), rows)
    }

    fn with(options: &SessionOptions, rows: &[i64]) -> Self {
        let session = Session::try_new(options).unwrap();
        session.register("t", Arc::new(grid(rows))).unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        Self { session, runtime }
    }

    fn sql_with(&self, sql: &str, parameters: Parameters) -> Result<Query, Error> {
        let options = QueryOptions::default();
        self.runtime
            .block_on(self.session.sql_with(sql, parameters, &options))
    }

    fn error(&self, sql: &str) -> Error {
        self.sql_with(sql, Parameters::default())
            .err()
            .unwrap_or_else(|| panic!("{sql} was planned"))
    }

    fn run_error(&self, sql: &str) -> Error {
        let query = self.sql_with(sql, Parameters::default()).unwrap();
        self.runtime.block_on(query.collect()).unwrap_err()
    }

    fn batch(&self, sql: &str) -> RecordBatch {
        let query = self.sql_with(sql, Parameters::default()).unwrap();
        let batches = self.runtime.block_on(query.collect()).unwrap();
        concat_batches(&query.schema(), &batches).unwrap()
    }

    fn status(&self, sql: &str) -> String {
        self.batch(sql)
            .column(0)
            .as_string::<i32>()
            .value(0)
            .to_owned()
    }

    fn numbers(&self, sql: &str) -> Vec<i64> {
        self.numbers_with(sql, Parameters::default())
    }

    fn numbers_with(&self, sql: &str, parameters: Parameters) -> Vec<i64> {
        numbers(&self.runtime, &self.sql_with(sql, parameters).unwrap())
    }
}

fn numbers(runtime: &Runtime, query: &Query) -> Vec<i64> {
    let batches = runtime.block_on(query.collect()).unwrap();
    let batch = concat_batches(&query.schema(), &batches).unwrap();
    let column = arrow::compute::cast(batch.column(0), &DataType::Int64).unwrap();
    assert_eq!(column.null_count(), 0);
    column.as_primitive::<Int64Type>().values().to_vec()
}

/// Rows numbered through all tiles: id, and name `row <id>`.
fn grid(rows: &[i64]) -> PartitionGrid {
    let schema = Arc::new(Schema::new(vec![
        Field::new("id", DataType::Int64, false),
        Field::new("name", DataType::Utf8, false),
    ]));
    let mut start = 0;
    let batch = |length: &i64| {
        let ids: Vec<i64> = (start..start + length).collect();
        start += length;
        let names: StringArray = ids.iter().map(|id| Some(format!("row {id}"))).collect();
        let columns: Vec<ArrayRef> = vec![Arc::new(Int64Array::from(ids)), Arc::new(names)];
        RecordBatch::try_new(Arc::clone(&schema), columns).unwrap()
    };
    let batches: Vec<RecordBatch> = rows.iter().map(batch).collect();
    PartitionGrid::try_from_batches(schema, &batches).unwrap()
}
