"""Ray for tests: on this machine alone, out of the way of others, and gone when the tests are.

Comes in: how many processors and nodes. Goes out: Ray, running. Never here: what is tested.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ray

os.environ.setdefault("RAY_AUTH_MODE", "disabled")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
STORE_BYTES = 200_000_000


@contextmanager
def started(num_cpus: int) -> Iterator[None]:
    """Ray with one node. A machine that is busy, or reads Ray from disk for the first time, is given three tries."""
    # Names of sockets must be short.
    folder = tempfile.mkdtemp(prefix="ray")
    options: dict[str, Any] = {"num_cpus": num_cpus, "object_store_memory": STORE_BYTES}
    try:
        for turn in range(3):
            try:
                ray.init(
                    "local",
                    include_dashboard=False,
                    log_to_driver=False,
                    _temp_dir=folder,
                    **options,
                )
                break
            except Exception:
                ray.shutdown()
                if turn == 2:
                    raise
        yield
    finally:
        ray.shutdown()
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def two_nodes() -> Iterator[Any]:
    """Ray with two nodes on this machine: gives the second one's id, and what removes it at once, as when its machine is switched off."""
    from ray._private.utils import get_ray_address_file  # noqa: PLC0415 - only for tests with nodes
    from ray.cluster_utils import Cluster  # noqa: PLC0415 - only for tests with nodes

    # Ray notes there where the first node is, and does not make the folder.
    Path(get_ray_address_file(None)).parent.mkdir(parents=True, exist_ok=True)
    folder = tempfile.mkdtemp(prefix="ray")
    options = {"num_cpus": 2, "object_store_memory": STORE_BYTES, "temp_dir": folder}
    cluster = Cluster(initialize_head=True, head_node_args={**options, "include_dashboard": False})
    try:
        second = cluster.add_node(**options)
        ray.init(address=cluster.address, log_to_driver=False)
        cluster.wait_for_nodes(timeout=60)
        yield second.node_id, lambda: cluster.remove_node(second, allow_graceful=False)
    finally:
        ray.shutdown()
        cluster.shutdown()
        shutil.rmtree(folder, ignore_errors=True)
