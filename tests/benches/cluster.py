"""TPC-H over three members of a cluster on this machine, beside one server with the same rows, and DuckDB.

Run `make bench-cluster`, or `python tests/benches/cluster.py --help`. Each member has a third of each table: cut between rows ("cluster"), or, as whoever
loads by key would have it, between keys, so that the rows of an order and those of a part are with one member each ("by key"). All share the cores that the
one server has, so that the ratio is what being many costs. Both are asked through a port, as clients would. Prints tables; decides nothing.
"""

from __future__ import annotations

import argparse
from pathlib import Path

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
        server = pg.Server(join="file:" + members, http=None, settings={"server.threads": threads})
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
    uris = [process.stdout.readline().strip() for process in started]
    members.write_text("\\n".join(uris))
    for process in started:
        print(file=process.stdin, flush=True)
        assert len(process.stdout.readline().split()) == len(TABLES)
    connection = pg.connect(uris[0])
    ask = lambda text: connection.sql(text).to_arrow()
'''
tpch.ENGINES["by key"] = tpch.ENGINES["cluster"].replace("BY_KEY", "True")
tpch.ENGINES["cluster"] = tpch.ENGINES["cluster"].replace("BY_KEY", "False")


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
    names = ["cluster", "by key", "server", "duckdb"]
    engines = [tpch.Engine(name, source, wishes.threads) for name in names]
    results = {name: tpch.measure(engines, text, wishes.repetitions) for name, text in tpch.QUERIES}
    print(
        f"TPC-H, scale {wishes.scale:g}, three members of {wishes.threads} threads, best of {wishes.repetitions}"
    )
    for many in engines[:2]:
        print()
        tpch.table([many, *engines[2:]], results)
    for engine in engines:
        engine.stop()


if __name__ == "__main__":
    main()
