"""Loads that go on with finished tiles that somebody has changed.

`python changed_checkpoints.py FOLDER COUNT` changes a file so often; ends with an error for a wrong row, a fault, or a file outside that was touched.
"""

from __future__ import annotations

import random
import resource
import sys
from pathlib import Path

import partgrid as pg
from hostile import harmed

MEMORY_BYTES = 8 << 30


def main(folder: Path, count: int) -> None:
    """Changes a file, loads, compares."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    source = Path(__file__).resolve().parents[2] / "data" / "airports.parquet"
    tiles, outside = folder / "tiles", folder / "outside"
    outside.write_bytes(b"precious")
    whole = pg.read_parquet(source, resume=tiles, tile_rows=300).to_arrow()
    kept = {path: path.read_bytes() for path in tiles.iterdir() if path.is_file()}
    chosen = random.Random("checkpoints")
    for number in range(count):
        path = chosen.choice(sorted(kept))
        path.unlink(missing_ok=True)
        if number % 7 == 0:
            path.symlink_to(outside)
        else:
            path.write_bytes(harmed(chosen, kept[path]))
        try:
            rows = pg.read_parquet(source, resume=tiles, tile_rows=300).to_arrow()
        except pg.errors.InternalError:
            raise
        except pg.errors.PartgridError as error:
            if str(folder) not in str(error):
                raise AssertionError(f"no place is named: {error}") from error
        else:
            assert rows == whole, path
        assert outside.read_bytes() == b"precious"
        for known, content in kept.items():
            known.unlink(missing_ok=True)
            known.write_bytes(content)
    print("all rows are right")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
