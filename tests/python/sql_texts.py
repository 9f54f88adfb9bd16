"""Texts of SQL of somebody who means harm: records of the SQL tests, changed, and texts of a grammar. The same for the same seed."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

TABLES = ["flights", "weather", "planes", "airports", "airlines"]

WORDS = re.compile(
    r"'(?:[^']|'')*'|\"[^\"]*\"|\w+(?:\.\w+)*|::|\|\||[<>!=]=|<>|=>|->|[^\s\w]",
)

ODD = """
' " ` ( ) (( [ ] { } , ; . .. * /* */ -- \\ \0 \ufeff é 名 \U0001f600 $1 $x ? : :: => -> @ # % ~ || <@
NULL 0 -1 1e400 9223372036854775808 0x 1. '' "" x'ab' U&'\\0041' E'\\n' $$a$$ ARRAY[] [1] {'a':1}
SELECT FROM WHERE GROUP BY HAVING ORDER LIMIT OFFSET UNION ALL EXCEPT INTERSECT JOIN LEFT FULL CROSS
NATURAL LATERAL USING ON AS WITH RECURSIVE IN EXISTS NOT AND OR BETWEEN LIKE IS CASE WHEN THEN ELSE
END CAST OVER PARTITION ROWS RANGE FILTER DISTINCT VALUES TABLE UNNEST ROLLUP CUBE GROUPING SETS
QUALIFY WINDOW PIVOT TABLESAMPLE FETCH FOR INTO COLLATE ANY SOME
""".split()  # noqa: SIM905
ODD += ["INTERVAL '1 day'", "DATE '2013-02-30'", "TIMESTAMP '99999-01-01'"]

PLAIN = ["1", "'x'", "NULL", "1.5", "true", "-1", "0", "9223372036854775807", "$1", "*", "x'ab'"]
PLAIN += ["[1, 2]", "struct(1, 'x')", "INTERVAL '1 day'", "DATE '2013-01-01'"]
PLAIN += ["TIMESTAMP '2013-01-01 00:00:00'"]

BETWEEN = ["+", "-", "*", "/", "%", "=", "<", "<>", "AND", "OR", "||", "&", "<<", "~", "#", "^"]
BETWEEN += ["IS DISTINCT FROM", "LIKE", "SIMILAR TO"]

BEHIND = ["IS NULL", "IS NOT TRUE", "BETWEEN 1 AND 2", "IS UNKNOWN", "::INT", "[1]", "[1:2]", ".x"]
BEHIND += ["COLLATE x", "AT TIME ZONE 'UTC'"]

TYPES = ["INT", "VARCHAR", "DATE", "TIMESTAMP", "DECIMAL(5, 2)", "DECIMAL(90, 3)", "BOOLEAN"]
TYPES += ["INTERVAL", "BYTEA", "INT[]", "TINYINT", "TIME", "nothing"]

FRAMES = ["", "", "ROWS 2 PRECEDING", "RANGE BETWEEN 1 PRECEDING AND CURRENT ROW"]
FRAMES += ["GROUPS 1 PRECEDING", "ROWS BETWEEN 1 FOLLOWING AND 1 PRECEDING"]

FITTING = ["sum", "count", "max", "min", "avg", "stddev", "abs", "round", "sqrt", "length"]

SOURCES = [*TABLES, "flights f", "generate_series(1, 3) g", "tiles('flights') t"]
SOURCES += [*TABLES, "nothing", "unnest([1, 2]) u(month)", "(VALUES (1, 'x')) v(year, name)"]


def records() -> list[str]:
    """The statements of the SQL tests."""
    found = []
    for path in sorted((ROOT / "sql").glob("*.slt")):
        for block in path.read_text().split("\n\n"):
            lines = block.splitlines()
            heads = [at for at, line in enumerate(lines) if re.match(r"(query|statement) ", line)]
            if heads:
                body = "\n".join(lines[heads[0] + 1 :])
                found.append(body.split("\n----")[0].strip())
    return found


class Texts:
    """Texts without end."""

    def __init__(self, seed: int, functions: list[str], columns: dict[str, list[str]]) -> None:
        self.source = random.Random(seed)
        self.functions = functions
        self.columns = columns
        self.here = TABLES[0]
        self.names = 0
        self.fits = False
        self.known = [WORDS.findall(text) for text in records()]

    def __iter__(self) -> Iterator[str]:
        while True:
            text = self.made() if self.source.random() < 0.5 else self.changed()
            yield "EXPLAIN " + text if self.source.random() < 0.3 else text

    def changed(self) -> str:
        """A record, with words lost, moved, doubled, or of another one."""
        words = list(self.source.choice(self.known))
        for _ in range(self.source.choice([1, 1, 1, 2, 4])):
            at = self.source.randrange(len(words) + 1)
            match self.source.randrange(9):
                case 0:
                    del words[at : at + self.source.randint(1, 3)]
                case 1 if at < len(words):
                    words[at] = self.source.choice(ODD)
                case 2:
                    words.insert(at, self.source.choice(ODD))
                case 3:
                    other = self.source.choice(self.known)
                    start = self.source.randrange(len(other))
                    words[at:at] = other[start : start + self.source.randint(1, 8)]
                case 4 if words:
                    words.insert(at, words.pop(self.source.randrange(len(words))))
                case 5:
                    words[at:at] = words[at : at + self.source.randint(1, 6)]
                case 6 if at < len(words) and words[at].isidentifier():
                    words[at] = self.source.choice([*self.functions, *self.columns["flights"]])
                case 7:
                    words[at:at] = ["(", *self.source.choice(self.known), ")"]
                case 8:
                    words = words[:at]
        return " ".join(words)

    def value(self, depth: int) -> str:  # noqa: PLR0911
        """An expression: of any type, or of those that mostly fit together."""
        choose = self.source.choice
        if self.fits:
            return self.number(depth)
        if depth <= 0 or self.source.random() < 0.25:
            return choose([choose(self.columns[self.here]), choose(PLAIN)])

        def part() -> str:
            return self.value(depth - 1)

        match self.source.randrange(13):
            case 0 | 1 | 2 | 3:
                arguments = ", ".join(part() for _ in range(self.source.randint(0, 3)))
                return f"{choose(self.functions)}({choose(['', '', '', 'DISTINCT '])}{arguments})"
            case 4:
                return f"({part()} {choose(BETWEEN)} {part()})"
            case 5:
                return f"CAST({part()} AS {choose(TYPES)})"
            case 6:
                return f"CASE {choose(['', part()])} WHEN {part()} THEN {part()} ELSE {part()} END"
            case 7:
                values = choose([f"{part()}, {part()}", self.select(depth - 1)])
                return f"{part()} {choose(['', 'NOT '])}IN ({values})"
            case 8:
                return f"({self.select(depth - 1)})"
            case 9:
                order = choose(["", f"ORDER BY {part()} "])
                split = choose(["", f"PARTITION BY {part()} "])
                return f"{choose(self.functions)}({part()}) OVER ({split}{order}{choose(FRAMES)})"
            case 10:
                return f"{part()} {choose(BEHIND)}"
            case 11:
                return f"EXISTS ({self.select(depth - 1)})"
            case _:
                return f"{choose(['NOT', '-', '+', 'DISTINCT', '~'])} {part()}"

    def number(self, depth: int) -> str:  # noqa: PLR0911
        """An expression that is a number, if the columns are."""
        choose = self.source.choice
        if depth <= 0 or self.source.random() < 0.3:
            return choose([choose(self.columns[self.here]), choose(["1", "2.5", "NULL", "-7"])])
        one, other = self.number(depth - 1), self.number(depth - 1)
        match self.source.randrange(8):
            case 0 | 1:
                return f"{choose(FITTING)}({one})"
            case 2:
                return f"({one} {choose(BETWEEN[:5])} {other})"
            case 3:
                return f"CASE WHEN {self.condition(depth - 1)} THEN {one} ELSE {other} END"
            case 4:
                return f"(SELECT {choose(FITTING[:6])}({one}) FROM {self.rows(depth - 1)})"
            case 5:
                return f"{choose(FITTING[:6])}({one}) OVER (ORDER BY {other} {choose(FRAMES)})"
            case 6:
                return f"CAST({one} AS {choose(TYPES[:5])})"
            case _:
                return f"coalesce({one}, {other})"

    def condition(self, depth: int) -> str:
        """What is true or false."""
        choose = self.source.choice
        one, other = self.value(depth - 1), self.value(depth - 1)
        match self.source.randrange(5):
            case 0:
                return f"{one} IN ({self.select(depth - 1)})" if depth > 0 else "true"
            case 1:
                return f"EXISTS ({self.select(depth - 1)})" if depth > 0 else f"{one} IS NULL"
            case 2:
                return f"({one} > {other} {choose(['AND', 'OR'])} {other} IS NOT NULL)"
            case _:
                return f"{one} {choose(['=', '<', '<>', 'IS DISTINCT FROM', '>='])} {other}"

    def rows(self, depth: int) -> str:
        """What stands behind FROM."""
        choose = self.source.choice
        if depth <= 0 or self.source.random() < 0.5:
            return choose([self.here, self.here, choose(SOURCES)])
        one, other = self.rows(depth - 1), self.rows(depth - 1)
        match self.source.randrange(4):
            case 0:
                return f"({self.select(depth - 1)}) s{self.source.randrange(9)}"
            case 1:
                return f"{one}, {other}"
            case 2:
                return f"{one} NATURAL JOIN {other}"
            case _:
                kind = choose(
                    ["", "LEFT ", "RIGHT ", "FULL ", "CROSS ", "LEFT SEMI ", "RIGHT ANTI "]
                )
                how = choose([f"ON {self.condition(depth - 1)}", "USING (carrier)", ""])
                return f"{one} {kind}JOIN {other} {how}"

    def select(self, depth: int) -> str:
        """A query."""
        choose, chance = self.source.choice, self.source.random
        before, self.here = self.here, choose([self.here, choose(TABLES)])
        parts = [choose(["SELECT"] * 5 + ["SELECT DISTINCT", "SELECT DISTINCT ON (1)"])]
        shown = []
        for _ in range(self.source.randint(1, 3)):
            self.names += 1
            shown.append(choose(["*", self.value(depth), f"{self.value(depth)} AS a{self.names}"]))
        parts.append(", ".join(shown))
        if chance() < 0.95:
            parts.append(f"FROM {self.rows(depth)}")
        if chance() < 0.4:
            parts.append(f"WHERE {self.condition(depth)}")
        if chance() < 0.25:
            keys = self.value(depth - 1)
            sets = [f"ROLLUP({keys}, 1)", f"CUBE({keys})", f"GROUPING SETS (({keys}), ())", "ALL"]
            parts.append(f"GROUP BY {choose([keys, '1', *sets])}")
        if chance() < 0.1:
            parts.append(f"HAVING {self.condition(depth - 1)}")
        if chance() < 0.05:
            parts.append(f"QUALIFY {self.value(depth - 1)}")
        if depth > 0 and chance() < 0.15:
            kind = choose(["UNION", "UNION ALL", "EXCEPT", "INTERSECT ALL", "UNION BY NAME"])
            parts.append(f"{kind} {self.select(depth - 1)}")
        if chance() < 0.2:
            key = choose([self.value(depth - 1), "1", "9", "ALL"])
            parts.append(f"ORDER BY {key} {choose(['', 'DESC', 'NULLS FIRST'])}")
        if chance() < 0.2:
            parts.append(f"LIMIT {choose(['1', '0', '-1', 'NULL'])} {choose(['', 'OFFSET 1'])}")
        self.here = before
        return " ".join(parts)

    def made(self) -> str:
        """A text of the grammar, which has a meaning now and then."""
        self.fits = self.source.random() < 0.6
        text = self.select(self.source.choice([0, 0, 1, 1, 1, 2, 3]))
        match self.source.randrange(12):
            case 0:
                again = self.source.choice(["", "RECURSIVE "])
                return f"WITH {again}r(a) AS ({text} UNION ALL {self.select(1)}) SELECT * FROM r"
            case 1:
                return f"CREATE OR REPLACE VIEW v AS {text}"
            case 2:
                return f"PREPARE p{self.names} AS {text}"
            case _:
                return text
