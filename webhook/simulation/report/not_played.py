"""What the objects of a cluster ask for and a simulation does not do: by kind and field, with who asks for it."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from importlib.resources import files
from itertools import product
from typing import Any

import msgspec

from webhook.clusters.simulated.tracker import ObjectTracker

_MOST = 3
"""How many objects are named for a field."""
_CAPITAL = re.compile("([A-Z])")


class _Field(msgspec.Struct):
    """Fields of objects of these kinds, what happens instead, and the value that asks for nothing else."""

    kinds: tuple[str, ...]
    paths: tuple[str, ...]
    instead: str
    harmless: Any = None


_FIELDS = msgspec.convert(
    tomllib.loads(files("webhook.simulation.report").joinpath("not_played.toml").read_text())["fields"], list[_Field]
)


def not_played(tracker: ObjectTracker) -> dict[str, str]:
    """What happens instead, and the first objects that ask for it, by `Kind field`."""
    said: dict[str, str] = {}
    for row in _FIELDS:
        for path, kind in product(row.paths, row.kinds):
            steps = path.split(".")
            keys = [
                key
                for key, item in tracker.all(kind).items()
                if any(value not in (None, [], row.harmless) for value in _values(item, steps))
            ]
            if keys:
                more = f" and {len(keys) - _MOST} more" if len(keys) > _MOST else ""
                said[f"{kind} {path}"] = f"{row.instead} ({', '.join(sorted(keys)[:_MOST])}{more})"
    return said


def _values(value: Any, steps: list[str]) -> Iterator[Any]:
    """What an object has in a field; `[]` stands for every item of a list."""
    for at, step in enumerate(steps):
        name = step.removesuffix("[]")
        value = value.get(name) if isinstance(value, dict) else getattr(value, _CAPITAL.sub(r"_\1", name).lower(), None)
        if name != step:
            for item in value or ():
                yield from _values(item, steps[at + 1 :])
            return
    yield value
