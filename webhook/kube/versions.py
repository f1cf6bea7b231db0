"""Which versions of Kubernetes giveway needs, and on which it was tested. The one owner of these numbers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

__all__ = ["OLDEST", "TESTED", "minor_of"]

OLDEST = 30
"""The oldest minor version of Kubernetes 1 that giveway works with: it needs `matchConditions`."""
TESTED = (32, 36)
"""The minor versions on which the end-to-end tests ran, as the page kubernetes-behaviour of docs/ says."""
_DIGITS = re.compile(r"\d+")


def minor_of(version: Mapping[str, Any]) -> int | None:
    """The minor version in the answer of `/version`, which some providers write as `32+`; None if there is none."""
    found = _DIGITS.match(str(version.get("minor", "")))
    return int(found[0]) if found and str(version.get("major", "1")) == "1" else None
