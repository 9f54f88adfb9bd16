"""xgboost_ray and lightgbm_ray on a Ray of their own: training on the flights, with every partition read where it is."""

from __future__ import annotations

import os
import pickle
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import partgrid as pg

os.environ.setdefault("RAY_AUTH_MODE", "disabled")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
ray = pytest.importorskip("ray", reason="Ray is not installed: make test-peers")
xgboost_ray = pytest.importorskip(
    "xgboost_ray", reason="xgboost_ray is not installed: make test-peers"
)

FLIGHTS = Path(__file__).parents[3] / "data" / "flights"
COLUMNS = ["dep_delay", "distance", "hour", "month", "arr_delay"]


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    ray.init(num_cpus=3, include_dashboard=False, object_store_memory=300_000_000)
    yield
    ray.shutdown()


@pytest.fixture(scope="module")
def flights() -> pg.Grid:
    query = f"SELECT {', '.join(COLUMNS)} FROM self WHERE arr_delay IS NOT NULL AND dep_delay IS NOT NULL"
    return pg.read_parquet(FLIGHTS).sql(query).to_grid()


def partitioned(grid: pg.Grid, **options: Any) -> pg.Partitioned:
    return grid.partitioned(dialect="xgboost_ray", **options)


def small(rows: int, batches: int = 1) -> pg.Grid:
    table = pa.table({"x": np.arange(rows, dtype=np.float64), "y": np.arange(rows) % 2})
    size = -(-rows // batches)
    return pg.from_arrow(pa.Table.from_batches(table.to_batches(max_chunksize=size)))


def test_the_dictionary_says_what_xgboost_ray_reads() -> None:
    described = partitioned(small(10, 4)).__partitioned__
    assert described["shape"] == (10, 2)
    assert described["partition_tiling"] == (4, 1)
    address = ray.util.get_node_ip_address()
    for (row, column), entry in described["partitions"].items():
        assert column == 0
        assert entry["location"] == [address]
        frame = described["get"]([entry["data"]])[0]
        assert isinstance(frame, pd.DataFrame)
        assert frame.shape == entry["shape"]
        assert frame["x"].tolist() == list(range(*(row * 3, min(row * 3 + 3, 10))))
    assert "locals" not in described


def test_the_object_stays_the_same_however_often_it_is_read() -> None:
    given = partitioned(small(10, 4))
    first, second = given.__partitioned__, given.__partitioned__
    assert first is not second
    for key, entry in first["partitions"].items():
        assert entry["data"] is second["partitions"][key]["data"]


def test_row_bands_are_halved_until_every_actor_has_one() -> None:
    described = partitioned(small(10, 2), num_actors=3).__partitioned__
    shapes = [entry["shape"][0] for entry in described["partitions"].values()]
    assert shapes == [3, 2, 5]
    starts = [entry["start"][0] for entry in described["partitions"].values()]
    assert starts == [0, 3, 5]


def test_without_a_number_of_actors_the_processors_of_the_cluster_count() -> None:
    assert partitioned(small(10)).__partitioned__["partition_tiling"] == (3, 1)


def test_fewer_rows_than_actors_are_warned_of() -> None:
    with pytest.warns(UserWarning, match="2 partitions for 3 actors"):
        partitioned(small(2), num_actors=3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        partitioned(small(3), num_actors=3)


def test_column_bands_come_side_by_side() -> None:
    grid = pg.from_partitioned(
        {
            "shape": (4, 2),
            "partition_tiling": (2, 2),
            "partitions": {
                (row, column): {
                    "start": (row * 2, column),
                    "shape": (2, 1),
                    "data": pa.table({"xy"[column]: [row, 10 + column]}),
                    "location": [0],
                }
                for row in range(2)
                for column in range(2)
            },
        }
    )
    described = partitioned(grid, num_actors=2).__partitioned__
    assert described["partition_tiling"] == (2, 1)
    frame = described["get"](described["partitions"][(1, 0)]["data"])
    assert frame.to_dict("list") == {"x": [1, 10], "y": [1, 11]}


@ray.remote
def opened_elsewhere(described: bytes) -> list[tuple[int, list[float]]]:
    found = pickle.loads(described)
    handles = [entry["data"] for entry in found["partitions"].values()]
    return [(os.getpid(), frame["x"].tolist()) for frame in found["get"](handles)]


def test_the_dictionary_opens_in_another_process() -> None:
    described = partitioned(small(4, 2), num_actors=2).__partitioned__
    found = ray.get(opened_elsewhere.remote(ray.cloudpickle.dumps(described)))
    assert [values for _, values in found] == [[0.0, 1.0], [2.0, 3.0]]
    assert all(process != os.getpid() for process, _ in found)


def test_the_other_rules_are_kept() -> None:
    from conformance.partitioned import deviations  # noqa: PLC0415

    found = deviations(partitioned(small(10, 2)))
    # What xgboost_ray asks for in the place of the draft.
    assert set(found) == {"location"}, found


def test_types_are_the_same_in_all_partitions_and_such_as_lightgbm_takes() -> None:
    columns = {
        "whole": pa.array([1, 2, 3, 4], pa.int32()),
        "holes": pa.array([1, 2, None, 2**60 + 1], pa.int64()),
        "floats": pa.array([0.5, float("nan"), None, 1.0]),
        "flag": pa.array([True, False, True, True]),
        "kind": pa.array(["x", "y", None, "x"]).dictionary_encode(),
        "text": pa.array(["x", "y", None, "x"]),
    }
    grid = pg.from_arrow(pa.Table.from_batches(pa.table(columns).to_batches(max_chunksize=2)))
    described = partitioned(grid, num_actors=2).__partitioned__
    frames = described["get"]([entry["data"] for entry in described["partitions"].values()])
    for frame in frames:
        found = {name: str(dtype) for name, dtype in frame.dtypes.items()}
        assert found == {
            "whole": "int32",
            "holes": "Int64",
            "floats": "Float64",
            "flag": "bool",
            "kind": "category",
            "text": str(pd.ArrowDtype(pa.string())),
        }
    assert frames[1]["holes"].tolist() == [pd.NA, 2**60 + 1]
    assert frames[1]["text"].isna().tolist() == [True, False]


def test_every_row_is_loaded_once(flights: pg.Grid) -> None:
    matrix = xgboost_ray.RayDMatrix(partitioned(flights, num_actors=2), "arr_delay")
    assert matrix.distributed

    @ray.remote
    class Actor:
        def ip(self) -> str:
            return str(ray.util.get_node_ip_address())

        def rows(self, matrix: Any, rank: int) -> int:
            matrix.load_data(2, rank=rank)
            return len(matrix.get_data(rank, 2)["data"])

    actors = [Actor.remote() for _ in range(2)]
    assert matrix.assign_shards_to_actors(actors)
    rows = ray.get([actor.rows.remote(matrix, rank) for rank, actor in enumerate(actors)])
    assert sum(rows) == flights.shape[0]
    assert min(rows) > 0


def test_xgboost_trains_on_the_flights(flights: pg.Grid) -> None:
    matrix = xgboost_ray.RayDMatrix(partitioned(flights, num_actors=2), "arr_delay")
    found: dict[str, Any] = {}
    model = xgboost_ray.train(
        {"objective": "reg:squarederror", "max_depth": 4, "nthread": 1},
        matrix,
        num_boost_round=10,
        evals=[(matrix, "train")],
        evals_result=found,
        ray_params=xgboost_ray.RayParams(num_actors=2, cpus_per_actor=1),
        verbose_eval=False,
    )
    errors = found["train"]["rmse"]
    assert errors[-1] < errors[0] * 0.7
    frame = flights.to_pandas()
    import xgboost  # noqa: PLC0415

    features = frame.drop(columns="arr_delay")
    predicted = model.predict(xgboost.DMatrix(features))
    ours = float(np.sqrt(np.mean((predicted - frame["arr_delay"].to_numpy()) ** 2)))
    # The model saw every row: what it says of its error is what the whole frame says.
    assert ours == pytest.approx(errors[-1], rel=1e-3)


def test_lightgbm_trains_on_the_flights(flights: pg.Grid) -> None:
    lightgbm_ray = pytest.importorskip(
        "lightgbm_ray", reason="lightgbm_ray is not installed: make test-peers"
    )
    matrix = lightgbm_ray.RayDMatrix(partitioned(flights, num_actors=1), "arr_delay")
    found: dict[str, Any] = {}
    lightgbm_ray.train(
        {"objective": "regression", "verbose": -1},
        matrix,
        num_boost_round=10,
        evals_result=found,
        valid_sets=[matrix],
        valid_names=["train"],
        ray_params=lightgbm_ray.RayParams(num_actors=1, cpus_per_actor=2),
        verbose_eval=False,
    )
    errors = found["train"]["l2"]
    assert errors[-1] < errors[0] / 2


def test_ray_must_run() -> None:
    ray.shutdown()
    try:
        with pytest.raises(pg.errors.InvalidArgumentError, match=r"ray\.init\(\)"):
            partitioned(small(2))
    finally:
        ray.init(num_cpus=3, include_dashboard=False, object_store_memory=300_000_000)
