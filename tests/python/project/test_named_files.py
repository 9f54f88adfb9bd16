"""Files that documents and headers of the source name are there: `query/plan/types/bare.rs`, `bare.rs`, `plan/types/`."""

import re

import pytest

from conftest import ROOT

TOPS = ("src", "python", "tests", "sql", "docs", "examples", "fuzz", "deploy", "data")
NAMED = re.compile(r"`([a-z_0-9]+(?:/[a-z_0-9]+)*(?:\.rs|\.py|/))`")
# What comes into being where partgrid is built or run, and folders of others.
MADE = {"target/", "target/release/", "deploy/secrets/", "member.py"}


def _sources():
    return [
        path for top in TOPS for path in (ROOT / top).rglob("*") if "__pycache__" not in path.parts
    ]


def _named(path):
    """Of the source what comments say, of documents everything."""
    text = path.read_text()
    if path.suffix == ".rs":
        text = "\n".join(line for line in text.splitlines() if line.lstrip().startswith("//"))
    return set(NAMED.findall(text))


@pytest.fixture(scope="module")
def there():
    """The paths of all files and folders of the source, and all their ends: `/plan/types/bare.rs`, `/types/bare.rs`, `/bare.rs`."""
    ends = set()
    for path in [*_sources(), *ROOT.glob("*")]:
        parts = path.relative_to(ROOT).parts
        ends.update(
            "/".join(parts[start:]) + ("/" if path.is_dir() else "") for start in range(len(parts))
        )
    return ends


@pytest.mark.parametrize(
    "where", ["ARCHITECTURE.md", "CONTRIBUTING.md", "README.md", "docs", "src", "python/src", "sql"]
)
def test_what_is_named_is_there(where, there):
    place = ROOT / where
    files = [place] if place.is_file() else [*place.rglob("*.md"), *place.rglob("*.rs")]
    missing = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in files
        for name in sorted(_named(path) - there - MADE)
    ]
    assert not missing, "\n".join(missing)
    if where in ("ARCHITECTURE.md", "src"):
        assert sum(len(_named(path)) for path in files) > 40
