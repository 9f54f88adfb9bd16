"""Where clients of Flight fetch the row bands of a grid that several members have: at the member that has them, too."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.flight as fl
import pytest

import partgrid as pg
from clusters import BANDS, Member, cluster, rows_of, with_readers
from services import shown

SAME_CONNECTION = b"arrow-flight-reuse-connection://?"


def ends(member: Member, token: str | None = None) -> list[fl.FlightEndpoint]:
    """The endpoints of the grid, as a member tells them."""
    with fl.connect(member.uri) as client:
        path = fl.FlightDescriptor.for_path("sales")
        return list(client.get_flight_info(path, shown(token)).endpoints)


def fetched(uri: bytes | str, end: fl.FlightEndpoint, token: str | None = None) -> pa.Table:
    with fl.connect(uri) as client:
        return client.do_get(end.ticket, shown(token)).read_all()


def test_row_bands_are_fetched_from_the_member_that_has_them(tmp_path: Path) -> None:
    with cluster(tmp_path, 3) as members:
        for number, member in enumerate(members[:2]):
            member.contribute(number, 2)
        for member in members:
            assert member.ask("server.refresh()") is None
        whole = pa.concat_tables([rows_of(0), rows_of(1)])
        uris = [member.uri.encode() for member in members]
        for asked in (0, 2):
            told = ends(members[asked])
            owners = [uris[band // BANDS] for band in range(2 * BANDS)]
            for end, owner in zip(told, owners, strict=True):
                others = [] if owner == uris[asked] else [owner]
                assert [place.uri for place in end.locations] == [
                    SAME_CONNECTION,
                    uris[asked],
                    *others,
                ]
            # Equal rows wherever a ticket is shown that a location names.
            for place in (1, -1):
                tables = [fetched(end.locations[place].uri, end) for end in told]
                assert pa.concat_tables(tables).equals(whole)
            # A member that has no such row band knows no such grid.
            with pytest.raises(pa.ArrowKeyError, match="no such grid"):
                fetched(uris[1], told[0])
        # A member that has dropped the grid gives nothing of it, though it has its part; withdrawn, it is nowhere.
        told = ends(members[0])
        pg.connect(members[1].uri).sql("DROP TABLE sales").to_arrow()
        with pytest.raises(pa.ArrowKeyError, match="no such grid"):
            fetched(uris[1], told[-1])
        assert members[1].ask("server.withdraw('sales')") is True
        with pytest.raises(pa.ArrowKeyError, match="no such grid"):
            fetched(uris[1], told[-1])


def test_the_member_that_has_a_row_band_gives_it_to_those_alone_who_may_see_the_grid(
    tmp_path: Path,
) -> None:
    made, settings = with_readers(tmp_path)
    with cluster(tmp_path, 2, **settings) as members:
        for number, member in enumerate(members):
            member.contribute(number, 2)
        for member in members:
            assert member.ask("server.refresh()") is None
        last = ends(members[0], made["reader"])[-1]
        there = last.locations[-1].uri
        assert there == members[1].uri.encode()
        assert fetched(there, last, made["reader"]).equals(rows_of(1)[-100:])
        with pytest.raises(pa.ArrowKeyError, match="no such grid"):
            fetched(there, last, made["other"])
        for token in (None, "pgt_stranger"):
            with pytest.raises(fl.FlightUnauthenticatedError):
                fetched(there, last, token)
