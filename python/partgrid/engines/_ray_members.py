"""The actors of one driver, which make one cluster: who they are, whether they live, and new ones for those that died.

Comes in: how many are wanted, and on which nodes. Goes out: calls that end, with an answer or an error of ours. Never here: what the actors have, which their
grids know.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from partgrid import errors
from partgrid._refusals import needed, placed, refused
from partgrid.engines._member import new_token
from partgrid.engines._ray_holder import Holder, first_line

Module = Any
ObjectRef = Any
Actor = Any

# Seconds in which an actor must say that it lives, and in which a new one must start.
ALIVE, STARTED = 15.0, 120.0

# Seconds between two looks at actors that work.
LOOK = 5.0

# Seconds before something that failed is done again.
PAUSES = (0.0, 0.5, 2.0)

# Calls that an actor takes at once.
CALLS = 16


def running(wanted_by: str) -> Module:
    """Ray, which must run in this process."""
    ray = needed("ray", wanted_by)
    if not ray.is_initialized():
        message = "Ray is not running in this process"
        raise refused(errors.InvalidArgumentError, message, "call ray.init() first")
    return ray


class Member:
    """One place for an actor. When the actor dies, another one takes it.

    Args:
        number: Its number among all.
        node: The id of the node of Ray on which the actor is.
    """

    def __init__(self, number: int, node: str) -> None:
        self.number, self.node = number, node
        self.actor: Actor = None
        self.host, self.address, self.pid, self.uri = "", "", 0, ""
        # Which actor it is: counted up with each new one, and with each server that is started anew.
        self.life = 0
        self.is_ready = False

    def __str__(self) -> str:
        """How errors name it."""
        return f"actor {self.number} ({self.address} pid {self.pid})"


class Members:
    """All actors of this driver.

    Args:
        ray: The module.
        session: What tells this Ray from others.
    """

    def __init__(self, ray: Module, session: tuple[str, str]) -> None:
        self.ray, self.session = ray, session
        self.all: list[Member] = []
        # One thread at a time changes who there is, and what they have.
        self.lock = threading.RLock()
        self._token = new_token()
        self._hosts: set[str] = {socket.gethostname()}
        # For which grid each name in SQL stands at the actor that is asked, and for which it must while statements use it.
        self._bound: dict[str, str] = {}
        self._used: Counter[tuple[str, str]] = Counter()
        self._idle = threading.Condition(self.lock)

    @property
    def token(self) -> str:
        """What members show each other."""
        return self._token

    def check(self) -> None:
        """Refuses to go on with a Ray that was shut down."""
        if session_of(running("a grid of Ray")) != self.session:
            message = "the grid belongs to a Ray that was shut down"
            raise refused(errors.PartitionLostError, message, "make it again")

    def on(self, nodes: Sequence[str] | None, count: int | None) -> list[Member]:
        """So many members on these nodes, in turn; those that are missing are started.

        Args:
            nodes: The ids of nodes; by default all that are alive.
            count: How many members; by default one for each node.
        """
        with self.lock:
            wanted = _nodes(self.ray, nodes)
            count = len(wanted) if count is None else count
            found, free = [], list(self.all)
            for number in range(count):
                node = wanted[number % len(wanted)]
                member = next((each for each in free if each.node == node), None)
                if member is None:
                    member = Member(len(self.all), node)
                    self.all.append(member)
                else:
                    free.remove(member)
                found.append(member)
            self.mend()
            return found

    def mend(self) -> None:
        """Starts new actors in the place of those that are not there, and makes all of them one cluster again."""
        with self.lock:
            lost = self.lost()
            new = [member for member in self.all if member in lost or not member.is_ready]
            if not new:
                return
            for member in new:
                self._start(member)
            self._serve(new)
            uris = [member.uri for member in self.all]
            self.settle([(each, each.actor.join.remote(uris)) for each in self.all], STARTED)
            self._bound.clear()
            for member in self.all:
                member.is_ready = True

    def _serve(self, new: list[Member]) -> None:
        """Starts the servers of new actors; those of all, if the others are not reached from where the new ones are."""
        calls = [(member, member.actor.where.remote()) for member in new]
        for member, place in zip(new, self.settle(calls, STARTED), strict=True):
            member.host, member.address, member.pid = place
        hosts = {member.host for member in self.all} | {socket.gethostname()}
        # Servers listen on one machine alone as long as all are there.
        if len(hosts) > 1 and len(self._hosts) == 1:
            new = self.all
        self._hosts = hosts
        for member in new:
            member.is_ready = False
        names = [(name, "") for name in sorted(hosts)]
        calls = [(member, member.actor.start.remote(names, self._token)) for member in new]
        for member, uri in zip(new, self.settle(calls, STARTED), strict=True):
            member.uri, member.life = uri, member.life + 1

    def lost(self) -> list[Member]:
        """The members whose actor does not say that it lives."""
        there = [member for member in self.all if member.actor is not None]
        signs = {member.number: member.actor.ping.remote() for member in there}
        if signs:
            self.ray.wait(list(signs.values()), num_returns=len(signs), timeout=ALIVE)
        return [
            member
            for member in self.all
            if member.number not in signs or not self._has_come(signs[member.number])
        ]

    def _has_come(self, sign: ObjectRef) -> bool:
        try:
            self.ray.get(sign, timeout=0)
        except self.ray.exceptions.RayError:
            return False
        return True

    def _start(self, member: Member) -> None:
        """A new actor for a member, on its node if that is alive."""
        if member.actor is not None:
            with contextlib.suppress(Exception):
                self.ray.kill(member.actor)
        alive = _nodes(self.ray, None)
        if member.node not in alive:
            taken = Counter(each.node for each in self.all if each is not member)
            member.node = min(alive, key=lambda node: taken[node])
        strategies = needed("ray.util.scheduling_strategies", "an actor of partgrid")
        strategy = strategies.NodeAffinitySchedulingStrategy(member.node, soft=False)
        options = self.ray.remote(Holder).options(
            num_cpus=0, max_concurrency=CALLS, max_restarts=0, scheduling_strategy=strategy
        )
        try:
            member.actor = options.remote()
        except ValueError as error:
            message = f"node {member.node} is gone"
            raise errors.WorkerLostError(message, {}, None, True) from error

    def settle(
        self, calls: Sequence[tuple[Member, ObjectRef]], within: float | None = None
    ) -> list[Any]:
        """What calls of actors return. Waits as long as the actors live.

        Args:
            calls: The calls, and whose they are.
            within: Seconds to wait at most.

        Raises:
            WorkerLostError: An actor died, or does not say that it lives.
            ResourcesExhaustedError: The time is over.
            PartgridError: What an actor raised, with its place.
        """
        ends = None if within is None else time.monotonic() + within
        waiting = {ref: member for member, ref in calls}
        while waiting:
            left = LOOK if ends is None else min(LOOK, ends - time.monotonic())
            ready, _ = self.ray.wait(
                list(waiting), num_returns=len(waiting), timeout=max(0.0, left), fetch_local=False
            )
            for ref in ready:
                del waiting[ref]
            if any(self._failed(ref) for ref in ready):
                break
            if waiting and ends is not None and time.monotonic() >= ends:
                late = ", ".join(sorted({str(member) for member in waiting.values()}))
                message = f"no answer within {within:g} seconds: {late}"
                raise errors.ResourcesExhaustedError(message, {}, None, True)
            if waiting:
                self._refuse_lost(set(waiting.values()))
        return [self._answer(member, ref) for member, ref in calls if ref not in waiting]

    def _failed(self, ref: ObjectRef) -> bool:
        try:
            self.ray.get(ref, timeout=0)
        except self.ray.exceptions.GetTimeoutError:
            return False
        except Exception:
            return True
        return False

    def _refuse_lost(self, members: set[Member]) -> None:
        for member in self.lost():
            if member in members:
                raise errors.WorkerLostError(f"{member} does not answer", {}, None, True)

    def _answer(self, member: Member, ref: ObjectRef) -> Any:  # noqa: ANN401 - what the call returns
        exceptions = self.ray.exceptions
        try:
            return self.ray.get(ref, timeout=ALIVE)
        except exceptions.RayTaskError as error:
            if isinstance(error.cause, errors.PartgridError):
                raise placed(error.cause, str(member)) from error
            raise
        except exceptions.RayError as error:
            message = f"{member} is gone: {first_line(error)}"
            raise errors.WorkerLostError(message, {}, None, True) from error

    def asked(self) -> Member:
        """The member that plans the statements of this driver: one on its own node, if there is any."""
        node = self.ray.get_runtime_context().get_node_id()
        return next((member for member in self.all if member.node == node), self.all[0])

    @contextlib.contextmanager
    def named(self, names: dict[str, str]) -> Iterator[Member]:
        """Holds names for grids at the member that is asked, which it gives.

        Args:
            names: Names in SQL, and the grids of all that they stand for.
        """
        with self.lock:
            self._idle.wait_for(lambda: not self._clash(names))
            member = self.asked()
            new = {name: grid for name, grid in names.items() if self._bound.get(name) != grid}
            if new:
                self.settle([(member, member.actor.bind.remote(new))], STARTED)
                self._bound.update(new)
            self._used.update(names.items())
        try:
            yield member
        finally:
            with self.lock:
                self._used.subtract(names.items())
                self._used += Counter()
                self._idle.notify_all()

    def _clash(self, names: dict[str, str]) -> bool:
        """Whether a statement that runs uses one of these names for another grid."""
        return any(names.get(name, grid) != grid for name, grid in self._used)

    def forget(self, grid: str) -> None:
        """Names that stand for a grid must be bound again."""
        with self.lock:
            for name in [name for name, known in self._bound.items() if known == grid]:
                del self._bound[name]

    def release(self, grid: str) -> None:
        """Lets all actors let go of a grid; those that are gone have."""
        with contextlib.suppress(Exception):
            self.check()
            self.forget(grid)
            calls = [member.actor.release.remote(grid) for member in self.all if member.actor]
            self.ray.wait(calls, num_returns=len(calls), timeout=ALIVE)

    def recovering(self, work: Callable[[], Any]) -> Any:  # noqa: ANN401 - what the work returns
        """Does something, and does it again when it failed and an actor is lost: at once, and later, since a death is not noticed at once."""
        for pause in PAUSES:
            before = self._lives()
            try:
                return work()
            except errors.PartgridError as error:
                if not self._is_of_loss(error, before):
                    raise
                time.sleep(pause)
        return work()

    def _lives(self) -> list[int]:
        return [member.life for member in self.all]

    def _is_of_loss(self, error: errors.PartgridError, before: list[int]) -> bool:
        """Whether something failed since an actor is lost, or was replaced meanwhile: others do not know then what it knew."""
        self.check()
        if isinstance(error, errors.WorkerLostError):
            return True
        # Of a table in a statement, and of a grid by its name.
        is_unknown = isinstance(error, (errors.QueryError, errors.NotFoundError))
        if not is_unknown and not isinstance(
            error, (errors.PartitionLostError, errors.StorageError)
        ):
            return False
        if self._lives() != before:
            return True
        return not is_unknown and bool(self.lost())


_known: weakref.WeakValueDictionary[tuple[str, str], Members] = weakref.WeakValueDictionary()
_making = threading.Lock()


def session_of(ray: Module) -> tuple[str, str]:
    """What tells one Ray, and one driver, from others."""
    context = ray.get_runtime_context()
    return context.get_session_name(), context.get_worker_id()


def members_of(ray: Module) -> Members:
    """The members of this driver, none to begin with. They end when no grid of theirs is there any more."""
    with _making:
        session = session_of(ray)
        found = _known.get(session)
        if found is None:
            found = _known[session] = Members(ray, session)
        return found


def _nodes(ray: Module, wanted: Sequence[str] | None) -> list[str]:
    """The ids of nodes that are alive, that of the driver first."""
    own = ray.get_runtime_context().get_node_id()
    alive = sorted(
        (node["NodeID"] for node in ray.nodes() if node["Alive"]),
        key=lambda node: (node != own, node),
    )
    if wanted is None:
        return alive
    if isinstance(wanted, str) or not wanted or not set(wanted) <= set(alive):
        message = f"nodes must be ids of nodes that are alive, got {wanted!r}"
        raise refused(errors.InvalidArgumentError, message, f"alive are {alive}")
    return list(wanted)
