"""The main job of partgrid on real data: load, say where tiles are, hand them over, ask SQL.

Comes in: `data/flights`. Goes out: under a screenful of text. Run it with `make demo`.
"""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pyarrow as pa

import partgrid as pg

FLIGHTS = Path(__file__).resolve().parent.parent / "data" / "flights"
QUERY = """
    SELECT origin, count(*) AS flights, round(avg(dep_delay), 1) AS minutes_late
    FROM flights WHERE month = 7 GROUP BY origin ORDER BY flights DESC"""


def main() -> None:
    """Runs the demo."""
    started = time.perf_counter()
    flights = pg.read_parquet(FLIGHTS)
    elapsed = (time.perf_counter() - started) * 1000
    rows, columns = flights.shape
    print(f"grid       {rows:,} rows x {columns} columns, loaded in {elapsed:.0f} ms")
    for tile in [flights.tiles[0], flights.tiles[-1]]:
        print(f"tile       {tile}")

    partitioned = flights.__partitioned__
    entry = partitioned["partitions"][(6, 0)]
    print("\n__partitioned__['partitions'][(6, 0)]")
    for key, value in entry.items():
        print(f"  {key:9}{value}")
    frame = partitioned["get"](entry["data"])
    print(f"  get()    pandas.DataFrame {frame.shape}, {frame.dtypes['dest']} columns")

    result = pg.sql(QUERY, flights=flights)
    print(f"\nsql        {' '.join(QUERY.split())}\n{result}")
    scan = result.explain().splitlines()[-1].strip().split(", kept_where")[0]
    print(f"plan       {scan}")

    section = flights.distarray("distance").sections[6].__distarray__()
    values = np.asarray(section["buffer"])
    print(f"\n__distarray__ of `distance`, section 6 (version {section['__version__']})")
    print(f"  dim_data {section['dim_data']}")
    print(f"  buffer   {values.dtype} {values.shape}, sum {values.sum():,.0f} miles")

    tile = flights.tile(6).to_arrow()["distance"].buffers()[1].address
    pandas = pa.array(frame["distance"].array).buffers()[1].address
    array = values.__array_interface__["data"][0]
    copied = 0 if tile == pandas == array else values.nbytes
    print(f"\ncopied     {copied} bytes: tile, DataFrame and array share address {tile:#x}")


if __name__ == "__main__":
    main()
