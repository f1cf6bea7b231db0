"""Whether rights, exclusions and lists take in more than before, or less."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from webhook.policy.model import Definers, RequestMatch

__all__ = ["covers", "is_within", "lost", "no_wider"]


def no_wider(old: Sequence[RequestMatch | Definers], new: Sequence[RequestMatch | Definers]) -> bool:
    """Whether every alternative of a right stood there before, or is a narrower form of one that did."""
    return all(any(is_within(right, before) for before in old) for right in new)


def is_within(new: RequestMatch | Definers, old: RequestMatch | Definers) -> bool:
    """Whether what gives or excludes takes in no more than before: every part as it was, stricter, or added.

    Namespaces that are added to subjects alone take in more: all that service accounts make there.
    """
    if isinstance(new, RequestMatch) and isinstance(old, RequestMatch):
        controllers = old.subjects is not None and new.by_namespace and not old.by_namespace
        if controllers:
            return False
    for field in old.__struct_fields__:
        before, now = getattr(old, field), getattr(new, field)
        if before is not None and now != before and (now is None or not covers(before, now)):
            return False
    return True


def covers(now: Any, before: Any) -> bool:
    """Whether a list of alternatives takes in all that another one did; a selector only if it is the same."""
    return isinstance(now, tuple) and isinstance(before, tuple) and set(before) <= set(now)


def lost(what: str, old: Sequence[str], new: Sequence[str]) -> Iterator[str]:
    """Elements of the first that the second lacks."""
    gone = [element for element in old if element not in set(new)]
    if gone:
        yield f"{what}: {', '.join(gone)}"
