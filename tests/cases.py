"""Tables of tests: each row begins with its name."""

from __future__ import annotations

from typing import Any

import pytest


def cases(*rows: tuple[Any, ...]) -> list[Any]:
    """The rows as parameters, under their names."""
    return [pytest.param(*values, id=name) for name, *values in rows]


def table(names: str, *rows: tuple[Any, ...]) -> pytest.MarkDecorator:
    """Run a test for each row, under its name, with the other values as these arguments."""
    return pytest.mark.parametrize(names.split(", "), cases(*rows))
