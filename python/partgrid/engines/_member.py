"""A process as a member of a cluster: what the engines for MPI, Ray and Dask have in common.

Comes in: what the processes of a program know of each other. Goes out: the server of this process, which runs the parts of statements whose tiles are here.
Never here: who starts processes.
"""

from __future__ import annotations

import hashlib
import secrets
import socket
import tempfile
from pathlib import Path

from partgrid import _native


class Host:
    """Where a process is, as it tells the others.

    Args:
        name: The name of its machine.
        address: Its address in the network.
    """

    def __init__(self, name: str, address: str) -> None:
        self.name, self.address = name, address

    @classmethod
    def here(cls) -> Host:
        """Where this process is."""
        return cls(socket.gethostname(), _native._rank_part(None)[0])


def new_token() -> str:
    """What members show each other, of 32 random bytes."""
    return secrets.token_urlsafe(32)


def serve(hosts: list[Host], own: Host, token: str) -> _native.Server:
    """Starts the server of this process. It listens on this machine alone if all are on it, else on its address in the network, for those who have the token.

    Args:
        hosts: Where the processes are, that of this one among them.
        own: Where this process is.
        token: What members show each other.

    Returns:
        The server, which knows no other member yet; see `Server.join`.
    """
    is_one_host = len({host.name for host in hosts}) == 1
    return listen("127.0.0.1" if is_one_host else own.address, token)


def listen(
    address: str, token: str, settings: dict[str, float | str] | None = None
) -> _native.Server:
    """Starts the server of this process at a free port of an address, for those who have the token.

    Args:
        address: An address of this machine, without a port.
        token: What members show each other.
        settings: Settings of the server, such as its limits.

    Returns:
        The server, which knows no other member yet; see `Server.join`.
    """
    host = f"[{address}]" if ":" in address else address
    digest = hashlib.sha256(token.encode()).hexdigest()
    with tempfile.TemporaryDirectory() as folder:
        tokens, shown = Path(folder, "tokens.toml"), Path(folder, "token")
        for path in (tokens, shown):
            path.touch(mode=0o600)
        tokens.write_text(f'[[token]]\nname = "members"\nsha256 = "{digest}"\nscope = "admin"\n')
        shown.write_text(token)
        return _native.Server(
            address=f"{host}:0",
            http=None,
            tokens=tokens,
            join=[],
            insecure=True,
            # Only the program itself asks: its queries may spill as much as those of a session.
            # Parts of statements run where the tiles are, however small these are.
            settings={
                "cluster.near": 0,
                "cluster.token": str(shown),
                "limits.spill": "100GiB",
                **(settings or {}),
            },
        )
