"""Pictures: SVG that notebooks show.

Comes in: the text of an SVG. Goes out: the same text, with what notebooks ask for. Never here: drawing.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from os import PathLike


class Picture(str):
    """The text of an SVG picture. Notebooks show it; `save` writes it into a file."""

    __slots__ = ()

    def _repr_svg_(self) -> str:
        return str(self)

    def __repr__(self) -> str:
        """One line, for terminals."""
        return f"Picture of {len(self)} characters of SVG; save(path) writes it"

    def save(self, path: str | PathLike[str]) -> None:
        """Writes the picture into a file.

        Args:
            path: The file, such as `plan.svg`.

        Raises:
            OSError: It cannot be written.
        """
        Path(path).write_text(str(self) + "\n", encoding="utf-8")
