"""Whether the judges find what a mechanism is needed for, if that is taken away: run by `make judges` before a release.

For each mechanism random clusters live without it until a judge finds something. The same clusters with it are what
`test_clusters` runs. Only this file knows where the mechanisms are.
"""

import logging
import sys
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import numpy as np

from tests.reconciler.harness.random_clusters import ROWS, live
from webhook.reconciler.evict.writer import Writer
from webhook.reconciler.plans.actions import Effect

SEEDS = 600
_EVALUATE, _EVICTIONS = (f"webhook.reconciler.{room}" for room in ("evaluate", "evictions"))
_evict = Writer.evict


def _nothing(*_given: object, **_more: object) -> None:
    """Happens."""


async def _always_would(writer: Writer, *of: Any, dry_run: bool = False, **more: Any) -> Effect:
    """The server is not asked whether it would evict a pod: it would."""
    return Effect.DONE if dry_run else await _evict(writer, *of, **more)


MECHANISMS: dict[str, tuple[str, str, Callable[..., object]]] = {
    "pods in front": (
        "trouble",
        f"{_EVALUATE}.pods_ahead.PodsAhead._lost",
        lambda _self, candidates, **_: np.zeros(len(candidates.nodes), np.bool_),
    ),
    "the dry run before several evictions": ("trouble", "webhook.reconciler.evict.writer.Writer.evict", _always_would),
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
