"""Runs every fuzz target for some seconds, from seeds that are made here: small Parquet files of many kinds behind one byte that chooses how they are loaded.

Usage: python fuzz/run.py [SECONDS]
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

FUZZ = Path(__file__).resolve().parent
WISHES = 9
# A small file must not take longer or more than this.
HANG_SECONDS = 10
MEMORY_MB = 1024


def tables() -> Iterator[pa.Table]:
    """Small tables whose first column is `a`."""
    for values in [
        pa.array([1, None, 3]),
        pa.array(["x", None, "a longer text than twelve bytes"]),
        pa.array([1.5, float("nan"), None]),
        pa.array([True, False, None]),
        pa.array([b"x", b"", None]),
        pa.array([date(2020, 1, 1), None, date(1970, 1, 1)]),
        pa.array([datetime(2020, 1, 1, tzinfo=UTC), None, None]),
        pa.array([Decimal("1.25"), None, Decimal("-3.50")]),
        pa.array([[1, None], [], None]),
        pa.array([{"x": 1, "y": ["z"]}, None, {"x": None, "y": None}]),
        pa.array([[("k", 1)], None, []], pa.map_(pa.string(), pa.int64())),
        pa.array(["x", "y", "x"]).dictionary_encode(),
    ]:
        yield pa.table({"a": values, "b": pa.array([1, 2, 3])})


def seeds() -> Iterator[bytes]:
    """Every table, written in several ways."""
    for table in tables():
        for number, options in enumerate(
            [
                {"compression": "none", "write_page_index": True},
                {"compression": "zstd", "write_page_checksum": True},
                {"compression": "snappy", "row_group_size": 2, "data_page_version": "2.0"},
                {"compression": "none", "use_dictionary": False, "store_schema": False},
            ]
        ):
            sink = io.BytesIO()
            pq.write_table(table, sink, **options)
            for wish in range(number, WISHES, 4):
                yield bytes([wish]) + sink.getvalue()


def main() -> int:
    """Runs all targets; the exit code of the first that finds something."""
    seconds = int(sys.argv[1]) if len(sys.argv) > 1 else 60
    environment = {
        **os.environ,
        "PATH": f"{FUZZ / 'tools' / 'bin'}{os.pathsep}{os.environ['PATH']}",
    }
    # Cargo of the pinned toolchain: coverage works there, the sanitizers would not.
    environment.setdefault("RUSTFLAGS", "")
    with tempfile.TemporaryDirectory() as folder:
        for target in ["load", "resume"]:
            corpus = Path(folder) / target
            corpus.mkdir()
            if target == "load":
                for number, seed in enumerate(seeds()):
                    (corpus / f"seed-{number}").write_bytes(seed)
            done = subprocess.run(
                [
                    *("cargo", "fuzz", "run", "--sanitizer", "none", target, str(corpus), "--"),
                    f"-max_total_time={seconds}",
                    f"-timeout={HANG_SECONDS}",
                    f"-rss_limit_mb={MEMORY_MB}",
                    "-max_len=65536",
                    "-print_final_stats=1",
                ],
                cwd=FUZZ,
                env=environment,
                check=False,
            )
            if done.returncode != 0:
                return done.returncode
    return 0


if __name__ == "__main__":
    sys.exit(main())
