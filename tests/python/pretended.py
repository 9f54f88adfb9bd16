"""A server that says what a test wants, for states that a real one has only for a moment.

Comes in: a browser and the address of a real server, whose page and policy stay real. Goes out: made up answers of its API, and a list of what the page posted.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote

from browser import Browser

# What a member says of itself.
FIGURES = ("queries", "parts", "grid_bytes", "query_bytes", "resident_bytes")

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>\u202edetrever"


class Pretended:
    """What a server would say, for states that a real one has only for a moment."""

    def __init__(self, browser: Browser, uri: str) -> None:
        self.queries: list[dict[str, Any]] = []
        self.jobs: list[dict[str, Any]] = []
        self.grids: list[dict[str, Any]] = []
        self.details: dict[str, Any] = {}
        self.members: list[dict[str, Any]] = []
        self.absent: list[dict[str, Any]] = []
        self.incomplete: list[dict[str, Any]] = []
        self.errors: list[dict[str, Any]] = []
        self.token = ""
        self.away = False
        self.scope = "admin"
        self.catalog: dict[str, Any] = {"durable": None, "damaged": 0}
        self.posts: list[tuple[str, dict[str, str]]] = []
        browser.pretend(uri.rstrip("/") + "/api/*", self.answer)
        browser.open(uri)

    def answer(self, method: str, url: str, headers: dict[str, str]) -> tuple[int, Any]:
        path = unquote(url.split("/api/")[1])
        if self.away:
            return 0, None
        if self.token and headers.get("Authorization") != f"Bearer {self.token}":
            return 401, {"error": "this token is not known"}
        if method == "POST":
            return self.cancel(path, headers)
        return 200, self.status() if path == "status" else self.details[path]

    def cancel(self, path: str, headers: dict[str, str]) -> tuple[int, Any]:
        self.posts.append((path, headers))
        if self.scope == "read":
            return 403, {"error": "this needs the scope `write`"}
        for kind, items in (("queries", self.queries), ("jobs", self.jobs)):
            for item in items:
                if path == f"{kind}/{item['id']}/cancel":
                    item.update(state="cancelled", can_cancel=False)
        return 204, None

    def status(self) -> dict[str, Any]:
        server = {
            "version": "0.1.0",
            "uri": "grpc://127.0.0.1:1",
            "pid": 1,
            "host": "127.0.0.1",
            "started": "2026-11-22T09:00:00Z",
            "uptime_seconds": 12.3,
            "threads": 2,
            "catalog": None,
            "state": "serving",
            **self.catalog,
        }
        names = ["grid_bytes", "query_bytes", "query_limit_bytes", "resident_bytes"]
        names += ["copied_bytes", "incoming_bytes", "spilled_bytes", "spill_limit_bytes"]
        return {
            "server": server,
            "caller": {"name": "anonymous", "scope": self.scope},
            "memory": dict.fromkeys(names, 1_000_000),
            "grids": self.grids,
            "incomplete": self.incomplete,
            "queries": self.queries,
            "jobs": self.jobs,
            "members": self.members,
            "away": self.absent,
            "errors": self.errors,
        }

    def query(self, name: str, sql: str, progress: float | None = 0.25) -> dict[str, Any]:
        what = {"id": name, "caller": HOSTILE, "sql": sql, "state": "running", "can_cancel": True}
        numbers = {"rows": 0, "tiles_done": 3, "tiles_total": 12, "memory_bytes": 0}
        self.queries.append({**what, **numbers, "progress": progress, "elapsed_seconds": 1.5})
        return self.queries[-1]

    def job(self, name: str) -> dict[str, Any]:
        what = {"id": name, "caller": "ann", "kind": "load", "name": name, "state": "running"}
        numbers = {"rows": 5, "bytes": 100, "total_bytes": 1000, "elapsed_seconds": 1}
        more = {"progress": 0.1, "remaining_seconds": 9.0, "message": "", "can_cancel": True}
        sorting = {"arranged_rows": 0, "rows_to_arrange": 0}
        self.jobs.append({**what, **numbers, **sorting, **more})
        return self.jobs[-1]

    def member(self, pid: int, state: str = "serving", uri: str = "") -> dict[str, Any]:
        uri = uri or f"grpc://10.0.0.{pid}:8815"
        what = {"uri": uri, "host": f"10.0.0.{pid}", "pid": pid}
        more = {**dict.fromkeys(FIGURES, 0), "is_here": pid == 1}
        self.members.append({**what, "state": state, "version": "0.1.0", **more})
        return self.members[-1]

    def lacks(self, uri: str, reason: str | None) -> None:
        """Somebody is listed who is no member."""
        self.absent.append({"uri": uri, "reason": reason})

    def loses(self, name: str, *numbers: int) -> None:
        """Nobody has these tiles of a grid any more, in the order in which they are listed."""
        tiles = self.details[f"grids/{name}"]["tiles"]
        for number in numbers:
            tiles[number]["locality"] = "lost"
        [grid] = [each for each in self.grids if each["name"] == name]
        names = sorted({tile["locality"] for tile in tiles})
        count = [sum(tile["locality"] == each for tile in tiles) for each in names]
        pairs = zip(names, count, strict=True)
        grid["localities"] = [{"locality": each, "tiles": many, "bytes": 5} for each, many in pairs]

    def grid(self, name: str, down: int, across: int) -> None:
        at = [(row, column) for row in range(down) for column in range(across)]
        place = {"locality": "memory", "location": [f"127.0.0.1 1 {HOSTILE}"]}
        tiles = [{"position": each, "rows": 100, "bytes": sum(each), **place} for each in at]
        cuts = {"row_cuts": [100 * n for n in range(down + 1)], "column_cuts": [*range(across + 1)]}
        names = [f"{HOSTILE}{n}" for n in range(across)]
        self.details[f"grids/{name}"] = {
            "name": name,
            **cuts,
            "column_names": names,
            "tiles": tiles,
            "left_out": 0,
        }
        shape = {"rows": 100 * down, "columns": across, "row_bands": down, "column_bands": across}
        places = [{"locality": "memory", "tiles": len(at), "bytes": 5}]
        what = {"name": name, "id": name, "durable": True, "tiles": len(at), "bytes": 5}
        self.grids.append({**what, **shape, "localities": places})

    def error(self, message: str, *, time: str = "2026-11-22T09:00:03Z", **more: Any) -> None:
        what = {"request": "0f3a9c7b1d2e4f56", "caller": "anonymous", "kind": "Query"}
        self.errors.append({**what, "message": message, "time": time, "standing": False, **more})
