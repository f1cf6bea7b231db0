"""What a check says: the object, what is wrong with it, why that matters, and what to do."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from typing import NamedTuple

import msgspec

from webhook.inspection.observed import Observed

_MOST_NAMES, _LONGEST_VALUE = 5, 60


class FindingSeverity(StrEnum):
    """How much it matters: `error` hurts now, `warning` can hurt, `info` is good to know; the last is no finding."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"
    NOT_CHECKED = "not checked"


class ClusterFinding(msgspec.Struct, frozen=True):
    """One thing that is wrong. `what` is a sentence that names the object; `why` and `fix` are sentences, too."""

    severity: FindingSeverity
    what: str
    why: str
    fix: str
    check: str = ""


class Check(NamedTuple):
    """A row of the table of checks: its name, what must be readable for it, and the function."""

    name: str
    needs: tuple[str, ...]
    run: Callable[[Observed], Iterable[ClusterFinding]]
    by_policies: bool = False
    """Whether it says nothing without the policies in force."""


def counted(count: int, noun: str) -> str:
    """`1 pod`, `2 pods`, `2 classes`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}{'es' if noun.endswith('s') else 's'}"


def quoted(text: str) -> str:
    """A value that anybody may have written, in quotes, and only its beginning if it is long."""
    return f'"{text}"' if len(text) <= _LONGEST_VALUE else f'"{text[:_LONGEST_VALUE]}…" ({len(text)} characters)'


def names(many: Iterable[str] | Mapping[str, int]) -> str:
    """Names for people, a few of them: `a, b and 3 more`; with counts, `a (3), b (1)` and the most first."""
    if isinstance(many, Mapping):
        ordered = sorted(many.items(), key=lambda row: (-row[1], row[0]))
        texts = [f"{name} ({count})" for name, count in ordered]
    else:
        texts = list(dict.fromkeys(many))
    shown = ", ".join(texts[:_MOST_NAMES])
    return f"{shown} and {len(texts) - _MOST_NAMES} more" if len(texts) > _MOST_NAMES else shown
