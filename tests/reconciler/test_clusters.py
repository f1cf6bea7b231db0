"""Random clusters in which a good deal goes wrong: nobody goes in vain, for nothing, too early, or without the others.

One table says which kinds there are (`harness.random_clusters`). `make test` runs twenty of each, in which
all happens that the kind is there for. `make soak SEEDS=6000` runs as many as it is told.
"""

import os
from collections import Counter
from pkgutil import resolve_name

import pytest

from tests.reconciler.harness.random_clusters import ROWS, live
from tests.reconciler.harness.taken_away import MECHANISMS

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("no_errors")]

CLUSTERS, BLOCK = 20, 100
SEEDS = int(os.environ.get("SEEDS", "600"))

FOUND_LATER = {
    "calm": (111000221, 111000292, 111000382, 34, 53, 93, 62, 6027, 6522, 200070, 5053),
    "calm, slow writes": (22, 692, 489, 100030, 5017),
    "trouble": (12755, 165586, 790152571, 3248331, 200000522, 78527, 810000671, 820000016, 100001134),
    "zones": (5000021, 5000139, 62000055),
    "devices": (10535, 10844, 10920, 11039, 536082),
    "growth": (111000288, 749, 2056, 2091),
    "notices": (2813, 6107),
    "costs": (1523, 2027, 2226),
    "gangs": (79, 1768, 70353, 70808, 1403, 90075, 70446, 31, 100064, 285, 300109, 1277, 7018, 5000048, 7771177, 30009),
    "changing gangs": (2039, 2052, 5088, 2184, 6269, 5774, 6580, 251, 2000251, 30049, 960079, 62000131, 88220019),
    "mixed": (2030, 317, 7018, 106, 238, 3331085, 70015, 90020, 132000229),
    "answers lost": (98, 730, 111000305),
}
"""By kind, clusters of longer runs in which something was wrong once."""


@pytest.mark.parametrize("kind", ROWS)
def test_random_clusters(kind: str):
    """No judge finds anything in twenty clusters of a kind, and what the kind is there for happens in some of them."""
    seen: Counter[str] = Counter()
    found = {seed: said for seed in range(CLUSTERS) if (said := live(seed, ROWS[kind], seen))}
    assert not found
    assert not [words for words in ROWS[kind].happens if not seen[words]], seen


@pytest.mark.parametrize(
    ("kind", "seed"),
    [pytest.param(kind, seed, id=f"{kind} {seed}") for kind, seeds in FOUND_LATER.items() for seed in seeds],
)
def test_clusters_that_were_found_later(kind: str, seed: int):
    """Nothing is wrong any more in clusters of longer runs in which something was wrong once."""
    assert not live(seed, ROWS[kind])


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_what_is_taken_away_is_there(mechanism: str):
    """What `make judges` takes away stands where it is patched, so that it can tell whether a judge misses it."""
    assert callable(resolve_name(MECHANISMS[mechanism][1]))


@pytest.mark.soak
@pytest.mark.parametrize("first", range(CLUSTERS, SEEDS, BLOCK))
@pytest.mark.parametrize("kind", ROWS)
def test_the_same_in_many_more_clusters(kind: str, first: int):
    """The same over many more clusters of each kind."""
    last = min(first + BLOCK, SEEDS)
    assert not {seed: said for seed in range(first, last) if (said := live(seed, ROWS[kind]))}
