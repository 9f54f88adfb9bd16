"""What no name of a catalog in an object store has any more is removed after a day, by the clock of the store, and nothing else is."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

import partgrid as pg
from clocks import DAY, Clock, needs_clocks
from services import Service, service, until
from stores import KEYS, Proxy, s3_client, s3_server
from test_cluster_clock import COLLECTED
from test_cluster_stores import BUCKET, reached

pytestmark = needs_clocks

CATALOG = f"s3://{BUCKET}/kept/catalog"
PREFIX = "kept/catalog/"

# The store lists so many in one answer, which are fewer than there are.
LISTED = 10
ORPHANS = 25


class Bucket:
    """What is in a bucket, below the catalog."""

    def __init__(self, client: Any) -> None:
        self.client = client

    def keys(self, below: str = "") -> set[str]:
        pages = self.client.get_paginator("list_objects_v2")
        listed = pages.paginate(Bucket=BUCKET, Prefix=PREFIX + below)
        objects = (each for page in listed for each in page.get("Contents", []))
        return {each["Key"].removeprefix(PREFIX) for each in objects}

    def orphan(self, number: int) -> str:
        """Puts the file of a tile of no grid there."""
        key = f"tiles/{number:032x}-0-0-{number:016x}.arrow"
        self.client.put_object(Bucket=BUCKET, Key=PREFIX + key, Body=b"rows of nobody")
        return key

    def tiles_of(self, manifest: str) -> set[str]:
        """The files that a manifest names; none of a table that was dropped."""
        found = self.client.get_object(Bucket=BUCKET, Key=PREFIX + manifest)
        contents = json.loads(found["Body"].read().decode().split("\n", 1)[1])["contents"]
        return {tile["path"] for tile in (contents or {}).get("tiles", [])}


@contextmanager
def bucket(clock: Clock) -> Iterator[Bucket]:
    """An empty one, of a store with this clock; servers that begin meanwhile find it."""
    lists = {"MOTO_S3_DEFAULT_MAX_KEYS": str(LISTED)}
    with s3_server(**clock.environment, **lists) as address:
        client = s3_client(address)
        client.create_bucket(Bucket=BUCKET)
        with reached(Proxy(address), KEYS["access_key_id"]):
            yield Bucket(client)


@contextmanager
def collecting() -> Iterator[Service]:
    """A server, which looks once what is to be removed, soon after its beginning."""
    with service("--catalog", CATALOG, PARTGRID_LOG__FILTER="partgrid=debug") as one:
        yield one


def rows(first: int) -> pa.Table:
    return pa.table({"x": list(range(first, first + 100))})


def has_collected(one: Service) -> bool:
    return COLLECTED in "".join(one.said)


def test_files_that_nobody_names_go_after_a_day_by_the_clock_of_the_store(tmp_path: Path) -> None:
    clock = Clock(tmp_path)
    with bucket(clock) as kept:
        orphans = {kept.orphan(number) for number in range(ORPHANS)}
        listed = kept.client.list_objects_v2(Bucket=BUCKET, Prefix=PREFIX)
        assert (listed["KeyCount"], listed["IsTruncated"]) == (LISTED, True)
        with collecting() as one:
            connection = pg.connect(one.uri)
            connection.upload(rows(0), "kept")
            connection.upload(rows(0), "replaced")
            connection.upload(rows(100), "replaced", if_exists="replace")
            connection.upload(rows(0), "dropped")
            connection.sql("DROP TABLE dropped").to_arrow()
            until(lambda: has_collected(one), 60)
            # Nothing of it is old.
            assert kept.keys("tiles") > orphans
            assert len(kept.keys("tiles") - orphans) == 4
            assert len(kept.keys("grids")) == 5
        clock.jump(DAY + 60)
        young = kept.orphan(ORPHANS)
        with collecting() as other:
            until(lambda: has_collected(other), 120)
            manifests = kept.keys("grids")
            # The latest of each name, also that which says that there is no table.
            assert len(manifests) == 3
            named = set.union(*map(kept.tiles_of, manifests))
            assert len(named) == 2
            assert kept.keys("tiles") == named | {young}
            connection = pg.connect(other.uri)
            assert sorted(connection.grids()) == ["kept", "replaced"]
            for name, first in [("kept", 0), ("replaced", 100)]:
                assert connection.grid(name).to_arrow() == rows(first)
