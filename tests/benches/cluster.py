"""TPC-H over three members of a cluster on this machine, beside one server with the same rows, and DuckDB.

Run `make bench-cluster`, or `python tests/benches/cluster.py --help`. Each member has a third of each table: cut between rows ("cluster"), or, as whoever
loads by key would have it, between keys, so that the rows of an order and those of a part are with one member each ("by key"). Each statement is asked twice:
of a member as it is started without settings, which runs statements over little data alone, and of one with `cluster.near=0` ("near=0", "key near=0"), which
spreads all of them. All share the cores that the one server has, so that the ratio is what being many costs. Both are asked through a port, as clients would.
Prints tables; decides nothing.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import tpch

tpch.ENGINES["server"] = """
    import partgrid as pg
    grids = {name: pg.read_parquet(path) for name, path in TABLES.items()}
    server = pg.Server(grids, http=None, settings={"server.threads": THREADS})
    connection = pg.connect(server.uri)
    ask = lambda text: connection.sql(text).to_arrow()
"""

tpch.ENGINES["cluster"] = '''
    import subprocess, tempfile, textwrap
    import partgrid as pg
    MEMBER = textwrap.dedent("""
        import sys
        from pathlib import Path
        import partgrid as pg
        part, of, members, tables, threads = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], Path(sys.argv[4]), int(sys.argv[5])
        keys = {"orders": "o_orderkey", "lineitem": "l_orderkey", "part": "p_partkey", "partsupp": "ps_partkey"} if BY_KEY else {}
        def begin(grid, key, part):
            if key is None:
                return grid.shape[0] * part // of
            values = grid[[key]].to_arrow().column(0).combine_chunks().to_numpy()
            return values.searchsorted(values[-1] * part // of, side="right") if part < of else len(values)
        settings = {"cluster.near": 0} if part == 1 else {}
        server = pg.Server(join="file:" + members, http=None, settings={"server.threads": threads, **settings})
        for path in sorted(tables.glob("*.parquet")):
            grid = pg.read_parquet(path)
            first, end = (int(begin(grid, keys.get(path.stem), each)) for each in (part, part + 1))
            server.contribute(path.stem, grid[first:end], part=part, of=of)
        print(server.uri, flush=True)
        for line in sys.stdin:
            server.refresh()
            print(*server.tables, flush=True)
    """)
    members = Path(tempfile.mkdtemp()) / "members"
    started = [
        subprocess.Popen(
            [sys.executable, "-c", MEMBER, str(part), "3", str(members), sys.argv[1], str(THREADS)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        for part in range(3)
    ]
    PROCESSES += [process.pid for process in started]
    uris = [process.stdout.readline().strip() for process in started]
    members.write_text("\\n".join(uris))
    for process in started:
        print(file=process.stdin, flush=True)
        assert len(process.stdout.readline().split()) == len(TABLES)
    near, spread = pg.connect(uris[0]), pg.connect(uris[1])
    ask = lambda text: (spread if text.startswith("-- near=0") else near).sql(text).to_arrow()
'''
tpch.ENGINES["by key"] = tpch.ENGINES["cluster"].replace("BY_KEY", "True")
tpch.ENGINES["cluster"] = tpch.ENGINES["cluster"].replace("BY_KEY", "False")


class Spread:
    """The members of an engine, asked by way of the one that spreads all statements."""

    def __init__(self, engine: tpch.Engine, name: str) -> None:
        """Starts nothing: they are there."""
        self.engine, self.name = engine, name

    @property
    def loaded_mb(self) -> float:
        """What they have in memory once they have loaded."""
        return self.engine.loaded_mb

    @property
    def peak_mb(self) -> float:
        """What they had at most."""
        return self.engine.peak_mb

    def ask(self, text: str) -> dict[str, Any]:
        """Runs a query once."""
        return self.engine.ask(f"-- near=0\n{text}")


def main() -> None:
    """Makes the data, runs all engines, prints the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    cache = Path.home() / ".cache" / "partgrid" / "bench"
    parser.add_argument("--data", type=Path, default=cache, help="where made data is kept")
    parser.add_argument("--scale", type=float, default=1.0, help="scale factor of TPC-H")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repetitions", type=int, default=5)
    wishes = parser.parse_args()
    wishes.data.mkdir(parents=True, exist_ok=True)
    source = tpch.tpch(wishes.data, wishes.scale)
    cluster, by_key, *others = engines = [
        tpch.Engine(name, source, wishes.threads)
        for name in ("cluster", "by key", "server", "duckdb")
    ]
    many = [cluster, Spread(cluster, "near=0"), by_key, Spread(by_key, "key near=0")]
    asked = [*many, *others]
    results = {name: tpch.measure(asked, text, wishes.repetitions) for name, text in tpch.QUERIES}
    print(
        f"TPC-H, scale {wishes.scale:g}, three members of {wishes.threads} threads, best of {wishes.repetitions}"
    )
    for one in many:
        print()
        tpch.table([one, *others], results)
    for engine in engines:
        engine.stop()


if __name__ == "__main__":
    main()
