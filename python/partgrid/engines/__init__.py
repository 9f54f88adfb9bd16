"""Frames and programs of engines that work with many processes, as grids and back.

One module for each engine, which imports the engine only when one of its functions is called. Never here: starting an engine, or data that moves without
being asked for.
"""

from partgrid.engines import dask, modin, mpi, ray

__all__ = ["dask", "modin", "mpi", "ray"]
