"""Faults as `giveway cluster --fault` takes them: `fail=500,count=3,resource=pods/eviction`."""

from __future__ import annotations

import math

from webhook.embedded.server.faults import FaultError, FaultMatch, Faults

__all__ = ["inject"]

KINDS = ("fail", "delay", "delay-watches")
MATCHED = ("verb", "resource", "namespace", "name")
NUMBERS = ("count", "retry-after")


def inject(faults: Faults, text: str) -> None:
    """Set up the fault that `text` describes. Raises FaultError with what is wrong and what would be right.

    The first part is `fail=STATUS`, `delay=SECONDS` or `delay-watches=SECONDS`; then, separated by commas, may
    come `count` (by default 1 for `fail`, no end for `delay`), `retry-after`, and the patterns `verb`, `resource`,
    `namespace` and `name`.
    """
    (kind, amount), *rest = [_pair(text, part) for part in text.split(",")]
    if kind not in KINDS:
        raise FaultError(f"fault {text!r}: begins with {kind!r}, not with one of {', '.join(KINDS)}")
    unknown = [key for key, _ in rest if key not in MATCHED + NUMBERS]
    if unknown:
        raise FaultError(f"fault {text!r}: does not know {unknown[0]!r}; there are {', '.join(MATCHED + NUMBERS)}")
    given = dict(rest)
    match = FaultMatch(**{key: given[key] for key in MATCHED if key in given})
    count = _number(text, given.get("count", "1" if kind == "fail" else "inf"))
    if kind == "fail":
        retry_after = int(_number(text, given["retry-after"])) if "retry-after" in given else None
        faults.fail(int(_number(text, amount)), count, match, retry_after)
    elif kind == "delay":
        faults.delay(_number(text, amount), count, match)
    else:
        faults.delay_watches(_number(text, amount), match)


def _pair(text: str, part: str) -> tuple[str, str]:
    key, equals, value = part.strip().partition("=")
    if not equals or not value:
        raise FaultError(
            f"fault {text!r}: {part.strip()!r} is not KEY=VALUE; for example fail=500,count=3,resource=pods"
        )
    return key, value


def _number(text: str, value: str) -> float:
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not number >= 0:
        raise FaultError(f"fault {text!r}: {value!r} is not a number from 0 on")
    return number
