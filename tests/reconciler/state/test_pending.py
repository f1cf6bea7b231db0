"""What was done counts until the watch shows it, not a moment longer, and what is gone leaves nothing."""

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pytest

from tests.cases import table
from tests.reconciler.builders import START, Setting, budget, node, pod, preemptor
from tests.reconciler.device_settings import claim
from webhook.kube.instants import rfc3339
from webhook.kube.objects.devices import ResourceClaim
from webhook.kube.objects.pod import Pod, PodDisruptionBudget
from webhook.kube.resources import RESOURCE_CLAIM
from webhook.policy.model.values import PLAN
from webhook.reconciler.state.pending import CountedOn

VICTIM, PREEMPTOR = "default/v", "default/p"
READY = [{"type": "Ready", "status": "True"}]


class Expecting(Setting):
    """A cluster in which these pods are expected to leave for a plan, whose preemptor is nominated to a node."""

    def __init__(
        self, *victims: Pod, budgets: tuple[PodDisruptionBudget, ...] = (), plans: tuple[str, ...] = ("plan",)
    ):
        super().__init__(node("n1"), node("n2"))
        self.pending = self.state.pending
        self.add(*victims, preemptor())
        for made in budgets:
            self.budget(made)
        for plan in plans:
            self.count_on(plan, *victims)

    def give_up(self, plan: str, *names: str) -> None:
        """A plan counts on nothing of these pods any more."""
        self.pending.count_on(plan, {f"default/{name}": None for name in names})

    def hold(self) -> None:
        """The plan counts on the preemptor being nominated."""
        self.pending.count_on("plan", {PREEMPTOR: CountedOn("uid-p", node="n1")})

    def nominated(self) -> dict[str, set[str]]:
        """Node to the pods that count as nominated to it."""
        pods, nodes = self.state.snapshot.pods, defaultdict(set)
        for row in pods.nominees().tolist():
            nodes[pods.nodes.names[pods.nominated[row]]].add(pods.key(row))
        return nodes

    def left(self, name: str = "web") -> int:
        """How many disruptions a budget has left for decisions."""
        return self.state.snapshot.budgets._budgets[f"default/{name}"].allowed


def leaving(name: str = "v", **more: Any) -> Pod:
    return pod(name, node="n1", deleted=rfc3339(START + 30), **more)


def test_victim_counts_as_leaving_until_it_is_seen_leaving():
    """Between the eviction and the watch event the victim is terminating to every decision."""
    setting = Expecting(shown := pod("v", node="n1"))
    assert (setting.leaving(), shown.metadata.deletion_timestamp) == ({VICTIM: START}, None)
    setting.add(leaving())
    assert setting.leaving() == {VICTIM: START + 30}
    assert setting.pending.leaves_for(VICTIM) == set(), "nothing is expected of it any more"


def test_of_whom_nothing_is_expected():
    """Other pods, and one that is made again under the victim's or the preemptor's name, count as they are shown."""
    setting = Expecting(pod("v", node="n1"))
    setting.hold()
    setting.add(pod("other", node="n1"), pod("v", node="n1", uid="another"), preemptor(uid="another"))
    assert (setting.leaving(), setting.nominated()) == ({}, {})
    setting.hold()
    setting.count_on("plan", pod("v", node="n1"))
    assert (setting.leaving(), setting.nominated()) == ({}, {})


def test_preemptor_counts_as_nominated():
    """The room is reserved from the decision until the plan is given up, or the pod is bound."""
    setting = Expecting()
    setting.hold()
    for shown in (preemptor(), preemptor(nominated="n1"), preemptor()):
        setting.add(shown)
        assert setting.nominated() == {"n1": {PREEMPTOR}}
    setting.add(preemptor(node="n2"))
    assert setting.nominated() == {}
    setting.add(preemptor())
    setting.give_up("plan", "p")
    assert setting.nominated() == {}


def nominated_by(plan: str, to: str) -> Pod:
    """The preemptor with this plan on it, and nominated to that node."""
    made = preemptor(nominated=to)
    made.metadata.annotations = {PLAN: f'{{"id":"{plan}"}}'}
    return made


@table(
    "shown, counts",
    ("a plan that is taken off", nominated_by("first", "n1"), {}),
    ("the next one, which is, too", nominated_by("second", "n2"), {}),
    ("a nomination of somebody else", nominated_by("first", "n2"), {"n2": {PREEMPTOR}}),
    ("another plan", nominated_by("third", "n1"), {"n1": {PREEMPTOR}}),
)
def test_nominations_of_plans_that_are_taken_off(shown: Pod, counts: dict[str, set[str]]):
    """They hold no room, as long as they are on the pod."""
    setting = Expecting()
    setting.add(nominated_by("first", "n1"))
    for plan, on in (("first", "n1"), ("second", "n2")):
        setting.pending.count_on(plan, {PREEMPTOR: CountedOn("uid-p", node=on, off=True)})
    setting.add(shown)
    assert setting.nominated() == counts
    setting.add(preemptor(nominated="n1"))
    assert setting.nominated() == {"n1": {PREEMPTOR}}
    assert setting.pending._counted == {}, "what was taken off leaves nothing"


def test_giving_up_keeps_those_already_asked():
    """A plan that is dropped half-way still expects the pods it has asked to leave."""
    setting = Expecting(pod("v", node="n1"), pod("w", node="n1"))
    setting.hold()
    setting.give_up("plan", "w", "p")
    assert (setting.leaving(), setting.nominated()) == ({VICTIM: START}, {})


@pytest.mark.parametrize("leaves", [False, True])
def test_a_victim_of_two_plans(leaves: bool):
    """Its disruption counts once, as long as one plan expects it; who names it while it leaves adds nothing."""
    setting = Expecting(pod("v", node="n1", conditions=READY), budgets=(budget("web", 3, {}),), plans=("first",))
    if leaves:
        setting.add(leaving(conditions=READY))
    setting.count_on("second", pod("v", node="n1"))
    assert (setting.left(), setting.pending.leaves_for(VICTIM)) == (2, set() if leaves else {"first", "second"})
    setting.give_up("second", "v")
    assert (setting.left(), setting.pending.leaves_for(VICTIM)) == (2, set() if leaves else {"first"})
    setting.remove(VICTIM) if leaves else setting.give_up("first", "v")
    assert setting.left() == 3


def test_budget_until_its_status_has_followed():
    """A disruption is taken off until the status names the victim, or the victim is gone, then no more."""
    setting = Expecting(pod("v", node="n1"), pod("w", node="n1"), budgets=(budget("web", 3, {}),))
    assert setting.left() == 1
    setting.budget(budget("web", 2, {}, disruptedPods={"v": rfc3339(START)}))
    assert setting.left() == 1
    setting.remove("default/w")
    assert (setting.left(), setting.pending.spending("default/web")) == (2, set())
    setting.give_up("plan", "v")
    setting.count_on("another", pod("v", node="n1"))
    assert setting.left() == 1, "the server would grant another one"
    setting.budget(budget("web", 2, {}, currentHealthy=1, disruptedPods={"v": rfc3339(START)}))
    assert setting.left() == 1, "it names an earlier pod of that name"
    setting.budget(budget("web", 1, {}, disruptedPods={"v": rfc3339(START + 9)}))
    assert setting.left() == 1
    setting.state.budgets.take("default/web", None)
    setting.budget(budget("web", 3, {}))
    assert setting.left() == 2, "it was made again, and has yet to count the victim"


def test_health_that_falls_for_another_reason():
    """A budget whose pods fail by themselves has not counted a victim that is not seen terminating yet."""
    healthy = {name: lambda number, name=name: budget(name, 1, {}, currentHealthy=number) for name in ("web", "other")}
    setting = Expecting(pod("v", node="n1", conditions=READY), budgets=(healthy["web"](3), healthy["other"](3)))
    setting.budget(healthy["web"](2))
    setting.add(leaving())
    setting.budget(healthy["other"](2))
    setting.budget(healthy["web"](3))
    assert (setting.left("web"), setting.left("other")) == (0, 1)
    setting.budget(healthy["web"](2))
    assert setting.left("web") == 1


LENIENT = {"currentHealthy": 2, "desiredHealthy": 1}


@table(
    "victim, allowed",
    ("ready: it spends a disruption", pod("v", node="n1", conditions=READY), (0, 0)),
    ("not ready: not where enough are healthy", pod("v", node="n1"), (1, 0)),
    ("still starting: no budget is asked", pod("v", node="n1", phase="Pending"), (1, 1)),
)
def test_a_disruption_that_is_never_spent_is_not_expected(victim: Pod, allowed: tuple[int, int]):
    """The Eviction API lets a pod that is not ready past a budget that has enough pods, so no status counts it."""
    guards = budget("lenient", 1, {}, **LENIENT), budget("strict", 1, {}, currentHealthy=0)
    setting = Expecting(victim, budgets=guards)
    assert (setting.left("lenient"), setting.left("strict")) == allowed


def test_what_a_victim_spends_is_settled_when_it_is_leaving():
    """It is ready or not until then; that it is not ready while it ends says nothing."""
    setting = Expecting(pod("v", node="n1", conditions=READY), budgets=(budget("web", 1, {}, **LENIENT),))
    spent = []
    for shown in (pod("v", node="n1"), pod("v", node="n1", conditions=READY), leaving()):
        setting.add(shown)
        spent.append(1 - setting.left())
    setting.budget(budget("web", 1, {}, **LENIENT, observedGeneration=2))
    assert [*spent, 1 - setting.left()] == [0, 1, 1, 1]


HELD = claim("c", held=("d0",), by=("a", "b"))
USERS = {name: pod(name, node="n1") for name in ("a", "b")}


class Claimed(Setting):
    """A cluster with a claim of two pods."""

    def __init__(self, *there: str):
        super().__init__(node("n1"))
        self.claim(HELD)
        self.add(*(USERS[name] for name in there))

    def claim(self, shown: ResourceClaim | None) -> None:
        """Let the watch show the claim."""
        self.state.caches[RESOURCE_CLAIM].take("default/c", shown)

    def shown(self) -> tuple[list[str], bool, set[str]]:
        """The users that decisions see, whether it is allocated, and the pods of which it is to be taken back."""
        status = self.state.snapshot.device_claims.claims["default/c"].status
        return [user.name for user in status.reserved_for or ()], status.allocation is not None, self.waits_for()

    def waits_for(self) -> set[str]:
        """The pods of which it is to be taken back."""
        return {uid.removeprefix("uid-") for uid in self.state.pending.awaited}


@table(
    "gone",
    ("gone", lambda setting, name: setting.remove(f"default/{name}")),
    ("ended", lambda setting, name: setting.add(pod(name, node="n1", phase="Succeeded"))),
    ("made again", lambda setting, name: setting.add(pod(name, node="n1", uid="another"))),
)
def test_claims_of_pods_that_are_gone(gone: Callable[[Setting, str], None]):
    """They count as kube-controller-manager will leave them: the allocation is gone with the last user."""
    setting = Claimed("a", "b")
    seen = [setting.shown()]
    for name in USERS:
        gone(setting, name)
        seen.append(setting.shown())
    assert seen == [(["a", "b"], True, set()), (["b"], True, {"a"}), ([], False, {"a", "b"})]
    setting.claim(claim("c", held=("d0",), by=("b",)))
    assert setting.waits_for() == {"b"}
    setting.claim(None)
    assert setting.waits_for() == set()


def test_pods_that_come_after_their_claims():
    """Watches are behind one another: who uses a claim and is not shown yet may well be there."""
    setting = Claimed()
    assert setting.shown() == (["a", "b"], True, set())
    setting.add(*USERS.values())
    setting.remove("default/a")
    setting.add(USERS["a"])
    assert setting.shown() == (["a", "b"], True, set())


def test_a_claim_without_its_finalizer_keeps_its_devices():
    """kube-controller-manager does not take such an allocation back, so nobody counts on it."""
    setting, kept = Claimed(*USERS), claim("c", held=("d0",), by=("a",))
    kept.metadata.finalizers = None
    setting.claim(kept)
    setting.remove("default/a")
    assert setting.shown() == ([], True, {"a"})
