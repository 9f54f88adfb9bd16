"""A proxy between two who speak TCP, which can close what it has open, or stop forwarding without a word."""

from __future__ import annotations

import selectors
import socket
import threading
from typing import Any


class Proxy:
    """Forwards every connection to a port of this host, which may be named later."""

    def __init__(self, port: int | None = None) -> None:
        self.to = port
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self.listener.getsockname()[1]
        self.uri = f"grpc://127.0.0.1:{self.port}"
        self.forwards = threading.Event()
        self.forwards.set()
        self.lock = threading.Lock()
        self.pairs: list[tuple[socket.socket, socket.socket]] = []
        self.passed = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Proxy:
        return self

    def __exit__(self, *_: Any) -> None:
        self.listener.close()
        self.cut()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(("127.0.0.1", self.to or 0))
            except OSError:
                # Nobody listens there, yet or any more.
                near.close()
                continue
            with self.lock:
                self.pairs.append((near, far))
            threading.Thread(target=self._forward, args=(near, far), daemon=True).start()

    def _forward(self, near: socket.socket, far: socket.socket) -> None:
        other = {near: far, far: near}
        with selectors.DefaultSelector() as ready:
            for one in other:
                ready.register(one, selectors.EVENT_READ)
            try:
                while True:
                    for key, _ in ready.select():
                        # Whoever waits here has read nothing: nobody is told anything.
                        self.forwards.wait()
                        one: Any = key.fileobj
                        bytes_ = one.recv(1 << 16)
                        if not bytes_:
                            return
                        other[one].sendall(bytes_)
                        self.passed += len(bytes_)
            except OSError:
                return
            finally:
                near.close()
                far.close()

    def stall(self) -> None:
        """Forwards nothing any more, and closes nothing."""
        self.forwards.clear()

    def cut(self) -> None:
        """Closes everything that is open, on both sides."""
        with self.lock:
            pairs, self.pairs = self.pairs, []
        for pair in pairs:
            for one in pair:
                try:
                    one.shutdown(socket.SHUT_RDWR)
                except OSError:
                    """It is closed already."""
        self.forwards.set()
