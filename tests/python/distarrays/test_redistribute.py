"""Redistribution and halos from Python: in one process, and among the ranks of a program, with arrays of any type and number of dimensions."""

from __future__ import annotations

import copy
import ctypes
import json
import pickle
import re
import runpy
import threading
from array import array
from collections import namedtuple
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import partgrid as pg
from conftest import DATA, ROOT
from partgrid import distarray
from partgrid.engines import mpi
from programs import Comm, on_ranks
from test_distarray_import import of_json


def cut(
    values: np.ndarray, lying: distarray.Distribution, version: str = "0.10.0"
) -> list[dict[str, Any]]:
    """The sections of an array: for each rank the elements at the global indices that its buffer holds."""
    sections = []
    for rank in range(lying.num_ranks):
        places = zip(lying.maps, lying.coordinates(rank), lying.local_shape(rank), strict=True)
        held = [
            [one.global_index(place, local) for local in range(count)]
            for one, place, count in places
        ]
        buffer = values[np.ix_(*held)] if held else values.copy()
        sections.append(
            {"__version__": version, "buffer": buffer, "dim_data": lying.dim_data(rank, version)}
        )
    return sections


LYING = {
    "block": [distarray.block(7, 3), distarray.block(4)],
    "padded": [distarray.block(7, 2, padding=2, boundary=(1, 0)), distarray.block(4, 2, padding=1)],
    "cyclic": [distarray.cyclic(7, 2, block_size=3), distarray.cyclic(4, 3)],
    "unstructured": [distarray.unstructured([[6, 0, 2], [1, 3, 4, 5]]), distarray.block([0, 0, 4])],
}
VALUES = np.arange(28).reshape(7, 4)
KINDS = ["i1", "<f4", ">f8", "c16", "?", "S3"]


@pytest.mark.parametrize("after", LYING)
@pytest.mark.parametrize("before", LYING)
def test_every_pair_moves_every_element(before: str, after: str) -> None:
    source, target = (distarray.Distribution(LYING[name]) for name in (before, after))
    array = distarray.from_sections(cut(VALUES, source))
    plan = array.redistribute(target)
    moved = plan.execute()
    for section, expected in zip(moved, cut(VALUES, target), strict=True):
        assert np.array_equal(np.asarray(section.buffer), expected["buffer"])
    assert distarray.validate(list(moved)) == []
    counts = np.array(plan.counts())
    stays = sum(counts[rank, rank] for rank in range(min(counts.shape)))
    assert plan.num_elements == counts.sum()
    assert plan.local_elements == stays
    assert plan.bytes_moved == (counts.sum() - stays) * 8
    off = counts.copy()
    np.fill_diagonal(off, 0)
    assert plan.messages == np.count_nonzero(off)
    if before == after:
        # The padding of a rank comes from others.
        assert plan.messages == (0 if before != "padded" else plan.messages)


@pytest.mark.parametrize("size", [6, 8])
@pytest.mark.parametrize("after", LYING)
@pytest.mark.parametrize("before", LYING)
def test_among_the_ranks_of_a_program(before: str, after: str, size: int) -> None:
    source, target = (distarray.Distribution(LYING[name]) for name in (before, after))
    sections, expected = cut(VALUES, source), cut(VALUES, target)

    def program(comm: Comm) -> Any:
        own = sections[comm.rank] if comm.rank < len(sections) else None
        array = distarray.from_local(own, comm)
        assert array.shape == (7, 4)
        assert (array.local is None) == (own is None)
        moved = array.redistribute(target).execute(comm)
        local = moved.local
        return None if local is None or not local.is_local else np.asarray(local.buffer).tolist()

    found = on_ranks(size, program)
    wanted = [section["buffer"].tolist() for section in expected]
    assert found == wanted + [None] * (size - len(wanted))


@pytest.mark.parametrize("kind", KINDS)
def test_elements_of_any_type_keep_it(kind: str) -> None:
    values = VALUES.astype("i1").astype(kind)
    source = distarray.Distribution(LYING["block"])
    moved = distarray.from_sections(cut(values, source)).redistribute(LYING["cyclic"]).execute()
    for section, expected in zip(
        moved, cut(values, distarray.Distribution(LYING["cyclic"])), strict=True
    ):
        assert np.asarray(section.buffer).dtype == values.dtype
        assert np.array_equal(np.asarray(section.buffer), expected["buffer"])


@pytest.mark.parametrize("shape", [(), (5,), (2, 3, 4), (2, 0, 3), (2, 1, 2, 3, 2)])
def test_any_number_of_dimensions_and_any_strides(shape: tuple[int, ...]) -> None:
    values = np.arange(int(np.prod(shape))).reshape(shape)
    source = distarray.Distribution([distarray.block(size, 2) for size in shape])
    sections = cut(values, source)
    for number, section in enumerate(sections):
        buffer = section["buffer"]
        if number % 2 and buffer.ndim:
            backwards = buffer[(slice(None, None, -1),) * buffer.ndim].copy(order="F")
            section["buffer"] = backwards[(slice(None, None, -1),) * buffer.ndim]
    moved = (
        distarray.from_sections(sections)
        .redistribute([distarray.cyclic(size, 2) for size in shape])
        .execute()
    )
    whole = moved.redistribute([distarray.block(size) for size in shape]).execute()
    assert np.array_equal(np.asarray(whole.local.buffer), values)


@pytest.mark.parametrize(
    ("before", "after", "counts"),
    [
        ("2.4", "2.5", [[6, 6, 6], [6, 6, 6], [3, 3, 3]]),
        ("2.6", "2.9", [[2, 3, 4, 6], [0, 4, 0, 8], [0, 0, 4, 6], [0, 0, 0, 8]]),
    ],
)
def test_the_printed_examples_become_each_other(
    before: str, after: str, counts: list[list[int]]
) -> None:
    """The counts are those of the conformance note."""
    source, target = (distarray.from_sections(printed(name)) for name in (before, after))
    plan = source.redistribute(target.distribution)
    assert plan.counts() == counts
    for made, section in zip(plan.execute(), target, strict=True):
        assert made.dim_data == section.dim_data or made.shape == section.shape
        assert np.array_equal(np.asarray(made.buffer), np.asarray(section.buffer))


def printed(name: str) -> list[Any]:
    path = DATA / "protocol" / f"0.10.0-{name}.json"
    return [of_json(each) for each in json.loads(path.read_text(encoding="utf-8"))]


def test_grids_of_programs_are_arrays_of_their_ranks() -> None:
    def program(comm: Comm) -> Any:
        rows = [comm.rank * 10 + number for number in range(comm.rank + 2)]
        chunks = pa.chunked_array([rows[:1], rows[1:]])
        grid = mpi.from_local(pa.table({"x": chunks, "y": chunks}), comm)
        tiles = grid.distarray("x")
        assert [section.is_local for section in tiles] == [
            number // 2 == comm.rank for number in range(6)
        ]
        with pytest.raises(pg.errors.UnsupportedError, match="execute"):
            grid.distarray("x", distribution=distarray.block(9, 3))
        array = grid.distarray(["x", "y"], distribution="rank")
        assert np.asarray(array.local.buffer)[:, 1].tolist() == rows
        assert array.local.dim_data[0]["start"] == sum(rank + 2 for rank in range(comm.rank))
        dealt = array.redistribute([distarray.cyclic(9, 3), distarray.block(2)]).execute(comm)
        return np.asarray(dealt.local.buffer)[:, 0].tolist()

    assert on_ranks(3, program) == [[0, 11, 21], [1, 12, 22], [10, 20, 23]]


def test_halos_are_made_fresh_in_place() -> None:
    for options in ({}, {"periodic": True, "version": "0.9.0"}, {"boundary": (2, 1)}):
        version = options.get("version", "0.10.0")
        lying = distarray.Distribution(
            [distarray.block(9, 3, padding=2, **options), distarray.block(4, 2, padding=1)]
        )
        values = np.arange(36.0).reshape(9, 4)
        sections = cut(values, lying, version)
        fresh = [section["buffer"].copy() for section in sections]
        for rank, section in enumerate(sections):
            buffer = section["buffer"]
            for local in np.ndindex(*buffer.shape):
                places = zip(lying.maps, lying.coordinates(rank), local, strict=True)
                index = [one.global_index(place, at) for one, place, at in places]
                if lying.locate(index) != (rank, local):
                    buffer[local] = -1
        assert any((section["buffer"] == -1).any() for section in sections)
        stale = [section["buffer"].copy() for section in sections]
        distarray.exchange_halos(sections)
        assert all(
            np.array_equal(section["buffer"], each)
            for section, each in zip(sections, fresh, strict=True)
        )

        def program(
            comm: Comm, stale: Any = stale, version: str = version, lying: Any = lying
        ) -> Any:
            own = {
                "__version__": version,
                "buffer": stale[comm.rank],
                "dim_data": lying.dim_data(comm.rank, version),
            }
            array = distarray.from_local(own, comm)
            distarray.exchange_halos(array, comm)
            return stale[comm.rank].tolist()

        assert on_ranks(6, program) == [each.tolist() for each in fresh]


def test_read_only_buffers_have_no_halo_to_fill() -> None:
    grid = pg.from_numpy(np.arange(4))
    array = grid.distarray("column_0")
    with pytest.raises(pg.errors.InvalidArgumentError, match="writable") as caught:
        distarray.exchange_halos(array)
    assert caught.value.context["rank"] == "0"


def test_what_is_wrong_on_one_rank_is_raised_on_all() -> None:
    lying = distarray.Distribution([distarray.block(6, 3)])
    sections = cut(np.arange(6), lying)

    def broken(comm: Comm) -> Any:
        section = dict(sections[comm.rank])
        if comm.rank == 1:
            section["dim_data"] = distarray.Distribution([distarray.block([0, 1, 4, 6])]).dim_data(
                1
            )
        return distarray.from_local(section, comm)

    def raising(comm: Comm) -> Any:
        class Bad:
            def __distarray__(self) -> Any:
                raise ValueError("not today")

        return distarray.from_local(Bad() if comm.rank == 2 else sections[comm.rank], comm)

    def other_plans(comm: Comm) -> Any:
        array = distarray.from_local(sections[comm.rank], comm)
        return array.redistribute(distarray.cyclic(6, 1 + comm.rank % 2)).execute(comm)

    def too_few(comm: Comm) -> Any:
        array = distarray.from_local(sections[comm.rank], comm)
        return array.redistribute(distarray.block(6, 4)).execute(comm)

    def no_array(comm: Comm) -> Any:
        array = distarray.from_local(sections[comm.rank], comm)
        return distarray.exchange_halos(5 if comm.rank == 1 else array, comm)

    def references(comm: Comm) -> Any:
        array = distarray.from_local(sections[comm.rank] | {"buffer": np.zeros(2, object)}, comm)
        return array.redistribute(distarray.cyclic(6, 3)).execute(comm)

    for program, kind, text in [
        (broken, "ProtocolError", "D6|buffer"),
        (raising, "ValueError", "rank 2: not today"),
        (other_plans, "InvalidArgumentError", "all ranks must ask for the same"),
        (too_few, "InvalidArgumentError", "a rank for each of the 4 sections, got 3"),
        (no_array, "InvalidArgumentError", "rank 1: sections must be a list"),
        (references, "UnsupportedError", "rank 0: elements must be values"),
    ]:
        found = on_ranks(3, program)
        assert {type(error).__name__ for error in found} == {kind}, found
        assert all(re.search(text, str(error)) for error in found), found


@pytest.mark.parametrize(
    ("bad", "text"),
    [
        (5, "a section must be a dict, got 5 (rule: T1, rank: 1)"),
        ([1], "a section must be a dict, got [1] (rule: T1, rank: 1)"),
        ({"buffer": [1.0, 2.0]}, "got [1.0, 2.0] (rule: T4, rank: 1, key: buffer)"),
        ({"buffer": np.zeros(2, "M8[s]")}, "got a ndarray (rule: T4, rank: 1, key: buffer)"),
        ({"buffer": threading.Lock()}, "got a lock (rule: T4, rank: 1, key: buffer)"),
        ({"dim_data": (threading.Lock(),)}, "got a lock (rule: T6, rank: 1"),
        ({"__version__": threading.Lock()}, "(rule: T3, rank: 1"),
        ({"more": threading.Lock()}, "(rule: T2, rank: 1"),
        ({"buffer": np.zeros(2, "f4")}, "(rule: X11, rank: 1"),
    ],
)
def test_what_is_no_section_is_refused_in_the_same_words_on_all(bad: Any, text: str) -> None:
    """Also what does not pickle."""
    sections = cut(np.arange(6.0), distarray.Distribution([distarray.block(6, 3)]))
    sections[1] = sections[1] | bad if isinstance(bad, dict) else bad
    found = on_ranks(3, lambda comm: distarray.from_local(sections[comm.rank], comm))
    assert {type(error).__name__ for error in found} == {"ProtocolError"}, found
    assert len({str(error) for error in found}) == 1, found
    assert text in str(found[0])


@pytest.mark.parametrize(
    "make",
    [
        lambda values: (ctypes.c_double * 2)(*values),
        lambda values: array("d", values),
        lambda values: memoryview(values.astype("i8")).cast("B").cast("q"),
        lambda values: memoryview(values.astype("u1")).cast("c"),
        lambda values: np.array([(each, 1) for each in values], np.dtype("f8,i2", align=True)),
    ],
)
def test_producers_may_write_one_type_in_other_words(make: Any) -> None:
    """On rank 1 integers are numpy's, too, and the dictionaries stand in another tuple."""
    [line] = LYING["block"][1:]
    lying = distarray.Distribution([distarray.block(4, 2)])
    sections = cut(np.arange(4.0), lying)
    buffers = [make(section["buffer"]) for section in sections]
    numbers = {
        key: np.int64(value) if isinstance(value, int) else value
        for key, value in sections[1]["dim_data"][0].items()
    }
    given = namedtuple("Dimensions", "rows")(numbers)
    whole = b"".join(bytes(memoryview(each).cast("B")) for each in buffers)
    sections = [section | {"buffer": each} for section, each in zip(sections, buffers, strict=True)]
    sections[1]["dim_data"] = given

    def program(comm: Comm) -> Any:
        found = distarray.from_local(sections[comm.rank], comm)
        assert np.shares_memory(
            np.asarray(found.local.buffer), np.asarray(memoryview(buffers[comm.rank]))
        )
        moved = found.redistribute(line).execute(comm)
        return found.dtype, None if moved.local is None else bytes(memoryview(moved.local.buffer))

    found = on_ranks(2, program)
    formats = {each[0] for each in found if isinstance(each, tuple)}
    assert len(formats) == 1, found
    assert [each[1] for each in found] == [whole, None]


def test_a_section_of_another_process_says_so() -> None:
    lying = distarray.Distribution([distarray.block(4, 2)])
    sections = cut(np.arange(4), lying)
    array = on_ranks(2, lambda comm: distarray.from_local(sections[comm.rank], comm))[0]
    assert repr(array[1]) == "Section 1: (2,) of l, in another process"
    for ask in (
        lambda: array[1].buffer,
        array[1].__distarray__,
        array.redistribute(distarray.block(4)).execute,
    ):
        with pytest.raises(pg.errors.NotLocalError) as caught:
            ask()
        assert caught.value.context["rank"] == "1"


def test_maps_answer_as_a_model_does() -> None:
    for one in [*LYING["block"], *LYING["cyclic"], distarray.unstructured([[5, -3], [0]])]:
        owned = [np.asarray(one.owned(rank)).tolist() for rank in range(one.num_ranks)]
        for rank, indices in enumerate(owned):
            assert one.local_len(rank) == len(indices)
            for local, index in enumerate(indices):
                assert one.locate(index) == (rank, local)
                assert one.global_index(rank, local) == index
        flat = [index for indices in owned for index in indices]
        ranks, locals_ = one.locate_all(np.array(flat))
        assert list(zip(np.asarray(ranks), np.asarray(locals_), strict=True)) == [
            one.locate(index) for index in flat
        ]
        assert one.locate(10**6) is None
        with pytest.raises(pg.errors.InvalidArgumentError):
            one.locate_all([10**6])
        with pytest.raises(pg.errors.NotFoundError):
            one.owned(one.num_ranks)
    assert distarray.block(7, 3) == distarray.block([0, 3, 5, 7])
    assert hash(distarray.cyclic(7, 3)) != hash(distarray.cyclic(7, 2))
    lying = distarray.Distribution([distarray.block(7, 3), distarray.cyclic(4, 2)])
    assert (lying.coordinates(5), lying.coordinates(6)) == ((2, 1), None)
    assert (
        repr(lying)
        == "Distribution [7 indices on 3 ranks, blocks cut at [0, 3, 5, 7]; 4 indices on 2 ranks, cyclic]"
    )


def test_pictures_are_text_that_notebooks_show(tmp_path: Path) -> None:
    array = distarray.from_sections(cut(VALUES, distarray.Distribution(LYING["block"])))
    plan = array.redistribute(LYING["cyclic"])
    for drawn in (plan.plot(), array.distribution.plot()):
        drawn.save(tmp_path / "picture.svg")
        assert (tmp_path / "picture.svg").read_text(encoding="utf-8").strip() == drawn
        assert drawn.startswith("<svg ")
        assert drawn._repr_svg_() == drawn
        assert pickle.loads(pickle.dumps(drawn)) == drawn
    assert repr(plan).startswith("3 ranks to 6 ranks, ")
    assert plan._repr_html_() == plan.plot()


def test_the_pictures_of_the_page_are_what_is_drawn_now() -> None:
    docs = ROOT / "docs"
    drawn = runpy.run_path(str(docs / "draw.py"))["pictures"]()
    page = (docs / "distarray.md").read_text(encoding="utf-8")
    for name, text in drawn.items():
        assert (docs / "pictures" / f"{name}.svg").read_text(encoding="utf-8") == text, (
            f"run python docs/draw.py: {name}"
        )
        assert f"](pictures/{name}.svg)" in page
    assert {path.stem for path in (docs / "pictures").glob("*.svg")} == set(drawn)


def test_references_to_objects_are_not_moved() -> None:
    lying = distarray.Distribution([distarray.block(4, 2)])
    array = distarray.from_sections(cut(np.array(["a", 1, None, []], object), lying))
    for ask in (
        array.redistribute(distarray.cyclic(4, 2)).execute,
        lambda: distarray.exchange_halos(array),
    ):
        with pytest.raises(pg.errors.UnsupportedError, match="references to Python objects"):
            ask()


def test_records_have_one_type_wherever_they_lie() -> None:
    """numpy writes the alignment of the memory into the format, which differs with the length of a section."""
    lying = distarray.Distribution([distarray.block([0, 1, 3])])
    sections = cut(np.arange(3).astype([("f0", "f8"), ("f1", "i2")]), lying)
    assert distarray.validate(sections) == []
    moved = distarray.from_sections(sections).redistribute(distarray.block(3)).execute()
    assert np.asarray(moved.local.buffer)["f0"].tolist() == [0, 1, 2]


def test_indices_can_be_sent_and_looked_at() -> None:
    indices = distarray.unstructured([[0, 3], [2]]).dim_data(0)["indices"]
    assert (list(indices), indices[1], len(indices)) == ([0, 3], 3, 2)
    for other in (pickle.loads(pickle.dumps(indices)), copy.deepcopy(indices)):
        assert isinstance(other, np.ndarray)
        assert other.tolist() == [0, 3]


def test_buffers_that_share_memory_are_not_written() -> None:
    whole = np.arange(18.0)
    lying = distarray.Distribution([distarray.block(18, 2, padding=1)])
    sections = [
        {
            "__version__": "0.10.0",
            "buffer": whole[start : start + 10],
            "dim_data": lying.dim_data(rank),
        }
        for rank, start in enumerate([0, 8])
    ]
    with pytest.raises(pg.errors.InvalidArgumentError, match="ranks 0 and 1") as caught:
        distarray.exchange_halos(sections)
    assert "numpy.array" in (caught.value.hint or "")
    assert whole.tolist() == list(range(18))


def test_a_ring_of_one_rank_fills_its_own_padding() -> None:
    lying = distarray.Distribution(
        [distarray.block(4, 1, padding=1, periodic=True, version="0.9.0")]
    )
    stale = np.array([-1, 0, 1, 2, 3, -1])
    section = {"__version__": "0.9.0", "buffer": stale, "dim_data": lying.dim_data(0, "0.9.0")}
    distarray.exchange_halos([section])
    assert stale.tolist() == [3, 0, 1, 2, 3, 0]
    stale[[0, 5]] = -1
    on_ranks(1, lambda comm: distarray.exchange_halos(distarray.from_local(section, comm), comm))
    assert stale.tolist() == [3, 0, 1, 2, 3, 0]


def test_buffers_that_do_not_fit_any_more_are_refused_on_all_ranks() -> None:
    lying = distarray.Distribution([distarray.block(8, 2, padding=1)])

    def program(comm: Comm) -> Any:
        buffer = bytearray(5)
        shown: Any = buffer
        if comm.rank:
            shown = np.lib.stride_tricks.as_strided(np.zeros(1, "B"), (5,), (0,), writeable=True)
        section = {"__version__": "0.10.0", "buffer": shown, "dim_data": lying.dim_data(comm.rank)}
        distarray.exchange_halos(distarray.from_local(section, comm), comm)

    for error in on_ranks(2, program):
        assert isinstance(error, pg.errors.InvalidArgumentError)
        assert "rank 1" in str(error)
        assert "overlap" in str(error)


def test_wishes_that_no_machine_can_meet_are_refused() -> None:
    for make, kind in [
        (lambda: distarray.block(10, 2**40), pg.errors.InvalidArgumentError),
        (lambda: distarray.cyclic(2**62, 1).owned(0), pg.errors.ResourcesExhaustedError),
        (
            lambda: (
                pg.from_numpy(np.arange(10))
                .distarray("column_0")
                .redistribute(distarray.cyclic(10, 2**31))
            ),
            pg.errors.UnsupportedError,
        ),
        (
            lambda: distarray.Distribution([distarray.cyclic(10, 2**40)] * 2),
            pg.errors.InvalidArgumentError,
        ),
        (lambda: distarray.block(5, 2, boundary=(9, 9)), pg.errors.InvalidArgumentError),
    ]:
        with pytest.raises(kind):
            make()
    assert hash(distarray.cyclic(10, 10**9)) == hash(distarray.cyclic(10, 10**9))


def test_errors_of_producers_keep_their_kind_and_tell_the_rank() -> None:
    class Bad:
        def __distarray__(self) -> Any:
            raise OSError("disk")

    lying = distarray.Distribution([distarray.block(4, 2)])
    with pytest.raises(OSError, match="disk") as caught:
        distarray.from_sections([cut(np.arange(4), lying)[0], Bad()])
    assert caught.value.__notes__ == ["raised by the section of rank 1"]
    with pytest.raises(FileNotFoundError, match="section-1"):
        distarray.from_sections(iter_that_raises())

    class Ends:
        def __distarray__(self) -> Any:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        distarray.validate(Ends())


def iter_that_raises() -> Any:
    yield {}
    raise FileNotFoundError("section-1.npy")


def test_a_producer_that_changes_its_dictionary_while_it_is_read_does_not_raise() -> None:
    class Index:
        def __index__(self) -> int:
            section[f"x{len(section)}"] = 1
            return 0

    section: dict[str, Any] = {
        "dist_type": "b",
        "size": Index(),
        "proc_grid_size": 1,
        "proc_grid_rank": 0,
        "start": 0,
        "stop": 3,
    }
    assert distarray.validate({"__version__": "0.10.0", "buffer": b"123", "dim_data": (section,)})
