"""What a check says: the object, what is wrong with it, why that matters, and what to do.

The texts stand in `checks/findings.toml`, by check and finding.
"""

import string
from collections.abc import Callable, Collection, Iterable, Mapping
from enum import StrEnum
from importlib.resources import files
from typing import Any, NamedTuple

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
    needs: Collection[str]
    run: Callable[[Observed], Iterable[ClusterFinding]]
    by_policies: bool = False
    """Whether it says nothing without the policies in force."""


class _Texts(string.Formatter):
    """`{pods}` names several, a few of them; `{pods:# pod}` counts them, as `1 pod` or `2 pods`."""

    def format_field(self, value: Any, format_spec: str) -> Any:
        """A value in its place in a text."""
        if format_spec.startswith("#"):
            total = value if isinstance(value, int) else sum(value.values()) if isinstance(value, dict) else len(value)
            return counted(total, format_spec[2:]) if format_spec[2:] else str(total)
        if isinstance(value, list | tuple | set | frozenset | Mapping):
            return names(value)
        return super().format_field(value, format_spec)


_TABLE = msgspec.toml.decode(files("webhook.inspection.checks").joinpath("findings.toml").read_text())
_formatter = _Texts()


def finding(
    key: str, /, *, severity: FindingSeverity | None = None, check: str = "", **values: object
) -> ClusterFinding:
    """The finding `check.name` of the table, with values for the names in its texts; `severity` if it has none."""
    own_check, _, name = key.partition(".")
    row, known = _TABLE[own_check][name], _TABLE["sentences"] | values
    what, why, fix = (_formatter.vformat(row[part], (), known) for part in ("what", "why", "fix"))
    return ClusterFinding(severity or FindingSeverity(row["severity"]), what, why, fix, check or own_check)


def sentence(name: str, **values: object) -> str:
    """A sentence of the table, for a value of a finding."""
    return _formatter.vformat(_TABLE["sentences"][name], (), values)


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
