"""Gangs whose members ask for devices: each gets its own, in turn, and nobody goes for a part; against every choice."""

import random
from collections import Counter
from itertools import combinations

import msgspec
import pytest

from tests.preemption.building import gang_decided, pod, pod_group, rules
from tests.preemption.devices.test_decision_oracle import KINDS, PREEMPTOR, Cluster
from webhook.kube.objects.scheduling import PodGroup
from webhook.preemption.snapshot.kinds import CLAIMS, POD_GROUPS
from webhook.preemption.snapshot.pod_groups import POD_GROUP


def decided(cluster, members, *, shared=False):
    """The decision for so many members, and the snapshot."""
    snapshot = cluster.snapshot()
    snapshot.put(POD_GROUPS[POD_GROUP], msgspec.convert(pod_group("gang", members, priority=PREEMPTOR), PodGroup))
    waiting = []
    for number in range(members):
        claim = "wanted" if shared else f"wanted-{number}"
        if not shared:
            snapshot.put(CLAIMS, cluster.claim(claim))
        uses = {"resourceClaims": [{"name": "r", "resourceClaimName": claim}]}
        waiting.append(pod(f"m-{number}", priority=PREEMPTOR, cpu="", group="gang", **uses))
    return gang_decided(snapshot, waiting, rules()), snapshot


def fits(cluster, members, gone):
    return sum(cluster.most_on(host, gone) for host in cluster.devices) >= members


@pytest.mark.slow
@pytest.mark.parametrize("start", range(0, 300, 100))
def test_decisions_for_devices(start):
    """All members get devices once the victims are gone, and mostly as few go as possible.

    A scheduler lets each take the first devices that do: where only another choice would do, pods may go.
    """
    seen = Counter()
    for seed in range(start, start + 30):
        dice = random.Random(seed)
        cluster, members = Cluster(dice), dice.randint(2, 4)
        decision, snapshot = decided(cluster, members)
        names = {victim.name for victim in decision.victims}
        assert not snapshot.device_claims.planned, "what the trial held is left"
        if fits(cluster, members, set()):
            seen["fits" if decision.fits else "in another order"] += 1
            continue
        lower = sorted(set().union(*map(cluster.lower, cluster.devices)))
        if not decision.placements:
            assert not names
            seen["missed" if fits(cluster, members, set(lower)) else "hopeless"] += 1
            continue
        assert len(decision.placements) == members
        assert names <= set(lower), seed
        assert fits(cluster, members, names), f"seed {seed}: in vain"
        cost = max(cluster.pods[name][1] for name in names), len(names)
        best = next(
            size
            for size in range(1, len(lower) + 1)
            if any(
                fits(cluster, members, set(some))
                for some in combinations([name for name in lower if cluster.pods[name][1] <= cost[0]], size)
            )
        )
        seen["best" if len(names) == best else "worse"] += 1
        assert len(names) <= 2 * best, seed
    assert seen["best"] > 2
    assert seen["best"] >= 0.9 * (seen["best"] + seen["worse"] + seen["missed"]), seen


def test_members_that_share_a_claim_evict_nobody():
    """Where one claim without devices is for several members, nobody knows where it will be: nobody goes."""
    cluster = Cluster(random.Random(1))
    cluster.devices = {"n0": [(KINDS[0], "x")] * 2}
    cluster.claims = [("n0", [place], [name]) for place, name in enumerate("ab")]
    cluster.pods = dict.fromkeys("ab", ("n0", 10))
    cluster.wants, cluster.tied = [(KINDS[0], 1)], False
    assert len(decided(cluster, 2)[0].victims) == 2
    decision, _ = decided(cluster, 2, shared=True)
    assert decision.victims == ()
    assert decision.reason == (
        "not eligible: several of its pods share the claim default/wanted, which has no devices yet."
    )
