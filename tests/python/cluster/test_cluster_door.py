"""Who may speak as a member of a cluster: bearers of tokens for everything alone; and what broken words of one do."""

from __future__ import annotations

import random
from collections.abc import Iterator

import grpc
import pyarrow as pa
import pyarrow.flight as fl
import pytest

import partgrid as pg
from hostile import REQUESTS, TYPED
from services import ours, proto, shown, write_tokens

PREFIX = "/worker.WorkerService/"
METHODS = ["CoordinatorChannel", "ExecuteTask", "GetWorkerInfo"]
ACTIONS = [
    "Parts",
    "Part",
    "PartStatistics",
    "PartSample",
    "PartFiles",
    "WriteTiles",
    "ReadTiles",
    "ArrangeTiles",
    "TakeTiles",
    "LeaveTiles",
]
ACTIONS += ["Rebalance", "LookAtCatalog"]
CALLERS = {
    "nobody": None,
    "stranger": None,
    "reader": {"scope": "read"},
    "writer": {"scope": "write"},
    "some": {"scope": "admin", "grids": ["t*"]},
    "member": {"scope": "admin"},
}


@pytest.fixture(scope="module")
def member(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[pg.Server, dict[str, str]]]:
    """A member of a cluster, and tokens by caller."""
    folder = tmp_path_factory.mktemp("door")
    known = {name: dict(what) for name, what in CALLERS.items() if what}
    tokens = {**write_tokens(folder / "tokens.toml", **known), "stranger": "pgt_stranger"}
    own = folder / "own"
    own.write_text(tokens["member"])
    (folder / "members").touch()
    settings = {"cluster.token": str(own)}
    with pg.Server(
        {"t": pa.table({"a": [1, 2, 3]})},
        join=f"file:{folder / 'members'}",
        tokens=folder / "tokens.toml",
        settings=settings,
    ) as server:
        yield server, tokens


def said(
    server: pg.Server, method: str, token: str | None, message: bytes
) -> tuple[grpc.StatusCode, str]:
    """What comes of a message to a method of members."""
    metadata = [] if token is None else [("authorization", f"Bearer {token}")]
    with grpc.insecure_channel(server.uri.removeprefix("grpc://")) as channel:
        call = channel.stream_stream(PREFIX + method)
        try:
            list(call(iter([message]), metadata=metadata, timeout=10))
        except grpc.RpcError as error:
            return error.code(), error.details()
    return grpc.StatusCode.OK, ""


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("caller", CALLERS)
def test_parts_of_plans_are_taken_from_members_alone(
    member: tuple[pg.Server, dict[str, str]], method: str, caller: str
) -> None:
    server, tokens = member
    code, _ = said(server, method, tokens.get(caller), b"")
    if caller in ("nobody", "stranger"):
        assert code == grpc.StatusCode.UNAUTHENTICATED
    elif caller == "member":
        assert code not in (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED)
    else:
        assert code == grpc.StatusCode.PERMISSION_DENIED


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("caller", ["reader", "writer", "some"])
def test_what_members_ask_is_answered_to_members_alone(
    member: tuple[pg.Server, dict[str, str]], action: str, caller: str
) -> None:
    server, tokens = member
    name = "RebalanceRequest" if action == "Rebalance" else "GridPart"
    body = ours(name, (1, "t"), (3, 1), (4, bytes(16)))
    why = "a token for all grids" if caller == "some" else "the scope `admin`"
    with (
        fl.connect(server.uri) as client,
        pytest.raises(fl.FlightUnauthorizedError, match=why),
    ):
        list(client.do_action(fl.Action(action, body), shown(tokens[caller])))


def test_broken_words_of_a_member_end_their_own_call(
    member: tuple[pg.Server, dict[str, str]],
) -> None:
    server, tokens = member
    source = random.Random(5)
    for number in range(REQUESTS // 2):
        size = source.choice([0, 1, 10, 100, 1000])
        message = proto((source.randint(1, 6), source.randbytes(size)), (2, source.randbytes(9)))
        code, text = said(server, METHODS[number % 3], tokens["member"], message)
        assert code in TYPED | {grpc.StatusCode.OK}, (code, text)
    assert pg.connect(server.uri, token=tokens["reader"]).grids() == ["t"]
