"""Texts of SQL of somebody who means harm: no death, no hang, and errors in words that people read.

`PARTGRID_HOSTILE_TEXTS` says how many texts are asked.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

import partgrid as pg
from asked_texts import RAW, asked
from conftest import TESTS

TEXTS = int(os.environ.get("PARTGRID_HOSTILE_TEXTS", "300"))
SEED = int(os.environ.get("PARTGRID_RANDOM_SEED", "1"))

# A guard against hangs: a text takes a few milliseconds.
GUARD = 120 + TEXTS // 10


def test_no_text_ends_the_process_or_is_answered_with_a_fault() -> None:
    script = TESTS / "asked_texts.py"
    done = subprocess.run(
        [sys.executable, str(script), str(SEED), str(TEXTS)],
        capture_output=True,
        text=True,
        check=False,
        timeout=GUARD,
        env={**os.environ, "RUST_BACKTRACE": "0"},
    )
    last = done.stderr.splitlines()[-1:]
    assert done.returncode == 0, (done.returncode, last)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    wrong = [line for line in lines if "wrong" in line]
    assert wrong == [], f"{len(wrong)} of {TEXTS}, the first: {wrong[0]}"
    assert lines[-1]["done"] == TEXTS
    # Some of them have a meaning, others have none.
    assert lines[-1]["kinds"]["planned"] > 0
    assert lines[-1]["kinds"]["QueryError"] > 0


def test_what_must_not_be_read_is_seen() -> None:
    for text in (
        "thread 'x' panicked at src/a.rs:5",
        "got Identifier(Ident { value: 1 })",
        "Some(5) came",
    ):
        assert RAW.search(text)
    assert not RAW.search("a condition must be true or false, got 'x', a List(Int64)")


@pytest.mark.parametrize("text", ["SELECT 1 AS a", "EXPLAIN SELECT 1 AS a"])
def test_what_is_right_is_planned(text: str) -> None:
    assert asked(pg.Session(), text) == ("planned", None)
