"""The Distributed Array Protocol, versions 0.9 and 0.10: looking at the sections of anybody.

`Grid.distarray` gives sections, `partgrid.from_distarray` takes them.
"""

from partgrid._native import Finding, validate

__all__ = ["Finding", "validate"]
