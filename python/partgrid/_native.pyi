"""
The engine of partgrid. Use the names that the package `partgrid` exports.
"""

import sys
from _typeshed import Incomplete
from collections.abc import Iterator, Sequence
from os import PathLike
from typing import Any, Final, Self, final

if sys.version_info >= (3, 13):
    from types import CapsuleType
else:
    from typing_extensions import CapsuleType

__all__ = ["BUFFER_COOKIE", "BUFFER_DEVICE", "BUFFER_DEVICE_NAME", "BUFFER_INFO_BYTES", "BUFFER_INFO_VERSION", "BUFFER_STRUCT_BYTES", "__version__", "Array", "Connection", "DeviceColumn", "DistArray", "Distribution", "ExtendedBuffer", "Finding", "Get", "Grid", "Handle", "LoadJob", "LoadProgress", "Map", "Partitioned", "Plan", "Prepared", "QueryMetrics", "QueryProgress", "Result", "ResultStream", "Schema", "Section", "Server", "Session", "Storage", "Tile", "_Arguments", "_HaloPlan", "_Kept", "_Transfer", "_buffer_interface", "_dist_array", "_end_calls", "_fill_halos", "_forget_threads", "_from_parts", "_from_ranks", "_go_on", "_rank_part", "_stand_still", "block", "connect", "cyclic", "empty", "empty_like", "from_arrow", "from_distarray", "from_dlpack", "from_numpy", "from_partitioned", "from_sections", "from_storage", "full", "full_like", "get_buffer", "load_parquet", "ones", "ones_like", "read_parquet", "register_copy_engine", "run_command", "shared_memory", "sql", "supports", "unstructured", "validate", "zeros", "zeros_like"]

BUFFER_COOKIE: Final[int]
BUFFER_DEVICE: Final[int]
BUFFER_DEVICE_NAME: Final[str]
BUFFER_INFO_BYTES: Final[int]
BUFFER_INFO_VERSION: Final[int]
BUFFER_STRUCT_BYTES: Final[int]

__version__: Final[str]
"""
The version of the package.
"""

@final
class Array:
    """
    A view of numbers in Arrow memory: a column, a dense tile as rows x columns, or a section of a distributed array. It keeps the memory alive. Read-only, except for sections that were copied.

    `memoryview`, `numpy.asarray`, `numpy.from_dlpack`, `torch.from_dlpack` and everything else that takes a buffer or DLPack reads it without copying.

    Examples:
        >>> import partgrid as pg
        >>> distance = pg.read_parquet("data/flights").tile(0).column("distance")
        >>> distance
        Array (27004,) of float64, read-only
        >>> memoryview(distance)[:2].tolist()
        [1400.0, 1416.0]
    """
    __buffer_supported_flags__: Final[int]
    """
    The request flags that arrays take: see `partgrid.buffer.supports`.
    """
    def __abs__(self, /) -> Any: ...
    def __add__(self, other: object, /) -> Any: ...
    def __and__(self, other: object, /) -> Any: ...
    def __array__(self, /, dtype: Any | None = None, copy: bool | None = None) -> Any:
        """
        NumPy: the numbers as a `numpy.ndarray` over the same memory, read-only as this array is; a writable one with `copy=True`. Needs numpy.

        Args:
            dtype: The wanted type; another than that of the numbers makes a copy.
            copy: `True` copies always, `None` when it must, `False` never.

        Raises:
            ValueError: `copy=False`, and the type needs a copy.
        """
    @property
    def __array_interface__(self, /) -> dict:
        """
        The array interface of NumPy, version 3.
        """
    def __bool__(self, /) -> bool: ...
    def __complex__(self, /) -> Any: ...
    @property
    def __cuda_array_interface__(self, /) -> dict:
        """
        The array interface of CUDA, version 3. Missing unless CUDA reads the memory, such as it has pinned.
        """
    def __divmod__(self, other: object, /) -> Any: ...
    def __dlpack__(self, /, *, stream: Any | None = None, max_version: tuple[int, int] | None = None, dl_device: tuple[int, int] | None = None, copy: bool | None = None) -> CapsuleType:
        """
        DLPack (array API 2023.12): a capsule over the same memory, or over a copy of it with `copy=True`.

        Args:
            stream: `None`, since the CPU has no streams.
            max_version: The newest version that the consumer takes. Versions before 1.0 cannot say that memory is read-only, and get copies only.
            dl_device: `None`, the device of the array, or `(1, 0)`, the CPU, which reads it.
            copy: `True` copies; `None` and `False` never do.

        Returns:
            A capsule `dltensor_versioned`, or `dltensor` for versions before 1.0.

        Raises:
            BufferError: The wish cannot be met.
        """
    def __dlpack_device__(self, /) -> tuple[int, int]:
        """
        The device of DLPack: `(1, 0)`, the CPU, unless the memory was pinned by CUDA or the like.
        """
    def __eq__(self, other: object, /) -> Any:
        """
        Compared element by element, as numpy does.
        """
    def __float__(self, /) -> Any: ...
    def __floordiv__(self, other: object, /) -> Any: ...
    def __ge__(self, other: object, /) -> Any:
        """
        Compared element by element, as numpy does.
        """
    def __getitem__(self, key: Any, /) -> Any:
        """
        An element, or a slice as a `memoryview`. What `memoryview` does not know, as rows of a table, 16-bit floats and lists of places, is what numpy gives.
        """
    def __gt__(self, other: object, /) -> Any:
        """
        Compared element by element, as numpy does.
        """
    def __hash__(self, /) -> int:
        """
        That of the object, not of its elements.
        """
    def __iadd__(self, other: object, /) -> Self: ...
    def __iand__(self, other: object, /) -> Self: ...
    def __ifloordiv__(self, other: object, /) -> Self: ...
    def __ilshift__(self, other: object, /) -> Self: ...
    def __imatmul__(self, other: object, /) -> Self: ...
    def __imod__(self, other: object, /) -> Self: ...
    def __imul__(self, other: object, /) -> Self: ...
    def __int__(self, /) -> Any: ...
    def __invert__(self, /) -> Any: ...
    def __ior__(self, other: object, /) -> Self: ...
    def __ipow__(self, other: object, /) -> Self: ...  # type: ignore[misc]
    def __irshift__(self, other: object, /) -> Self: ...
    def __isub__(self, other: object, /) -> Self: ...
    def __iter__(self, /) -> Iterator:
        """
        The elements of one dimension; of several, what numpy gives for each index of the first one.
        """
    def __itruediv__(self, other: object, /) -> Self: ...
    def __ixor__(self, other: object, /) -> Self: ...
    def __le__(self, other: object, /) -> Any:
        """
        Compared element by element, as numpy does.
        """
    def __len__(self, /) -> int: ...
    def __lshift__(self, other: object, /) -> Any: ...
    def __lt__(self, other: object, /) -> Any:
        """
        Compared element by element, as numpy does.
        """
    def __matmul__(self, other: object, /) -> Any: ...
    def __mod__(self, other: object, /) -> Any: ...
    def __mul__(self, other: object, /) -> Any: ...
    def __ne__(self, other: object, /) -> Any:
        """
        Compared element by element, as numpy does.
        """
    def __neg__(self, /) -> Any: ...
    def __or__(self, other: object, /) -> Any: ...
    def __pos__(self, /) -> Any: ...
    def __pow__(self, other: object, modulo: object = None, /) -> Any: ...
    def __radd__(self, other: object, /) -> Any: ...
    def __rand__(self, other: object, /) -> Any: ...
    def __rdivmod__(self, other: object, /) -> Any: ...
    def __reduce__(self, /) -> Any:
        """
        A copy of the numbers: pickled, and copied deeply, an `Array` is a `numpy.ndarray`. Needs numpy.
        """
    def __repr__(self, /) -> str: ...
    def __rfloordiv__(self, other: object, /) -> Any: ...
    def __rlshift__(self, other: object, /) -> Any: ...
    def __rmatmul__(self, other: object, /) -> Any: ...
    def __rmod__(self, other: object, /) -> Any: ...
    def __rmul__(self, other: object, /) -> Any: ...
    def __ror__(self, other: object, /) -> Any: ...
    def __rpow__(self, other: object, modulo: object = None, /) -> Any: ...
    def __rrshift__(self, other: object, /) -> Any: ...
    def __rshift__(self, other: object, /) -> Any: ...
    def __rsub__(self, other: object, /) -> Any: ...
    def __rtruediv__(self, other: object, /) -> Any: ...
    def __rxor__(self, other: object, /) -> Any: ...
    def __sub__(self, other: object, /) -> Any: ...
    def __truediv__(self, other: object, /) -> Any: ...
    def __xor__(self, other: object, /) -> Any: ...
    @property
    def address(self, /) -> int:
        """
        The address of the first element.
        """
    @property
    def dtype(self, /) -> str:
        """
        The format of one element as in the `struct` module (PEP 3118), for instance `d` for a 64-bit float. `numpy.dtype` takes it.
        """
    @property
    def nbytes(self, /) -> int:
        """
        The bytes of the elements, without what lies between them.
        """
    @property
    def shape(self, /) -> tuple:
        """
        The number of elements along each dimension.
        """
    @property
    def strides(self, /) -> tuple:
        """
        The bytes from one element to the next along each dimension.
        """

@final
class Connection:
    """
    A connection to a server, made by `connect`. Safe to use from several threads; a forked child makes its own.
    """
    def __repr__(self, /) -> str: ...
    def grid(self, /, name: str) -> Grid:
        """
        A grid of the server, with all that a grid can do. Its tiles stay where they are until they are read: then they are mapped, without a copy, where the server runs on this host as this user, and fetched
        column by column elsewhere. Nothing that was fetched is kept.

        Args:
            name: The name.

        Returns:
            The grid as it is now. When the server drops or replaces it, tiles that were not read are lost (`PartitionLostError` or `NotFoundError`). Pickled, it names the memory of the server where that can
            be mapped, and else this process, which fetches tiles for whoever opens it.

        Raises:
            NotFoundError: The server has no such grid for this caller.
            ProtocolError: It is no server of partgrid.
        """
    def grids(self, /) -> list[str]:
        """
        The names of the grids that the caller may see, sorted.

        Raises:
            PermissionDeniedError: The token is not good.
        """
    def load_parquet(self, /, path: str | PathLike[str] | Sequence[str | PathLike[str]], name: str, *, if_exists: str = "fail", columns: Sequence[str] | None = None, lazy: "bool" = False, tile_rows: int | None = None, sort_by: str | tuple[str, str] | Sequence[str | tuple[str, str]] | None = None, partition_by: str | Sequence[str] | None = None, num_partitions: int | None = None, hive_partitioning: "bool" = True, schema_evolution: "str" = "strict", load_id: str | None = None, progress: bool | None = None) -> dict:
        """
        Has the server load Parquet files as a grid, and waits. Ctrl-C ends the load on the server.

        Args:
            path: Paths, folders, patterns or URLs as the server sees them; it loads only from places that its administrator allows (`load.from`).
            name: The name.
            if_exists: What to do when the server has a grid of the name: `"fail"` or `"replace"`.
            columns: Names of the wanted columns; all by default.
            lazy: Whether tiles are read when they are used.
            tile_rows: Rows of a tile; as the server finds right by default.
            sort_by: A column or several to sort the rows by, as `read_parquet` takes them.
            partition_by: A name or a list of names: rows with equal values in these columns come into one row band, as `read_parquet` has it.
            num_partitions: How many row bands `partition_by` makes; by default as many as tiles of `tile_rows` rows would be.
            hive_partitioning: Whether folder names such as `month=01` become columns.
            schema_evolution: Which differences between the columns of files are borne: `"strict"`, `"union"` or `"widen"`.
            load_id: A name of this load: repeated with the same name, as after an answer that was lost, the same paths and wishes change nothing, also after a restart of a server with a catalog. Others under the name are refused.
            progress: True for a bar in any case, False for none; by default where a person sees it.

        Returns:
            `{"rows": …}`.

        Raises:
            PermissionDeniedError: The token or the server does not allow it.
            QueryError: There is such a grid.
            PathNotFoundError, InvalidDataError and others: The load failed, as `read_parquet` would; the text is the server's.
        """
    def rebalance(self, /, name: str, *, without: Sequence[str] | None = None) -> dict:
        """
        Has the server, a member of a cluster, spread the rows of a grid over the members that are there now, as `Server.rebalance` says, and waits.

        Args:
            name: The name of the grid of all members.
            without: The URIs of members that are to have nothing of it, as for `Server.rebalance`.

        Returns:
            `{"bytes_moved": …, "tiles_moved": …, "tiles_kept": …}`; 0 moved where the shares are even already.

        Raises:
            PermissionDeniedError: The token may not do everything with all grids.
            InvalidArgumentError: `without` names who is no member, or all members.
            NotFoundError: The server is no member of a cluster, or knows no grid of all by this name.
            PartitionLostError: A part of it is gone.
            WorkerLostError, StorageError and others: A member could not take its share. The grid is as it was.
        """
    def sql(self, /, query: str, params: Any | None = None, *, timeout: float | None = None, memory_limit: int | str | None = None) -> Result:
        """
        Plans a statement on the server; it runs there when its result is asked for, and rows come as they are found. One that names something (CREATE VIEW, CREATE TABLE … AS, DROP) takes
        effect now.

        Args:
            query: The SQL text.
            params: Values for its parameters, as `partgrid.sql` takes them: a list or tuple for `$1` and `?`, a dict for `$name`. They are sent as values, never as SQL text.
            timeout: Seconds that each run may take, in place of those of the connection; the server may allow less.
            memory_limit: Bytes, or a text such as `"512MB"`, that each run may use of the server's memory, likewise.

        Returns:
            A result that has not run yet. Its `metrics` is always None, and so is what `progress()` returns.

        Raises:
            QueryError: The SQL is wrong.
            PermissionDeniedError: The token does not allow it.
            InvalidArgumentError: A limit is 0, or the server takes none.
            ResourcesExhaustedError: A limit was reached, now or when it runs; the text says whether it is the server's.
        """
    def upload(self, /, data: Any, name: str, *, if_exists: str = "fail", ack: str | None = None, load_id: str | None = None) -> dict:
        """
        Sends a grid to the server, tile for tile, and puts it under a name once all of it is there.

        Args:
            data: A grid, or other data as `Session.register` takes it.
            name: The name.
            if_exists: What to do when the server has a grid of the name: `"fail"` or `"replace"`.
            ack: What must be so before this returns: `"durable"`, the grid outlives the server, which refuses before anything is sent where it has no catalog; `"memory"`, the server has all of it, and keeps it in no
                catalog. By default the most that the server does.
            load_id: A name of this upload: repeated with the same name, as after an answer that was lost, the same rows change nothing, also after a restart of a server with a catalog. Other rows under the name are refused.

        Returns:
            `{"rows": …, "durable": …}`: whether the grid outlives the server.

        Raises:
            QueryError: There is such a grid.
            PermissionDeniedError: The token does not allow it.
            ResourcesExhaustedError: It is larger than the server takes.
            UnsupportedError: It is to be durable, and the server has no catalog.
        """
    @property
    def uri(self, /) -> str:
        """
        Where the server is.
        """

@final
class DeviceColumn:
    """
    A column of a tile in the memory of a device, as `Tile.column` gives it. It keeps the memory, which is read-only.

    Libraries of the device take it where it is: by `__arrow_c_device_array__` (any type), by DLPack, and where CUDA reads the memory by `__cuda_array_interface__` (numbers without nulls). What would read
    the memory on the host is refused; `to("kDLCPU")` copies it.

    Examples:
        >>> import partgrid as pg, pyarrow as pa
        >>> pg.from_arrow(pa.table({"n": [1, 2, 3]})).to("kDLCUDA:0").tile(0).column("n")  # doctest: +SKIP
        DeviceColumn 'n' (3,) of Int64 on kDLCUDA:0
    """
    __buffer_supported_flags__: Final[int]
    """
    The request flags that it takes: see `partgrid.buffer.supports`. A request must be for a consumer that knows devices.
    """
    def __array__(self, /, dtype: Any | None = None, copy: bool | None = None) -> Any:
        """
        Refused: numpy reads memory of the host.

        Raises:
            TypeError: Always, with the remedy. Without this method numpy would make an array of one object.
        """
    def __arrow_c_device_array__(self, /, requested_schema: Any | None = None, **kwargs) -> tuple:
        """
        The Arrow PyCapsule interface for devices: schema and array of the column where it is, without copying.

        Args:
            requested_schema: Refused unless `None`: a cast would need the device.
            kwargs: Reserved by the interface.

        Raises:
            NotImplementedError: A keyword argument other than `None`.
            UnsupportedError: A requested schema.
        """
    def __arrow_c_schema__(self, /) -> CapsuleType:
        """
        The Arrow PyCapsule interface: name and type.
        """
    @property
    def __cuda_array_interface__(self, /) -> dict:
        """
        The array interface of CUDA, version 3. What must be waited for has been waited for when this returns.

        Raises:
            AttributeError: CUDA does not read the memory, or the column has nulls or is no plain number; the text says what to cast. So `hasattr` tells whether there is one.
        """
    def __dlpack__(self, /, *, stream: Any | None = None, max_version: tuple[int, int] | None = None, dl_device: tuple[int, int] | None = None, copy: bool | None = None) -> CapsuleType:
        """
        DLPack (array API 2023.12): a capsule over the same memory. Copied only with `copy=True`, or for another device.

        Args:
            stream: For CUDA and ROCm the stream that will use the memory, as the array API numbers them; `-1` does not wait for the producer's work. `None` for devices without streams. The producer is
                waited for on the host, which is right for any stream.
            max_version: The newest version that the consumer takes. Versions before 1.0 cannot say that memory is read-only, and get copies only.
            dl_device: `None`, the device of the column, or `(1, 0)`, the CPU, which gets a copy.
            copy: `True` copies, on the device by way of the host; `None` copies only for the CPU; `False` never.

        Returns:
            A capsule `dltensor_versioned`, or `dltensor` for versions before 1.0.

        Raises:
            BufferError: The wish cannot be met, or the column is no plain number, or has nulls.
        """
    def __dlpack_device__(self, /) -> tuple[int, int]:
        """
        The device of DLPack: type and number, as the producer gave them.
        """
    def __len__(self, /) -> int: ...
    def __repr__(self, /) -> str: ...
    @property
    def address(self, /) -> int:
        """
        The address of the first element; where the driver knows memory by handles, that of the buffer.

        Raises:
            UnsupportedError: The column is no plain number; the text says what to cast.
            InvalidDataError: The column has nulls.
        """
    @property
    def device(self, /) -> str:
        """
        The device, such as `kDLCUDA:0`.
        """
    @property
    def dtype(self, /) -> str:
        """
        The format of one element as in the `struct` module (PEP 3118), for instance `d` for a 64-bit float.

        Raises:
            UnsupportedError: The column is no plain number; the text says what to cast.
            InvalidDataError: The column has nulls.
        """
    @property
    def name(self, /) -> str:
        """
        The name of the column.
        """
    @property
    def nbytes(self, /) -> int:
        """
        The bytes of the column's buffers, as far as they are known.
        """
    @property
    def shape(self, /) -> tuple:
        """
        The number of rows, in a tuple.
        """
    @property
    def strides(self, /) -> tuple:
        """
        The bytes from one element to the next, in a tuple.

        Raises:
            UnsupportedError: The column is no plain number; the text says what to cast.
            InvalidDataError: The column has nulls.
        """
    def to(self, /, device: str) -> "Array | DeviceColumn":
        """
        The column in the memory of a device, or of the host.

        Args:
            device: Such as `"kDLCUDA:0"`, or `"kDLCPU"` for the memory of this process.

        Returns:
            For `"kDLCPU"` an `Array`, else a `DeviceColumn`: a copy, unless it is there already.

        Raises:
            UnsupportedError: Nothing copies to or from such a device; or the column is no plain number, and an `Array` is wanted (copy the tile then).
            InvalidDataError: The column has nulls, and an `Array` is wanted.
            NotFoundError: The driver of the device is not on this machine, or the device is not.
            ResourcesExhaustedError: The device has no room.
        """

@final
class DistArray:
    """
    A distributed array: one section for each rank. `len`, indexing and iteration give the sections.

    `Grid.distarray` makes one of columns, `partgrid.distarray.from_sections` of the sections of anybody, `partgrid.distarray.from_local` of those of an MPI program.
    """
    def __array__(self, /, dtype: Any | None = None, copy: bool | None = None) -> Any:
        """
        Refused: without this method numpy would make an array of one object.
        """
    def __getitem__(self, rank: int, /) -> Section: ...
    def __iter__(self, /) -> Iterator: ...
    def __len__(self, /) -> int: ...
    def __repr__(self, /) -> str: ...
    def _check(self, /, rank: int, writable: bool) -> None:
        """
        Refuses the buffer of a rank that is not as its section says, or that cannot be written and shall be.
        """
    @property
    def columns(self, /) -> list[str]:
        """
        The names of the columns; empty for an array of other origin.
        """
    @property
    def copies(self, /) -> list[str]:
        """
        What was copied, and why: one line for each reason. Empty when every section shares the memory of its tile.
        """
    @property
    def distribution(self, /) -> Distribution:
        """
        How the array lies on the ranks.
        """
    @property
    def dtype(self, /) -> str:
        """
        The format of one element as in the `struct` module (PEP 3118), for instance `d` for a 64-bit float. `numpy.dtype` takes that of a column.
        """
    @property
    def local(self, /) -> Section | None:
        """
        The section of this process, for a program of several processes. `None` when it has none.

        Raises:
            UnsupportedError: Several sections are in this process.
        """
    def redistribute(self, /, to: Distribution | Map | Sequence[Map]) -> Plan:
        """
        Plans the same array in another distribution: who sends which elements to whom. Nothing is copied yet.

        Args:
            to: A `Distribution`, its maps, or one map, of the same global shape. Only an unstructured dimension may hold other indices than all: a selection.

        Returns:
            The plan. `execute()` carries it out in this process, `execute(comm)` among the ranks of an MPI program.

        Raises:
            InvalidArgumentError: The shapes differ, or an index is not in the array.

        Examples:
            >>> import partgrid as pg
            >>> array = pg.read_parquet("data/flights").distarray("distance")
            >>> plan = array.redistribute(pg.distarray.block(array.shape[0], 3))
            >>> plan.messages, plan.bytes_moved
            (13, 2478176)
            >>> len(plan.execute().sections)
            3
        """
    @property
    def sections(self, /) -> list[Section]:
        """
        The sections, rank 0 first. Those of other processes have everything but their buffer.
        """
    @property
    def shape(self, /) -> tuple:
        """
        The number of elements along each dimension.
        """
    @property
    def version(self, /) -> str:
        """
        The version of the protocol in which the sections are written.
        """

@final
class Distribution:
    """
    How an array of any number of dimensions lies on a grid of ranks: the product of one `Map` for each dimension. Ranks are numbered row-major.

    Args:
        maps: The dimensions, dimension 0 first.

    Raises:
        InvalidArgumentError: There are more ranks than a machine word counts.

    Examples:
        >>> import partgrid as pg
        >>> distribution = pg.distarray.Distribution([pg.distarray.block(5, 2), pg.distarray.cyclic(9, 2)])
        >>> distribution.shape, distribution.num_ranks
        ((5, 9), 4)
        >>> distribution.locate((4, 3))
        (3, (1, 1))
        >>> distribution.local_shape(0)
        (3, 5)
    """
    def __eq__(self, value: object, /) -> bool: ...
    def __hash__(self, /) -> int: ...
    def __ne__(self, value: object, /) -> bool: ...
    def __new__(cls, /, maps: Sequence[Map]) -> Distribution: ...
    def __repr__(self, /) -> str: ...
    def _repr_html_(self, /) -> str: ...
    def coordinates(self, /, rank: int) -> tuple | None:
        """
        The place of a rank in the process grid; `None` for a rank that does not exist.

        Args:
            rank: The rank.
        """
    def dim_data(self, /, rank: int, version: str | None = None) -> tuple:
        """
        "dim_data" of a rank: a dictionary for each dimension.

        Args:
            rank: The rank.
            version: `"0.10.0"` (the default) or `"0.9.0"`.

        Raises:
            NotFoundError: There is no such rank.
            UnsupportedError: The version has no form for the distribution.
        """
    def local_shape(self, /, rank: int) -> tuple | None:
        """
        The extents of the buffer of a rank, halo included; `None` for a rank that does not exist.

        Args:
            rank: The rank.
        """
    def locate(self, /, index: Sequence[int]) -> tuple[int, tuple] | None:
        """
        Where an element is owned.

        Args:
            index: Its global index along each dimension.

        Returns:
            The rank, and the index in its buffer along each dimension. `None` when it is not in the array.
        """
    @property
    def maps(self, /) -> tuple:
        """
        The dimensions.
        """
    @property
    def num_ranks(self, /) -> int:
        """
        The number of ranks: the product of those of the dimensions.
        """
    def plot(self, /) -> Any:
        """
        The distribution as a picture: of one dimension a line for each rank, of two a plane of elements with the numbers of their ranks, of more the first such plane.

        Returns:
            A `Picture`: the text of an SVG, which notebooks show, with `save(path)`.
        """
    @property
    def shape(self, /) -> tuple:
        """
        The number of global elements along each dimension.
        """

@final
class ExtendedBuffer:
    """
    A buffer of another object, in the memory of the host or of a device, as `partgrid.buffer.get_buffer` gives it. It keeps the memory until it is released.

    Examples:
        >>> import partgrid as pg
        >>> buffer = pg.buffer.get_buffer(pg.storage.ones((2, 3)))
        >>> buffer
        ExtendedBuffer (2, 3) of 'd', writable, of the CPU
        >>> buffer.release()
        >>> buffer
        ExtendedBuffer, released
    """
    def __enter__(self, /) -> ExtendedBuffer: ...
    def __exit__(self, /, *_exception) -> None: ...
    def __repr__(self, /) -> str: ...
    @property
    def byte_offset(self, /) -> int:
        """
        The bytes from `pointer` to the first element. Not 0 only where `pointer` is a handle.
        """
    @property
    def device(self, /) -> str | None:
        """
        The name by which the producer describes its device; `None` for memory of the CPU. That of partgrid is `partgrid.buffer.DEVICE_NAME`.
        """
    @property
    def device_info(self, /) -> tuple[int, int] | None:
        """
        Type and number of the device as DLPack has them; `None` for memory of the CPU, and where another library describes the device.
        """
    @property
    def format(self, /) -> str | None:
        """
        The format of an element as in the `struct` module; `None` where the request had no `FORMAT`.
        """
    @property
    def itemsize(self, /) -> int:
        """
        The bytes of one element.
        """
    def memoryview(self, /) -> memoryview:
        """
        The memory as a `memoryview`, which holds it on its own.

        Raises:
            BufferError: It is that of a device, which this process cannot read.
            ValueError: The buffer was released.
        """
    @property
    def nbytes(self, /) -> int:
        """
        The bytes of the elements.
        """
    @property
    def ndim(self, /) -> int:
        """
        The number of dimensions.
        """
    @property
    def obj(self, /) -> Any:
        """
        The object whose memory it is.
        """
    @property
    def pointer(self, /) -> int:
        """
        The address of the first element, or the handle of the memory where a driver knows it by one.
        """
    @property
    def readonly(self, /) -> bool:
        """
        Whether the memory must not be written.
        """
    def release(self, /) -> None:
        """
        Gives the buffer back to its producer. A second time does nothing.
        """
    @property
    def released(self, /) -> bool:
        """
        Whether the buffer was released.
        """
    @property
    def shape(self, /) -> tuple | None:
        """
        The number of elements along each dimension; `None` where the request had no `ND`.
        """
    @property
    def strides(self, /) -> tuple | None:
        """
        The bytes from one element to the next along each dimension; `None` where the request had no `STRIDES`.
        """
    @property
    def sync_event(self, /) -> int:
        """
        The address of what to wait for before the memory is read, as `sync_event` of the Arrow C Device interface; 0 for nothing.
        """

@final
class Finding:
    """
    One thing that is wrong with a section of a distributed array, and where. `str()` gives it as one line.
    """
    def __eq__(self, value: object, /) -> bool: ...
    def __ne__(self, value: object, /) -> bool: ...
    def __repr__(self, /) -> str: ...
    def __str__(self, /) -> str: ...
    @property
    def dimension(self, /) -> int | None:
        """
        The dimension.
        """
    @property
    def key(self, /) -> str | None:
        """
        The key of the dictionary.
        """
    @property
    def message(self, /) -> str:
        """
        What is wrong, what was expected, what came.
        """
    @property
    def rank(self, /) -> int | None:
        """
        The number of the section, where there are several.
        """
    @property
    def rule(self, /) -> str:
        """
        The rule that is broken, such as `D5`; docs/distarray.md has them all.
        """
    @property
    def severity(self, /) -> str:
        """
        `"error"`, or `"warning"` for what is valid and still worth a look.
        """

@final
class Get:
    """
    Turns handles of `__partitioned__` into data. `partgrid.get` is the one for pandas.

    Call it with one handle, a list or a tuple of them; for a list it returns a list, for a tuple a tuple, in the same order. It pickles with the standard library. Handles of other processes
    of this user and host are opened in shared memory, see `Handle.tile`.

    Args:
        data: `"pandas"`: a `pandas.DataFrame` with Arrow-backed columns (`pandas.ArrowDtype`); `"polars"`: a `polars.DataFrame`; `"pyarrow"`: a `pyarrow.RecordBatch`; `"arro3"`: an
            `arro3.core.RecordBatch`; `"numpy"`: a two-dimensional array of rows and columns, copied unless the tile is dense; `"tile"`: a `partgrid.Tile`. All but numpy's copies are over the
            tile's own memory, which must not be written to; polars copies strings into views of its own.

    Raises:
        InvalidArgumentError: `data` is none of these.
        ProtocolError: It was called with something else than a handle.
        PartitionLostError: The grid was dropped, or its process has ended.
        NotLocalError: The tile lives on another host.
        ImportError: The library is missing.

    Examples:
        >>> import partgrid as pg, pyarrow as pa
        >>> grid = pg.from_arrow(pa.table({"a": [1, 2]}))
        >>> part = grid.__partitioned__
        >>> pg.Get("tile")(part["partitions"][(0, 0)]["data"]).shape
        (2, 1)
    """
    def __call__(self, /, handles: Any) -> Any: ...
    def __eq__(self, value: object, /) -> bool: ...
    def __hash__(self, /) -> int: ...
    def __ne__(self, value: object, /) -> bool: ...
    def __new__(cls, /, data: str) -> Get: ...
    def __reduce__(self, /) -> tuple[type, tuple[str]]: ...
    def __repr__(self, /) -> str: ...
    @property
    def data(self, /) -> str:
        """
        What a handle becomes.
        """

@final
class Grid:
    """
    A dataframe cut into a grid of tiles: axis 0 is rows, axis 1 columns. Never changes; what looks like a change makes a new grid that shares the tiles.

    Pickles with the standard library, without data: another process of this host opens the tiles in shared memory (`to_shared`).

    Made by `read_parquet`, `from_arrow`, `Result.to_grid`, or by indexing another grid: `grid["a"]` and `grid[["a", "b"]]` are grids of these columns, `grid[10:20]` is
    a grid of these rows, `grid[10:20, ["a"]]` of both. Nothing is copied by any of them.
    """
    __iter__: Final[tuple[()] | None]
    """
    Iterating would have to choose between rows, columns and tiles.
    """
    def __array__(self, /, dtype: Any | None = None, copy: bool | None = None) -> Any:
        """
        NumPy: what `to_numpy` gives, in C order where it is copied. Needs numpy.

        Args:
            dtype: The type of the array; by default the one that `numpy.result_type` gives for the columns.
            copy: `True` copies always, `None` when it must, `False` never.

        Raises:
            UnsupportedError: A column has a type that is no plain number.
            InvalidDataError: A column has nulls, or a value that the type does not hold.
            ValueError: `copy=False`, and a copy is needed.
        """
    def __arrow_c_device_stream__(self, /, requested_schema: Any | None = None, **kwargs) -> CapsuleType:
        """
        The Arrow PyCapsule interface for devices: a stream of one batch for each row band where it is, without copying. Column bands on a device come side by side.

        Args:
            requested_schema: A schema capsule with the same column names; values are cast to its types. Not of a grid on a device.
            kwargs: Reserved by the interface.

        Raises:
            NotImplementedError: A keyword argument other than `None`.
            UnsupportedError: A requested schema of a grid on a device; tiles of one row band that are on several devices, or row bands on several types of devices.
        """
    def __arrow_c_schema__(self, /) -> CapsuleType:
        """
        The Arrow PyCapsule interface: the schema.
        """
    def __arrow_c_stream__(self, /, requested_schema: Any | None = None) -> CapsuleType:
        """
        The Arrow PyCapsule interface: a stream of one batch for each row band, without copying.

        Args:
            requested_schema: A schema capsule with the same column names; values are cast to its types.
        """
    def __contains__(self, column: Any, /) -> bool: ...
    def __getitem__(self, key: Any, /) -> Grid: ...
    def __len__(self, /) -> int:
        """
        The number of rows.
        """
    @property
    def __partitioned__(self, /) -> dict:
        """
        The `__partitioned__` protocol (draft of 2022-01-27), exactly: a fresh plain dictionary at each access.

        `shape`, `partition_tiling`, `partitions` (every position, with `start`, `shape`, `data`, `location`) and `get`. `data` is a handle that pickles with the standard
        library; `get` takes one handle, a list or a tuple and returns `pandas.DataFrame` objects over the tile's memory, without copying. `location` is a list of
        `(IP, PID)`. In an SPMD program `locals` has the positions of this rank, and the `data` of others is `None`; else there is no `locals`. The handles keep the grid alive in this process. Two keys are not in the draft: `schema`, a
        `Schema` with names and types, and `version`, the day of the draft.
        """
    def __reduce__(self, /) -> tuple[Any, tuple[tuple[int, bytes, list[list[int]], tuple[list[tuple[str, bool]], list[str]], list[tuple[int, list[int], int, str, int, str]], list[int]]]]: ...
    def __repr__(self, /) -> str: ...
    @classmethod
    def _from_parts(cls, /, parts: tuple[int, bytes, Sequence[Sequence[int]], tuple[Sequence[tuple[str, bool]], Sequence[str]], Sequence[tuple[int, Sequence[int], int, str, int, str]], Sequence[int]]) -> Grid:
        """
        Makes a grid from what another one pickled. Used by `pickle`.
        """
    def _repr_html_(self, /) -> str:
        """
        The grid for notebooks: a small picture of its tiles, and the columns.
        """
    @property
    def columns(self, /) -> list[str]:
        """
        The names of the columns, in order.
        """
    @property
    def cuts(self, /) -> tuple[tuple, tuple]:
        """
        The cut points of the rows and of the columns: they start at 0 and end with the shape.
        """
    def distarray(self, /, columns: str | Sequence[str], *, version: str | None = None, distribution: str | Distribution | Map | Sequence[Map] | None = None, copy: bool | None = None, fill_null: Any | None = None, cast: str | None = None, padding: int | Sequence[int] | None = None) -> DistArray:
        """
        Columns of numbers as sections of the Distributed Array Protocol (0.10.0 or 0.9.0), one for each tile, without copying where the tile has them as an array does.

        One name is an array of one dimension. A list of names is one of two, rows and columns: its blocks are the row bands, and the runs of names that lie in one column band. It shares the
        memory of columns that are in one allocation at even distances, such as those that `dense=` loads, or single ones. `copies` of the array says what was copied, and why.

        Args:
            columns: A name, or a list of names.
            version: `"0.10.0"` (the default) or `"0.9.0"`.
            distribution: How the array shall lie: a `partgrid.distarray.Distribution`, its maps, or one map; everything is copied then. Or `"rank"`: one section for each rank of an SPMD
                program, of all its tiles: a block, or cyclic where even row bands are dealt out in turn, or the row numbers. By default each tile is a section.
            copy: `True` copies always, and the buffers can be written; `None` copies where it must; `False` never.
            fill_null: A number that stands for nulls; without it they are refused.
            cast: The type of the elements, such as `"float64"`. Values that it does not hold exactly are refused. Needed for times (`"int64"` shares their memory), booleans, decimals and
                dictionaries of numbers. By default the type of the column, or the one that `numpy.result_type` gives for several.
            padding: Widths of communication padding, one for all dimensions or one for each: every section gets that many elements of its neighbours. Everything is copied then.

        Returns:
            The distributed array. In an SPMD program the sections of other ranks have everything but their buffer, and `local` is that of this rank; what this raises there, it raises on one rank alone.

        Raises:
            NotFoundError: There is no such column.
            UnsupportedError: A column has a type that is no plain number, and the text says what to cast; or `copy=False`, and a copy is needed.
            InvalidDataError: A column has nulls, and the text says how many, and the first tile with one; or `cast` does not hold a value.
            InvalidArgumentError: No column, a distribution of another shape, a `padding` that is more than a neighbour owns, or a `fill_null` that the type does not hold.
            ProtocolError: Another version.
            ImportError: numpy is missing, and `distribution` or `padding` is given.
            NotLocalError: A tile of a grid of no SPMD program is in another process.

        Examples:
            >>> import partgrid as pg
            >>> flights = pg.read_parquet("data/flights")
            >>> array = flights.distarray("distance")
            >>> array.shape, len(array.sections), array.copies
            ((336776,), 12, [])
            >>> array.sections[0].__distarray__()["dim_data"][0]["stop"]
            27004
            >>> flights.distarray(["dep_delay", "arr_delay"], fill_null=0, distribution=[pg.distarray.cyclic(336776, 4), pg.distarray.block(2)])
            DistArray `dep_delay` to `arr_delay` (336776, 2) of d in 4 sections
            copied, nulls replaced: 12 sections, 5,388,416 bytes
            copied, another distribution: 4 sections, 5,388,416 bytes
        """
    def locations(self, /) -> list[list[tuple]]:
        """
        Where each tile can be read without communication. Of a grid of a cluster, which members have it.

        Returns:
            For each tile, in row-major order, a list of `(IP, PID)` or `(IP, PID, device)`, this process first.

        Examples:
            >>> import os, partgrid as pg
            >>> grid = pg.read_parquet("data/airlines.parquet")
            >>> [[pid == os.getpid() for _, pid in places] for places in grid.locations()]
            [[True]]
        """
    @property
    def nbytes(self, /) -> int:
        """
        The bytes of all tiles together, without what they share with others.
        """
    @property
    def num_ranks(self, /) -> int | None:
        """
        In an SPMD program how many ranks there are; else `None`.
        """
    def partitioned(self, /, data: str | None = None, *, dialect: str | None = None, dtype: Any | None = None, fill_null: Any | None = None, copy: bool | None = None, num_actors: int | None = None) -> Partitioned:
        """
        The grid as an object with `__partitioned__` as one consumer wants it.

        `dialect="heat"` is for `heat.from_partitioned`: one tile for each rank, its values copied into one array, since HeAT writes into memory that is read-only. Each rank of an SPMD
        program (see `partgrid.engines.mpi`) must call it; an error of one is raised on all. `dialect="xgboost_ray"` is for `xgboost_ray.RayDMatrix` and `lightgbm_ray.RayDMatrix`: the rows
        as pandas frames in Ray's object store, where they are copied to, and where they stay as long as the object lives.

        Args:
            data: What `get` gives: `"pandas"`, `"polars"`, `"pyarrow"`, `"arro3"`, `"numpy"` or `"tile"`; see `Get`. By default what the dialect has: `"pandas"`, for HeAT `"numpy"`.
            dialect: `"draft"` (the default), `"heat"` or `"xgboost_ray"`.
            dtype: For HeAT: the type of the array; by default the one that `numpy.result_type` gives for the columns.
            fill_null: For HeAT: the number that stands for nulls; without it they are refused.
            copy: For HeAT: `False` gives views of dense tiles, which HeAT may write into.
            num_actors: For xgboost_ray: the number of actors; by default that of the processors of the Ray cluster. Row bands are halved until there are as many, since an actor without any would train on all rows.

        Returns:
            The object. It keeps the grid alive.

        Raises:
            InvalidArgumentError: `data` or `dialect` is none of these, or an argument belongs to another dialect.
            UnsupportedError: The consumer cannot hold the grid; the text says why.
            InvalidDataError: For HeAT: a column has nulls and nothing stands for them, or a value that the type does not hold.
            ValueError: `copy=False`, and a copy is needed.
            ImportError: For xgboost_ray: Ray is missing.

        Warns:
            UserWarning: There are fewer rows than actors; or ranks have other numbers of rows than HeAT would give them, and `balance_()` must be called on its array before others.
        """
    @property
    def partitioned_by(self, /) -> list[str]:
        """
        The columns whose values decide in which row band a row is; empty when nothing is known.

        Of n row bands it is number `h % n`, where `h` is the XXH64 (seed 0) of the values in Arrow's row format.
        """
    @property
    def rank(self, /) -> int | None:
        """
        In an SPMD program the number of this process; else `None`.
        """
    def rebalance(self, /, *, without: Sequence[str] | None = None) -> Grid:
        """
        Has the cluster spread the rows of this grid over the members that are there now, as `Server.rebalance` says, and waits. Tiles of this grid that were not read are lost then, as where a grid is replaced.

        Args:
            without: The URIs of members that are to have nothing of it, as for `Server.rebalance`.

        Returns:
            The grid as it is then: the same rows in the same order. `Connection.rebalance` says how much was moved.

        Raises:
            UnsupportedError: It is no grid of `Connection.grid`, or only some of its rows or columns.
            InvalidArgumentError: `without` names who is no member, or all members.
            PermissionDeniedError: The token of the connection may not do everything with all grids.
            NotFoundError: The server is no member of a cluster, or knows no grid of all by its name any more.
            PartitionLostError: A part of it is gone.
            WorkerLostError, StorageError and others: A member could not take its share. The grid is as it was.
        """
    @property
    def schema(self, /) -> Any:
        """
        The schema as a `pyarrow.Schema`. Needs pyarrow; other libraries take the grid itself, which has `__arrow_c_schema__`.
        """
    @property
    def shape(self, /) -> tuple[int, int]:
        """
        Rows and columns.
        """
    @property
    def sorted_by(self, /) -> list[tuple[str, str]]:
        """
        The columns by which rows are sorted, with their directions; empty when nothing is known.

        Holds from the first row to the last; of a grid with `partitioned_by`, within each row band. Nulls come last in either direction.

        Examples:
            >>> import partgrid as pg
            >>> pg.read_parquet("data/flights", columns=["day"], sort_by=("day", "descending")).sorted_by
            [('day', 'descending')]
        """
    def sql(self, /, query: str, params: Any | None = None) -> Result:
        """
        Runs SQL over this grid under the name `self`.

        Args:
            query: The SQL text, for instance `SELECT carrier, count(*) FROM self GROUP BY carrier`.
            params: Values for its parameters: a list for `$1`, `$2` or `?`, a dict for `$name`; see `Session.sql`.

        Returns:
            A result that has not run yet.

        Raises:
            QueryError: The SQL is wrong.
        """
    def tile(self, /, row_band: int, column_band: "int" = 0) -> Tile:
        """
        The tile at a position.

        Args:
            row_band: The number along the rows.
            column_band: The number along the columns.

        Returns:
            The tile, which shares the grid's memory.

        Raises:
            NotFoundError: The position lies outside the grid.
            InvalidArgumentError: A number is negative, or no whole number.
        """
    @property
    def tiles(self, /) -> list[Tile]:
        """
        All tiles in row-major order.
        """
    @property
    def tiling(self, /) -> tuple[int, int]:
        """
        The number of tiles along rows and columns.
        """
    def to(self, /, device: str) -> Grid:
        """
        The grid with its tiles in the memory of a device.

        Args:
            device: Such as `"kDLCUDA:0"`, or `"kDLCPU"` for the memory of this process.

        Returns:
            A grid of the same cuts. Each tile is copied whole, one after the other; tiles that are there already are shared, and those of other ranks stay where they are.

        Raises:
            UnsupportedError: Nothing copies to such a device; `register_copy_engine` takes what does.
            NotFoundError: The driver of the device is not on this machine, or the device is not.
            ResourcesExhaustedError: The device has no room.

        Examples:
            >>> import partgrid as pg, pyarrow as pa
            >>> pg.from_arrow(pa.table({"a": [1, 2]})).to("cuda")
            Traceback (most recent call last):
            partgrid.errors.InvalidArgumentError: device must be a device such as 'kDLCPU' or 'kDLCUDA:0', got 'cuda'
            hint: device='kDLCUDA:0'
        """
    def to_arrow(self, /) -> Any:
        """
        The grid as a `pyarrow.Table`, one chunk for each row band, without copying. Needs pyarrow.
        """
    def to_dask(self, /) -> Any:
        """
        The grid as a `dask.dataframe.DataFrame`: one partition for each row band, of Arrow-backed columns, with row numbers as labels. Needs dask and pandas.

        Tiles are opened when dask computes. In this process nothing is copied; for workers that are other processes the tiles are written as Arrow IPC and go along. Rows are numbered
        through the whole frame; divisions are known unless a row band is empty.

        Examples:
            >>> import partgrid as pg
            >>> pg.read_parquet("data/flights").to_dask().npartitions  # doctest: +SKIP
            12
        """
    def to_modin(self, /) -> Any:
        """
        The grid as a `modin.pandas.DataFrame` of Arrow-backed columns: one of its partitions for each tile, with row numbers as labels. Needs Modin on Ray or Dask.

        Every tile is copied to the workers of Modin's engine, and a lazy one is read.

        Raises:
            UnsupportedError: Modin runs on another engine.
        """
    def to_numpy(self, /, columns: Sequence[str] | None = None, *, dtype: Any | None = None, fill_null: Any | None = None, order: str = "F", copy: bool | None = None) -> Any:
        """
        The grid as one 2-D `numpy.ndarray` of rows x columns. Needs numpy.

        A copy that may be written, unless the grid is one tile whose columns lie in one allocation (a single column, or as `dense=` of a load places them): that is a read-only
        view of the tile's memory. Values are never rounded: one that the type of the array does not hold exactly is an error.

        Args:
            columns: The names of integer and float columns; by default all.
            dtype: The type of the array; by default the one that `numpy.result_type` gives for the columns.
            fill_null: The number that stands for nulls. It must be a value of the array's type exactly.
            order: `"F"` puts the elements of a column next to each other, as Arrow does, `"C"` those of a row.
            copy: `True` copies always, `None` when it must, `False` never.

        Returns:
            The array.

        Raises:
            NotFoundError: There is no such column.
            UnsupportedError: A column has a type that is no plain number; the text says what to cast.
            InvalidDataError: A column has nulls and nothing stands for them, or a value that the type does not hold.
            InvalidArgumentError: The type is no plain number, or does not hold `fill_null` exactly.
            ValueError: `copy=False`, and a copy is needed.

        Examples:
            >>> import partgrid as pg
            >>> flights = pg.read_parquet("data/flights")
            >>> flights.to_numpy(["dep_delay", "distance"], fill_null=float("nan")).shape
            (336776, 2)
        """
    def to_pandas(self, /, *, index: str | Sequence[str] | None = None) -> Any:
        """
        The grid as a `pandas.DataFrame` of Arrow-backed columns, without copying. Needs pandas and pyarrow.

        Args:
            index: A name or a list of names of columns that become the row labels, as `from_pandas(index="keep")` made columns of them. By default rows are numbered.

        Returns:
            The frame.

        Raises:
            NotFoundError: There is no such column.

        Examples:
            >>> import pandas as pd, partgrid as pg
            >>> grid = pg.from_pandas(pd.DataFrame({"v": [1, 2]}, index=pd.Index(["x", "y"], name="k")), index="keep")
            >>> grid.to_pandas(index="k").loc["y", "v"]
            2
        """
    def to_polars(self, /) -> Any:
        """
        The grid as a `polars.DataFrame`; polars copies strings into views of its own. Needs polars.
        """
    def to_shared(self, /) -> Grid:
        """
        The grid with its tiles in shared memory, which other processes of this user on this host read in place.

        Pickle the grid, a tile or a handle to hand it to another process: with `multiprocessing`, joblib, or any other way. Nothing but names is pickled. A grid in private memory can be handed over
        as well; each tile is then copied when the first process opens it, and that copy goes when no process uses it any more.

        Returns:
            A grid of the same cuts. Each tile is copied once, one after the other, and lazy ones are read; tiles in shared memory of this process stay as they are. Drop this grid afterwards: the memory
            is then counted once, however many processes read it, and each tile takes a descriptor of this process.

        Raises:
            ResourcesExhaustedError: There is no room, or there are no descriptors left.
            UnsupportedError: Not on Linux, or a type that Arrow IPC does not hold.
            NotLocalError: A tile is on a device; copy it to the host first.

        Examples:
            >>> import partgrid as pg, pickle, pyarrow as pa
            >>> grid = pg.from_arrow(pa.table({"a": [1, 2, 3]})).to_shared()
            >>> print(repr(grid).splitlines()[0])
            Grid of 3 rows x 1 column in 1 x 1 tile, 24 B in shared memory
            >>> len(pickle.dumps(grid)) < 1000
            True
        """
    def write_parquet(self, /, url: str | PathLike[str], *, partition_by: str | Sequence[str] | None = None, compression: "str | None" = "zstd", file_per_tile: "bool" = False, overwrite: "bool" = False, storage_options: dict[str, str] | None = None, store: Incomplete | None = None) -> int:
        """
        Writes the grid as Parquet files, one for each row band, named `part-00000.parquet` and so on in the order of the rows.

        All files or none: they are written into a hidden folder beside the other, flushed to the disk, and become visible in one step, as do those that replace others. Only
        where that cannot be (other files lie in the folder, it is a mount point) they are moved one by one, and moved back after an error. In an object store each becomes
        visible when it is whole, and those that replace others are called otherwise (`part-00000-1f0c22d8.parquet`): after an error they are taken away again, and the others are as they were.

        Args:
            url: The folder, or a URL as `read_parquet` takes it. It is made if it is not there.
            partition_by: A name or a list of names of columns of integers, dates or texts (or dictionaries of them): the rows of each combination of their values come into a folder `name=value` of their own. Folder names
                have no types: integers come back as int64, and texts that all look like integers or dates as those, unless two of them are one number.
            compression: `"zstd"`, `"snappy"`, `"lz4"`, `"gzip"`, `"brotli"` or `"none"`, in any case; `None` is `"none"`.
            file_per_tile: Whether each tile gets a file, with the columns of its column band only: files for other programs, since `read_parquet` wants all columns in each file.
            overwrite: Whether to replace the files `part-….parquet` in the folder and in its folders `name=value`. Without it a folder with data files is refused, and one with other data files always.
            storage_options: Settings for the store of the URL, as `read_parquet` takes them.
            store: A store built with obstore; `url` is then a path in it.

        Returns:
            The number of files.

        Raises:
            InvalidArgumentError: The folder holds data files, or an argument makes no sense.
            NotFoundError: A name in `partition_by` does not exist.
            UnsupportedError: Parquet has no such type.
            StorageError: The file system or store failed.
        """

@final
class Handle:
    """
    Names one tile of one grid, wherever it lives. Small, hashable, and pickles with the standard library; the data stays where it is.

    A handle keeps its grid alive in the process that made it; a pickled one does not. Another process of the same user and host opens it in shared memory.
    """
    def __eq__(self, value: object, /) -> bool: ...
    def __hash__(self, /) -> int: ...
    def __ne__(self, value: object, /) -> bool: ...
    def __reduce__(self, /) -> tuple[Any, tuple[tuple[int, list[int], int, str, int, str]]]: ...
    def __repr__(self, /) -> str: ...
    @classmethod
    def _from_parts(cls, /, parts: tuple[int, Sequence[int], int, str, int, str]) -> Handle:
        """
        Makes a handle from what another one pickled. Used by `pickle`.
        """
    @property
    def position(self, /) -> tuple:
        """
        The position of the tile in its grid.
        """
    def tile(self, /) -> Tile:
        """
        The tile: of this process, or over the memory of another one of this user on this host. Nothing is copied, unless the tile is in private memory there: it is then copied once, for all
        processes that have it open at a time (see `Grid.to_shared`).

        What is open stays readable when the other process ends.

        Returns:
            The tile that the handle names.

        Raises:
            PartitionLostError: The grid was dropped, or its process has ended.
            NotLocalError: The tile lives on another host.
            ResourcesExhaustedError: Its process does not answer within seconds, or has no room.
            PermissionDeniedError: Its process is another user's.
        """

@final
class LoadJob:
    """
    A load that runs in the background, made by `load_parquet`. When nobody holds it any more, it is cancelled.
    """
    def __repr__(self, /) -> str: ...
    def cancel(self, /) -> None:
        """
        Stops the load; a finished one keeps its result. Nothing of it stays in memory or on disk.
        """
    @property
    def finished(self, /) -> bool:
        """
        Whether there is a result: a grid, an error, or that it was cancelled.
        """
    def progress(self, /) -> LoadProgress:
        """
        How far the load is at this moment.

        Returns:
            Counts of files, tiles, rows and bytes, elapsed and remaining time.
        """
    def result(self, /, timeout: float | None = None) -> Grid:
        """
        The grid, once it is there. May be asked for again.

        Args:
            timeout: Seconds to wait; for ever by default, and for `float("inf")`.

        Returns:
            The grid.

        Raises:
            TimeoutError: The load goes on after `timeout` seconds.
            CancelledError: The load was cancelled.
            PartgridError: Whatever stood in the way of the load, as `read_parquet` raises it.
        """
    def wait(self, /, timeout: float | None = None) -> bool:
        """
        Waits until the load is finished, or so many seconds.

        Args:
            timeout: Seconds to wait; for ever by default, and for `float("inf")`.

        Returns:
            Whether it is finished. Errors of the load are raised by `result`, not here.

        Raises:
            NotLocalError: The load runs in another process, from which this one was forked.
        """

@final
class LoadProgress:
    """
    How far a load is: a picture of one moment.

    Totals are 0 until the files are listed and their footers read.
    """
    def __repr__(self, /) -> str: ...
    @property
    def arranged_rows(self, /) -> int:
        """
        Rows that lie in the order of `sort_by` or `partition_by`, which begins when all are read.
        """
    @property
    def arranging(self, /) -> bool:
        """
        Whether all rows are read, and are now sorted or partitioned.
        """
    @property
    def bytes(self, /) -> int:
        """
        Bytes of the files that are decoded, as they lie in the files.
        """
    @property
    def elapsed(self, /) -> float:
        """
        Seconds since the load began; of a finished load, until it ended.
        """
    @property
    def files(self, /) -> int:
        """
        Files whose footer is read.
        """
    @property
    def rate(self, /) -> int:
        """
        Bytes of the files that were decoded in a second, on average.
        """
    @property
    def remaining(self, /) -> float | None:
        """
        Seconds that the rest will take at the rate so far; `None` before the first bytes, and while rows are sorted or partitioned.
        """
    @property
    def resumed_tiles(self, /) -> int:
        """
        Tiles that an earlier load had left in the folder `resume`.
        """
    @property
    def rows(self, /) -> int:
        """
        Rows of finished tiles.
        """
    @property
    def rows_to_arrange(self, /) -> int:
        """
        Rows that are being sorted or partitioned; 0 while they are read, and without such a wish.
        """
    @property
    def spilled_tiles(self, /) -> int:
        """
        Tiles that lie in files of `spill_to`.
        """
    @property
    def tile_bytes(self, /) -> int:
        """
        Bytes of memory that finished tiles hold, or of the files that they were spilled to.
        """
    @property
    def tiles(self, /) -> int:
        """
        Tiles that are finished.
        """
    @property
    def total_bytes(self, /) -> int:
        """
        Bytes of the files that are or will be decoded.
        """
    @property
    def total_files(self, /) -> int:
        """
        Files that were found.
        """
    @property
    def total_rows(self, /) -> int:
        """
        Rows of all tiles.
        """
    @property
    def total_tiles(self, /) -> int:
        """
        Tiles of the grid to be.
        """

@final
class Map:
    """
    One dimension of an array over all its ranks: which rank has which global index, and where. Made by `block`, `cyclic` and `unstructured`; never changes.

    A local index counts from the start of the local buffer: communication padding on the left comes before what the rank owns.

    Examples:
        >>> import partgrid as pg
        >>> rows = pg.distarray.cyclic(10, 3, block_size=2)
        >>> rows.locate(7)
        (0, 3)
        >>> rows.global_index(0, 3)
        7
        >>> rows
        Map of 10 indices on 3 ranks, cyclic by 2
    """
    def __eq__(self, value: object, /) -> bool: ...
    def __hash__(self, /) -> int: ...
    def __ne__(self, value: object, /) -> bool: ...
    def __repr__(self, /) -> str: ...
    def dim_data(self, /, rank: int, version: str | None = None) -> dict:
        """
        The dimension dictionary of a rank.

        Args:
            rank: The rank.
            version: `"0.10.0"` (the default) or `"0.9.0"`.

        Raises:
            NotFoundError: There is no such rank.
            UnsupportedError: A periodic dimension with outer padding in the other version than the one that it was made for.
        """
    @property
    def dist_type(self, /) -> str:
        """
        The type in dictionaries: `"b"`, `"c"` or `"u"`.
        """
    def global_index(self, /, rank: int, local: int) -> int | None:
        """
        The global index of an element of a local buffer, halo included.

        Args:
            rank: The rank.
            local: Its index in the buffer.

        Returns:
            The global index; `None` past the end of the buffer, and for a rank that does not exist.
        """
    def local_len(self, /, rank: int) -> int | None:
        """
        The extent of the local buffer of a rank, halo included; `None` for a rank that does not exist.

        Args:
            rank: The rank.
        """
    def locate(self, /, index: int) -> tuple[int, int] | None:
        """
        Where a global index is owned.

        Args:
            index: The global index.

        Returns:
            The rank, and the local index in its buffer; of several owners the first. `None` when it is not in the array.
        """
    def locate_all(self, /, indices: Sequence[int]) -> tuple[Array, Array]:
        """
        Where many global indices are owned: the fast way.

        Args:
            indices: A list or an array of integers.

        Returns:
            The ranks and the local indices, as arrays of int64.

        Raises:
            InvalidArgumentError: An index is not in the array.
        """
    @property
    def num_ranks(self, /) -> int:
        """
        The number of ranks.
        """
    def owned(self, /, rank: int) -> Array:
        """
        The global indices that a rank owns, in the order of its buffer, as an array of int64.

        Args:
            rank: The rank.

        Raises:
            NotFoundError: There is no such rank.
        """
    @property
    def size(self, /) -> int:
        """
        The number of global indices.
        """

@final
class Partitioned:
    """
    A grid as another library wants to see it: an object with `__partitioned__`, made by `Grid.partitioned`.
    """
    @property
    def __partitioned__(self, /) -> dict:
        """
        The dictionary, fresh at each access; what stands under `data` stays the same.
        """
    def __repr__(self, /) -> str: ...

@final
class Plan:
    """
    Who sends which elements to whom, so that an array lies in another distribution. Made by `DistArray.redistribute`; `print` shows it as a table, notebooks as a picture.

    Every element of each destination, communication padding included, comes from one rank that owns it.

    Examples:
        >>> import numpy as np, partgrid as pg
        >>> array = pg.from_numpy(np.arange(6)).distarray("column_0")
        >>> print(array.redistribute(pg.distarray.cyclic(6, 2)))
        1 rank to 2 ranks, 3 of 6 elements in 1 message
        from \\ to  0  1
                0  3  3
    """
    def __repr__(self, /) -> str: ...
    def _arrived(self, /, rank: int, section: Any | None) -> DistArray:
        """
        The array of the destination, of which this rank has a section.
        """
    @property
    def _digest(self, /) -> tuple[int, int]:
        """
        A number that is the same on all ranks when their plans are.
        """
    def _repr_html_(self, /) -> str: ...
    def _target(self, /, rank: int) -> Any | None:
        """
        New memory for the section of a rank; nothing when there is none.
        """
    def _transfers(self, /, from_rank: int, to_rank: int) -> list[_Transfer]:
        """
        What goes from a rank to a rank, in pieces that fit a message.
        """
    @property
    def bytes_moved(self, /) -> int:
        """
        The bytes that go to another rank.
        """
    def counts(self, /) -> list[list[int]]:
        """
        How many elements each rank (outer list) sends to each rank (inner lists), itself included.

        Raises:
            UnsupportedError: There are more than 16,777,216 pairs of ranks.
        """
    def execute(self, /, comm: Any | None = None) -> Any:
        """
        Carries the plan out: in this process, or among the ranks of a communicator. Everything is copied; do not write to the source meanwhile. Needs numpy.

        Args:
            comm: A communicator of mpi4py, or anything with `Get_rank`, `Get_size`, `allgather`, `Isend` and `Recv` that work alike. Every rank must call it with the same plan; the sections
                of each must be the one of its number. Messages stay below 2 GiB. Without it, all sections must be in this process.

        Returns:
            The array as it lies then, in C order, in memory of numpy that can be written. Over a communicator only `local` has a buffer; ranks without a section there have `None`.

        Raises:
            NotLocalError: A section is in another process.
            InvalidArgumentError: Ranks have different plans, or there are fewer ranks than sections; on all ranks alike.
        """
    @property
    def local_elements(self, /) -> int:
        """
        The number of elements that stay on their rank, and are copied there.
        """
    @property
    def messages(self, /) -> int:
        """
        The number of pairs of different ranks of which one sends something to the other. Over MPI, one that is too large for one message is sent as several.
        """
    @property
    def num_elements(self, /) -> int:
        """
        The number of elements that are written, in all destination buffers together.
        """
    def plot(self, /) -> Any:
        """
        The plan as a picture: rows send, columns receive, and the more elements, the darker the cell. More than 40 ranks on a side are drawn in bins of neighbours.

        Returns:
            A `Picture`: the text of an SVG, which notebooks show, with `save(path)`.
        """
    @property
    def source(self, /) -> DistArray:
        """
        The array that is distributed anew.
        """
    @property
    def to(self, /) -> Distribution:
        """
        How it shall lie.
        """

@final
class Prepared:
    """
    A statement whose names were looked up, made by `Session.prepare`. Safe to use from several threads.
    """
    def __repr__(self, /) -> str: ...
    @property
    def parameters(self, /) -> list[tuple[str, str | None]]:
        """
        The parameters in order, each with the Arrow type that its place suggests as text, or `None`.
        """
    @property
    def query(self, /) -> str:
        """
        The SQL text.
        """
    def sql(self, /, params: Any | None = None, *, timeout: float | None = None, memory_limit: int | str | None = None, threads: int | None = None) -> Result:
        """
        The statement with values for its parameters. It runs when its result is asked for.

        Args:
            params: Values, as in `Session.sql`.
            timeout: Seconds that each run may take, in place of that of the session.
            memory_limit: Bytes, or a text such as `"512MB"`, that each run may use.
            threads: Into how many shares the query is spread.

        Returns:
            A result that has not run yet.

        Raises:
            QueryError: Values and parameters do not fit, or a name stands for something else now that does not fit.
            NotLocalError: The statement was prepared before a fork, in the parent process.
        """

@final
class QueryMetrics:
    """
    What a run of a query did: a picture of one moment, or of all once it has ended.

    Tiles, rows and bytes come in groups by where the tiles are, nearest first: `memory` (this process), `shared` (memory shared with another process), `device`, `process` (another
    process) and `file` (files, stores, and what a load spilled).
    """
    def __repr__(self, /) -> str: ...
    @property
    def batches(self, /) -> int:
        """
        Batches that came out.
        """
    @property
    def copied_bytes(self, /) -> int:
        """
        Bytes that were copied to be read: what came from elsewhere, nothing of tiles that are here, save nested columns that had to be rebuilt.
        """
    @property
    def done(self, /) -> bool:
        """
        Whether the run has ended: all rows were read, it failed, or nobody reads on.
        """
    @property
    def elapsed(self, /) -> float:
        """
        Seconds since the rows were asked for, until the run ended. Planning is not part of it.
        """
    @property
    def filtered_rows(self, /) -> int:
        """
        Rows that were read and taken away by dynamic filters before any operator saw them.
        """
    @property
    def gathered_bytes(self, /) -> int:
        """
        Bytes of rows that passed conditions and were put together into new batches; of texts that views point to, the views.
        """
    @property
    def groups(self, /) -> dict:
        """
        For each place that has tiles, nearest first: `tiles`, `kept_tiles`, `pruned_tiles`, `read_tiles`, `rows`, `bytes`, `copied_bytes`.
        """
    @property
    def operators(self, /) -> list[dict]:
        """
        The operators of the plan, each before those it reads from: `depth`, `name`, `rows`, `seconds` (of all threads together) and `spilled_bytes`; None where an operator does not count.
        """
    @property
    def peak_memory(self, /) -> int:
        """
        The most bytes that the run used of its memory limit at once. Tiles do not count.
        """
    @property
    def processes(self, /) -> dict:
        """
        Of a statement over grids of several processes, for each process id and each place that has tiles: `read_tiles`, `rows`, `bytes`, `copied_bytes`. Else empty; `groups` has none of it.
        """
    @property
    def pruned_tiles(self, /) -> int:
        """
        Tiles that statistics left out before the run.
        """
    @property
    def read_bytes(self, /) -> int:
        """
        Bytes of the needed columns of these rows; of tiles elsewhere, all that came.
        """
    @property
    def read_rows(self, /) -> int:
        """
        Rows that the scans looked at.
        """
    @property
    def read_tiles(self, /) -> int:
        """
        Tiles that were read, whole or in part.
        """
    @property
    def rows(self, /) -> int:
        """
        Rows that came out.
        """
    @property
    def skipped_morsels(self, /) -> int:
        """
        Runs of rows (morsels) that were left unread for the same reason.
        """
    @property
    def skipped_rows(self, /) -> int:
        """
        Rows in them.
        """
    @property
    def skipped_tiles(self, /) -> int:
        """
        Tiles that were left unread for what joins and sorts learned while the query ran (dynamic filters).
        """
    @property
    def spilled_bytes(self, /) -> int:
        """
        Bytes that were written to files, since the memory limit left no room.
        """
    @property
    def spilled_files(self, /) -> int:
        """
        Files that they were written to.
        """
    @property
    def tiles(self, /) -> int:
        """
        Tiles of the grids that the query scans.
        """
    def to_dict(self, /) -> dict:
        """
        All of it as a dict of plain values.
        """
    @property
    def waited(self, /) -> float:
        """
        Seconds of these in which the run waited for its turn among other queries.
        """

@final
class QueryProgress:
    """
    How far a query is: a picture of one moment.
    """
    def __repr__(self, /) -> str: ...
    @property
    def rows(self, /) -> int:
        """
        Rows that the scans of grids are done with: read, or left unread since nobody needs them.
        """
    @property
    def scans(self, /) -> int:
        """
        Scans of grids in the plan.
        """
    @property
    def tiles(self, /) -> int:
        """
        Tiles that the scans are done with.
        """
    @property
    def total_rows(self, /) -> int:
        """
        Rows of the tiles that they keep after pruning. A query may need fewer of them, for instance with LIMIT.
        """
    @property
    def total_tiles(self, /) -> int:
        """
        Tiles that they keep after pruning.
        """

@final
class Result:
    """
    The result of a SQL query, worked out when it is asked for.

    `to_arrow`, `to_pandas`, `to_polars` and any library that takes `__arrow_c_stream__` read it batch by batch as it is found. Its repr and `len` run it once and keep
    the answer.
    """
    def __array__(self, /, dtype: Any | None = None, copy: bool | None = None) -> Any:
        """
        Refused: without this method numpy would make an array of one object.
        """
    def __arrow_c_schema__(self, /) -> CapsuleType:
        """
        The Arrow PyCapsule interface: the schema of the answer.
        """
    def __arrow_c_stream__(self, /, requested_schema: Any | None = None) -> CapsuleType:
        """
        The Arrow PyCapsule interface: a stream of batches as they are found. The query starts now and stops when the stream is dropped.

        Args:
            requested_schema: A schema capsule with the same column names; values are cast to its types.
        """
    def __len__(self, /) -> int: ...
    def __repr__(self, /) -> str: ...
    def _repr_html_(self, /) -> str:
        """
        The first rows for notebooks, as the repr has them.
        """
    def cancel(self, /) -> None:
        """
        Ends all runs that go on at this moment, from any thread: whoever waits for them gets a `CancelledError`. Later runs are not touched, and an answer that is kept stays.
        """
    def collect(self, /) -> Result:
        """
        Runs the query now and keeps the answer, so that nothing runs it again.

        Returns:
            The same result.

        Raises:
            ResourcesExhaustedError: The query ran out of memory or time, or its answer has no room within the memory limit.
            CancelledError: `cancel` was called.
        """
    @property
    def columns(self, /) -> list[str]:
        """
        The names of the columns, in order.
        """
    def explain(self, /, *, analyze: "bool" = False) -> str:
        """
        The physical plan, one operator a line. `GridScanExec` says how many tiles are read, of how many.

        Args:
            analyze: Whether to run the query first, drop its rows, and show what each operator counted.
        """
    @property
    def metrics(self, /) -> QueryMetrics | None:
        """
        What the run did that began last, so far or until it ended; `None` before the first. May be asked from another thread.

        Examples:
            >>> import partgrid as pg
            >>> result = pg.read_parquet("data/flights").sql("SELECT avg(dep_delay) FROM self WHERE month = 7")
            >>> result.metrics is None
            True
            >>> metrics = result.collect().metrics
            >>> metrics.read_tiles, metrics.tiles, metrics.copied_bytes
            (1, 12, 0)
            >>> metrics.groups["memory"]["rows"]
            29425
        """
    def progress(self, /) -> QueryProgress | None:
        """
        How far the run is that began last; `None` before the first. May be asked from another thread.
        """
    @property
    def query(self, /) -> str:
        """
        The SQL text.
        """
    @property
    def schema(self, /) -> Schema:
        """
        The columns of the answer, without running the query.
        """
    def show(self, /, rows: "int" = ...) -> None:
        """
        Prints the first rows.

        Args:
            rows: How many rows at most.
        """
    def stream(self, /) -> ResultStream:
        """
        The answer batch by batch. The query starts now, runs a few batches ahead, and stops when the iterator is dropped. Needs pyarrow.

        Returns:
            An iterator of `pyarrow.RecordBatch`.

        Examples:
            >>> import partgrid as pg
            >>> result = pg.sql("SELECT * FROM f", f=pg.read_parquet("data/flights"))
            >>> sum(batch.num_rows for batch in result.stream())
            336776
        """
    def to_arrow(self, /) -> Any:
        """
        The answer as a `pyarrow.Table`. Needs pyarrow.
        """
    def to_grid(self, /) -> Grid:
        """
        The answer as a grid, one tile for each batch, in the memory of this process.
        """
    def to_pandas(self, /, *, index: str | Sequence[str] | None = None) -> Any:
        """
        The answer as a `pandas.DataFrame` of Arrow-backed columns. Needs pandas and pyarrow.

        Args:
            index: A name or a list of names of columns that become the row labels. By default rows are numbered.

        Returns:
            The frame.

        Raises:
            NotFoundError: There is no such column.
        """
    def to_polars(self, /) -> Any:
        """
        The answer as a `polars.DataFrame`. Needs polars.
        """
    def write_parquet(self, /, url: str | PathLike[str], *, partition_by: str | Sequence[str] | None = None, compression: "str | None" = "zstd", overwrite: "bool" = False, storage_options: dict[str, str] | None = None, store: Incomplete | None = None) -> int:
        """
        Writes the answer as Parquet files while it is found, named `part-00000.parquet` and so on in the order of the rows: an answer may be larger than memory.

        A file has 1,048,576 rows or so, fewer where rows are long. A run of so many for each core is in memory at a time, outside the memory limit of the session; with `partition_by` another 256 MiB of rows are gathered, so that each folder has few files.

        All files or none, as `Grid.write_parquet` writes them: after an error, or where the query is cancelled, none is left, and those that were to be replaced are there as before.

        Args:
            url: The folder, or a URL as `read_parquet` takes it. It is made if it is not there.
            partition_by: A name or a list of names of columns of integers, dates or texts (or dictionaries of them): the rows of each combination of their values come into a folder `name=value` of their own. Folder names have no types: integers
                come back as int64, and texts that all look like integers or dates as those, unless two of them are one number.
            compression: `"zstd"`, `"snappy"`, `"lz4"`, `"gzip"`, `"brotli"` or `"none"`, in any case; `None` is `"none"`.
            overwrite: Whether to replace the files `part-….parquet` in the folder and in its folders `name=value`, which the query may read. Without it a folder with data files is refused, and one with other data files
                always.
            storage_options: Settings for the store of the URL, as `read_parquet` takes them.
            store: A store built with obstore; `url` is then a path in it.

        Returns:
            The number of files.

        Raises:
            InvalidArgumentError: The folder holds data files, two columns have one name, or an argument makes no sense.
            NotFoundError: A name in `partition_by` does not exist.
            UnsupportedError: Parquet has no such type.
            StorageError: The file system or store failed.
            ResourcesExhaustedError: The query ran out of memory or time.
            CancelledError: `cancel` was called.

        Examples:
            >>> import partgrid as pg, tempfile
            >>> late = pg.read_parquet("data/flights").sql("SELECT * FROM self WHERE dep_delay > 600 ORDER BY dep_delay")
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     late.write_parquet(folder + "/late"), pg.read_parquet(folder + "/late").shape
            (1, (40, 19))
        """

@final
class ResultStream:
    """
    The batches of a result, made by `Result.stream`. For one thread at a time.
    """
    def __enter__(self, /) -> ResultStream:
        """
        `with` closes it at the end.
        """
    def __exit__(self, /, *_exception) -> None: ...
    def __iter__(self, /) -> ResultStream: ...
    def __next__(self, /) -> Any: ...
    def close(self, /) -> None:
        """
        Stops the query; there are no more batches.
        """

@final
class Schema:
    """
    The names and types of columns. Any library that takes `__arrow_c_schema__` reads it: `pyarrow.schema(schema)`. Pickles with the standard library.
    """
    def __arrow_c_schema__(self, /) -> CapsuleType:
        """
        The Arrow PyCapsule interface.
        """
    def __eq__(self, value: object, /) -> bool: ...
    def __len__(self, /) -> int: ...
    def __ne__(self, value: object, /) -> bool: ...
    def __reduce__(self, /) -> tuple[Any, tuple[bytes]]: ...
    def __repr__(self, /) -> str: ...
    @classmethod
    def _from_ipc(cls, /, stream: bytes) -> Schema:
        """
        Makes a schema from what another one pickled. Used by `pickle`.
        """
    @property
    def names(self, /) -> list[str]:
        """
        The names of the columns, in order.
        """
    @property
    def types(self, /) -> list[str]:
        """
        The types of the columns as text, in order.
        """

@final
class Section:
    """
    The part of a distributed array that one rank has.
    """
    def __array__(self, /, dtype: Any | None = None, copy: bool | None = None) -> Any:
        """
        Refused: without this method numpy would make an array of one object.
        """
    def __distarray__(self, /) -> dict:
        """
        The Distributed Array Protocol, section "Exporting a distributed array".

        Returns:
            A fresh dictionary: `__version__`, `buffer` (an object with the buffer interface, over the tile's own memory unless it was copied, and read-only then) and `dim_data` (a
            tuple of one dictionary for each dimension).

        Raises:
            NotLocalError: The section is in another process.
        """
    def __len__(self, /) -> int: ...
    def __repr__(self, /) -> str: ...
    @property
    def buffer(self, /) -> Any:
        """
        The elements.

        Raises:
            NotLocalError: The section is in another process.
        """
    @property
    def dim_data(self, /) -> tuple:
        """
        The dictionaries of the dimensions, fresh at each access.
        """
    @property
    def is_local(self, /) -> bool:
        """
        Whether the buffer is in this process.
        """
    @property
    def rank(self, /) -> int:
        """
        The rank of the section: its place in the process grid, row-major.
        """
    @property
    def shape(self, /) -> tuple:
        """
        The number of elements of the buffer along each dimension, communication padding included.
        """

@final
class Server:
    """
    A server that holds grids: Arrow Flight SQL for any client (ADBC, JDBC, pyarrow.flight), and a status page.

    It runs on threads of this process until `stop`, or the end of a `with` block. Grids are shared with it, not copied. A forked child has no server of its parent.

    Without TLS and tokens it listens on this machine only. SQL of clients reads grids, and makes and drops them where their token says so; it never touches files, URLs or settings.

    Args:
        grids: Names and grids, or other data as `Session.register` takes it.
        address: Where Flight SQL listens, as `"host:port"`; port 0 takes a free one. By default what `config` says, and a free port of 127.0.0.1 without it.
        http: Where the status page and the metrics are, likewise; None for nowhere.
        catalog: Where grids that clients make are kept: a folder, which is for this server alone; or the URL of an object store, or `shared://` and the absolute path of a folder, which several servers may
            have. What is there is served from the start, and what others change within seconds. Without it they are gone when the server ends.
        tls: Files of the certificate and its key in PEM, and, if clients must show certificates too, of those who vouch for them.
        tokens: A file of tokens (`partgrid token` makes them); every call then needs one.
        join: Makes the server a member of a cluster: the addresses of all members as a list of `"host:port"`, or `"file:PATH"` for a file with one in each line, or `"dns:NAME:PORT"`. Any member answers SQL over the
            grids of all, and each reads its own tiles (docs/cluster.md).
        insecure: Whether addresses other than loopback are allowed without TLS and tokens: whoever reaches the port may then do everything.
        config: A TOML file of settings. Arguments replace what it says.
        settings: More settings by key, such as `{"limits.query_time": 120, "limits.query_memory": "2GiB"}`; the command `partgrid config` lists all.

    Raises:
        InvalidArgumentError: A setting is unknown or has no such value, or would let strangers in.
        StorageError: The address is in use, or not one of this machine.
        NotFoundError: A file is not there.

    Examples:
        >>> import partgrid as pg
        >>> with pg.Server({"airlines": pg.read_parquet("data/airlines.parquet")}) as server:
        ...     server.uri.startswith("grpc://127.0.0.1:"), server.tables
        (True, ['airlines'])
    """
    def __enter__(self, /) -> Server: ...
    def __exit__(self, /, *_exception) -> None: ...
    def __new__(cls, /, grids: dict | None = None, *, address: str | None = None, http: str | None = ..., catalog: str | PathLike[str] | None = None, tls: Any | None = None, tokens: str | PathLike[str] | None = None, join: Any | None = None, insecure: "bool" = False, config: str | PathLike[str] | None = None, settings: dict | None = None) -> Server: ...
    def __repr__(self, /) -> str: ...
    def contribute(self, /, name: str, data: Any, part: int, of: int, *, replicas: "int" = 1) -> None:
        """
        Makes data of this process one part of a grid of the cluster. Once all parts are there, any member answers SQL over the grid, within a second or after `refresh`. Nothing is copied: the tiles stay here,
        and each member reads its own.

        Args:
            name: The name of the grid of all members.
            data: A grid, or other data as `Session.register` takes it; its columns must be those of all parts.
            part: The number of the part, from 0; the rows of the grid come in the order of these numbers.
            of: How many parts there are.
            replicas: How many members are to have the part, 1 to 16, this one among them. The others copy it in the background, whole, into their memory; when a member is lost, statements read its parts from those
                who have copies, and one more copy is made elsewhere. With fewer members than that, all have it.

        Raises:
            InvalidArgumentError: The server is no member of a cluster, `part` is not 0 to `of` - 1, there are none or too many parts, there can be no such number of replicas, or the grid was rebalanced since its parts were contributed.
        """
    def deregister(self, /, name: str) -> bool:
        """
        Takes a name away, also from the catalog.

        Args:
            name: The name of a grid or view.

        Returns:
            Whether there was one.

        Raises:
            StorageError: The catalog cannot be written; then the name stays.
        """
    def grid(self, /, name: str) -> Grid:
        """
        The grid under a name.

        Args:
            name: The name.

        Returns:
            The grid. Nothing is copied.

        Raises:
            NotFoundError: There is no such grid.
            QueryError: It is a view, which has no grid.
        """
    @property
    def http_uri(self, /) -> str | None:
        """
        Where the status page is; None when it is off.
        """
    def join(self, /, members: Any) -> None:
        """
        Looks for members elsewhere from now on, in place of what `join` of the server said.

        Args:
            members: As `join` of the server.

        Raises:
            InvalidArgumentError: The server is no member of a cluster, or `members` are not written like that.
        """
    @property
    def members(self, /) -> list[str]:
        """
        The URIs of the members of the cluster as this one sees them, its own first.

        Raises:
            InvalidArgumentError: The server is no member of a cluster.
        """
    def rebalance(self, /, name: str, *, without: Sequence[str] | None = None) -> dict:
        """
        Spreads the rows of a grid of the cluster over the members that are there now, in shares by their memory, and waits. Members that have more than their share give row bands from the end of what they have to those
        that have least, so that as few bytes move as that takes; what moves is copied into the memory of its new member. Rows keep their order. Statements go on meanwhile; the old tiles stay for about a minute for
        those that read them. A member that comes gets tiles only this way.

        Args:
            name: The name of the grid of all members, as its parts were contributed.
            without: The URIs of members that are to have nothing of it, as `members` says them, since they are going to be taken away: what they have goes to the others.

        Returns:
            `{"bytes_moved": …, "tiles_moved": …, "tiles_kept": …}`; 0 moved where the shares are even already.

        Raises:
            InvalidArgumentError: The server is no member of a cluster, or `without` names who is none, or all members.
            NotFoundError: There is no grid of the cluster by this name with all its parts.
            PartitionLostError: A part of it is gone.
            WorkerLostError, StorageError and others: A member could not take its share. The grid is as it was.
        """
    def refresh(self, /) -> None:
        """
        Looks now who else is in the cluster, and which grids have all their parts, which else is done every second; and what others have changed in a catalog that they share, else every five seconds.

        Raises:
            InvalidArgumentError: The server is no member of a cluster and shares no catalog, or parts of one grid have other columns.
            StorageError: The list of members or the catalog cannot be read.
        """
    def register(self, /, name: str, data: Any) -> None:
        """
        Puts a grid under a name, in place of one that had it. Nothing is copied.

        Args:
            name: The name.
            data: A grid, or other data as `Session.register` takes it.

        Raises:
            InvalidArgumentError: The name is empty, longer than 200 bytes, or has control characters.
            InvalidDataError: It is that of a table of the catalog that is damaged.
        """
    def reload(self, /) -> None:
        """
        Reads the files of tokens and certificates again, and of a member of a cluster that of the token that it shows, and that of those whom it trusts. Connections that are open stay.

        Raises:
            NotFoundError: A file is gone; then what was read before stays in use.
            InvalidDataError: A file is not what it should be; likewise.
            InvalidArgumentError: A start would refuse it, such as a token of members with which one may not do all; likewise.
        """
    def stop(self, /, within: float | None = None) -> None:
        """
        Takes no more connections and begins nothing new, lets queries and loads finish, and ends them when the time is over. Their clients are told which.

        Args:
            within: Seconds.
        """
    @property
    def tables(self, /) -> list[str]:
        """
        The names of grids and views, sorted.
        """
    @property
    def uri(self, /) -> str:
        """
        Where clients reach it: `grpc://host:port`, or `grpc+tls://` with a certificate.
        """
    def withdraw(self, /, name: str) -> bool:
        """
        Takes the parts of a grid away that this process has, copies among them, and the grid itself from this member. Members that have copies of these parts let them go when they look next; the originals of
        copies that go stay with their members.
        It stays away from this member, also where others have all its parts, until one of its parts is contributed anew, by whichever member, or the grid is rebalanced.

        Args:
            name: The name of the grid of all members.

        Returns:
            Whether there was anything.

        Raises:
            InvalidArgumentError: The server is no member of a cluster.
        """

@final
class Session:
    """
    Grids under names, for SQL.

    Safe to use from several threads, and in a forked child, which gets an engine of its own over the same names.

    SQL reads grids, and names what it reads: `CREATE VIEW name AS …`, `CREATE TABLE name AS …` (a grid, which `grid` gives), `PREPARE`, `EXECUTE`, `DEALLOCATE`, `DROP`, `SHOW TABLES`,
    `DESCRIBE name`, `information_schema`. `tiles('name')` is a table of the tiles of a grid: where they are, how large, what values they hold. Nothing that SQL can say changes grids,
    files or settings.

    Args:
        threads: Into how many shares a query is spread, at most 1024; by default `PARTGRID_MAX_THREADS` as it is when a query is planned, and the number of cores without it.
        memory_limit: Bytes, or a text such as `"512MB"`, that sorts, joins, aggregates and kept answers may use together before they spill to disk or are refused; by default 80 % of the
            machine or control group. Buffers of registered grids do not count.
        query_memory_limit: The part of it that one query may use; all by default.
        spill_to: A folder for the temporary files of queries; made if it is not there. By default that of the system. The files have no name: nothing is left of them when a query ends, however
            the process ends.
        spill_limit: Bytes, or a text such as `"20GB"`, that these files may have together; 100 GiB by default. A query that wants more fails.
        timeout: Seconds that a query may take, waiting for its turn included; for ever by default, and for `float("inf")`.
        max_queries: How many queries run at once; others wait for their turn, first come, first served. By default as many as there are threads, and at least 4. A query that finds no
            memory while others run is begun again when it is alone.

    Raises:
        InvalidArgumentError: A number is 0, `threads` is more than 1024, or a limit is no size.
        StorageError: The folder `spill_to` cannot be made.

    Examples:
        >>> import partgrid as pg
        >>> session = pg.Session()
        >>> session.register("airlines", pg.read_parquet("data/airlines.parquet"))
        >>> session.sql("SELECT name FROM airlines WHERE carrier = $1", ["DL"]).to_arrow()["name"].to_pylist()
        ['Delta Air Lines Inc.']
    """
    def __new__(cls, /, *, threads: int | None = None, memory_limit: int | str | None = None, query_memory_limit: int | str | None = None, spill_to: str | PathLike[str] | None = None, spill_limit: int | str | None = None, timeout: float | None = None, max_queries: int | None = None) -> Session: ...
    def __repr__(self, /) -> str: ...
    def deregister(self, /, name: str) -> bool:
        """
        Takes a name away.

        Args:
            name: The name of a grid or view.

        Returns:
            Whether there was one.
        """
    def grid(self, /, name: str) -> Grid:
        """
        The grid under a name: one that was registered, or that `CREATE TABLE … AS` made.

        Args:
            name: The table name.

        Returns:
            The grid. Nothing is copied.

        Raises:
            NotFoundError: There is no such table.
            QueryError: It is a view, which has no grid.
        """
    @property
    def memory_bytes(self, /) -> int:
        """
        Bytes that the running queries of this session use at this moment, as far as they are counted.
        """
    def prepare(self, /, query: str) -> Prepared:
        """
        Looks up the names of a statement that reads, to run it again and again with other values for its parameters.

        Args:
            query: The SQL text, with parameters `$1`, `$2`, or `?`, or `$name`.

        Returns:
            The prepared statement.

        Raises:
            QueryError: The SQL is wrong, or does not read.

        Examples:
            >>> import partgrid as pg
            >>> session = pg.Session()
            >>> session.register("airlines", pg.read_parquet("data/airlines.parquet"))
            >>> by_code = session.prepare("SELECT name FROM airlines WHERE carrier = $code")
            >>> [by_code.sql({"code": code}).to_arrow()["name"][0].as_py() for code in ["AA", "DL"]]
            ['American Airlines Inc.', 'Delta Air Lines Inc.']
        """
    def register(self, /, name: str, data: Any) -> None:
        """
        Puts a grid under a name, in place of one that had it. Nothing is copied.

        SQL folds names without quotes to lower case, and then also finds the only name that differs in case.

        Args:
            name: The table name.
            data: A grid, or any object with `__arrow_c_stream__`, `__arrow_c_array__` (pyarrow, polars, pandas 3, duckdb, a result of SQL) or `__partitioned__` (Modin, Dask, HeAT), of which a
                grid is made as `from_arrow` and `from_partitioned` do. A stream is read whole, now. Labels of rows of a pandas frame are columns if they have names, and are left away if they have none.

        Raises:
            InvalidArgumentError: The name is empty, or two columns share a name.
            ProtocolError: `data` has none of these methods.
        """
    def register_aggregate(self, /, name: str, group: Any, arguments: Any, returns: Any) -> None:
        """
        Lets SQL call an aggregate of Python, in place of one that had its name. Needs pyarrow.

        Each group of rows is an object of the class. `update(*arrays)` takes rows in, one pyarrow array for each argument; `merge(other)` takes in another object that got other rows of the
        group; `evaluate()` gives the value. Attributes must be such that `pickle` takes them. What it raises ends the query, and is raised as it is.

        Args:
            name: The name in SQL, which folds names without quotes to lower case.
            group: The class, which is called without arguments.
            arguments: The types of the arguments: pyarrow types or their names.
            returns: The type of the value.

        Raises:
            InvalidArgumentError: The name is empty, the class lacks a method, or a type is none.

        Examples:
            >>> import partgrid as pg, pyarrow as pa
            >>> class Longest:
            ...     length = 0
            ...     def update(self, texts): self.length = max([self.length, *map(len, texts.to_pylist())])
            ...     def merge(self, other): self.length = max(self.length, other.length)
            ...     def evaluate(self): return self.length
            >>> session = pg.Session()
            >>> session.register_aggregate("longest", Longest, [pa.string()], pa.int64())
            >>> session.register("t", pa.table({"s": ["a", "bcd"]}))
            >>> session.sql("SELECT longest(s) AS n FROM t").to_arrow()["n"].to_pylist()
            [3]
        """
    def register_function(self, /, name: str, function: Any, arguments: Any, returns: Any, *, volatile: "bool" = False) -> None:
        """
        Lets SQL call a function of Python, in place of one that had its name. Needs pyarrow.

        It is called on the threads that run a query, with one pyarrow array for each argument, thousands of rows at a time, and gives an array of the same length: a pyarrow array, or any
        object with `__arrow_c_array__` or `__arrow_c_stream__` (polars), or a list or numpy array, which are copied. Arrays share the memory of the query. What it raises
        ends the query, and is raised as it is.

        Args:
            name: The name in SQL, which folds names without quotes to lower case.
            function: What to call. Without arguments, it gets the number of rows.
            arguments: The types of the arguments: pyarrow types or their names. Values of other types are cast where SQL does so by itself.
            returns: The type of the values.
            volatile: Whether equal arguments may give other values; such a function is called for every row, and never before the query runs.

        Raises:
            InvalidArgumentError: The name is empty, `function` cannot be called, or a type is none.

        Examples:
            >>> import partgrid as pg, pyarrow.compute as pc
            >>> session = pg.Session()
            >>> session.register_function("initials", lambda name: pc.utf8_slice_codeunits(name, 0, 2), ["string"], "string")
            >>> session.sql("SELECT initials('Delta') AS i").to_arrow()["i"].to_pylist()
            ['De']
        """
    def sql(self, /, query: str, params: Any | None = None, *, timeout: float | None = None, memory_limit: int | str | None = None, threads: int | None = None) -> Result:
        """
        Checks and plans one statement. One that reads (SELECT, WITH, VALUES, EXPLAIN, DESCRIBE, SHOW, EXECUTE) runs when its result is asked for; one that names something (CREATE VIEW,
        CREATE TABLE … AS, DROP, PREPARE, DEALLOCATE) takes effect now, and its result is one text, `status`.

        Args:
            query: The SQL text, at most 262,144 bytes, expressions at most 500 operators deep.
            params: Values for its parameters: a list for `$1`, `$2` or `?`, a dict for `$name`. None, bool, int, float, str, bytes, date, time, datetime, timedelta, Decimal, UUID, lists of
                these, and scalars of numpy and pyarrow, which keep their type. Values never become SQL text.
            timeout: Seconds that each run may take, in place of that of the session.
            memory_limit: Bytes, or a text such as `"512MB"`, that each run may use.
            threads: Into how many shares the query is spread.

        Returns:
            A result that has not run yet.

        Raises:
            QueryError: The SQL is wrong; it shows the place, and names what is near. Or values and parameters do not fit.
            InvalidArgumentError: A value of `params` has no type in Arrow, or a limit is 0.
            ResourcesExhaustedError: The text is longer or deeper than allowed.
        """
    @property
    def tables(self, /) -> list[str]:
        """
        The names of grids and views, sorted.
        """

@final
class Storage:
    """
    Memory whose elements lie as a stencil wants them: shape, layout and alignment are chosen when it is made, by `partgrid.storage.empty` and its siblings.

    `numpy.asarray`, `memoryview`, `numpy.from_dlpack` and stencils of GT4Py read and write it where it lies; the memory lives as long as the storage or anything made of it. Indexing is
    numpy's. A storage that became part of a grid (`partgrid.from_storage`), or that is a view of one (`Tile.storage`), is frozen: from then on all views are read-only.

    Examples:
        >>> import numpy as np, partgrid as pg
        >>> field = pg.storage.zeros((4, 3, 2), backend="gt:cpu_ifirst", dims="IJK")
        >>> field
        Storage (4, 3, 2) of float64, layout (2, 1, 0), dims ('I', 'J', 'K')
        >>> field[1:3, 0, 0] = 7.0
        >>> np.asarray(field).sum()
        np.float64(14.0)
    """
    __buffer_supported_flags__: Final[int]
    """
    The request flags that storages take: see `partgrid.buffer.supports`.
    """
    def __abs__(self, /) -> Any: ...
    def __add__(self, other: object, /) -> Any: ...
    def __and__(self, other: object, /) -> Any: ...
    def __array__(self, /, dtype: Any | None = None, copy: bool | None = None) -> Any:
        """
        NumPy: the storage as a `numpy.ndarray` over the same memory, writable until the storage becomes part of a grid. Needs numpy.

        Args:
            dtype: The wanted type; another than that of the elements makes a copy.
            copy: `True` copies always, `None` when it must, `False` never.

        Raises:
            ValueError: `copy=False`, and the type needs a copy.
            TypeError: The memory is not the host's.
        """
    @property
    def __array_interface__(self, /) -> dict:
        """
        The array interface of NumPy, version 3. Missing where the memory is not the host's. Who keeps the address must not write any more when the storage becomes part of a grid.
        """
    def __bool__(self, /) -> bool: ...
    def __complex__(self, /) -> Any: ...
    @property
    def __cuda_array_interface__(self, /) -> dict:
        """
        The array interface of CUDA, version 3. Missing where CUDA cannot read the memory.
        """
    def __divmod__(self, other: object, /) -> Any: ...
    def __dlpack__(self, /, *, stream: Any | None = None, max_version: tuple[int, int] | None = None, dl_device: tuple[int, int] | None = None, copy: bool | None = None) -> CapsuleType:
        """
        DLPack (array API 2023.12): a capsule over the same memory, or over a copy of it with `copy=True`.

        Args:
            stream: `None` on the CPU, which has no streams; on a GPU any stream of CUDA, since what made the storage is done.
            max_version: The newest version that the consumer takes. Versions before 1.0 cannot say that memory is read-only, and get only copies of a frozen storage.
            dl_device: `None` or the device of the storage; `(1, 0)` is the CPU.
            copy: `True` copies, on the CPU; `None` and `False` never do.

        Returns:
            A capsule `dltensor_versioned`, or `dltensor` for versions before 1.0.

        Raises:
            BufferError: The wish cannot be met.
        """
    def __dlpack_device__(self, /) -> tuple[int, int]:
        """
        The device of DLPack; `(1, 0)` is the CPU.
        """
    def __eq__(self, other: object, /) -> Any:
        """
        Compared element by element, as numpy does.
        """
    def __float__(self, /) -> Any: ...
    def __floordiv__(self, other: object, /) -> Any: ...
    def __ge__(self, other: object, /) -> Any:
        """
        Compared element by element, as numpy does.
        """
    def __getitem__(self, key: Any, /) -> Any:
        """
        What numpy gives for the key: an element, or a view of several. Needs numpy.
        """
    def __gt__(self, other: object, /) -> Any:
        """
        Compared element by element, as numpy does.
        """
    @property
    def __gt_dims__(self, /) -> Any:
        """
        The labels of the dimensions: a tuple, as GT4Py reads it, that gives itself when it is called, as the specification has it. Missing where no `dims` were given.
        """
    @property
    def __gt_origin__(self, /) -> tuple:
        """
        Where a stencil of GT4Py begins unless it is told otherwise: the aligned element, in the order I, J, K, then data, where it is zero.
        """
    def __hash__(self, /) -> int:
        """
        That of the object, not of its elements.
        """
    def __iadd__(self, other: object, /) -> Self: ...
    def __iand__(self, other: object, /) -> Self: ...
    def __ifloordiv__(self, other: object, /) -> Self: ...
    def __ilshift__(self, other: object, /) -> Self: ...
    def __imatmul__(self, other: object, /) -> Self: ...
    def __imod__(self, other: object, /) -> Self: ...
    def __imul__(self, other: object, /) -> Self: ...
    def __int__(self, /) -> Any: ...
    def __invert__(self, /) -> Any: ...
    def __ior__(self, other: object, /) -> Self: ...
    def __ipow__(self, other: object, /) -> Self: ...  # type: ignore[misc]
    def __irshift__(self, other: object, /) -> Self: ...
    def __isub__(self, other: object, /) -> Self: ...
    def __iter__(self, /) -> Iterator:
        """
        What numpy gives for each index of the first dimension. Needs numpy.
        """
    def __itruediv__(self, other: object, /) -> Self: ...
    def __ixor__(self, other: object, /) -> Self: ...
    def __le__(self, other: object, /) -> Any:
        """
        Compared element by element, as numpy does.
        """
    def __len__(self, /) -> int: ...
    def __lshift__(self, other: object, /) -> Any: ...
    def __lt__(self, other: object, /) -> Any:
        """
        Compared element by element, as numpy does.
        """
    def __matmul__(self, other: object, /) -> Any: ...
    def __mod__(self, other: object, /) -> Any: ...
    def __mul__(self, other: object, /) -> Any: ...
    def __ne__(self, other: object, /) -> Any:
        """
        Compared element by element, as numpy does.
        """
    def __neg__(self, /) -> Any: ...
    def __or__(self, other: object, /) -> Any: ...
    def __pos__(self, /) -> Any: ...
    def __pow__(self, other: object, modulo: object = None, /) -> Any: ...
    def __radd__(self, other: object, /) -> Any: ...
    def __rand__(self, other: object, /) -> Any: ...
    def __rdivmod__(self, other: object, /) -> Any: ...
    def __reduce__(self, /) -> tuple:
        """
        A copy: pickled, and copied, a storage is one with the same values, laid out by the same parameters, and not frozen. Needs numpy.
        """
    def __repr__(self, /) -> str: ...
    def __rfloordiv__(self, other: object, /) -> Any: ...
    def __rlshift__(self, other: object, /) -> Any: ...
    def __rmatmul__(self, other: object, /) -> Any: ...
    def __rmod__(self, other: object, /) -> Any: ...
    def __rmul__(self, other: object, /) -> Any: ...
    def __ror__(self, other: object, /) -> Any: ...
    def __rpow__(self, other: object, modulo: object = None, /) -> Any: ...
    def __rrshift__(self, other: object, /) -> Any: ...
    def __rshift__(self, other: object, /) -> Any: ...
    def __rsub__(self, other: object, /) -> Any: ...
    def __rtruediv__(self, other: object, /) -> Any: ...
    def __rxor__(self, other: object, /) -> Any: ...
    def __setitem__(self, key: Any, value: Any, /) -> None:
        """
        Writes elements, as numpy does. Needs numpy.
        """
    def __sub__(self, other: object, /) -> Any: ...
    def __truediv__(self, other: object, /) -> Any: ...
    def __xor__(self, other: object, /) -> Any: ...
    @property
    def address(self, /) -> int:
        """
        The address of the first element.
        """
    @property
    def aligned_index(self, /) -> tuple:
        """
        The element that is aligned.
        """
    @property
    def alignment_size(self, /) -> int:
        """
        The bytes of which the address of that element is a multiple.
        """
    @property
    def default_origin(self, /) -> tuple:
        """
        The same under the name of the specification.
        """
    @property
    def device(self, /) -> str | None:
        """
        `"gpu"` for memory of an accelerator, `None` for that of the host.
        """
    @property
    def dims(self, /) -> tuple | None:
        """
        The labels of the dimensions, or `None` where none were given.
        """
    @property
    def dtype(self, /) -> Any:
        """
        The type of the elements, a `numpy.dtype`. Needs numpy.
        """
    @property
    def is_frozen(self, /) -> bool:
        """
        Whether the memory belongs to a grid, so that nobody can write to it any more.
        """
    @property
    def itemsize(self, /) -> int:
        """
        The bytes of one element.
        """
    @property
    def layout(self, /) -> tuple:
        """
        For each dimension the rank of its stride, 0 being the largest.
        """
    @property
    def nbytes(self, /) -> int:
        """
        The bytes of the elements, without what lies between them.
        """
    @property
    def ndim(self, /) -> int:
        """
        The number of dimensions.
        """
    @property
    def shape(self, /) -> tuple:
        """
        The number of elements along each dimension.
        """
    @property
    def size(self, /) -> int:
        """
        The number of elements.
        """
    @property
    def strides(self, /) -> tuple:
        """
        The bytes from one element to the next along each dimension.
        """

@final
class Tile:
    """
    The data at one position of a grid: a contiguous Arrow record batch that lives somewhere.

    A tile shares the memory of its grid and keeps it alive. Pickles with the standard library, without data: another process can open it as long as this tile, or
    the grid that it was taken from, is there. Any library that takes `__arrow_c_array__` or `__arrow_c_device_array__` reads it without copying.
    """
    def __array__(self, /, dtype: Any | None = None, copy: bool | None = None) -> Any:
        """
        Refused: without this method numpy would make an array of one object.
        """
    def __arrow_c_array__(self, /, requested_schema: Any | None = None) -> tuple:
        """
        The Arrow PyCapsule interface: schema and array of the batch, without copying.

        Args:
            requested_schema: A schema capsule with the same column names; values are cast to its types.

        Raises:
            NotLocalError: The bytes are not in this process.
        """
    def __arrow_c_device_array__(self, /, requested_schema: Any | None = None, **kwargs) -> tuple:
        """
        The Arrow PyCapsule interface for devices: schema and array of the batch where it is, without copying.

        Args:
            requested_schema: A schema capsule with the same column names; values are cast to its types. Not of a tile on a device.
            kwargs: Reserved by the interface.

        Raises:
            NotImplementedError: A keyword argument other than `None`.
            UnsupportedError: A requested schema of a tile on a device.
            NotLocalError: The bytes are not in this process.
        """
    def __arrow_c_schema__(self, /) -> CapsuleType:
        """
        The Arrow PyCapsule interface: the schema.
        """
    def __len__(self, /) -> int:
        """
        The number of rows.
        """
    def __reduce__(self, /) -> tuple[Any, tuple[tuple[tuple[int, list[int], int, str, int, str], bytes, list[int], list[int], list[int], int]]]: ...
    def __repr__(self, /) -> str: ...
    @classmethod
    def _from_parts(cls, /, parts: tuple[tuple[int, Sequence[int], int, str, int, str], bytes, Sequence[int], Sequence[int], Sequence[int], int]) -> Tile:
        """
        Makes a tile from what another one pickled. Used by `pickle`.
        """
    def array(self, /, *, fill_null: Any | None = None) -> Array:
        """
        All columns as one array of rows x columns, without copying.

        Args:
            fill_null: The number that stands for nulls; the values are copied only when there are some. It must be a value of the columns' type exactly.

        Returns:
            The array, each column contiguous.

        Raises:
            UnsupportedError: The columns do not make one array: they must be numbers of one type as `dense=` of the load places them, or a single column.
            InvalidDataError: A column has nulls, and nothing stands for them.
            InvalidArgumentError: The type does not hold `fill_null` exactly.
            NotLocalError: The bytes are not in this process.

        Examples:
            >>> import partgrid as pg
            >>> grid = pg.read_parquet("data/flights", columns=["hour", "minute"], dense=["hour", "minute"])
            >>> grid.tile(0).array()
            Array (27004, 2) of int8, read-only
        """
    def column(self, /, name: str, *, fill_null: Any | None = None) -> "Array | DeviceColumn":
        """
        One column as an array, or where it is on a device, without copying.

        Args:
            name: The name of an integer or float column; of a tile on a device, of any.
            fill_null: The number that stands for nulls; the values are copied only when there are some. It must be a value of the column's type exactly. Not of a tile on a device.

        Returns:
            The column in one dimension. Of a lazy tile only this column is read. Of a tile on a device a `DeviceColumn`, which is not copied here unless `to("kDLCPU")` of it asks for that.

        Raises:
            NotFoundError: There is no such column.
            UnsupportedError: The column has a type that is no plain number; the text says what to cast. Or `fill_null` of a tile on a device.
            InvalidDataError: The column has nulls, and nothing stands for them.
            InvalidArgumentError: The type does not hold `fill_null` exactly.
            NotLocalError: The bytes are not in this process.
        """
    @property
    def columns(self, /) -> list[str]:
        """
        The names of the columns, in order.
        """
    @property
    def location(self, /) -> list[tuple]:
        """
        Where the tile can be read without communication, this process first: a list of `(IP, PID)` or `(IP, PID, device)`.
        """
    @property
    def nbytes(self, /) -> int:
        """
        The bytes of the tile, without what it shares with others.
        """
    @property
    def position(self, /) -> tuple:
        """
        The position in the grid: row band, column band.
        """
    @property
    def shape(self, /) -> tuple:
        """
        The number of rows and columns.
        """
    @property
    def start(self, /) -> tuple:
        """
        The global index of the first row and of the first column.
        """
    def storage(self, /, *, dims: Sequence[str] | str | None = None) -> Storage:
        """
        All columns as one frozen storage of rows x columns, without copying, as `array` has them: for stencils that read it.

        Args:
            dims: What the two dimensions mean to stencils, such as `("I", "K")`; by default nothing is said.

        Returns:
            The storage, which is read-only. It is aligned to 64 bytes where the columns are.

        Raises:
            UnsupportedError: The columns do not make one array: they must be numbers of one type as `dense=` of the load places them, or a single column.
            InvalidDataError: A column has nulls.
            InvalidArgumentError: There are no such labels, or not two.
            NotLocalError: The bytes are not in this process.

        Examples:
            >>> import partgrid as pg
            >>> grid = pg.read_parquet("data/flights", columns=["hour", "minute"], dense=["hour", "minute"])
            >>> grid.tile(0).storage(dims=("I", "J"))
            Storage (27004, 2) of int8, layout (1, 0), dims ('I', 'J'), (0, 0) aligned to 64 bytes, frozen
        """
    def to(self, /, device: str) -> Tile:
        """
        The tile in the memory of a device.

        Args:
            device: Such as `"kDLCUDA:0"`, or `"kDLCPU"` for the memory of this process.

        Returns:
            A tile at the same position. All columns are copied, and nothing when it is there already.

        Raises:
            UnsupportedError: Nothing copies to such a device; `register_copy_engine` takes what does.
            NotFoundError: The driver of the device is not on this machine, or the device is not.
            ResourcesExhaustedError: The device has no room.
        """
    def to_arrow(self, /) -> Any:
        """
        The tile as a `pyarrow.RecordBatch`, without copying. Needs pyarrow.
        """
    def to_pandas(self, /) -> Any:
        """
        The tile as a `pandas.DataFrame` of Arrow-backed columns, without copying. Needs pandas and pyarrow.
        """
    def to_polars(self, /) -> Any:
        """
        The tile as a `polars.DataFrame`; polars copies strings into views of its own. Needs polars.
        """

@final
class _Arguments:
    """
    A batch, as an object that pyarrow takes: the arguments of a call.
    """
    def __arrow_c_array__(self, /, requested_schema: Any | None = None) -> tuple:
        """
        The Arrow PyCapsule interface.
        """
    @property
    def num_rows(self, /) -> int:
        """
        How many rows there are, also without arguments.
        """

@final
class _HaloPlan:
    """
    Which elements go from rank to rank so that communication padding is fresh.
    """
    def __new__(cls, /, array: DistArray) -> _HaloPlan: ...
    def _transfers(self, /, from_rank: int, to_rank: int) -> list[_Transfer]:
        """
        What goes from a rank to a rank, in pieces that fit a message.
        """

@final
class _Kept:
    """
    A result for a reader who keeps the whole answer, which then counts against the memory limit.
    """
    def __arrow_c_stream__(self, /, requested_schema: Any | None = None) -> CapsuleType: ...

@final
class _Transfer:
    """
    Elements that go from one rank to another in one message.
    """
    def carry(self, /, source: Any, target: Any) -> None:
        """
        Copies from buffer to buffer, where both are here.
        """
    @property
    def nbytes(self, /) -> int:
        """
        The bytes of the message.
        """
    def pack(self, /, source: Any) -> Array:
        """
        The message, from the buffer of the rank that sends it.
        """
    def unpack(self, /, message: Any, target: Any) -> None:
        """
        Puts a message into the buffer of the rank that got it.
        """

def _buffer_interface() -> CapsuleType:
    """
    The capsule with the functions for extensions in C.
    """

def _dist_array(sections: Any, rank: int) -> DistArray:
    """
    The array of a program of several processes: the sections of others are stand-ins, with everything but data.
    """

def _end_calls() -> None:
    """
    Waits until no other thread of ours is in Python; none will be from now on. Python runs it when it ends, while threads may still have the GIL.

    Raises:
        KeyboardInterrupt: Ctrl-C while a function takes its time.
    """

def _fill_halos(array: DistArray) -> None:
    """
    Fills the communication padding of all sections of an array, which are all in this process.
    """

def _forget_threads() -> None:
    """
    Forgets what the threads of the parent wait for, and their calls, in a forked child, which does not have them.
    """

def _from_parts(cells: Any) -> Grid:
    """
    Makes a grid of one tile for each cell: of a list of row bands, each a list of objects with Arrow capsules. Used by the engines.

    Args:
        cells: The cells; `cells[1][0]` becomes the tile of row band 1 and column band 0.

    Returns:
        A grid over the memory of the cells; a cell of several batches is copied into one.

    Raises:
        InvalidArgumentError: A cell does not fit those beside it or above it; the text has its position.
        ProtocolError: A cell has no Arrow capsules.
    """

def _from_ranks(parts: Sequence[tuple[str, int, tuple[Schema, Sequence[int], Sequence[int]] | None, Sequence[bool] | None]], rank: int, grid: Grid | None, comm: Any) -> Grid:
    """
    The grid of all ranks.

    Args:
        parts: What each rank said, rank 0 first.
        rank: The number of this one.
        grid: The part of this one, or nothing.
        comm: The communicator.

    Returns:
        The grid, on every rank with the same outline.

    Raises:
        InvalidArgumentError: The ranks have other columns or column cuts; on all ranks alike.
    """

def _go_on() -> None:
    """
    Lets the threads go on; Python runs it in the parent after a fork.
    """

def _rank_part(grid: Grid | None) -> tuple[str, int, tuple[Schema, list[int], list[int]] | None, list[bool] | None]:
    """
    What this rank says of its part to the others. Pickles with the standard library.

    Args:
        grid: The part, or nothing.

    Returns:
        What `_from_ranks` takes of each rank.
    """

def _stand_still() -> None:
    """
    Lets all threads of ours wait, at the end of the step that each is in; Python runs it before a fork.
    """

def block(cuts: int | Sequence[int], num_ranks: int | None = None, *, padding: int | None = None, boundary: tuple[int, int] | None = None, periodic: bool | None = None, version: str | None = None) -> Map:
    """
    Blocks: each rank has one run of neighbours.

    Args:
        cuts: Where the blocks begin and end, from 0 to the size, such as `[0, 4, 10]`; or the size, which is then cut as evenly as can be.
        num_ranks: With a size: the number of ranks, by default 1.
        padding: Communication padding: how many elements of its neighbours each rank holds on either side of a border. Beside a rank that owns nothing there is none.
        boundary: Boundary padding: how many of the first and of the last elements count as padding. They are part of the array.
        periodic: Whether the last element is beside the first. In version 0.9 that is a border as any other, with communication padding.
        version: The version of the protocol whose rules count, `"0.10.0"` (the default) or `"0.9.0"`. They differ for periodic dimensions only.

    Raises:
        InvalidArgumentError: The cuts do not begin at 0, or decrease; there are no ranks, or more than 16,777,216; a rank owns less than the padding that its neighbour holds, or than its boundary.
        ProtocolError: Another version.
        UnsupportedError: Boundary padding of a periodic dimension in 0.9.

    Examples:
        >>> import partgrid as pg
        >>> rows = pg.distarray.block([0, 4, 10], padding=1)
        >>> rows.dim_data(1)["start"], rows.dim_data(1)["padding"]
        (3, (1, 0))
    """

def connect(uri: str, *, token: str | None = None, ca: str | PathLike[str] | None = None, certificate: str | PathLike[str] | None = None, key: str | PathLike[str] | None = None, server_name: str | None = None, tls: bool | None = None, insecure: "bool" = False, timeout: float | None = None, memory_limit: int | str | None = None) -> Connection:
    """
    Connects to a server of partgrid, or another one of Arrow Flight SQL.

    Args:
        uri: `grpc://host:port`, or `grpc+tls://host:port` with TLS.
        token: The token to show with each call.
        ca: A file of those who vouch for the server, in PEM; by default those that the system trusts.
        certificate: A file of the certificate that the client shows, in PEM (mutual TLS).
        key: A file of its key.
        server_name: The name that the certificate of the server must have, where it is another than that of the URI.
        tls: Whether the connection is encrypted, where the URI leaves it open: `host:port` without a scheme, and, to be spoken to by TLS, `grpc://host:port`. By default the URI alone says it. A URI that says otherwise (`grpc+tcp://` with True, `grpc+tls://` with False) is refused.
        insecure: Lets the token go to another host without TLS, where whoever is on the way can read it. This machine needs no such leave.
        timeout: How long each query may take, in seconds; the server may allow less.
        memory_limit: What each query may use of the server's memory, in bytes or as text such as `"2GB"`; the server may allow less.

    Returns:
        The connection.

    Raises:
        InvalidArgumentError: It is no such URI, it contradicts `tls`, there is a certificate without a key, or a token would go to another host without TLS.
        StorageError: No server answers there within ten seconds, or its certificate is not trusted.

    Examples:
        >>> import partgrid as pg
        >>> with pg.Server({"airlines": pg.read_parquet("data/airlines.parquet")}) as server:
        ...     connection = pg.connect(server.uri)
        ...     connection.grids(), connection.sql("SELECT count(*) AS n FROM airlines").to_arrow()["n"].to_pylist()
        (['airlines'], [16])
    """

def cyclic(size: int, num_ranks: int, block_size: int | None = None) -> Map:
    """
    Blocks of equal size, dealt out to the ranks in turn.

    Args:
        size: The number of global indices.
        num_ranks: The number of ranks.
        block_size: How many neighbours are dealt out at a time.

    Raises:
        InvalidArgumentError: No rank, or a block size of 0.
    """

def empty(shape: Sequence[int], dtype: Any | None = None, *, aligned_index: Sequence[int] | None = None, alignment_size: int | None = None, backend: str | None = None, device: str | None = None, dims: Sequence[str] | str | None = None, layout: Sequence[int] | None = None) -> Storage:
    """
    Makes a storage whose values are not defined.

    Args:
        shape: The number of elements along each dimension; none may be negative, zero is allowed.
        dtype: What `numpy.dtype` takes, by default 64-bit floats.
        aligned_index: The element to which the memory is aligned, by default the first one. It is the origin too, where stencils begin unless they are told otherwise.
        alignment_size: The bytes of which the address of that element is a multiple; a multiple or a divisor of the bytes of an element.
        backend: The name of a backend of GT4Py, whose alignment, device and layout are taken. It excludes giving these.
        device: `"gpu"` for memory of an accelerator: the GPU of CUDA that is current on this thread, by default the first. Without it that of the host.
        dims: What the dimensions mean: labels out of `"I"`, `"J"`, `"K"`, and `"0"`, `"1"` and so on for dimensions of data.
        layout: For each dimension the rank of its stride, 0 being the largest; by default C order.

    Returns:
        The storage, in writable memory of its own. What is not given of a storage that is made like another is as there; a backend stands for alignment, device and layout.

    Raises:
        InvalidArgumentError: A parameter is none of the allowed ones, or two contradict each other.
        ResourcesExhaustedError: There is no such amount of memory.
        UnsupportedError: A GPU is asked for where none is reached, or a type whose elements are no values in memory.

    Examples:
        >>> import partgrid as pg
        >>> pg.storage.empty((6, 4), "float32", dims=("K", "I"), backend="gt:cpu_kfirst").strides
        (4, 24)
    """

def empty_like(data: Any, dtype: Any | None = None, *, aligned_index: Sequence[int] | None = None, alignment_size: int | None = None, backend: str | None = None, device: str | None = None, dims: Sequence[str] | str | None = None, layout: Sequence[int] | None = None) -> Storage:
    """
    Makes a storage of the shape of another one, or of an array, whose values are not defined.

    Args:
        data: A storage, or an array with an interface of numpy or DLPack, of which layout and `__gt_dims__` are taken.
        dtype: What `numpy.dtype` takes, by default the type of `data`.
        aligned_index: The element to which the memory is aligned, by default the first one. It is the origin too, where stencils begin unless they are told otherwise.
        alignment_size: The bytes of which the address of that element is a multiple; a multiple or a divisor of the bytes of an element.
        backend: The name of a backend of GT4Py, whose alignment, device and layout are taken. It excludes giving these.
        device: `"gpu"` for memory of an accelerator: the GPU of CUDA that is current on this thread, by default the first. Without it that of the host.
        dims: What the dimensions mean: labels out of `"I"`, `"J"`, `"K"`, and `"0"`, `"1"` and so on for dimensions of data.
        layout: For each dimension the rank of its stride, 0 being the largest; by default C order.

    Returns:
        The storage, in writable memory of its own. What is not given of a storage that is made like another is as there; a backend stands for alignment, device and layout.

    Raises:
        InvalidArgumentError: A parameter is none of the allowed ones, or two contradict each other.
        ResourcesExhaustedError: There is no such amount of memory.
        UnsupportedError: A GPU is asked for where none is reached, or a type whose elements are no values in memory.

    Examples:
        >>> import partgrid as pg
        >>> storage = pg.storage.zeros((4, 3), dims="KI", layout=(1, 0))
        >>> pg.storage.empty_like(storage, "int32")
        Storage (4, 3) of int32, layout (1, 0), dims ('K', 'I')
    """

def from_arrow(data: Any, names: Sequence[str] | None = None) -> Grid:
    """
    Makes a grid of any object with `__arrow_c_stream__` or `__arrow_c_array__`, one tile for each batch, without copying.

    pyarrow tables and batches, polars, pandas 3, duckdb and arro3 frames have these methods. Memory of a device (`__arrow_c_device_array__` of pylibcudf, or
    `__arrow_c_device_stream__`) stays there: its tiles say where they are. Sliced nested columns are the one exception: they are copied. polars copies
    frames of several chunks into one before it hands them over; `from_polars` does not.

    Args:
        data: The object.
        names: The names of the columns, in place of those that the object gives; by default `column_0`, `column_1` and so on where it gives none, as tables of pylibcudf.

    Returns:
        A grid that shares the object's memory.

    Raises:
        ProtocolError: The object has none of these methods.
        InvalidArgumentError: Two columns share a name, or there are not as many names as columns.
        UnsupportedError: Names for a grid, whose columns have theirs.

    Examples:
        >>> import partgrid as pg, pyarrow as pa
        >>> pg.from_arrow(pa.table({"a": [1, 2, 3]})).shape
        (3, 1)
        >>> pg.from_arrow(pa.table([[1, 2, 3], ["x", "y", "z"]], names=["", ""]), names=["number", "letter"]).to_arrow().column_names
        ['number', 'letter']
    """

def from_distarray(sections: Any, names: Sequence[str] | None = None) -> Grid:
    """
    Makes a grid of a distributed array: the sections of all its ranks, of version 0.9 or 0.10 of the Distributed Array Protocol. Needs numpy.

    Blocks become tiles over the memory of the sections. Cyclic and unstructured dimensions are gathered into the order of the global indices. Elements of communication padding, which belong
    to other ranks, are left away. One dimension is a frame of one column, two are rows and columns.

    Args:
        sections: Objects with `__distarray__`, or their dictionaries, rank 0 first.
        names: The names of the columns; by default `column_0`, `column_1` and so on.

    Returns:
        A grid with the cuts of the blocks. Copied are columns that do not lie in one piece (a section of several columns in C order), foreign byte order, and what is gathered. Do not write to
        the sections while the grid is in use.

    Raises:
        ProtocolError: A rule of the protocol is broken; the text names rule, rank, dimension and key. `partgrid.distarray.validate` lists everything.
        UnsupportedError: More than two dimensions, elements that are no numbers, or labels of an unstructured dimension that are not 0 up to its size.
        InvalidArgumentError: There is another number of names than of columns.

    Examples:
        >>> import numpy as np, partgrid as pg
        >>> def section(rank):
        ...     block = {"dist_type": "b", "size": 4, "proc_grid_size": 2, "proc_grid_rank": rank, "start": 2 * rank, "stop": 2 * rank + 2}
        ...     return {"__version__": "0.10.0", "buffer": np.full(2, rank), "dim_data": (block,)}
        >>> grid = pg.from_distarray([section(0), section(1)], names=["rank"])
        >>> grid.to_arrow()["rank"].to_pylist()
        [0, 0, 1, 1]
    """

def from_dlpack(tensor: Any, names: Sequence[str] | None = None) -> Grid:
    """
    Makes a grid of one tile of any tensor with `__dlpack__` in the memory of the CPU: numpy, torch, jax, tensorflow, ...

    A tensor of one dimension becomes one column, one of two dimensions a column for each index of the second. Columns whose elements are neighbours in memory share it, all
    others are copied; booleans become bits. Shared memory must not change while the grid lives.

    Args:
        tensor: An object with `__dlpack__` and `__dlpack_device__`: integers, floats up to 64 bits, or booleans.
        names: The names of the columns, by default `column_0`, `column_1` and so on.

    Returns:
        The grid. It keeps the tensor's memory alive.

    Raises:
        ProtocolError: The object has no `__dlpack__`.
        NotLocalError: The tensor is in the memory of a device.
        UnsupportedError: Its elements have no Arrow type.
        InvalidArgumentError: It has other than one or two dimensions, or names do not fit.
        InvalidDataError: The tensor contradicts itself.

    Examples:
        >>> import numpy as np, partgrid as pg
        >>> pg.from_dlpack(np.arange(6.0).reshape(3, 2), names=["a", "b"]).columns
        ['a', 'b']
    """

def from_numpy(array: Any, names: Sequence[str] | None = None) -> Grid:
    """
    Makes a grid of one tile of a numpy array.

    An array of one dimension becomes one column, one of two dimensions a column for each index of the second, and one of records a column for each field. Columns whose
    elements are neighbours in memory share it (all columns of an array in Fortran order, a single one of an array in C order); all others are copied, and so are booleans
    (which become bits), texts, days, and numbers in foreign byte order. Shared memory must not change while the grid lives.

    Args:
        array: Booleans, integers, floats up to 64 bits, `datetime64` in days, s, ms, us or ns, `timedelta64` in s, ms, us or ns (NaT becomes null), unicode texts, or records of
            them.
        names: The names of the columns, by default `column_0`, `column_1` and so on, or those of the records' fields.

    Returns:
        The grid. It keeps the array alive.

    Raises:
        UnsupportedError: The elements have no Arrow type of the same values; the text says what to do.
        InvalidArgumentError: The array has other than one or two dimensions, or names do not fit.
        InvalidDataError: A text is no unicode, or a day does not fit 32 bits.

    Examples:
        >>> import numpy as np, partgrid as pg
        >>> grid = pg.from_numpy(np.arange(6.0).reshape(3, 2), names=["a", "b"])
        >>> grid.shape
        (3, 2)
        >>> grid.to_numpy()
        array([[0., 1.],
               [2., 3.],
               [4., 5.]])
    """

def from_partitioned(data: Any, *, names: Sequence[str] | None = None, timeout: float | None = None) -> Grid:
    """
    Makes a grid of any object with `__partitioned__`, or of its dictionary.

    The draft of 2022-01-27 and what real libraries do instead are understood: a method in the place of the property, also the first draft's `__partitioned_interface__`; a `location` that is a rank, an address or a name, with or without a
    list; no `get`; a `get` that takes one handle only, or sequences only; data that is a frame or an array of any library (Arrow PyCapsules, pandas, numpy, DLPack). Every number is
    checked, also against the data. Of an SPMD program (a dictionary with `locals`) the local partitions are opened, the others keep their outline and location.

    Args:
        data: The object or the dictionary.
        names: The names of the columns; by default those of the data, and `column_0` and so on for arrays.
        timeout: Seconds that `get` may take; without it as long as it takes.

    Returns:
        A grid over the memory of the data. Copied are: partitions that are streams of several batches, and arrays of rows (C order), whose columns do not lie in one piece.

    Raises:
        ProtocolError: The dictionary is wrong, its data is not what it says, or `get` failed or took too long; the text has the path, such as `partitions[(1, 0)].start`.
        UnsupportedError: More than two dimensions.

    Examples:
        >>> import partgrid as pg, pyarrow as pa
        >>> grid = pg.from_arrow(pa.table({"a": [1, 2, 3]}))
        >>> pg.from_partitioned(grid.__partitioned__).shape
        (3, 1)
    """

def from_sections(sections: Any) -> DistArray:
    """
    Makes an array of the sections of anybody, of any number of dimensions. Nothing is copied.

    Args:
        sections: Objects with `__distarray__`, or their dictionaries, rank 0 first; version 0.9 or 0.10 of the Distributed Array Protocol.

    Returns:
        The array, over the buffers of the sections.

    Raises:
        ProtocolError: A rule of the protocol is broken; the text names rule, rank, dimension and key. `partgrid.distarray.validate` lists everything.

    Examples:
        >>> import numpy as np, partgrid as pg
        >>> halves = pg.distarray.block(4, 2)
        >>> def section(rank):
        ...     return {"__version__": "0.10.0", "buffer": np.full(2, rank), "dim_data": (halves.dim_data(rank),)}
        >>> array = pg.distarray.from_sections([section(0), section(1)])
        >>> whole = array.redistribute(pg.distarray.block(4)).execute()
        >>> np.asarray(whole.local.buffer).tolist()
        [0, 0, 1, 1]
    """

def from_storage(storage: Any, names: Sequence[str] | None = None) -> Grid:
    """
    Makes a grid of one tile over the memory of a storage, without copying: a dense band, whose columns are one array.

    A storage of one dimension becomes one column, one of two dimensions a column for each index of the second; the elements along the first dimension must be neighbours
    (`layout=(1, 0)`). Since a grid never changes, the storage is frozen for good: its views are read-only from then on, and it is refused while a view exists that can write, such as an
    array of `numpy.asarray(storage)` that is still held. Who took its address from `__array_interface__` must not write to it any more.

    Args:
        storage: A storage of integers or floats.
        names: The names of the columns, by default `column_0`, `column_1` and so on.

    Returns:
        The grid. It keeps the memory alive.

    Raises:
        InvalidArgumentError: The shape or the layout is not that of columns, names do not fit, or a view can still write.
        UnsupportedError: The elements are no integers or floats in the byte order of this machine.
        NotLocalError: The memory is that of a device.
        ProtocolError: It is no storage.

    Examples:
        >>> import partgrid as pg
        >>> storage = pg.storage.full((3, 2), 1.5, layout=(1, 0))
        >>> grid = pg.from_storage(storage, names=["a", "b"])
        >>> grid.tile(0).array().address == storage.address
        True
        >>> storage
        Storage (3, 2) of float64, layout (1, 0), frozen
    """

def full(shape: Sequence[int], fill_value: Any, dtype: Any | None = None, *, aligned_index: Sequence[int] | None = None, alignment_size: int | None = None, backend: str | None = None, device: str | None = None, dims: Sequence[str] | str | None = None, layout: Sequence[int] | None = None) -> Storage:
    """
    Makes a storage that is filled with one number.

    Args:
        shape: The number of elements along each dimension; none may be negative, zero is allowed.
        fill_value: The number, cast as the type of numpy casts it: `numpy.dtype(dtype).type(fill_value)`.
        dtype: What `numpy.dtype` takes, by default 64-bit floats.
        aligned_index: The element to which the memory is aligned, by default the first one. It is the origin too, where stencils begin unless they are told otherwise.
        alignment_size: The bytes of which the address of that element is a multiple; a multiple or a divisor of the bytes of an element.
        backend: The name of a backend of GT4Py, whose alignment, device and layout are taken. It excludes giving these.
        device: `"gpu"` for memory of an accelerator: the GPU of CUDA that is current on this thread, by default the first. Without it that of the host.
        dims: What the dimensions mean: labels out of `"I"`, `"J"`, `"K"`, and `"0"`, `"1"` and so on for dimensions of data.
        layout: For each dimension the rank of its stride, 0 being the largest; by default C order.

    Returns:
        The storage, in writable memory of its own. What is not given of a storage that is made like another is as there; a backend stands for alignment, device and layout.

    Raises:
        InvalidArgumentError: A parameter is none of the allowed ones, or two contradict each other.
        ResourcesExhaustedError: There is no such amount of memory.
        UnsupportedError: A GPU is asked for where none is reached, or a type whose elements are no values in memory.

    Examples:
        >>> import partgrid as pg
        >>> pg.storage.full((3,), 7, "int16")[:].tolist()
        [7, 7, 7]
    """

def full_like(data: Any, fill_value: Any, dtype: Any | None = None, *, aligned_index: Sequence[int] | None = None, alignment_size: int | None = None, backend: str | None = None, device: str | None = None, dims: Sequence[str] | str | None = None, layout: Sequence[int] | None = None) -> Storage:
    """
    Makes a storage of the shape of another one, or of an array, that is filled with one number.

    Args:
        data: A storage, or an array with an interface of numpy or DLPack, of which layout and `__gt_dims__` are taken.
        fill_value: The number, cast as the type of numpy casts it: `numpy.dtype(dtype).type(fill_value)`.
        dtype: What `numpy.dtype` takes, by default the type of `data`.
        aligned_index: The element to which the memory is aligned, by default the first one. It is the origin too, where stencils begin unless they are told otherwise.
        alignment_size: The bytes of which the address of that element is a multiple; a multiple or a divisor of the bytes of an element.
        backend: The name of a backend of GT4Py, whose alignment, device and layout are taken. It excludes giving these.
        device: `"gpu"` for memory of an accelerator: the GPU of CUDA that is current on this thread, by default the first. Without it that of the host.
        dims: What the dimensions mean: labels out of `"I"`, `"J"`, `"K"`, and `"0"`, `"1"` and so on for dimensions of data.
        layout: For each dimension the rank of its stride, 0 being the largest; by default C order.

    Returns:
        The storage, in writable memory of its own. What is not given of a storage that is made like another is as there; a backend stands for alignment, device and layout.

    Raises:
        InvalidArgumentError: A parameter is none of the allowed ones, or two contradict each other.
        ResourcesExhaustedError: There is no such amount of memory.
        UnsupportedError: A GPU is asked for where none is reached, or a type whose elements are no values in memory.

    Examples:
        >>> import partgrid as pg
        >>> pg.storage.full_like(pg.storage.empty((2, 2), int), 5)[0].tolist()
        [5, 5]
    """

def get_buffer(obj: Any, flags: int | None = None) -> ExtendedBuffer:
    """
    Asks an object for its memory, wherever that is.

    Args:
        obj: An object with the buffer interface, of partgrid or of any library.
        flags: Request flags as of `inspect.BufferFlags`; `partgrid.buffer.DEVICE` is added. By default `FULL_RO`.

    Returns:
        The buffer, held until `release` or the end of a `with` block. Nothing is copied.

    Raises:
        TypeError: The object has no buffer interface.
        BufferError: The object has no buffer as the flags want it.

    Examples:
        >>> import partgrid as pg
        >>> with pg.buffer.get_buffer(b"abc") as buffer:
        ...     buffer.device, buffer.nbytes, buffer.memoryview().tolist()
        (None, 3, [97, 98, 99])
    """

def load_parquet(source: str | PathLike[str] | Sequence[str | PathLike[str]], *, columns: Sequence[str] | None = None, filters: Any | None = None, hive_partitioning: "bool" = True, tile_rows: int | None = None, tile_columns: int | Sequence[Sequence[str]] | None = None, dense: Sequence[str] | Sequence[Sequence[str]] | None = None, sort_by: str | tuple[str, str] | Sequence[str | tuple[str, str]] | None = None, partition_by: str | Sequence[str] | None = None, num_partitions: int | None = None, string_type: str | None = None, schema_evolution: "str" = "strict", lazy: "bool" = False, memory_limit: int | str | None = None, spill_to: str | PathLike[str] | None = None, resume: str | PathLike[str] | None = None, storage_options: dict[str, str] | None = None, store: Incomplete | None = None, deadline: float | None = None) -> LoadJob:
    """
    Starts to load Parquet files in the background. `read_parquet` is this job, waited for.

    Args:
        source: A file, a folder (all Parquet files below it), a glob pattern, a URL (`s3://`, `gs://`, `az://`, `http(s)://`, `file://`, `memory://`), or a list of these; `~` is the folder of the user.
            Files come in name order, listed ones too; a file that is named twice is read once.
        columns: The names of the columns to load, in this order; all by default.
        filters: Conditions on the rows: tuples (column, operator, value), all of which a row must meet, or a list of such lists, one of which it must meet. Operators are
            `=`, `==`, `!=`, `<`, `<=`, `>`, `>=`, `in`, `not in`, `is null`, `is not null` (these two without a value). Exact; row groups and pages that cannot hold such a
            row are not read (statistics, page index, bloom filters), and of the other columns only the wanted rows. The columns need not be among `columns`.
            `in` and `not in` take any values that can be gone through. Of floats, all NaN are equal and greater than every number, and -0.0 equals 0.0. A datetime without a
            zone is taken in the zone of its column.
        hive_partitioning: Whether folder names such as `month=01`, below the source or at its end, become columns, typed over all files: integers or dates if all are, but texts where two of them are one number (`01`, `1`).
        tile_rows: About how many rows a tile holds; by default 1,048,576, or fewer so that a tile stays under 128 MiB. Cuts follow row groups where these are near.
        tile_columns: How the columns are cut into bands: so many to a band, or lists of names; columns that no list names follow as one band.
        dense: The names of columns of one type of numbers, or lists of such names, that shall lie in one allocation in every tile: Arrow columns and a 2-D array at
            once. Costs one copy of these columns, which come before the others.
        sort_by: A name, a name with its direction as `("day", "descending")`, or a list of these (directions are `"asc"`, `"ascending"`, `"desc"`,
            `"descending"`): the rows of the whole grid are sorted by these columns, nulls last, rows that are
            equal in them in the order of the files. Needs room for the rows twice. See `Grid.sorted_by`.
        partition_by: A name or a list of names: rows with equal values in these columns come into one row band, by hash; `sort_by` then sorts within each row band. Needs room
            for the rows twice. See `Grid.partitioned_by`.
        num_partitions: How many row bands `partition_by` makes; by default as many as tiles of `tile_rows` rows would be.
        string_type: `"string"`, `"large_string"` or `"string_view"` for all columns of text; by default each keeps the type that its writer stored.
        schema_evolution: `"strict"` bears no difference between files but order and nullability, and reports all at once; `"union"` fills columns that a file lacks with
            nulls; `"widen"` also takes the type that holds the values of both exactly.
        lazy: Whether tiles only know where their rows lie and read columns when somebody asks for them. What was read stays in memory up to the limit; columns that were not used
            for the longest time go first. Queries skip tiles by the statistics of the footers. Not together with `filters`, `dense`, `sort_by`, `partition_by`, `spill_to`, `resume`.
        memory_limit: The most bytes, or a text such as `"512MB"`, that the load may use; by default 80 % of the machine or control group.
        spill_to: A folder for the tiles that the limit leaves no room for, made if it is not there. Their files have no name and vanish with the grid. Without it such a load fails.
        resume: A folder in which every finished tile is left, so that the same load can go on there after its process ended; made if it is not there. Tiles of files that have
            changed since (by etag, or by time, size and number of a local file) are read anew. It serves one load at a time, and is yours to remove.
        storage_options: Settings for the stores of URLs, such as `region`, `endpoint`, `access_key_id`, `secret_access_key`, `profile`, `anonymous`, `requester_pays`,
            `timeout`, `connect_timeout`, `max_retries`, `retry_timeout`. They go before the environment (`AWS_…`, `GOOGLE_…`, `AZURE_…`), and that before `~/.aws`.
        store: A store built with obstore; sources are then paths in it.
        deadline: Seconds after which the load is given up; by default never, as with `float("inf")`.

    Returns:
        A job that can be watched, cancelled and waited for.

    Raises:
        InvalidArgumentError: An argument makes no sense. Everything else is raised by `result`.

    Examples:
        >>> import partgrid as pg
        >>> job = pg.load_parquet("data/flights", columns=["carrier"])
        >>> job.result().shape
        (336776, 1)
        >>> job.progress().tiles
        12
    """

def ones(shape: Sequence[int], dtype: Any | None = None, *, aligned_index: Sequence[int] | None = None, alignment_size: int | None = None, backend: str | None = None, device: str | None = None, dims: Sequence[str] | str | None = None, layout: Sequence[int] | None = None) -> Storage:
    """
    Makes a storage of ones.

    Args:
        shape: The number of elements along each dimension; none may be negative, zero is allowed.
        dtype: What `numpy.dtype` takes, by default 64-bit floats.
        aligned_index: The element to which the memory is aligned, by default the first one. It is the origin too, where stencils begin unless they are told otherwise.
        alignment_size: The bytes of which the address of that element is a multiple; a multiple or a divisor of the bytes of an element.
        backend: The name of a backend of GT4Py, whose alignment, device and layout are taken. It excludes giving these.
        device: `"gpu"` for memory of an accelerator: the GPU of CUDA that is current on this thread, by default the first. Without it that of the host.
        dims: What the dimensions mean: labels out of `"I"`, `"J"`, `"K"`, and `"0"`, `"1"` and so on for dimensions of data.
        layout: For each dimension the rank of its stride, 0 being the largest; by default C order.

    Returns:
        The storage, in writable memory of its own. What is not given of a storage that is made like another is as there; a backend stands for alignment, device and layout.

    Raises:
        InvalidArgumentError: A parameter is none of the allowed ones, or two contradict each other.
        ResourcesExhaustedError: There is no such amount of memory.
        UnsupportedError: A GPU is asked for where none is reached, or a type whose elements are no values in memory.

    Examples:
        >>> import partgrid as pg
        >>> storage = pg.storage.ones((9, 5), alignment_size=64, aligned_index=(3, 0))
        >>> (storage.address + 3 * storage.strides[0]) % 64
        0
    """

def ones_like(data: Any, dtype: Any | None = None, *, aligned_index: Sequence[int] | None = None, alignment_size: int | None = None, backend: str | None = None, device: str | None = None, dims: Sequence[str] | str | None = None, layout: Sequence[int] | None = None) -> Storage:
    """
    Makes a storage of ones of the shape of another one, or of an array.

    Args:
        data: A storage, or an array with an interface of numpy or DLPack, of which layout and `__gt_dims__` are taken.
        dtype: What `numpy.dtype` takes, by default the type of `data`.
        aligned_index: The element to which the memory is aligned, by default the first one. It is the origin too, where stencils begin unless they are told otherwise.
        alignment_size: The bytes of which the address of that element is a multiple; a multiple or a divisor of the bytes of an element.
        backend: The name of a backend of GT4Py, whose alignment, device and layout are taken. It excludes giving these.
        device: `"gpu"` for memory of an accelerator: the GPU of CUDA that is current on this thread, by default the first. Without it that of the host.
        dims: What the dimensions mean: labels out of `"I"`, `"J"`, `"K"`, and `"0"`, `"1"` and so on for dimensions of data.
        layout: For each dimension the rank of its stride, 0 being the largest; by default C order.

    Returns:
        The storage, in writable memory of its own. What is not given of a storage that is made like another is as there; a backend stands for alignment, device and layout.

    Raises:
        InvalidArgumentError: A parameter is none of the allowed ones, or two contradict each other.
        ResourcesExhaustedError: There is no such amount of memory.
        UnsupportedError: A GPU is asked for where none is reached, or a type whose elements are no values in memory.

    Examples:
        >>> import partgrid as pg
        >>> pg.storage.ones_like(pg.storage.empty((2, 2)))[0].tolist()
        [1.0, 1.0]
    """

def read_parquet(source: str | PathLike[str] | Sequence[str | PathLike[str]], *, columns: Sequence[str] | None = None, filters: Any | None = None, hive_partitioning: "bool" = True, tile_rows: int | None = None, tile_columns: int | Sequence[Sequence[str]] | None = None, dense: Sequence[str] | Sequence[Sequence[str]] | None = None, sort_by: str | tuple[str, str] | Sequence[str | tuple[str, str]] | None = None, partition_by: str | Sequence[str] | None = None, num_partitions: int | None = None, string_type: str | None = None, schema_evolution: "str" = "strict", lazy: "bool" = False, memory_limit: int | str | None = None, spill_to: str | PathLike[str] | None = None, resume: str | PathLike[str] | None = None, storage_options: dict[str, str] | None = None, store: Incomplete | None = None, deadline: float | None = None, progress: bool | None = None) -> Grid:
    """
    Loads Parquet files into memory as a grid, one or more tiles for each file.

    Files are read in parallel, in name order, and every column keeps its type, nullability and metadata. Ctrl-C stops the load.

    Args:
        source: A file, a folder (all Parquet files below it), a glob pattern, a URL (`s3://`, `gs://`, `az://`, `http(s)://`, `file://`, `memory://`), or a list of these; `~` is the folder of the user.
            Files come in name order, listed ones too; a file that is named twice is read once.
        columns: The names of the columns to load, in this order; all by default.
        filters: Conditions on the rows: tuples (column, operator, value), all of which a row must meet, or a list of such lists, one of which it must meet. Operators are
            `=`, `==`, `!=`, `<`, `<=`, `>`, `>=`, `in`, `not in`, `is null`, `is not null` (these two without a value). Exact; row groups and pages that cannot hold such a
            row are not read (statistics, page index, bloom filters), and of the other columns only the wanted rows. The columns need not be among `columns`.
            `in` and `not in` take any values that can be gone through. Of floats, all NaN are equal and greater than every number, and -0.0 equals 0.0. A datetime without a
            zone is taken in the zone of its column.
        hive_partitioning: Whether folder names such as `month=01`, below the source or at its end, become columns, typed over all files: integers or dates if all are, but texts where two of them are one number (`01`, `1`).
        tile_rows: About how many rows a tile holds; by default 1,048,576, or fewer so that a tile stays under 128 MiB. Cuts follow row groups where these are near.
        tile_columns: How the columns are cut into bands: so many to a band, or lists of names; columns that no list names follow as one band.
        dense: The names of columns of one type of numbers, or lists of such names, that shall lie in one allocation in every tile: Arrow columns and a 2-D array at
            once. Costs one copy of these columns, which come before the others.
        sort_by: A name, a name with its direction as `("day", "descending")`, or a list of these (directions are `"asc"`, `"ascending"`, `"desc"`,
            `"descending"`): the rows of the whole grid are sorted by these columns, nulls last, rows that are
            equal in them in the order of the files. Needs room for the rows twice. See `Grid.sorted_by`.
        partition_by: A name or a list of names: rows with equal values in these columns come into one row band, by hash; `sort_by` then sorts within each row band. Needs room
            for the rows twice. See `Grid.partitioned_by`.
        num_partitions: How many row bands `partition_by` makes; by default as many as tiles of `tile_rows` rows would be.
        string_type: `"string"`, `"large_string"` or `"string_view"` for all columns of text; by default each keeps the type that its writer stored.
        schema_evolution: `"strict"` bears no difference between files but order and nullability, and reports all at once; `"union"` fills columns that a file lacks with
            nulls; `"widen"` also takes the type that holds the values of both exactly.
        lazy: Whether tiles only know where their rows lie and read columns when somebody asks for them. What was read stays in memory up to the limit; columns that were not used
            for the longest time go first. Queries skip tiles by the statistics of the footers. Not together with `filters`, `dense`, `sort_by`, `partition_by`, `spill_to`, `resume`.
        memory_limit: The most bytes, or a text such as `"512MB"`, that the load may use; by default 80 % of the machine or control group.
        spill_to: A folder for the tiles that the limit leaves no room for, made if it is not there. Their files have no name and vanish with the grid. Without it such a load fails.
        resume: A folder in which every finished tile is left, so that the same load can go on there after its process ended; made if it is not there. Tiles of files that have
            changed since (by etag, or by time, size and number of a local file) are read anew. It serves one load at a time, and is yours to remove.
        storage_options: Settings for the stores of URLs, such as `region`, `endpoint`, `access_key_id`, `secret_access_key`, `profile`, `anonymous`, `requester_pays`,
            `timeout`, `connect_timeout`, `max_retries`, `retry_timeout`. They go before the environment (`AWS_…`, `GOOGLE_…`, `AZURE_…`), and that before `~/.aws`.
        store: A store built with obstore; sources are then paths in it.
        deadline: Seconds after which the load is given up; by default never, as with `float("inf")`.
        progress: Whether to show a bar on standard error; by default where a person sees it (a terminal or a notebook) unless `PARTGRID_PROGRESS` is `0`,
            `false`, `no` or `off`.

    Returns:
        A grid in the memory of this process.

    Raises:
        PathNotFoundError: There is no such file, or no Parquet file in the folder.
        InvalidDataError: A file is damaged, changed while it was read, or its columns differ from those of the first file; the text names file, column and types.
        NotFoundError: A name in `columns` does not exist.
        PermissionDeniedError: The file system or the store refused access; the text says what was tried and what to set.
        StorageError: The store could not be reached or failed.
        ResourcesExhaustedError: The memory limit or the deadline was reached.

    Examples:
        >>> import partgrid as pg
        >>> pg.read_parquet("data/flights").shape
        (336776, 19)
        >>> pg.read_parquet("data/flights", columns=["carrier", "month"]).columns
        ['carrier', 'month']
    """

def register_copy_engine(device: str, engine: Any) -> None:
    """
    Lets tiles be copied to and from devices of one type, by an object that uses the driver of the device. CUDA needs none: `to("kDLCUDA:0")` uses the driver that it finds.

    `engine` has three methods, which are called from any thread. A handle is the integer that stands in the buffer pointers of Arrow C Device arrays and in DLPack tensors of that device: an
    address, or an object of the driver (a `cl_mem` of OpenCL).

    - `read(ordinal, handle, start, nbytes)` gives the bytes of a buffer from byte `start` on, as any object with the buffer protocol, when they are there.
    - `write(ordinal, data)` copies `bytes` into a new buffer and gives `(handle, owner)`; the buffer may be freed when `owner` is dropped.
    - `wait(ordinal, event)` returns when the work behind a `sync_event` is done: the address at which an event of the driver is (a `cl_event *` of OpenCL), as the producer of an array gave it.

    Args:
        device: The type of device, such as `"kDLOpenCL"`.
        engine: The object, in place of one that the type had.

    Raises:
        InvalidArgumentError: There is no such type, it is read without an engine, or `engine` lacks a method.

    Examples:
        >>> import partgrid as pg, pyarrow as pa
        >>> class Cards:
        ...     # A device whose memory is a dict.
        ...     buffers = {}
        ...     def read(self, ordinal, handle, start, nbytes): return self.buffers[handle][start : start + nbytes]
        ...     def write(self, ordinal, data):
        ...         self.buffers[len(self.buffers) + 1] = data
        ...         return len(self.buffers), None
        ...     def wait(self, ordinal, event): pass
        >>> pg.register_copy_engine("kDLExtDev", Cards())
        >>> grid = pg.from_arrow(pa.table({"n": [1, 2, 3]})).to("kDLExtDev:0")
        >>> grid.tile(0).location[0][2], grid.to("kDLCPU").to_arrow()["n"].to_pylist()
        ('kDLExtDev:0', [1, 2, 3])
    """

def run_command(arguments: Sequence[str]) -> int:
    """
    Runs the `partgrid` command in this process.

    Args:
        arguments: The command line, the program's name first.

    Returns:
        The exit code: 0 done, 1 failed, 2 wrong usage.
    """

def shared_memory() -> "list[dict[str, object]]":
    """
    The processes of this user on this host that share tiles, as `partgrid ps` shows them.

    Returns:
        One dictionary for each process: `pid`, and `segments`, a list of dictionaries with `grid` (the id as text), `position`, `nbytes` (of the segment, once, however many processes map it), `copy` (whether it
        is a copy of a tile in private memory, which goes with its last reader) and `readers` (the ids of the processes that lease it beside its owner, once for each lease). `segments` is `None` when a
        process does not answer.

    Raises:
        UnsupportedError: Not on Linux.

    Examples:
        >>> import os, partgrid as pg, pyarrow as pa
        >>> grid = pg.from_arrow(pa.table({"a": [1, 2, 3]})).to_shared()
        >>> [own] = [each for each in pg.shared_memory() if each["pid"] == os.getpid()]
        >>> own["segments"][-1]["position"], own["segments"][-1]["readers"]
        ((0, 0), [])
    """

def sql(query: str, params: Any | None = None, **grids) -> Result:
    """
    Runs SQL over grids: those passed by name, and variables of the caller.

    A table of another name is the variable of that name where this is called, of the function first, then of its module, if it is a table: a grid, a result, a frame.

    Args:
        query: The SQL text.
        params: Values for its parameters: a list for `$1`, `$2` or `?`, a dict for `$name`; see `Session.sql`.
        grids: A grid for each table name, or any object with `__arrow_c_stream__`, `__arrow_c_array__` or `__partitioned__`.

    Returns:
        A result that has not run yet.

    Raises:
        QueryError: The SQL is wrong.
        ProtocolError: A table has none of these methods.

    Examples:
        >>> import partgrid as pg
        >>> flights = pg.read_parquet("data/flights")
        >>> pg.sql("SELECT max(distance) AS miles FROM flights WHERE month = $1", [7]).to_arrow()["miles"].to_pylist()
        [4983.0]
        >>> pg.sql("SELECT count(*) AS n FROM f WHERE month = 7", f=flights).to_arrow()["n"].to_pylist()
        [29425]
    """

def supports(obj: Any, flags: int) -> bool:
    """
    Whether an object takes request flags, without asking it for a buffer (`PyObject_CheckBufferSupports` of the draft).

    Args:
        obj: Any object.
        flags: Request flags as of `inspect.BufferFlags`, and `partgrid.buffer.DEVICE`.

    Returns:
        `False` without the buffer interface, and for flags that its type does not know. A type says which it knows by a class attribute `__buffer_supported_flags__`, an integer; one that has none,
        or 0, knows those of Python, one that has -1 none of them. A request may still be refused: whether memory may be written, say, depends on the object.

    Examples:
        >>> import partgrid as pg
        >>> pg.buffer.supports(pg.storage.zeros((3,)), pg.buffer.DEVICE), pg.buffer.supports(b"abc", pg.buffer.DEVICE)
        (True, False)
    """

def unstructured(indices: Sequence[Sequence[int]], *, size: int | None = None, one_to_one: bool | None = None) -> Map:
    """
    Any indices, in any order, on any rank.

    Args:
        indices: The global indices of each rank: lists or arrays of integers. Copied.
        size: The number of global indices; by default that of the different ones.
        one_to_one: Whether no index is on two ranks. By default that is looked up, and stated only where it holds.

    Raises:
        InvalidArgumentError: No rank, or indices that are no integers.
        ProtocolError: An index twice on one rank, or on two with `one_to_one=True`; or another size.
    """

def validate(sections: Any, *, strict: bool = True) -> list[Finding]:
    """
    Everything that is wrong with one section of a distributed array, or with all sections of one.

    Nothing that a producer hands out makes it raise: an exception in `__distarray__` is a finding too, but for interrupts. Versions 0.9 and 0.10 of the protocol are known.

    Args:
        sections: One section: an object with `__distarray__`, or its dictionary. Or a list or tuple of the sections of all ranks, rank 0 first; what they say of each other is then
            checked as well.
        strict: Whether the letter of the protocol counts. `False` makes warnings of what has only one meaning: lists for padding, integers of other types, lists for indices in 0.9.

    Returns:
        The findings; none when all rules hold.

    Examples:
        >>> import partgrid as pg
        >>> [str(each) for each in pg.distarray.validate({"__version__": "0.10.0"})][0]
        'error T2: the key `buffer` must be there (key: buffer)'
    """

def zeros(shape: Sequence[int], dtype: Any | None = None, *, aligned_index: Sequence[int] | None = None, alignment_size: int | None = None, backend: str | None = None, device: str | None = None, dims: Sequence[str] | str | None = None, layout: Sequence[int] | None = None) -> Storage:
    """
    Makes a storage of zeros. Those of a large one are pages that the system hands out when they are first touched.

    Args:
        shape: The number of elements along each dimension; none may be negative, zero is allowed.
        dtype: What `numpy.dtype` takes, by default 64-bit floats.
        aligned_index: The element to which the memory is aligned, by default the first one. It is the origin too, where stencils begin unless they are told otherwise.
        alignment_size: The bytes of which the address of that element is a multiple; a multiple or a divisor of the bytes of an element.
        backend: The name of a backend of GT4Py, whose alignment, device and layout are taken. It excludes giving these.
        device: `"gpu"` for memory of an accelerator: the GPU of CUDA that is current on this thread, by default the first. Without it that of the host.
        dims: What the dimensions mean: labels out of `"I"`, `"J"`, `"K"`, and `"0"`, `"1"` and so on for dimensions of data.
        layout: For each dimension the rank of its stride, 0 being the largest; by default C order.

    Returns:
        The storage, in writable memory of its own. What is not given of a storage that is made like another is as there; a backend stands for alignment, device and layout.

    Raises:
        InvalidArgumentError: A parameter is none of the allowed ones, or two contradict each other.
        ResourcesExhaustedError: There is no such amount of memory.
        UnsupportedError: A GPU is asked for where none is reached, or a type whose elements are no values in memory.

    Examples:
        >>> import partgrid as pg
        >>> pg.storage.zeros((2, 3), layout=(1, 0))[1].tolist()
        [0.0, 0.0, 0.0]
    """

def zeros_like(data: Any, dtype: Any | None = None, *, aligned_index: Sequence[int] | None = None, alignment_size: int | None = None, backend: str | None = None, device: str | None = None, dims: Sequence[str] | str | None = None, layout: Sequence[int] | None = None) -> Storage:
    """
    Makes a storage of zeros of the shape of another one, or of an array.

    Args:
        data: A storage, or an array with an interface of numpy or DLPack, of which layout and `__gt_dims__` are taken.
        dtype: What `numpy.dtype` takes, by default the type of `data`.
        aligned_index: The element to which the memory is aligned, by default the first one. It is the origin too, where stencils begin unless they are told otherwise.
        alignment_size: The bytes of which the address of that element is a multiple; a multiple or a divisor of the bytes of an element.
        backend: The name of a backend of GT4Py, whose alignment, device and layout are taken. It excludes giving these.
        device: `"gpu"` for memory of an accelerator: the GPU of CUDA that is current on this thread, by default the first. Without it that of the host.
        dims: What the dimensions mean: labels out of `"I"`, `"J"`, `"K"`, and `"0"`, `"1"` and so on for dimensions of data.
        layout: For each dimension the rank of its stride, 0 being the largest; by default C order.

    Returns:
        The storage, in writable memory of its own. What is not given of a storage that is made like another is as there; a backend stands for alignment, device and layout.

    Raises:
        InvalidArgumentError: A parameter is none of the allowed ones, or two contradict each other.
        ResourcesExhaustedError: There is no such amount of memory.
        UnsupportedError: A GPU is asked for where none is reached, or a type whose elements are no values in memory.

    Examples:
        >>> import partgrid as pg
        >>> pg.storage.zeros_like(pg.storage.ones((2, 2)))[0].tolist()
        [0.0, 0.0]
    """
