"""Expected answers of `sql/*.slt`, from DuckDB.

Comes in: the `.slt` files of this folder and the Parquet files of `data/`. Goes out: the same files with the types and expected rows as DuckDB gives them; with
`--check`, the exit code 1 and a list of the records that differ. Statements that make or drop names run, too. Never here: records that expect an error or a
plan, and partgrid itself.

    pip install duckdb==2.0.0 pyarrow==26.0.1 pytz
    python sql/answers.py [--check] [file …]
"""

import argparse
import datetime
import decimal
import re
import sys
from pathlib import Path

import duckdb

FOLDER = Path(__file__).resolve().parent
DATA = FOLDER.parent / "data"
INTEGERS = {
    *("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT"),
    *("UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "UHUGEINT"),
}


def connect() -> duckdb.DuckDBPyConnection:
    """A DuckDB with the tables of the tests."""
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'America/New_York'")
    for name in ("airlines", "airports", "planes", "weather"):
        path = f"{DATA}/{name}.parquet"
        connection.execute(f"CREATE VIEW {name} AS SELECT * FROM read_parquet('{path}')")
    connection.execute(
        f"CREATE VIEW flights AS SELECT * FROM read_parquet('{DATA}/flights/**/*.parquet', "
        "hive_partitioning = true, hive_types = {'month': BIGINT})"
    )
    return connection


def type_letter(column_type: object) -> str:
    """The letter of sqllogictest for a DuckDB type."""
    name = str(column_type)
    if name in INTEGERS:
        return "I"
    if name in ("DOUBLE", "FLOAT") or name.startswith("DECIMAL"):
        return "R"
    return "T"


def text(value: object, letter: str) -> str:
    """One value, by the rule that `tests/slt.rs` follows too."""
    if value is None:
        return "NULL"
    if letter == "R":
        assert isinstance(value, float | decimal.Decimal)
        shown = f"{float(value):.3f}"
        return {"-0.000": "0.000", "nan": "NaN"}.get(shown, shown)
    return " ".join(inner(value).split()) or "(empty)"


def inner(value: object) -> str:
    """A value that is no number with a fraction, or one inside a list or a struct."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return f"[{', '.join(map(inner, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{name}: {inner(part)}' for name, part in value.items())}}}"
    if isinstance(value, datetime.datetime | datetime.time):
        in_thousands = value.microsecond and value.microsecond % 1000 == 0
        return value.isoformat(timespec="milliseconds" if in_thousands else "auto")
    return value.isoformat() if isinstance(value, datetime.date) else str(value)


def answer(
    connection: duckdb.DuckDBPyConnection, sql: str, sort_mode: str
) -> tuple[str, list[str]]:
    """The type letters and the expected lines of a query."""
    result = connection.execute(sql)
    letters = "".join(type_letter(column[1]) for column in result.description)
    rows = [[text(*pair) for pair in zip(row, letters, strict=True)] for row in result.fetchall()]
    if sort_mode == "rowsort":
        rows.sort(key=lambda row: [cell.encode() for cell in row])
    return letters, [" ".join(row) for row in rows]


def is_ordered(sql: str) -> bool:
    """Whether the outermost query has an ORDER BY."""
    inside = re.compile(r"\([^()]*\)")
    while inside.search(sql):
        sql = inside.sub("", sql)
    return "ORDER BY" in sql


def rewritten(connection: duckdb.DuckDBPyConnection, record: list[str], where: str) -> list[str]:
    """A record with the answer of DuckDB in it; as it is unless it is a query that expects rows."""
    if "statement ok" in record:
        connection.execute("\n".join(record[record.index("statement ok") + 1 :]))
    heads = [place for place, line in enumerate(record) if line.startswith("query ")]
    if not heads or record[heads[0]].startswith("query error"):
        return record
    head = heads[0]
    end = record.index("----") if "----" in record else len(record)
    sql = "\n".join(record[head + 1 : end])
    sort_mode = record[head].split()[2] if len(record[head].split()) > 2 else "nosort"  # noqa: PLR2004
    if sort_mode == "nosort" and not is_ordered(sql):
        sys.exit(f"{where}: a query without ORDER BY must be sorted by the runner: rowsort")
    try:
        letters, lines = answer(connection, sql, sort_mode)
    except duckdb.Error as error:
        sys.exit(f"{where}: DuckDB says: {error}\n{sql}")
    words = f"query {letters}" + (" rowsort" if sort_mode == "rowsort" else "")
    return [*record[:head], words, *record[head + 1 : end], "----", *lines]


def main() -> int:
    """Rewrites or compares."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    parser.add_argument("files", nargs="*", type=Path, help="all *.slt of this folder by default")
    arguments = parser.parse_args()
    connection = connect()
    differing = 0
    for path in arguments.files or [
        *sorted(FOLDER.glob("*.slt")),
        *sorted(FOLDER.glob("known/*.slt")),
    ]:
        records = [block.strip("\n").split("\n") for block in path.read_text().split("\n\n")]
        records = [record for record in records if record != [""]]
        made = []
        for number, record in enumerate(records):
            made.append(rewritten(connection, record, f"{path.name}, block {number + 1}"))
            if made[-1] != record:
                differing += 1
                print(f"{path.name}: differs:", *made[-1], sep="\n  ")
        if not arguments.check:
            path.write_text("\n\n".join("\n".join(record) for record in made) + "\n")
        queries = sum(any(line.startswith("query ") for line in record) for record in made)
        print(f"{path.name}: {queries} queries")
    return 1 if arguments.check and differing else 0


if __name__ == "__main__":
    sys.exit(main())
