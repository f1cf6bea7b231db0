"""Whether the judges find what a mechanism is needed for, if that is taken away: run by `make judges` before a release.

For each mechanism random clusters live without it until a judge finds something. The same clusters with it are what
`test_clusters` runs. Only this file knows where the mechanisms are.
"""

import logging
import sys
from collections.abc import Callable
from unittest.mock import patch

import numpy as np

from tests.reconciler.harness.random_clusters import ROWS, live

SEEDS = 600
_EVALUATE, _EVICTIONS, _PLANS = (f"webhook.reconciler.{room}" for room in ("evaluate", "evictions", "plans"))


def _nothing(*_given: object, **_more: object) -> None:
    """Happens."""


MECHANISMS: dict[str, tuple[str, str, Callable[..., object]]] = {
    "pods in front": (
        "trouble",
        f"{_EVALUATE}.pods_ahead.PodsAhead._lost",
        lambda _self, candidates, **_: np.zeros(len(candidates.nodes), np.bool_),
    ),
    "the dry run before several evictions": ("trouble", f"{_PLANS}.look._Look._untried", lambda _look, **_: []),
    "evictions that count for the rates": ("calm", f"{_EVICTIONS}.log.EvictionLog.note", _nothing),
    "owners that put their pods back": ("trouble", f"{_EVICTIONS}.log.EvictionLog.returned", _nothing),
}
"""In which kind of clusters each is missed, what is patched, and what is there instead."""


def main() -> None:
    """Say for each mechanism in which cluster a judge finds something without it, and what; ends with 1 if in none."""
    logging.disable(logging.ERROR)
    not_missed = 0
    for name, (kind, place, instead) in MECHANISMS.items():
        with patch(place, instead):
            wrong = ((seed, live(seed, ROWS[kind])) for seed in range(SEEDS))
            said = next((f"seed {seed}: {faults[0]}" for seed, faults in wrong if faults), "")
        not_missed += not said
        sys.stdout.write(f"without {name}: {said or f'nothing is found in {SEEDS} clusters'}\n")
        sys.stdout.flush()
    sys.exit(bool(not_missed))


if __name__ == "__main__":
    main()
