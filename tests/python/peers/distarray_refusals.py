"""What is wrong on one rank is raised on all, and none waits. Run by `distarray_program.py`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import partgrid as pg
from peers.distarray_model import Lying, block, cyclic, padded
from peers.distarray_ranks import check, comm, even, first, rank, refused, size


class Raising:
    def __distarray__(self) -> Any:
        raise ValueError("not today")


@check
def what_is_wrong_on_one_rank_is_raised_on_all() -> None:
    last = size - 1
    lying = Lying(block(even(3 * size, size)))
    good = lying.section(rank)
    other = Lying(block([0, *[1] * last, 3 * size])).ours.dim_data(rank)

    def with_(bad: Any) -> Callable[[], object]:
        return lambda: pg.distarray.from_local(bad if rank == last else good, comm)

    protocol = pg.errors.ProtocolError
    refused(ValueError, f"rank {last}: not today", with_(Raising()))
    refused(protocol, f"rank: {last}", with_(good | {"dim_data": other}))
    refused(protocol, f"a section must be a dict, got 5 (rule: T1, rank: {last})", with_(5))
    refused(protocol, "(rule: T4", with_(good | {"buffer": Raising()}))
    refused(protocol, "(rule: T4", with_(good | {"buffer": np.zeros(3, "M8[s]")}))
    refused(protocol, "(rule: T5", with_(good | {"dim_data": None}))
    refused(protocol, "(rule: T6", with_(good | {"dim_data": (lambda: None,)}))
    refused(protocol, "(rule: X11", with_(lying.section(rank, "f4")))
    refused(protocol, "(rule: X13", with_(good | {"__version__": "0.9.0"}))
    missing = None if rank == 0 else good
    refused(protocol, "rank: 0", lambda: pg.distarray.from_local(missing, comm))
    objects = pg.distarray.from_local(good | {"buffer": np.zeros(3, object)}, comm)
    turned = objects.redistribute(cyclic(3 * size, size).map)
    refused(pg.errors.UnsupportedError, "references", lambda: turned.execute(comm))


@check
def plans_and_halos_are_refused_on_all() -> None:
    lying = Lying(padded(even(3 * size, size), 1))
    good = lying.section(rank)
    array = pg.distarray.from_local(good, comm)
    invalid = pg.errors.InvalidArgumentError
    plan = array.redistribute(cyclic(3 * size, size, 1 + rank // (size - 1)).map)
    refused(invalid, "all ranks must ask for the same", lambda: plan.execute(comm))
    plan = array.redistribute(block(even(3 * size, size + 1)).map)
    text = f"a rank for each of the {size + 1} sections, got {size}"
    refused(invalid, text, lambda: plan.execute(comm))
    good["buffer"].flags.writeable = rank != 1
    array = pg.distarray.from_local(good, comm)
    text = "rank 1: the buffer must be writable"
    refused(invalid, text, lambda: pg.distarray.exchange_halos(array, comm))
    given: Any = 5 if rank == 1 else array
    refused(pg.PartgridError, "rank 1: ", lambda: pg.distarray.exchange_halos(given, comm))


@check
def fewer_ranks_than_sections() -> None:
    lying = Lying(block(even(6, size)))
    array = pg.distarray.from_local(lying.section(rank), comm)
    plan = array.redistribute(block([0, 6]).map)
    invalid, text = pg.errors.InvalidArgumentError, f"each of the {size} sections, got {size - 1}"
    with first(size - 1) as some:
        if some is not None:
            refused(invalid, text, lambda: plan.execute(some), some)
            refused(invalid, text, lambda: pg.distarray.exchange_halos(array, some), some)
            missing = lambda: pg.distarray.from_local(lying.section(rank), some)  # noqa: E731
            refused(pg.errors.ProtocolError, "(rule: X1", missing, some)
