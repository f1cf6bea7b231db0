"""Whether the judges find what a mechanism is needed for, if that is taken away: run by `make judges` before a release.

For each mechanism random clusters live without it until a judge finds something. The same clusters with it are what
`test_clusters` runs. Only this file knows where the mechanisms are.
"""

import logging
import sys
from collections.abc import Callable
from typing import NamedTuple
from unittest.mock import patch

import numpy as np

from tests.reconciler.harness.random_clusters import ROWS, live

SEEDS = 600
_EVALUATE, _EVICTIONS = "webhook.reconciler.evaluate", "webhook.reconciler.evictions"


class Mechanism(NamedTuple):
    """What is patched and how, and in which kind of clusters it is missed."""

    place: str
    instead: Callable[..., object]
    kind: str = "trouble"


MECHANISMS = {
    "pods in front": Mechanism(
        f"{_EVALUATE}.pods_ahead.PodsAhead._lost",
        lambda _self, candidates, **_: np.zeros(len(candidates.nodes), np.bool_),
    ),
    "the dry run before several evictions": Mechanism(
        "webhook.reconciler.plans.look._Look._untried", lambda _look, **_: []
    ),
    "evictions that count for the rates": Mechanism(
        f"{_EVICTIONS}.log.EvictionLog.note", lambda *_given, **_more: None, "calm"
    ),
    "owners that put their pods back": Mechanism(
        f"{_EVICTIONS}.log.EvictionLog.returned", lambda *_given, **_more: None
    ),
}


def first_found(mechanism: Mechanism) -> tuple[int, list[str]] | None:
    """The first cluster in which a judge finds something without the mechanism, and what; None if there is none."""
    with patch(mechanism.place, mechanism.instead):
        for seed in range(SEEDS):
            if found := live(seed, ROWS[mechanism.kind]):
                return seed, found
    return None


def main() -> None:
    """Say for each mechanism where it is missed; ends with 1 if one is not."""
    logging.disable(logging.ERROR)
    missed = 0
    for name, mechanism in MECHANISMS.items():
        found = first_found(mechanism)
        missed += found is None
        said = f"seed {found[0]}: {found[1][0]}" if found else f"nothing is found in {SEEDS} clusters"
        sys.stdout.write(f"without {name}: {said}\n")
        sys.stdout.flush()
    sys.exit(bool(missed))


if __name__ == "__main__":
    main()
