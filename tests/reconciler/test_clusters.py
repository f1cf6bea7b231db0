"""Random clusters in which a good deal goes wrong: nobody goes in vain, for nothing, too early, or without the others.

One table says which kinds there are and who judges them (`harness.table`). `make test` runs forty of each: what was
put in for a trial was found by the first forty or by none of 200. `make soak SEEDS=6000` runs as many as it is told.
"""

import os
from collections import Counter

import pytest

from tests.reconciler.harness.table import ROWS, live

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("no_errors")]

CLUSTERS, BLOCK = 40, 100
SEEDS = int(os.environ.get("SEEDS", "600"))

FOUND_LATER = {
    "calm": {
        34: "a pod that ends between two waves",
        53: "a plan larger than a rate",
        93: "room that comes up under a lower nomination",
        62: "room that comes up while a victim is said to be on its way out",
        6027: "room that comes up while the first victims leave for long",
        6522: "a budget that only the more important of its pods can use",
        200070: "room for both beside a higher pod that is nominated there",
    },
    "calm, slow writes": {
        22: "a pod that leaves anyway, and that the policy would not let go",
        692: "a pod that counts as gone by now, though nothing was seen to happen",
        489: "room that comes up beside a nominated pod",
        100030: "a pod whose time to leave ends between two tries to evict another",
    },
    "trouble": {
        12755: "a pod in front comes to room that another left",
        165586: "a victim that an ended plan asked counts once for the rates",
        790152571: "the same with other leaders",
        3248331: "a nomination for room that a pod in front takes anyway",
        200000522: "a leader whose clock is ahead, and a pod that left before it led",
        78527: "a pod goes beside one that another plan asked, and that stayed",
        810000671: "a pod between comes to room that a higher preemptor makes",
        820000016: "a nomination that is cleared twice in a moment",
        100001134: "the scheduler has put off the first of two pods in front",
    },
    "devices": {
        10535: "a pod in front takes devices from one that asks by an extended resource",
        10844: "what was emptied for a pod of lower priority is left to it",
        10920: "a claim that the victims' owner takes up again",
        11039: "a claim that may come free lets a pod in front come",
        536082: "a victim of which the server could not tell, beside one with more grace",
    },
    "growth": {
        749: "a plan that is taken off a pod that has another one by then",
        2056: "a leader whose clock is ahead, and an owner that puts its pods back",
        2091: "the same before another leads",
    },
    "notices": {2813: "a higher preemptor comes to the room that a lower one had made beside it"},
    "costs": {
        1523: "a victim is gone and one of the same name there before the watch shows either",
        2027: "a nomination keeps room also if a pod in front leaves it none",
        2226: "a pod that did not leave in a plan's time is not counted on by the next one",
    },
    "gangs": {
        1768: "room of a member for whom nobody went, while somebody did for another one",
        70353: "the same with other leaders",
        70808: "a member for whom nobody went is deleted",
        1403: "a plan of higher priority comes while the mark on a victim is written",
        90075: "a pod that is put back, found by a member that did not ask",
        70446: "a plan counts on a victim of another one, for another node, that stays",
        31: "a member whose plan is over while those of the others are about to end",
        100064: "a member that fits elsewhere when others went for its gang already",
        285: "an owner whose pods leave, and come back",
        300109: "two plans of one node, and room for one",
        1277: "a member is deleted, and no watch shows it yet",
    },
    "changing gangs": {
        2039: "members wait for room on one node, and a pod in front comes",
        2052: "members in front are nominated, and their plan needs a victim no more",
        5088: "a member in front that needs no others",
        2184: "a member waits for room that a plan made, and a pod in front comes",
        6269: "a gang counts on pods that a plan of lower priority has yet to ask",
        5774: "the same with a pod that takes its time",
        6580: "all members of a gang in front fit into the room that a plan makes",
    },
    "mixed": {2030: "the same beside pods that were told"},
}
"""By kind, clusters of longer runs in which something was wrong once."""


@pytest.mark.parametrize("kind", ROWS)
def test_random_clusters(kind: str):
    """No judge finds anything in forty clusters of a kind, and what the kind is there for happens in some of them."""
    seen: Counter[str] = Counter()
    found = {seed: said for seed in range(CLUSTERS) if (said := live(seed, ROWS[kind], seen))}
    assert not found
    assert not [words for words in ROWS[kind].happens if not seen[words]], seen


@pytest.mark.parametrize(
    ("kind", "seed"),
    [pytest.param(kind, seed, id=what) for kind, seeds in FOUND_LATER.items() for seed, what in seeds.items()],
)
def test_clusters_that_were_found_later(kind: str, seed: int):
    """Nothing is wrong any more in clusters of longer runs in which something was wrong once."""
    assert not live(seed, ROWS[kind])


@pytest.mark.soak
@pytest.mark.parametrize("first", range(CLUSTERS, SEEDS, BLOCK))
@pytest.mark.parametrize("kind", ROWS)
def test_the_same_in_many_more_clusters(kind: str, first: int):
    """The same over many more clusters of each kind."""
    last = min(first + BLOCK, SEEDS)
    assert not {seed: said for seed in range(first, last) if (said := live(seed, ROWS[kind]))}
