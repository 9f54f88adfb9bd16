"""The exceptions of partgrid.

Every error is a `PartgridError` and also the builtin exception that fits it, so that code which knows nothing of partgrid can catch it. Raised by the engine;
nothing here decides anything.
"""

from __future__ import annotations

__all__ = [
    "CancelledError",
    "InternalError",
    "InvalidArgumentError",
    "InvalidDataError",
    "NotFoundError",
    "NotLocalError",
    "PartgridError",
    "PartitionLostError",
    "PathNotFoundError",
    "PermissionDeniedError",
    "ProtocolError",
    "QueryError",
    "ResourcesExhaustedError",
    "StorageError",
    "UnsupportedError",
    "WorkerLostError",
]


class PartgridError(Exception):
    """Base of all errors of partgrid.

    Attributes:
        context: What the error is about: ``file``, ``column``, ``position`` and the like.
        hint: The remedy, where one is known.
        retryable: Whether the same call may succeed when it is made again.
    """

    context: dict[str, str]
    hint: str | None
    retryable: bool

    def __init__(
        self,
        message: str,
        context: dict[str, str] | None = None,
        hint: str | None = None,
        retryable: bool = False,
    ) -> None:
        """Keeps the message and what it is about."""
        super().__init__(message)
        self.context = context or {}
        self.hint = hint
        self.retryable = retryable

    def __str__(self) -> str:
        """The message, with context and hint."""
        return str(self.args[0])

    def __reduce__(self) -> tuple[type[PartgridError], tuple[object, ...]]:
        """Pickles with everything, so that an error in a worker arrives whole."""
        return type(self), (self.args[0], self.context, self.hint, self.retryable)


class InvalidArgumentError(PartgridError, ValueError):
    """The caller passed a value that is not allowed."""


class InvalidDataError(PartgridError, ValueError):
    """A file or a foreign object holds something broken or contradictory."""


class ProtocolError(PartgridError, TypeError):
    """An object that claims to speak a protocol does not keep to it."""


class NotFoundError(PartgridError, KeyError):
    """A column, table or position does not exist."""


class PathNotFoundError(NotFoundError, FileNotFoundError):
    """A file or folder does not exist."""


class PermissionDeniedError(PartgridError, PermissionError):
    """The operating system or the object store refused access."""


class NotLocalError(PartgridError, RuntimeError):
    """The data exists, and lives where this process cannot reach it."""


class PartitionLostError(PartgridError, RuntimeError):
    """A tile that existed is gone."""


class WorkerLostError(PartgridError, ConnectionError):
    """A member of a cluster does not answer."""


class UnsupportedError(PartgridError, NotImplementedError):
    """A legal wish that this version cannot fulfil."""


class ResourcesExhaustedError(PartgridError, MemoryError):
    """A limit of memory, disk, time or SQL size was reached."""


class StorageError(PartgridError, OSError):
    """The file system or the object store failed."""


class QueryError(PartgridError, ValueError):
    """The SQL is wrong."""


class CancelledError(PartgridError, RuntimeError):
    """The work was cancelled."""


class InternalError(PartgridError, RuntimeError):
    """A fault of partgrid itself."""
