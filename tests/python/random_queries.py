"""Random tables and random SQL that two engines must answer alike.

Comes in: a random number generator. Goes out: tables of the types that both engines have, grids of them that are cut in any way, and queries.
Never here: what the dialects mean differently: integer division, overflow of narrow integers, NaN and -0.0, the order of equal rows.
"""

from __future__ import annotations

import datetime as dt
import decimal
import itertools
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import partgrid as pg

# Name, type and kind of each column; kinds say in which expressions a column may stand.
COLUMNS: list[tuple[str, pa.DataType, str]] = [
    ("id", pa.int64(), "int"),
    ("a", pa.int32(), "int"),
    ("b", pa.int8(), "int"),
    ("w", pa.uint16(), "int"),
    ("x", pa.float64(), "float"),
    ("y", pa.float32(), "float"),
    ("m", pa.decimal128(9, 2), "decimal"),
    ("s", pa.string(), "text"),
    ("c", pa.dictionary(pa.int8(), pa.string()), "text"),
    ("d", pa.date32(), "date"),
    ("z", pa.timestamp("us"), "time"),
    ("f", pa.bool_(), "bool"),
]
WORDS = ["", "a", "ab", "abc", "b", "Ba", "zz", "ä", "a%", "_x", "100", " a"]
DAY = dt.date(2013, 1, 1)
NOON = dt.datetime(2013, 1, 1, 12)


def value(rng: random.Random, name: str) -> Any:
    """A value of a column, of few different ones, so that joins and groups meet."""
    makers: dict[str, Callable[[], Any]] = {
        "a": lambda: rng.randint(-20, 20) * rng.choice([1, 1, 100_000]),
        "b": lambda: rng.randint(-3, 3),
        "w": lambda: rng.choice([0, 1, 2, 60_000]),
        # Sums of them are exact, in any order.
        "x": lambda: rng.randint(-40, 40) / 4,
        "y": lambda: rng.randint(-40, 40) / 4,
        "m": lambda: decimal.Decimal(rng.randint(-500, 500)).scaleb(-2),
        "s": lambda: (
            rng.choice(WORDS) + rng.choice(["", "", "1", "long text that is no short view"])
        ),
        "c": lambda: rng.choice(WORDS[:5]),
        "d": lambda: DAY + dt.timedelta(days=rng.randint(0, 40)),
        "z": lambda: (
            NOON + dt.timedelta(hours=rng.randint(0, 400), microseconds=rng.choice([0, 1]))
        ),
        "f": lambda: rng.random() < 0.5,
    }
    return makers[name]()


SIZES = [0, 1, 2, 7, 40, 120, 300]
# Enough for several threads: a share of a scan has at least 1,024 rows.
MANY = [3_000, 5_000, 5_000]


def table(rng: random.Random, *, many: bool = False) -> pa.Table:
    """A table; each column has no nulls, some, many, or nothing else, and is sorted now and then."""
    rows = rng.choice(SIZES + MANY if many else SIZES)
    columns = {}
    for name, kind, _ in COLUMNS:
        if name == "id":
            columns[name] = pa.array(range(rows), kind)
            continue
        share = rng.choice([0, 0, 0.1, 0.6, 1])
        values = [None if rng.random() < share else value(rng, name) for _ in range(rows)]
        if rng.random() < 0.3:
            values.sort(key=lambda each: (each is None, each if each is not None else 0))
        plain = kind.value_type if pa.types.is_dictionary(kind) else kind
        columns[name] = pa.array(values, plain).cast(kind)
    return pa.table(columns)


def cuts(rng: random.Random, extent: int, most: int) -> list[int]:
    """From 0 to the extent, with empty intervals now and then."""
    inner = [rng.randint(0, extent) for _ in range(rng.randint(0, most))]
    return sorted([0, extent, *inner])


def grid(rng: random.Random, data: pa.Table, folder: Path) -> tuple[pg.Grid, str]:
    """The table as a grid of one of the kinds that scans know, and the name of the kind."""
    kind = rng.choice(["one tile", "row bands", "column bands", "files", "lazy files", "dense"])
    rows = cuts(rng, len(data), 5)
    if kind == "one tile":
        return pg.from_arrow(data.combine_chunks()), kind
    if kind in ("row bands", "column bands", "dense"):
        columns = [0, data.num_columns] if kind == "row bands" else cuts(rng, data.num_columns, 3)
        columns = sorted({*columns})
        cells = []
        for start, stop in itertools.pairwise(rows):
            band = data.slice(start, stop - start)
            parts = [band.select(range(a, b)) for a, b in itertools.pairwise(columns)]
            cells.append([part.combine_chunks() for part in parts])
        return pg._native._from_parts(cells), kind
    folder.mkdir(parents=True)
    plain = pa.table(
        {
            name: data[name].cast(pa.string()) if name == "c" else data[name]
            for name in data.column_names
        }
    )
    for number, (start, stop) in enumerate(itertools.pairwise(rows)):
        part = plain.slice(start, stop - start)
        pq.write_table(
            part, folder / f"{number:03}.parquet", row_group_size=rng.choice([5, 50, 1000])
        )
    return pg.read_parquet(
        folder,
        lazy=kind == "lazy files",
        tile_rows=None if kind == "lazy files" else rng.choice([None, 10, 64]),
    ), kind


class Writer:
    """Writes one query over tables `t`, `u` and `v`, all with the columns above."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng

    def query(self) -> tuple[str, bool]:
        """A query, and whether it says the order of all its rows."""
        rng = self.rng
        kind = rng.choice(
            [
                *("plain", "plain", "group", "group", "join", "join", "window", "top", "set"),
                *("derived", "written_twice", "written_twice", "distinct_sorted", "several_sets"),
            ]
        )
        return getattr(self, kind)()

    # Expressions.

    def column(self, kind: str, tables: list[str]) -> str:
        names = [name for name, _, found in COLUMNS if found == kind]
        return f"{self.rng.choice(tables)}.{self.rng.choice(names)}"

    def literal(self, kind: str) -> str:
        rng = self.rng
        makers: dict[str, Callable[[], str]] = {
            "int": lambda: str(rng.choice([0, 1, -1, 2, rng.randint(-25, 25), 100_000, 60_000])),
            "float": lambda: f"CAST({rng.randint(-45, 45) / 4} AS DOUBLE)",
            "decimal": lambda: (
                f"CAST('{decimal.Decimal(rng.randint(-600, 600)).scaleb(-2)}' AS DECIMAL(9, 2))"
            ),
            "text": lambda: "'" + rng.choice(WORDS) + "'",
            "date": lambda: f"DATE '{DAY + dt.timedelta(days=rng.randint(-2, 45))}'",
            "time": lambda: f"TIMESTAMP '{NOON + dt.timedelta(hours=rng.randint(-5, 420))}'",
            "bool": lambda: rng.choice(["TRUE", "FALSE"]),
        }
        return makers[kind]()

    def member(self, kind: str) -> str:
        """A value of a list, or null."""
        return "NULL" if self.rng.random() < 0.1 else self.literal(kind)

    def scalar(self, kind: str, tables: list[str], depth: int = 2) -> str:
        """An expression of a kind."""
        rng = self.rng
        if depth == 0 or rng.random() < 0.45:
            return self.column(kind, tables) if rng.random() < 0.85 else self.literal(kind)
        sub = lambda kind: self.scalar(kind, tables, depth - 1)  # noqa: E731 - short
        common = [
            lambda: f"coalesce({sub(kind)}, {self.literal(kind)})",
            lambda: f"nullif({sub(kind)}, {self.literal(kind)})",
            lambda: (
                f"CASE WHEN {self.predicate(tables, depth - 1)} THEN {sub(kind)} ELSE {sub(kind)} END"
            ),
        ]
        own = {
            "int": [
                lambda: f"CAST({sub('int')} AS BIGINT) {rng.choice('+-*')} {rng.randint(-5, 5)}",
                lambda: f"CAST({sub('int')} AS BIGINT) + CAST({sub('int')} AS BIGINT)",
                lambda: f"CAST({sub('int')} AS BIGINT) % {rng.choice([2, 3, 7])}",
                lambda: f"abs(CAST({sub('int')} AS BIGINT))",
                lambda: f"length({sub('text')})",
                lambda: f"CAST(extract(month FROM {sub('date')}) AS BIGINT)",
                lambda: f"CAST(extract(hour FROM {sub('time')}) AS BIGINT)",
            ],
            "float": [
                lambda: (
                    f"CAST({sub('float')} AS DOUBLE) {rng.choice('+-*')} CAST({sub('float')} AS DOUBLE)"
                ),
                lambda: f"CAST({sub('int')} AS DOUBLE)",
                lambda: f"abs({sub('float')})",
                lambda: f"floor({sub('float')})",
            ],
            "decimal": [lambda: f"-{sub('decimal')}"],
            "text": [
                lambda: f"upper({sub('text')})",
                lambda: f"{sub('text')} || {self.literal('text')}",
                lambda: f"substr({sub('text')}, {rng.randint(1, 3)}, {rng.randint(0, 4)})",
                lambda: f"CAST({self.column('int', tables)} AS VARCHAR)",
            ],
            "date": [lambda: f"CAST({sub('time')} AS DATE)"],
            "time": [
                lambda: f"date_trunc('{rng.choice(['month', 'day', 'hour'])}', {sub('time')})"
            ],
            "bool": [lambda: self.predicate(tables, depth - 1)],
        }
        return f"({rng.choice(common + own[kind])()})"

    def predicate(self, tables: list[str], depth: int = 2) -> str:
        rng = self.rng
        if depth > 0 and rng.random() < 0.4:
            left, right = (self.predicate(tables, depth - 1) for _ in range(2))
            return rng.choice([f"({left} AND {right})", f"({left} OR {right})", f"(NOT {left})"])
        kind = rng.choice(["int", "int", "float", "decimal", "text", "date", "time", "bool"])
        one = self.scalar(kind, tables, min(depth, 1))
        if kind == "bool":
            return rng.choice([one, f"({one} IS NOT TRUE)", f"({one} IS NULL)"])
        other = self.literal(kind) if rng.random() < 0.7 else self.scalar(kind, tables, 0)
        forms = [
            f"{one} {rng.choice(['=', '<>', '<', '<=', '>', '>='])} {other}",
            f"{one} {rng.choice(['=', '<', '>='])} {other}",
            f"{one} IS {rng.choice(['', 'NOT '])}NULL",
            f"{one} {rng.choice(['', 'NOT '])}BETWEEN {self.literal(kind)} AND {self.literal(kind)}",
            f"{one} {rng.choice(['', 'NOT '])}IN ({', '.join(self.member(kind) for _ in range(rng.randint(1, 4)))})",
            f"{one} IS {rng.choice(['', 'NOT '])}DISTINCT FROM {other}",
        ]
        if kind == "text":
            forms.append(
                f"{one} {rng.choice(['', 'NOT '])}LIKE '{rng.choice(['a%', '%b', '%', '_', 'a_c', 'zz'])}'"
            )
        return f"({rng.choice(forms)})"

    def where(self, tables: list[str]) -> str:
        return f" WHERE {self.predicate(tables)}" if self.rng.random() < 0.8 else ""

    def kind(self) -> str:
        return self.rng.choice(["int", "float", "decimal", "text", "date", "time", "bool"])

    def outputs(self, tables: list[str]) -> list[str]:
        found = [self.scalar(self.kind(), tables) for _ in range(self.rng.randint(1, 4))]
        return named(found)

    def aggregate(self, tables: list[str]) -> str:
        rng = self.rng
        whole = f"CAST({self.scalar('int', tables, 1)} AS BIGINT)"
        part = f"CAST({self.scalar('float', tables, 1)} AS DOUBLE)"
        forms = [
            "count(*)",
            f"count({self.scalar(self.kind(), tables, 1)})",
            f"count(DISTINCT {self.scalar(rng.choice(['int', 'text', 'date']), tables, 1)})",
            f"sum({whole})",
            f"sum({part})",
            f"avg({part})",
            f"sum({self.column('decimal', tables)})",
            f"{rng.choice(['min', 'max'])}({self.scalar(rng.choice(['int', 'float', 'decimal', 'text', 'date', 'time']), tables, 1)})",
            f"sum({whole}) FILTER (WHERE {self.predicate(tables, 1)})",
            f"bool_or({self.predicate(tables, 0)})",
        ]
        return rng.choice(forms)

    # Queries.

    def plain(self) -> tuple[str, bool]:
        distinct = "DISTINCT " if self.rng.random() < 0.15 else ""
        return f"SELECT {distinct}{', '.join(self.outputs(['t']))} FROM t{self.where(['t'])}", False

    def group(self) -> tuple[str, bool]:
        rng, tables, source = self.rng, ["t"], "t"
        if rng.random() < 0.3:
            tables, source = ["t", "u"], f"t JOIN u ON {self.equal('t', 'u')}"
        keys = [
            self.scalar(self.kind(), tables, rng.randint(0, 1)) for _ in range(rng.randint(0, 3))
        ]
        found = [self.aggregate(tables) for _ in range(rng.randint(1, 4))]
        text = f"SELECT {', '.join(named(keys + found))} FROM {source}{self.where(tables)}"
        if keys:
            text += f" GROUP BY {', '.join(str(number + 1) for number in range(len(keys)))}"
            if rng.random() < 0.3:
                text += f" HAVING count(*) {rng.choice(['>', '<', '='])} {rng.randint(0, 5)}"
        return text, False

    def equal(self, left: str, right: str) -> str:
        rng = self.rng
        names = [
            rng.choice(["a", "b", "s", "c", "d", "id", "m", "w"])
            for _ in range(rng.choice([1, 1, 2]))
        ]
        return " AND ".join(f"{left}.{name} = {right}.{name}" for name in names)

    def join(self) -> tuple[str, bool]:
        rng = self.rng
        kind = rng.choice(
            ["JOIN", "JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "EXISTS", "NOT EXISTS", "IN"]
        )
        if kind in ("EXISTS", "NOT EXISTS"):
            inner = f"SELECT 1 FROM u WHERE {self.equal('t', 'u')}"
            if rng.random() < 0.5:
                inner += f" AND {self.predicate(['u'], 1)}"
            return f"SELECT {', '.join(self.outputs(['t']))} FROM t WHERE {kind} ({inner})", False
        if kind == "IN":
            name = rng.choice(["a", "s", "d", "id", "m"])
            word = rng.choice(["IN", "NOT IN"])
            return (
                f"SELECT {', '.join(self.outputs(['t']))} FROM t WHERE t.{name} {word} (SELECT u.{name} FROM u{self.where(['u'])})",
                False,
            )
        source, tables = f"t {kind} u ON {self.equal('t', 'u')}", ["t", "u"]
        if kind == "JOIN" and rng.random() < 0.4:
            source += f" JOIN v ON {self.equal(rng.choice(tables), 'v')}"
            tables = ["t", "u", "v"]
        if kind != "FULL JOIN" and rng.random() < 0.2:
            source += f" AND {self.predicate(['t', 'u'], 1)}" if len(tables) == 2 else ""
        return f"SELECT {', '.join(self.outputs(tables))} FROM {source}{self.where(tables)}", False

    def window(self) -> tuple[str, bool]:
        rng = self.rng
        part = f"PARTITION BY {self.column(self.kind(), ['t'])} " if rng.random() < 0.6 else ""
        frame = rng.choice(
            [
                "",
                " ROWS BETWEEN 2 PRECEDING AND CURRENT ROW",
                " ROWS BETWEEN UNBOUNDED PRECEDING AND 1 FOLLOWING",
            ]
        )
        order = f"ORDER BY t.id{rng.choice(['', ' DESC'])}"
        functions = [
            (f"row_number() OVER ({part}{order})"),
            (f"sum(CAST(t.a AS BIGINT)) OVER ({part}{order}{frame})"),
            (f"count(t.x) OVER ({part}{order}{frame})"),
            (f"max(t.x) OVER ({part}{order}{frame})"),
            (f"lag(t.s, {rng.randint(0, 2)}) OVER ({part}{order})"),
            (f"first_value(t.d) OVER ({part}{order}{frame})"),
            (f"rank() OVER ({part}ORDER BY t.b NULLS FIRST)"),
            (f"dense_rank() OVER ({part}ORDER BY t.s DESC NULLS LAST)"),
        ]
        chosen = rng.sample(functions, rng.randint(1, 3))
        return f"SELECT t.id, {', '.join(named(chosen))} FROM t{self.where(['t'])}", False

    def top(self) -> tuple[str, bool]:
        rng = self.rng
        keys = [self.column(self.kind(), ["t"]) for _ in range(rng.randint(0, 2))]
        order = [
            f"{key} {rng.choice(['ASC', 'DESC'])} NULLS {rng.choice(['FIRST', 'LAST'])}"
            for key in keys
        ]
        order.append(f"t.id {rng.choice(['ASC', 'DESC'])} NULLS LAST")
        text = f"SELECT t.id, {', '.join(self.outputs(['t']))} FROM t{self.where(['t'])} ORDER BY {', '.join(order)}"
        if rng.random() < 0.8:
            text += f" LIMIT {rng.choice([0, 1, 5, 50])}"
        if rng.random() < 0.3:
            text += f" OFFSET {rng.choice([0, 1, 10])}"
        return text, True

    def set(self) -> tuple[str, bool]:
        rng = self.rng
        kinds = [self.kind() for _ in range(rng.randint(1, 2))]
        # One type on both sides: plain columns of a kind can differ in width.
        types = {
            "int": "BIGINT",
            "float": "DOUBLE",
            "text": "VARCHAR",
            "decimal": "DECIMAL(9, 2)",
            "date": "DATE",
            "time": "TIMESTAMP",
            "bool": "BOOLEAN",
        }

        def side(name: str) -> str:
            casts = [f"CAST({self.scalar(kind, [name], 1)} AS {types[kind]})" for kind in kinds]
            return ", ".join(named(casts))

        word = rng.choice(["UNION ALL", "UNION", "INTERSECT", "EXCEPT"])
        return (
            f"SELECT {side('t')} FROM t{self.where(['t'])} {word} SELECT {side('u')} FROM u{self.where(['u'])}",
            False,
        )

    def derived(self) -> tuple[str, bool]:
        rng = self.rng
        inner = f"SELECT t.b AS k, count(*) AS n, sum(CAST(t.a AS BIGINT)) AS total, min(t.d) AS first FROM t{self.where(['t'])} GROUP BY 1"
        outer = rng.choice(["q.k, q.n, q.total", "count(*), sum(q.n)", "q.first, u.id"])
        if "u.id" in outer:
            return f"SELECT {outer} FROM ({inner}) q JOIN u ON q.k = u.b{self.where(['u'])}", False
        if "count" in outer:
            return (
                f"WITH q AS ({inner}) SELECT {outer} FROM q WHERE q.total > {rng.randint(-50, 50)}",
                False,
            )
        return (
            f"WITH q AS ({inner}) SELECT {outer} FROM q WHERE q.n >= (SELECT avg(p.n) FROM q p)",
            False,
        )

    def key(self) -> str:
        """A key of groups that is no literal, so that it means the same in GROUP BY."""
        rng = self.rng
        kind = rng.choice(["int", "int", "text", "date", "bool"])
        column = self.column(kind, ["t"])
        forms = {
            "int": [f"CAST({column} AS BIGINT) + 1", f"CAST({column} AS BIGINT) % 3"],
            "text": [f"upper({column})", f"{column} || 'x'"],
        }
        return rng.choice([column, *forms.get(kind, [])])

    def sides(self) -> str:
        return f"{self.rng.choice(['ASC', 'DESC'])} NULLS {self.rng.choice(['FIRST', 'LAST'])}"

    def written_twice(self) -> tuple[str, bool]:
        """Groups whose aggregates and keys stand in SELECT, HAVING, ORDER BY and in subqueries, with and without names."""
        rng = self.rng
        keys = list(dict.fromkeys(self.key() for _ in range(rng.randint(1, 2))))
        number = f"CAST({self.column('int', ['t'])} AS BIGINT)"
        aggregates = ["count(*)", f"sum({number})", f"max({number})"]
        values = rng.sample(aggregates, rng.randint(1, 2))
        like = rng.choice(aggregates)
        of_all = f"(SELECT {like} FROM t)"
        subquery = rng.choice(
            [
                *(of_all, f"(SELECT {like} FROM t{self.where(['t'])})", "(SELECT count(*) FROM u)"),
                *("(SELECT max(u.a) AS a FROM u)", f"(SELECT {like} AS x FROM t)"),
            ]
        )
        items = keys + values
        if rng.random() < 0.5:
            items.append(rng.choice([subquery, f"{like} - {subquery}", f"{subquery} IS NULL"]))
        if rng.random() < 0.3:
            items.append(f"sum({number} * {subquery})")
        # What is called otherwise is not named again, in GROUP BY ALL of the other engine.
        shown = [
            f"{item} AS o{place}" if rng.random() < 0.3 and item not in keys else item
            for place, item in enumerate(items)
        ]
        places = ", ".join(str(place + 1) for place in range(len(keys)))
        text = f"SELECT {', '.join(shown)} FROM t{self.where(['t'])}"
        text += f" GROUP BY {rng.choice(['ALL', places, ', '.join(keys)])}"
        if rng.random() < 0.4:
            text += " HAVING " + rng.choice(
                [
                    *(f"{like} <= {subquery}", f"{like} IN (SELECT {like} FROM t GROUP BY t.b)"),
                    f"{like} NOT IN (SELECT {like} FROM t WHERE t.id < 5)",
                ]
            )
        first = rng.choice([like, f"{subquery} - {like}", f"-{values[0]}", values[0], subquery])
        order = [f"{each} {self.sides()}" for each in [first, *keys]]
        return f"{text} ORDER BY {', '.join(order)}", True

    def distinct_sorted(self) -> tuple[str, bool]:
        """Distinct rows in the order of what they are."""
        rng = self.rng
        items = list(dict.fromkeys(self.key() for _ in range(rng.randint(1, 3))))
        if rng.random() < 0.3:
            items.append("CAST(t.b AS BIGINT) * (SELECT count(*) FROM u)")
        shown = [
            f"{item} AS o{place}" if rng.random() < 0.3 else item
            for place, item in enumerate(items)
        ]
        order = [f"{item} {self.sides()}" for item in items]
        text = f"SELECT DISTINCT {', '.join(shown)} FROM t{self.where(['t'])}"
        return f"{text} ORDER BY {', '.join(order)}", True

    def several_sets(self) -> tuple[str, bool]:
        """Groups of several sets of keys, which are constant, equal or in order below, and null where a set leaves them out."""
        rng = self.rng
        columns = rng.sample(["a", "b", "w", "s", "c", "d", "f"], 3)
        order = ", ".join(f"{name} {self.sides()}" for name in [*columns, "id"])
        source = rng.choice(
            [
                *("t", f"(SELECT * FROM t ORDER BY {order}, {self.rest(columns)} LIMIT 60)"),
                f"(SELECT *, row_number() OVER (ORDER BY {order}) AS place FROM t)",
                f"(SELECT DISTINCT {', '.join(columns)}, id FROM t)",
                "(SELECT t.* FROM t LEFT JOIN (SELECT 1 AS one, b AS k FROM u) q ON t.b = q.k)",
            ]
        )
        conditions = [f"{columns[0]} = (SELECT min({columns[0]}) FROM t)", f"{columns[1]} IS NULL"]
        numbers = [name for name in columns if name in ("a", "b", "w")]
        if len(numbers) > 1:
            conditions.append(f"{numbers[0]} = {numbers[1]}")
        where = f" WHERE {rng.choice(conditions)}" if rng.random() < 0.5 else ""
        keys = rng.sample(columns, rng.randint(1, 3))
        if rng.random() < 0.4:
            keys.insert(rng.randint(0, len(keys)), "'z'")
        sets = [rng.sample(keys, rng.randint(0, len(keys))) for _ in range(rng.randint(1, 4))]
        written = ", ".join(f"({', '.join(each)})" for each in sets)
        grouped = rng.choice(
            [
                f"ROLLUP ({', '.join(keys)})",
                f"CUBE ({', '.join(keys)})",
                *[f"GROUPING SETS ({written})"] * 2,
            ]
        )
        known = [
            key for key in keys if "GROUPING" not in grouped or any(key in each for each in sets)
        ]
        values = rng.sample(["count(*)", "sum(id)", "count(DISTINCT id)", "max(id)"], 2)
        values += [f"grouping({key})" for key in known]
        if rng.random() < 0.3 and known:
            values.append(
                f"sum(count(*)) OVER (ORDER BY {', '.join(f'{key} {self.sides()}' for key in known)})"
            )
        items = known + values
        last = ", ".join(f"{place + 1} {self.sides()}" for place in range(len(items)))
        text = f"SELECT {', '.join(named(items))} FROM {source} AS r{where} GROUP BY {grouped}"
        if rng.random() < 0.3 and known:
            text += f" HAVING {rng.choice(known)} {rng.choice(['IS NULL', 'IS NOT NULL'])}"
        return f"{text} ORDER BY {last}", True

    def rest(self, columns: list[str]) -> str:
        """All columns but some, so that the order of all of them is that of rows."""
        return ", ".join(name for name, _, _ in COLUMNS if name not in [*columns, "id"])


def named(expressions: list[str]) -> list[str]:
    """Each expression under a name of its own."""
    return [f"{text} AS o{number}" for number, text in enumerate(expressions)]
