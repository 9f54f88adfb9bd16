"""Where distarray 0.6.0 does otherwise than the Distributed Array Protocol says: each with the rule of docs/distarray.md, and a check that it still does.

Run on every rank by `distarray_program.py`; what its validator accepts and refuses is in `test_distarray.py`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from mpi4py import MPI

import partgrid as pg
from peers import old_distarray
from peers.distarray_model import Lying, block, cyclic, padded, unstructured

localarray, maps = old_distarray.on_ranks()
client = old_distarray.of_client()
read = localarray.LocalArray.from_distarray


@dataclass(frozen=True)
class Deviation:
    """What distarray does, and a check of it for one communicator of at least two ranks."""

    rule: str
    does: str
    holds: Callable[[MPI.Comm], None]

    def checked(self, comm: MPI.Comm) -> Callable[[], None]:
        def check() -> None:
            self.holds(comm)

        check.__name__ = self.holds.__name__
        return check


DEVIATIONS: dict[str, Deviation] = {}


def deviation(rule: str, does: str) -> Callable[[Callable[[MPI.Comm], None]], None]:
    def add(holds: Callable[[MPI.Comm], None]) -> None:
        DEVIATIONS[holds.__name__] = Deviation(rule, does, holds)

    return add


def raised(call: Callable[[], object]) -> Exception | None:
    try:
        call()
    except Exception as error:
        return error
    return None


def found(comm: MPI.Comm, section: dict[str, Any]) -> set[str]:
    """The rules that the validator of partgrid finds broken."""
    return {each.rule for each in pg.distarray.validate(comm.allgather(section))}


def dimension(comm: MPI.Comm, **more: Any) -> dict[str, Any]:
    return {"proc_grid_rank": comm.rank, "proc_grid_size": comm.size, **more}


@deviation("D6", "counts the last block of a block-cyclic dimension on rank 0, whoever has it")
def block_cyclic_counts(comm: MPI.Comm) -> None:
    count = 4 * comm.size + 3
    lying = Lying(cyclic(count, comm.size, 2))
    right = lying.section(comm.rank)
    counted = {0: 7, 1: 4}.get(comm.rank, 4)
    assert len(right["buffer"]) == {0: 6, 1: 5}.get(comm.rank, 4)
    error = raised(lambda: read(comm, right))
    if comm.rank < 2:
        assert "distribution shape must equal buf shape" in str(error)
    else:
        assert error is None
    made = localarray.ones(maps.Distribution(comm, right["dim_data"]))
    assert made.local_shape == (counted,)
    if comm.rank == 0:
        # It has an index that the array does not have.
        assert made.global_from_local((6,)) == (6 * comm.size,)
        assert 6 * comm.size > count
    assert found(comm, made.__distarray__()) == {"D6"}
    error = raised(lambda: pg.distarray.from_local(made, comm))
    assert isinstance(error, pg.errors.ProtocolError)
    assert len(set(comm.allgather(str(error)))) == 1


@deviation("X5", "forgets padding: what it hands on overlaps, and ranks find elements of others")
def padding_is_forgotten(comm: MPI.Comm) -> None:
    lying = Lying(padded([3 * each for each in range(comm.size + 1)], 1))
    local = read(comm, lying.section(comm.rank))
    assert "padding" not in local.dim_data[0]
    assert found(comm, local.__distarray__()) == {"X5", "X8"}
    border = 3 if comm.rank == 0 else 3 * comm.rank - 1
    assert lying.ours.locate([border])[0] != comm.rank
    assert local.global_index[border] == lying.buffer(comm.rank)[local.local_from_global([border])]


@deviation("D9, D12", "forgets `periodic` and `one_to_one`")
def keys_are_forgotten(comm: MPI.Comm) -> None:
    lying = Lying(unstructured([[each] for each in range(comm.size)]), block([0, 2]))
    dictionary, other = lying.ours.dim_data(comm.rank)
    assert dictionary["one_to_one"] is True
    given = lying.section(comm.rank) | {"dim_data": (dictionary, other | {"periodic": True})}
    kept = read(comm, given).dim_data
    assert "one_to_one" not in kept[0]
    assert "periodic" not in kept[1]


@deviation("T3", "never looks at the version, and reads 0.9 as 0.10")
def versions_are_not_looked_at(comm: MPI.Comm) -> None:
    lying = Lying(padded([3 * each for each in range(comm.size + 1)], 1))
    old = lying.section(comm.rank, version="0.9.0")
    assert pg.distarray.from_local(old, comm).version == "0.9.0"
    assert "distribution shape must equal buf shape" in str(raised(lambda: read(comm, old)))
    assert raised(lambda: read(comm, lying.section(comm.rank) | {"__version__": "7"})) is None


@deviation("D1", "takes `n`, which 0.10 does not have")
def dimensions_of_the_older_version(comm: MPI.Comm) -> None:
    lying = Lying(block([2 * each for each in range(comm.size + 1)]), block([0, 3]))
    old = lying.section(comm.rank)
    old["dim_data"] = (old["dim_data"][0], {"dist_type": "n", "size": 3})
    assert read(comm, old).dim_data == lying.ours.dim_data(comm.rank)
    assert found(comm, old) == {"D1"}
    assert found(comm, old | {"__version__": "0.9.0"}) == set()


@deviation("D2", "does not know the empty dictionary, which stands for a dimension on one rank")
def empty_dictionaries(comm: MPI.Comm) -> None:
    lying = Lying(block([2 * each for each in range(comm.size + 1)]), block([0, 3]))
    given = lying.section(comm.rank)
    given["dim_data"] = (given["dim_data"][0], {})
    assert repr(raised(lambda: read(comm, given))) == "KeyError('dist_type')"
    assert found(comm, given) == set()


@deviation("D10", "refuses the size as the start of a cyclic dimension of a rank without elements")
def start_of_ranks_without_elements(comm: MPI.Comm) -> None:
    dictionary = dimension(comm, dist_type="c", size=0, start=0)
    given = {"__version__": "0.10.0", "buffer": np.zeros(0), "dim_data": (dictionary,)}
    assert found(comm, given) == set()
    # The rank that is refused makes no communicator, for which all others would wait.
    error = raised(lambda: maps.map_from_dim_dict(dictionary))
    assert comm.rank == 0 or "does not equal grid_rank" in str(error)


@deviation("D11", "does not take `bytes` for indices, though they have the buffer interface")
def indices_of_bytes(comm: MPI.Comm) -> None:
    dictionary = dimension(comm, dist_type="u", size=comm.size, indices=bytes([comm.rank]))
    given = {"__version__": "0.10.0", "buffer": np.zeros(1), "dim_data": (dictionary,)}
    assert found(comm, given) == set()
    assert isinstance(raised(lambda: read(comm, given)), TypeError)


@deviation("X5", "compares nothing between ranks: a gap is not seen")
def gaps_between_ranks(comm: MPI.Comm) -> None:
    size = 3 * comm.size
    start = 3 * comm.rank + (comm.rank == 1)
    dictionary = dimension(comm, dist_type="b", size=size, start=start, stop=3 * comm.rank + 3)
    buffer = np.zeros(dictionary["stop"] - start)
    given = {"__version__": "0.10.0", "buffer": buffer, "dim_data": (dictionary,)}
    assert raised(lambda: read(comm, given)) is None
    assert found(comm, given) == {"X5", "X8"}
    assert "(rule: X5" in str(raised(lambda: pg.distarray.from_local(given, comm)))


@deviation("a map", "finds indices past the end of a cyclic dimension")
def indices_past_the_end(comm: MPI.Comm) -> None:
    lying = Lying(cyclic(2 * comm.size, comm.size))
    local = read(comm, lying.section(comm.rank))
    past = 5 * comm.size + comm.rank
    assert local.distribution[0].local_from_global_index(past) == 5
    assert lying.ours.locate([past]) is None


@deviation("a producer", "hands out the `indices` that its maps use, for anyone to change")
def indices_are_handed_out(comm: MPI.Comm) -> None:
    lying = Lying(unstructured([[each] for each in range(comm.size)]))
    given = lying.section(comm.rank)
    given["dim_data"][0]["indices"] = np.array([comm.rank])
    local = read(comm, given)
    local.__distarray__()["dim_data"][0]["indices"][0] = 99
    assert local.global_from_local((0,)) == (99,)
    section = pg.distarray.from_local(lying.section(comm.rank), comm).local
    assert isinstance(
        raised(lambda: memoryview(section.dim_data[0]["indices"]).__setitem__(0, 99)), TypeError
    )


@deviation(
    "a consumer", "its client turns `indices` into tuples in the dictionaries that it was given"
)
def dictionaries_are_changed_in_place(comm: MPI.Comm) -> None:
    lying = Lying(unstructured([[each] for each in range(comm.size)]))
    targets = [*range(comm.size)]
    given = [lying.ours.dim_data(each) for each in targets]
    # It iterates over them, which a buffer need not bear; ours does.
    client.Distribution.from_dim_data_per_rank(None, given, targets)
    assert [each["indices"] for (each,) in given] == [(each,) for each in range(comm.size)]


@deviation("D7", "its client writes padding as a list")
def padding_of_the_client(comm: MPI.Comm) -> None:
    bounds = [3 * each for each in range(comm.size + 1)]
    dictionary = client.BlockMap(
        bounds[-1], comm.size, bounds=list(itertools.pairwise(bounds))
    ).get_dimdicts()[comm.rank]
    assert dictionary["padding"] == [0, 0]
    given = {"__version__": "0.10.0", "buffer": np.zeros(3), "dim_data": (dictionary,)}
    assert found(comm, given) == {"D7"}
    # What it means is plain, so that it comes in.
    assert pg.distarray.from_local(given, comm).shape == (bounds[-1],)


@deviation("X15", "its client knows no section of an array without dimensions")
def arrays_without_dimensions(comm: MPI.Comm) -> None:
    assert client.Distribution.from_maps(None, [], targets=[0]).get_dim_data_per_rank() == []
    lying = Lying()
    given = lying.section(0, "f8") if comm.rank == 0 else None
    array = pg.distarray.from_local(given, comm)
    assert (array.shape, len(array), array.local is None) == ((), 1, comm.rank > 0)


@deviation("a plan", "its client plans messages between blocks only")
def plans_of_blocks_only(comm: MPI.Comm) -> None:
    both = [
        Lying(cyclic(2 * comm.size, comm.size)),
        Lying(block([0, *[3] * (comm.size - 1), 2 * comm.size])),
    ]
    theirs = [
        client.Distribution.from_dim_data_per_rank(
            None,
            [lying.ours.dim_data(each) for each in range(comm.size)],
            targets=[*range(comm.size)],
        )
        for lying in both
    ]
    assert "Only 'b' dist_type supported" in str(
        raised(lambda: theirs[0].get_redist_plan(theirs[1]))
    )
