"""Functions of Python within SQL: what is called with what.

Comes in: a callable or a class, and Arrow types. Goes out: objects that the engine calls with Arrow arguments. Never here: when they are called.
"""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

from partgrid.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

# Of pyarrow, which is imported only where a function is called.
Schema = Any
Array = Any
RecordBatch = Any
DataType = Any

_METHODS = ("update", "merge", "evaluate")


def types(arguments: Sequence[Any], returns: object) -> Schema:
    """The types of a function as a schema; that of the value comes last.

    Args:
        arguments: A pyarrow type, an object with `__arrow_c_schema__`, or the name of a type for
            each argument.
        returns: The same for the value.

    Returns:
        A schema.

    Raises:
        InvalidArgumentError: One of them is no type.
    """
    if isinstance(arguments, str) or not hasattr(arguments, "__len__"):
        text = f"arguments must be a list of types, got {arguments!r}"
        raise _refused(text, f"arguments=[{arguments!r}]")
    named = [(f"arguments[{place}]", given) for place, given in enumerate(arguments)]
    return _schema([*named, ("returns", returns)])


def _schema(named: list[tuple[str, Any]]) -> Schema:
    import pyarrow as pa  # noqa: PLC0415 - only who brings functions needs it

    return pa.schema(
        [pa.field(str(place), _type(name, given)) for place, (name, given) in enumerate(named)]
    )


def _type(name: str, given: object) -> DataType:
    import pyarrow as pa  # noqa: PLC0415

    if isinstance(given, pa.DataType):
        return given
    try:
        if isinstance(given, str):
            return pa.type_for_alias(given)
        return pa.field(given).type
    except (ValueError, TypeError) as error:
        text = f"{name} must be an Arrow type, got {given!r}"
        raise _refused(text, 'write it as pyarrow.float64() or "float64"') from error


def _refused(text: str, hint: str) -> InvalidArgumentError:
    return InvalidArgumentError(f"{text}\nhint: {hint}", {}, hint)


def _arrays(arguments: Any) -> list[Array]:  # noqa: ANN401 - an object with Arrow capsules
    import pyarrow as pa  # noqa: PLC0415

    return list(pa.record_batch(arguments).columns)


def _batch(array: Array) -> RecordBatch:
    import pyarrow as pa  # noqa: PLC0415

    return pa.record_batch([array], names=["value"])


class Scalar:
    """A function that gives one value for each row."""

    def __init__(self, name: str, function: Callable[..., Any], schema: Schema) -> None:
        if not callable(function):
            text = f"function must be callable, got {function!r}"
            raise InvalidArgumentError(text)
        self._name = name
        self._function = function
        self._returns = schema.field(len(schema) - 1).type
        self._counts = len(schema) == 1

    def __call__(self, arguments: Any) -> RecordBatch:  # noqa: ANN401
        """Calls the function with arrays; one without arguments gets the number of rows."""
        arrays = [arguments.num_rows] if self._counts else _arrays(arguments)
        try:
            return _batch(self._array(self._function(*arrays)))
        except Exception as error:
            error.add_note(f"in the SQL function {self._name}")
            raise

    def _array(self, value: Any) -> Array:  # noqa: ANN401
        import pyarrow as pa  # noqa: PLC0415

        if isinstance(value, pa.Scalar):
            text = "it must give an array, as long as its arguments, got one value"
            raise TypeError(text)
        if isinstance(value, pa.ChunkedArray):
            return value.combine_chunks()
        if isinstance(value, pa.Array):
            return value
        if hasattr(value, "__arrow_c_array__"):
            return pa.array(value)
        if hasattr(value, "__arrow_c_stream__"):
            return pa.chunked_array(value).combine_chunks()
        wanted = f"it must give an array or a list of {self._returns}, one value for each row"
        if value is None or isinstance(value, (str, bytes)):
            text = f"{wanted}, got {value!r}"
            raise TypeError(text)
        try:
            return pa.array(value, type=self._returns)
        except (pa.ArrowException, TypeError) as error:
            text = f"{wanted}: {error}"
            raise TypeError(text) from error


class Aggregate:
    """A class whose objects each gather one group of rows."""

    def __init__(self, name: str, group: type, schema: Schema) -> None:
        missing = [method for method in _METHODS if not hasattr(group, method)]
        if not isinstance(group, type) or missing:
            text = "group must be a class with the methods update, merge and evaluate, got "
            text += f"{group!r}" + (f" without {', '.join(missing)}" if missing else "")
            raise InvalidArgumentError(text)
        self._name = name
        self._group = group
        self._returns = schema.field(len(schema) - 1).type

    def new(self) -> object:
        """A group without rows."""
        return self._noted(self._group)

    def update(self, group: Any, arguments: Any) -> None:  # noqa: ANN401
        """Takes rows in."""
        self._noted(group.update, *_arrays(arguments))

    def state(self, group: Any) -> bytes:  # noqa: ANN401
        """What the group knows. Its attributes are pickled, not its class, which may be local."""
        known: bytes = self._noted(lambda: pickle.dumps(group.__getstate__()))
        return known

    def merge(self, group: Any, state: bytes) -> None:  # noqa: ANN401
        """Takes in what another group of this process knows."""
        make: Any = self._group.__new__
        other = make(self._group)
        known = pickle.loads(state)
        if hasattr(other, "__setstate__"):
            other.__setstate__(known)
        else:
            plain, slots = known if isinstance(known, tuple) else (known, None)
            for name, value in {**(plain or {}), **(slots or {})}.items():
                setattr(other, name, value)
        self._noted(group.merge, other)

    def evaluate(self, group: Any) -> RecordBatch:  # noqa: ANN401
        """The value of the group."""
        import pyarrow as pa  # noqa: PLC0415

        return self._noted(lambda: _batch(pa.array([group.evaluate()], type=self._returns)))

    def _noted(self, call: Callable[..., Any], *arguments: object) -> Any:  # noqa: ANN401
        try:
            return call(*arguments)
        except Exception as error:
            error.add_note(f"in the SQL aggregate {self._name}")
            raise
