"""Loads of a server that may die meanwhile, and the files that these leave."""

from __future__ import annotations

import threading
from pathlib import Path

import pyarrow as pa
import pyarrow.flight as fl
import pyarrow.parquet as pq

import partgrid as pg
from served import numbers

GONE = (pa.ArrowException, fl.FlightError, pg.errors.PartgridError, OSError)


class Loading(threading.Thread):
    """A load of a server, which may die meanwhile."""

    def __init__(self, uri: str, source: Path, name: str) -> None:
        super().__init__(daemon=True)
        self.uri, self.source, self.name = uri, source, name
        self.rows: int | None = None
        self.refusal: Exception | None = None

    def run(self) -> None:
        try:
            # It may die before it is known.
            connection = pg.connect(self.uri)
            done = connection.load_parquet(
                self.source, self.name, if_exists="replace", tile_rows=5_000, progress=False
            )
            self.rows = done["rows"]
        except GONE as error:
            self.refusal = error


def of_a_load(folder: Path, seed: int) -> pa.Table:
    """Rows in four files of the folder, which become twelve tiles."""
    folder.mkdir(parents=True)
    rows = numbers(seed, 60_000)
    for part in range(4):
        pq.write_table(rows.slice(part * 15_000, 15_000), folder / f"{part}.parquet")
    return rows


def files(folder: Path, part: str) -> set[str]:
    """All files below a part of a catalog."""
    there = (path for path in (folder / part).rglob("*") if not path.is_dir())
    return {str(path.relative_to(folder)) for path in there}
