"""Connections on which a client speaks HTTP/2 by hand."""

from __future__ import annotations

import socket

HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + b"\4" + bytes(5)


PING = b"\0\0\x08\6\0" + bytes(4) + b"are you?"


def greeted(address: tuple[str, int], *, said: bytes = HELLO) -> socket.socket:
    """A connection on which a client has begun to speak, and the server has answered."""
    one = socket.create_connection(address, timeout=20)
    if said:
        one.sendall(said)
        assert one.recv(9)
    return one


def pinged(one: socket.socket) -> bool:
    """Whether a connection that rested is still served."""
    one.sendall(PING)
    heard = b""
    while b"are you?" not in heard:
        more = one.recv(1000)
        if not more:
            return False
        heard += more
    return True
