"""Arrays that are distributed anew among the ranks, and padding that is made fresh.

Comes in: arrays as the model has them. Goes out: nothing; each check compares what ranks got with the model, and with what distarray reads, plans and moves.
Run by `distarray_program.py`.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

import partgrid as pg
from peers import old_distarray
from peers.distarray_model import Line, Lying, block, cyclic, padded, unstructured
from peers.distarray_ranks import (
    KINDS,
    agrees,
    check,
    client,
    comm,
    dealt,
    even,
    findings,
    first,
    grids,
    localarray,
    rank,
    read,
    same,
    size,
)

# Of pairs of distributions; a failure names its own.
SEEDS = range(60)
# What two ranks need, in bytes, to pass more than 2 GiB from one to the other.
LARGE = 12 * 2**30


def any_line(random: np.random.Generator, ranks: int, count: int) -> Line:
    kind = random.choice(["block", "padded", "cyclic", "unstructured"])
    if kind == "padded" and count >= 2 * ranks:
        return padded(even(count, ranks), int(random.integers(1, count // ranks + 1)))
    if kind == "cyclic":
        return cyclic(count, ranks, int(random.integers(1, 4)))
    if kind == "unstructured":
        return unstructured(dealt(count, ranks, int(random.integers(1000))))
    cuts = np.sort(random.integers(0, count + 1, ranks - 1)).tolist()
    return block([0, *cuts, count])


def any_pair(seed: int) -> tuple[Lying, Lying, str]:
    """Two ways to lie for one shape, on at most all ranks, and a type."""
    random = np.random.default_rng([seed, size])
    shape = random.integers(1, 14, int(random.integers(1, 4))).tolist()
    both = []
    for _ in range(2):
        left, counts = size, []
        for _ in shape:
            counts.append(int(random.integers(1, left + 1)))
            left //= counts[-1]
        random.shuffle(counts)
        both.append(Lying(*[any_line(random, *each) for each in zip(counts, shape, strict=True)]))
    return both[0], both[1], str(random.choice(KINDS))


@check
def random_pairs_of_distributions() -> None:
    """Sections are moved from one to the other, the last of them from rank to rank; distarray reads those that it counts rightly."""
    num_read = 0
    for seed in SEEDS:
        before, after, kind = any_pair(seed)
        what = f"seed {seed}: {kind}, {before} to {after}"
        own = before.section(rank, kind) if rank < before.ranks else None
        plan = pg.distarray.from_local(own, comm).redistribute(after.ours)
        assert np.sum(plan.counts()) == plan.num_elements, what
        local = plan.execute(comm).local
        with first(after.ranks) as some:
            if rank >= after.ranks:
                assert local is None, what
                continue
            same(local.buffer, after.buffer(rank, kind), what)
            section = local.__distarray__()
            assert findings(section, some) == [], what
            assert old_distarray.validator.validate(section) == (True, ""), what
            if after.sound:
                num_read += 1
                with read(section, some) as theirs:
                    agrees(theirs, after, after.buffer(rank, kind), what)
    assert rank > 0 or num_read > len(SEEDS) // 2, num_read


@check
def plans_of_distarray_move_the_same_elements() -> None:
    """Its client plans blocks only, and its ranks carry that out with messages of their own."""
    for seed in SEEDS:
        random = np.random.default_rng([seed, size, 1])
        grid = grids(2)
        shape = random.integers(1, 20, 2).tolist()
        before, after = (
            Lying(
                *[
                    block([0, *np.sort(random.integers(0, count + 1, ranks - 1)).tolist(), count])
                    for count, ranks in zip(shape, grid[random.integers(len(grid))], strict=True)
                ]
            )
            for _ in range(2)
        )
        theirs = [
            client.Distribution.from_dim_data_per_rank(
                None, [lying.ours.dim_data(each) for each in range(size)], targets=[*range(size)]
            )
            for lying in (before, after)
        ]
        plan = theirs[0].get_redist_plan(theirs[1])
        array = pg.distarray.from_local(before.section(rank, "f8"), comm)
        ours = array.redistribute(after.ours)
        counts = np.zeros((size, size), dtype=int)
        for each in plan:
            part = np.prod([len(range(*indices)) for indices in each["indices"]])
            counts[int(each["source_rank"]), int(each["dest_rank"])] += part
        assert counts.tolist() == ours.counts(), seed
        empty = after.section(rank, "f8") | {"buffer": np.full(after.ours.local_shape(rank), -1.0)}
        with read(array.local) as source, read(empty) as target:
            localarray.redistribute(comm, plan, source, target)
            same(target.ndarray, np.asarray(ours.execute(comm).local.buffer), seed)


@check
def messages_of_megabytes() -> None:
    count = 3 * 2**20
    rows = 1536
    for before, after in (
        (Lying(block(even(count, size))), Lying(cyclic(count, size, 1000))),
        (Lying(block([0, count, *[count] * (size - 1)])), Lying(block(even(count, size)))),
        (
            Lying(block(even(rows, size)), block([0, 2048])),
            Lying(block([0, rows]), block(even(2048, size))),
        ),
    ):
        array = pg.distarray.from_local(before.section(rank), comm)
        plan = array.redistribute(after.ours)
        largest = max(map(max, plan.counts())) * 8
        assert largest > 2**20 or size == 8, largest
        moved = plan.execute(comm)
        same(moved.local.buffer, after.buffer(rank))
        again = moved.redistribute(before.ours).execute(comm)
        same(again.local.buffer, before.buffer(rank))


def available() -> int:
    """The bytes that Linux has for programs."""
    try:
        [line] = re.findall(r"MemAvailable: +(\d+) kB", Path("/proc/meminfo").read_text())
    except (OSError, ValueError):
        return 0
    return int(line) * 1024


@check
def more_than_one_message_holds() -> None:
    """A rank sends another more than 2 GiB: in pieces, of which each fits. Sent where the memory is there, by two ranks."""
    rows, width = 2200, 1_000_003
    line = np.arange(width).astype("u1")
    count = rows if rank == 0 else 0
    # As many rows as one wishes in the memory of one.
    section = Lying(block([0, *[rows] * size]), block([0, width])).ours.dim_data(rank)
    given = {"__version__": "0.10.0", "dim_data": section}
    given["buffer"] = np.broadcast_to(line, (count, width))
    to = Lying(block([*[0] * size, rows]), block([0, width])).ours
    plan = pg.distarray.from_local(given, comm).redistribute(to)
    pieces = [each.nbytes for each in plan._transfers(0, size - 1)]
    assert sum(pieces) == rows * width > 2**31
    assert len(pieces) == 2
    assert max(pieces) < 2**31
    if size == 2 and all(comm.allgather(available() > LARGE)):
        local = plan.execute(comm).local
        if rank == 1:
            assert all(np.array_equal(row, line) for row in np.asarray(local.buffer))


@check
def padding_is_made_fresh() -> None:
    """What others own is wrong before, and right after; corners too."""
    cases = [
        (Lying(*[padded(even(4 * ranks, ranks), 2) for ranks in grid]), "0.10.0")
        for dimensions in (1, 2, 3)
        for grid in grids(dimensions)
    ]
    cases += [
        (Lying(*[padded(even(3 * ranks + 1, ranks), 3, periodic=True) for ranks in grid]), "0.9.0")
        for dimensions in (1, 2)
        for grid in grids(dimensions)
    ]
    for lying, version in cases:
        fresh = lying.buffer(rank, "i4")
        stale = np.full_like(fresh, -1)
        stale[lying.owned(rank)] = fresh[lying.owned(rank)]
        given = lying.section(rank, "i4", version) | {"buffer": stale}
        array = pg.distarray.from_local(given, comm)
        if version == "0.10.0":
            # Both libraries have the same memory in hand.
            with read(given) as local:
                pg.distarray.exchange_halos(array, comm)
                agrees(local, lying, fresh, lying)
        pg.distarray.exchange_halos(array, comm)
        same(stale, fresh, lying)
        assert size == 1 or (given["buffer"] is stale and np.any(stale != -1))


@check
def widths_of_padding_differ_from_border_to_border() -> None:
    widths = [0, *[1 + border % 3 for border in range(size - 1)], 0]
    bounds = even(4 * size, size)
    left, right = widths[rank], widths[rank + 1]
    first_, end = bounds[rank] - left, bounds[rank + 1] + right
    fresh = np.arange(first_, end)
    buffer = np.where((fresh >= bounds[rank]) & (fresh < bounds[rank + 1]), fresh, -1)
    dimension = {
        "dist_type": "b",
        "size": 4 * size,
        "proc_grid_rank": rank,
        "proc_grid_size": size,
        "start": first_,
        "stop": end,
        "padding": (left, right),
    }
    section = {"__version__": "0.10.0", "buffer": buffer, "dim_data": (dimension,)}
    pg.distarray.exchange_halos(pg.distarray.from_local(section, comm), comm)
    same(buffer, fresh)
    with read(section) as local:
        same(local.ndarray, fresh)
        assert [*local.distribution[0].global_iter] == fresh.tolist()


@check
def halos_of_moved_arrays_follow_their_owners() -> None:
    plain = Lying(block(even(4 * size, size)), block([0, 3]))
    wide = Lying(padded(even(4 * size, size), 1), block([0, 3]))
    moved = pg.distarray.from_local(plain.section(rank), comm).redistribute(wide.ours).execute(comm)
    with read(moved.local) as local:
        agrees(local, wide, wide.buffer(rank), "moved")
        for step in range(3):
            local.ndarray[wide.owned(rank)] *= 2
            pg.distarray.exchange_halos(moved, comm)
            same(local.ndarray, wide.buffer(rank) * 2 ** (step + 1))


@check
def more_ranks_than_sections() -> None:
    for count in range(1, size):
        lying = Lying(block(even(7, count)))
        own = lying.section(rank) if rank < count else None
        array = pg.distarray.from_local(own, comm)
        assert (len(array), array.local is None) == (count, own is None)
        after = Lying(cyclic(7, size - count))
        local = array.redistribute(after.ours).execute(comm).local
        assert (local is None) == (rank >= size - count)
        with first(size - count) as some:
            if local is not None:
                with read(local, some) as theirs:
                    agrees(theirs, after, after.buffer(rank), count)
