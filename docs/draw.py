"""Draws the pictures of docs/distarray.md with partgrid itself: `python docs/draw.py`. A test holds the files to what this draws.

Comes in: nothing. Goes out: SVG files in docs/pictures. Never here: a picture that was drawn by hand.
"""

from __future__ import annotations

from pathlib import Path

from partgrid import distarray

FOLDER = Path(__file__).parent / "pictures"


def pictures() -> dict[str, str]:
    """Each picture by the name of its file."""
    one = {
        "block": distarray.block([0, 5, 5, 8, 16]),
        "padded": distarray.block(16, 3, padding=2, boundary=(1, 1)),
        "periodic": distarray.block(16, 3, padding=1, periodic=True, version="0.9.0"),
        "cyclic": distarray.cyclic(16, 3),
        "block-cyclic": distarray.cyclic(16, 3, block_size=2),
        "unstructured": distarray.unstructured(
            [[0, 3, 4, 15], [9, 8, 7, 1, 2], [5, 6, 10, 11, 12, 13, 14]]
        ),
    }
    drawn = {name: distarray.Distribution([lying]).plot() for name, lying in one.items()}
    plane = distarray.Distribution(
        [distarray.block([0, 3, 8]), distarray.cyclic(14, 3, block_size=2)]
    )
    drawn["plane"] = plane.plot()
    return {name: f"{text}\n" for name, text in drawn.items()}


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, text in pictures().items():
        (FOLDER / f"{name}.svg").write_text(text, encoding="utf-8")
