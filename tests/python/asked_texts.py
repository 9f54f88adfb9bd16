"""A process that asks texts of SQL, so that a death of it is seen.

`python asked_texts.py SEED COUNT` writes a line of JSON for each text that was not answered as it should be, and `{"done": COUNT, …}` at the end.
The text that is being asked is the last line of standard error.
"""

from __future__ import annotations

import json
import re
import resource
import sys
import time
from collections import Counter

import partgrid as pg
from sql_texts import ROOT, TABLES, Texts

# The most that the process may have, and the time of a processor that one text may take.
MEMORY_BYTES = 8 << 30
SECONDS = 10

# What people must not read: faults, and what Rust prints of its values.
RAW = re.compile(
    r"panicked|backtrace|\.rs:\d+|called `|index out of bounds|likely caused by a bug"
    r"|[Ii]nternal error|LogicalPlan|Expr::|\bSome\(|\bOk\(|\bErr\(|Spans?\(|Ident\b"
    r"|\b[A-Z]\w+ \{ \w+: |\b[A-Z]\w+\([A-Z]\w+ \{"
)
# Columns without a name of their own are called after their values so, and hints list columns.
VALUE = re.compile(
    r"\b(?:U?Int(?:8|16|32|64)|Float(?:32|64)|Boolean)\((?:-?\d|true|false|NULL)"
    r"|\b(?:Utf8(?:View)?|Interval\w+)\(\""
)


def session() -> pg.Session:
    """Small tables with the columns of `data/`; what a statement does run ends soon."""
    made = pg.Session(timeout=5, memory_limit="256MB")
    for name in TABLES:
        path = ROOT / "data" / (name if name == "flights" else f"{name}.parquet")
        rows = pg.read_parquet(path, lazy=True).sql("SELECT * FROM self LIMIT 50")
        made.register(name, rows.to_arrow())
    return made


def raw(error: pg.errors.PartgridError, text: str) -> str | None:
    """What an error says in words that are not ours, if anything."""
    # The line that it quotes is of whoever asks.
    said = re.sub(r"\nline \d+, column \d+:\n.*\n *\^+", "", str(error))
    found = RAW.search(said)
    if found is None:
        message = said.split("\nhint: ")[0]
        found = VALUE.search(re.sub(r"`[^`]*`|\(column: .*", "", message))
    if found is None or found.group(0) in text:
        return None
    return f"raw text {found.group(0)!r}: {type(error).__name__}: {error}"


def asked(session: pg.Session, text: str) -> tuple[str, str | None]:
    """How a text was answered, and what is wrong with that, if anything is."""
    begun = time.process_time()
    kind, wrong = "planned", None
    try:
        query = session.sql(text)
        if text.startswith("EXPLAIN "):
            query.to_arrow()
    except pg.errors.InternalError as error:
        kind, wrong = "InternalError", f"a fault: {error}"
    except pg.errors.PartgridError as error:
        kind, wrong = type(error).__name__, raw(error, text)
    except BaseException as error:
        kind, wrong = "other", f"{type(error).__name__}: {error}"
    took = time.process_time() - begun
    if took > SECONDS:
        wrong = f"it took {took:.1f} s of a processor"
    return kind, wrong


def main(seed: int, count: int) -> None:
    """Asks so many texts."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    made = session()
    columns = {name: list(made.grid(name).columns) for name in TABLES}
    listed = made.sql("SHOW FUNCTIONS").to_arrow()["function_name"]
    texts = iter(Texts(seed, sorted(set(listed.to_pylist())), columns))
    kinds: Counter[str] = Counter()
    for number in range(count):
        text = next(texts)
        sys.stderr.write(f"{number} {text!r}\n")
        kind, wrong = asked(made, text)
        kinds[kind] += 1
        if wrong is not None:
            print(json.dumps({"number": number, "wrong": wrong, "text": text}), flush=True)
    print(json.dumps({"done": count, "kinds": kinds}), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
