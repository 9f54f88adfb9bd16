"""A grid `sales` whose parts members of a cluster have, each in a process of its own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from clusters import Child
from services import SPREAD

MEMBER = """
import json, sys
import partgrid as pg, pyarrow as pa

part, of, members = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
server = pg.Server(join="file:" + members, http=None, settings=json.loads(sys.argv[4]))
rows = range(part * 1000, (part + 1) * 1000)
table = pa.table({"g": [row % 7 for row in rows], "x": list(rows), "who": [part] * 1000})
server.contribute("sales", pg.from_arrow(table), part=part, of=of)
print(server.uri, flush=True)
"""


class Member(Child):
    """A child with 1,000 rows of `sales`."""

    def __init__(self, part: int, of: int, members: Path, **settings: object) -> None:
        said = json.dumps(SPREAD | settings)
        super().__init__(MEMBER, str(part), str(of), str(members), said)
        self.uri = self.line()


@contextmanager
def cluster(folder: Path, of: int = 3, **settings: object) -> Iterator[list[Member]]:
    path = folder / "members"
    members = [Member(part, of, path, **settings) for part in range(of)]
    path.write_text("# all of them\n" + "\n".join(member.uri for member in members) + "\n")
    try:
        for member in members:
            assert member.ask("server.refresh()") is None
        yield members
    finally:
        for member in members:
            member.kill()


ALL = pa.table(
    {
        "g": [row % 7 for row in range(3000)],
        "x": list(range(3000)),
        "who": [row // 1000 for row in range(3000)],
    }
)
QUERY = "SELECT g, sum(x) AS x, count(*) AS n, count(DISTINCT who) AS who FROM sales GROUP BY g ORDER BY g"
