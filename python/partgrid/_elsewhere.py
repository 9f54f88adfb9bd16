"""What other libraries call what is here: the remedy in what is said of a name that is not.

Comes in: a class or the module, and a name that it does not have. Goes out: the error, with a hint where the name is known from elsewhere.
Never here: such names as attributes.
"""

from __future__ import annotations

_IN_SQL = 'SQL does that: sql("SELECT … FROM self …")'
_SQL_METHODS = [
    "agg",
    "drop_duplicates",
    "dropna",
    "explode",
    "filter",
    "group_by",
    "groupby",
    "join",
    "limit",
    "merge",
    "pivot",
    "select",
    "sort",
    "sort_values",
    "unique",
    "value_counts",
    "where",
    "with_column",
    "with_columns",
]
_AS_CSV = (
    "pyarrow.csv.write_csv(….to_arrow(), path) writes CSV, and so does `partgrid sql --output`"
)
_RUNS = "a result runs when its rows are asked for: collect() keeps them, to_arrow() gives them"

_RESULT = {
    **dict.fromkeys(_SQL_METHODS, "to_grid() makes a grid of the answer, which has sql()"),
    **dict.fromkeys(
        ("fetchall", "fetchone", "fetchmany", "rows", "to_dicts", "to_pylist"),
        "to_arrow().to_pylist() gives the rows, stream() batches of them as they are found",
    ),
    **dict.fromkeys(("df", "fetchdf", "fetch_df"), "to_pandas() gives a DataFrame"),
    "pl": "to_polars() gives a DataFrame",
    **dict.fromkeys(
        ("arrow", "fetch_arrow_table", "to_arrow_table", "to_table", "read_all"),
        "to_arrow() gives a pyarrow.Table",
    ),
    **dict.fromkeys(
        ("fetch_record_batch", "to_batches", "fetch_arrow_reader"),
        "stream() gives batches as they are found",
    ),
    **dict.fromkeys(("fetchnumpy", "to_numpy"), "to_grid().to_numpy() gives an array"),
    **dict.fromkeys(("write_csv", "to_csv"), _AS_CSV),
    **dict.fromkeys(("to_parquet", "sink_parquet"), "write_parquet(folder) writes files"),
    **dict.fromkeys(("execute", "run", "compute", "persist", "cache"), _RUNS),
    **dict.fromkeys(
        ("head", "tail", "print"),
        "show(rows) prints the first rows, LIMIT in the statement leaves others out",
    ),
    **dict.fromkeys(("shape", "num_rows", "height"), "to_grid().shape is that of the answer"),
    **dict.fromkeys(("dtypes", "types"), "schema has the columns with their types"),
}
_GRID = {
    **dict.fromkeys(_SQL_METHODS, _IN_SQL),
    **dict.fromkeys(("query", "describe", "count", "sum", "mean", "min", "max"), _IN_SQL),
    "head": "grid[:5] is a grid of the first rows",
    "tail": "grid[-5:] is a grid of the last rows",
    **dict.fromkeys(("iloc", "loc"), "grid[rows] is a grid of these rows"),
    **dict.fromkeys(("dtypes", "types"), "schema has the columns with their types"),
    **dict.fromkeys(("num_rows", "num_columns", "height", "width"), "shape has both"),
    **dict.fromkeys(("df", "toPandas"), "to_pandas() gives a DataFrame"),
    "pl": "to_polars() gives a DataFrame",
    **dict.fromkeys(("arrow", "to_table"), "to_arrow() gives a pyarrow.Table"),
    **dict.fromkeys(("write_csv", "to_csv"), _AS_CSV),
    "to_parquet": "write_parquet(folder) writes files",
    **dict.fromkeys(("partitions", "to_batches", "iter_batches"), "tiles() are its parts"),
    **dict.fromkeys(
        ("compute", "persist", "collect", "materialize"),
        "the tiles of a grid are there; those of a lazy one are read when they are needed",
    ),
    "repartition": "pg.read_parquet(…, tile_rows=…) and rebalance() cut and place tiles",
}
_SESSION = {
    "unregister": "deregister(name) takes a table away",
    **dict.fromkeys(("execute", "query"), "sql(query) plans a statement"),
    **dict.fromkeys(
        ("read_parquet", "register_parquet", "scan_parquet"),
        "register(name, pg.read_parquet(path)) makes a table of files",
    ),
    **dict.fromkeys(
        ("register_arrow", "from_arrow", "register_record_batches"),
        "register(name, data) makes a table of a frame",
    ),
    **dict.fromkeys(
        ("register_udf", "create_function"),
        "register_function(name, function, arguments, returns) makes functions",
    ),
    **dict.fromkeys(
        ("register_udaf",), "register_aggregate(name, group, arguments, returns) makes aggregates"
    ),
    "table": "grid(name) is the grid of a table",
}
_CONNECTION = {
    **dict.fromkeys(("execute", "query", "cursor"), "sql(query) plans a statement on the server"),
    "table": "grid(name) is the grid of a table",
    "tables": "grids() are the names of what the server has",
    **dict.fromkeys(
        ("read_parquet", "load"), "load_parquet(path, name) loads files into the server"
    ),
    **dict.fromkeys(("register", "from_arrow"), "upload(data, name) gives the server a frame"),
    "close": "a connection needs no end: nothing is kept open for it",
}
_MODULE = {
    **dict.fromkeys(
        ("scan_parquet", "read_parquet_lazy"),
        "read_parquet(path, lazy=True) reads tiles when they are needed",
    ),
    **dict.fromkeys(
        ("read_csv", "scan_csv"), "from_arrow(pyarrow.csv.read_csv(path)) makes a grid of it"
    ),
    **dict.fromkeys(
        ("read_json", "read_ndjson"), "from_arrow(pyarrow.json.read_json(path)) makes a grid of it"
    ),
    **dict.fromkeys(
        ("DataFrame", "Table", "from_dict", "from_pydict", "from_dicts"),
        "from_arrow(pyarrow.table({…})) makes a grid of columns",
    ),
    **dict.fromkeys(
        ("execute", "query", "read_sql"), "sql(query, name=data) runs a statement over frames"
    ),
    **dict.fromkeys(
        ("write_parquet", "to_parquet"), "write_parquet is a method of grids and results"
    ),
    "from_duckdb": "from_arrow takes a relation of DuckDB",
    **dict.fromkeys(
        ("init", "Client", "SparkSession", "SessionContext"),
        "Session() runs SQL here, connect(url) on a server; pg.engines has Ray, Dask and MPI",
    ),
}


def not_in_module(module: str, name: str) -> AttributeError:
    """The error of a name that the module does not have."""
    text = f"module {module!r} has no attribute {name!r}" + _hint(_MODULE, name)
    return AttributeError(text, name=name)


def _hint(known: dict[str, str], name: str) -> str:
    return f"\nhint: {known[name]}" if name in known else ""


def say_where(result: type, grid: type, session: type, connection: type) -> None:
    """Has these classes give hints for what they do not have."""
    tables = ((result, _RESULT), (grid, _GRID), (session, _SESSION), (connection, _CONNECTION))
    for kind, known in tables:

        def missing(self: object, name: str, known: dict[str, str] = known) -> object:
            what = f"{type(self).__module__}.{type(self).__qualname__}"
            text = f"{what!r} object has no attribute {name!r}" + _hint(known, name)
            # Python looks for names alike in the object.
            raise AttributeError(text, name=name, obj=self)

        # What the types have is found before this is asked.
        kind.__getattr__ = missing  # type: ignore[attr-defined]
