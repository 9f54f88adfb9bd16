"""Answers of two engines in the one form in which they are compared."""

from __future__ import annotations

import datetime as dt
import decimal
import math
import re
from typing import Any

# A column and a cast of it as keys of one GROUP BY are refused; see sql/known.
SAME_NAME = re.compile(
    r'the columns "(?P<key>[^"]+)" and "CAST\((?P=key) AS \w+\)" have the same name'
    r'|the columns "CAST\((?P<other>[^"]+) AS \w+\)" and "(?P=other)" have the same name'
)


def plain(value: Any) -> Any:
    """A value in the one form in which both engines' answers are compared."""
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, (int, float, decimal.Decimal)):
        number = float(value)
        # Both engines sum and average in floats here and there, in their own order.
        return float(f"{number:.9g}") + 0.0 if math.isfinite(number) else str(number)
    if isinstance(value, dt.datetime):
        return dt.datetime.fromisoformat(value.isoformat()).replace(tzinfo=None)
    return value


def rows(answer: Any, *, ordered: bool) -> list[tuple[Any, ...]]:
    columns = [[plain(each) for each in column.to_pylist()] for column in answer.columns]
    found = list(zip(*columns, strict=True)) if columns else []
    return found if ordered else sorted(found, key=repr)
