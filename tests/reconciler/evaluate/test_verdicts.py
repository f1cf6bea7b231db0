"""One verdict for all preemptors of one shape: who shares it, how long it holds, and what thousands of them cost."""

import pytest

from tests.cases import table
from tests.reconciler.builders import Desk, Setting, evicted, node, pod, policy, preemptor
from webhook.kube.objects.meta import LabelSelector
from webhook.policy.model.limits import CycleKeeper, Cycles, Limits
from webhook.policy.model.victims import PodsMatch, PreemptionPair, Victims
from webhook.preemption.snapshot.snapshot import Snapshot
from webhook.reconciler import preempting
from webhook.reconciler.evaluate import evaluation
from webhook.reconciler.evaluate.outcomes import Moment, Unschedulable, Verdicts
from webhook.reconciler.state.pod_indexes import PodIndexes


def apart(key: str) -> dict:
    """Anti-affinity against pods by a label of this key."""
    rule = {"labelSelector": {"matchExpressions": [{"key": key, "operator": "Exists"}]}, "topologyKey": "zone"}
    return {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [rule]}}}


def spread(**fields) -> dict:
    return {"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", **fields}]}


POD_NAME = "statefulset.kubernetes.io/pod-name"


@table(
    "one, other, same",
    ("names and the volumes of their tokens differ", preemptor("a"), preemptor("b"), True),
    ("other amounts", preemptor("a"), preemptor("b", "4"), False),
    ("another priority", preemptor("a"), preemptor("b", priority=101), False),
    ("another namespace", preemptor("a"), preemptor("b", namespace="other"), False),
    ("unread labels", preemptor("a", labels={POD_NAME: "a"}), preemptor("b", labels={POD_NAME: "b"}), True),
    ("labels that are read", preemptor("a", labels={"app": "a"}), preemptor("b", labels={"app": "b"}), False),
    ("the same of these", preemptor("a", labels={"app": "a"}), preemptor("b", labels={"app": "a"}), True),
)
def test_who_is_of_one_shape(one, other, same: bool):
    """What filters read decides: all that the pod asks for, and labels that some pod reads; not its name."""
    waiting = PodIndexes(Snapshot())
    for key, made in (("d/one", one), ("d/other", other), ("d/running", pod("r", node="n1", spec=apart("app")))):
        waiting.put(key, made)
    assert (waiting.shape("d/one") == waiting.shape("d/other")) is same
    assert len(list(waiting.groups())) == (1 if same else 2)


@table(
    "reader",
    ("anti-affinity of a pod that runs", pod("r", node="n1", spec=apart("app"))),
    ("anti-affinity of a pod that waits", preemptor("r", "8", spec=apart("app"))),
    ("spread", preemptor("r", "8", spec=spread(labelSelector={"matchLabels": {"app": "a"}}))),
    ("spread by the pods' own labels", preemptor("r", "8", spec=spread(matchLabelKeys=["app"]))),
)
def test_labels_tell_pods_apart_once_they_are_read(reader):
    """Pods that were alike are so no more when a pod comes that reads a label in which they differ."""
    waiting = PodIndexes(Snapshot())
    for name in ("a", "b"):
        waiting.put(name, preemptor(name, labels={"app": name}))
    assert waiting.shape("a") == waiting.shape("b")
    waiting.put("r", reader)
    assert waiting.shape("a") != waiting.shape("b")
    waiting.put("r", None)
    for name in ("a", "b"):
        waiting.put(name, None)
    assert not list(waiting.groups())


def test_keys_that_tenants_choose_are_bounded():
    """Affinities with ever new keys cost bounded memory; beyond it every label tells pods apart."""
    waiting = PodIndexes(Snapshot())
    for number in range(1100):
        waiting.put("r", pod("r", node="n1", spec=apart(f"key-{number}")))
    for name in ("a", "b"):
        waiting.put(name, preemptor(name, labels={POD_NAME: name}))
    assert waiting.shape("a") != waiting.shape("b")
    assert len(waiting._read) <= 1001


def verdict(verdicts: Verdicts, outcome, now: float, events: int, back_off: float = 4.0):
    """What is said, and whether it was decided again."""
    moment = Moment(now, events, back_off)
    known = verdicts.holding(("p", b"shape"), moment)
    if known is None:
        verdicts["p", b"shape"] = outcome, moment
    return known or outcome, known is None


def test_how_long_a_verdict_holds():
    """As long as nothing happens that could help, and then for the back-off of who was tried; never beyond its time."""
    verdicts, hopeless = Verdicts(), Unschedulable("nothing helps")
    assert verdict(verdicts, hopeless, 100.0, 1) == (hopeless, True)
    assert verdict(verdicts, hopeless, 129.0, 1) == (hopeless, False)
    said, again = verdict(verdicts, hopeless, 102.0, 2, back_off=0.25)
    assert (said.due, again) == (104.0, False), "it is looked again at the end of the back-off"
    assert verdict(verdicts, hopeless, 104.0, 2) == (hopeless, True)
    assert verdict(verdicts, hopeless, 134.0, 2)[1], "not for longer than a preemptor waits without an event"
    soon = Unschedulable("a window ends", due=140.0)
    verdict(verdicts, soon, 138.0, 3)
    assert not verdict(verdicts, soon, 139.0, 3)[1]
    assert verdict(verdicts, soon, 140.0, 3)[1]


def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """For whom it is really decided."""
    decided: list[str] = []

    def counting(evaluator, members, *args, **more):
        decided.append(members.ready[0].metadata.name)
        return evaluation.Evaluation(evaluator, members, *args, **more)

    monkeypatch.setattr(preempting, "Evaluation", counting)
    return decided


async def test_a_thousand_alike_cost_one_decision(monkeypatch: pytest.MonkeyPatch):
    """Each is told why it waits; an event that could help costs one decision more, and who can be helped is helped."""
    setting = Setting(node("n1", "8"))
    setting.add(pod("high", "8", node="n1", priority=200))
    desk = Desk(setting)
    decided = counted(monkeypatch)
    setting.add(*(preemptor(f"p{number}", "8") for number in range(1000)))
    for _ in range(200):
        desk.reconciler.turn()
    assert len(decided) == 1
    assert len({line["preemptor"] for line in desk.lines("no preemption")}) == 1000
    setting.add(pod("low", "1", node="n1", priority=10))
    setting.remove("default/low")
    await desk.work(20.0)
    assert len(decided) == 2
    setting.remove("default/high")
    setting.add(pod("low", "8", node="n1"))
    await desk.work(40.0)
    assert {line["node"] for line in desk.lines("decision")} == {"n1"}


PAIR = Victims(pairs=(PreemptionPair(preemptors=PodsMatch(labels=LabelSelector(match_labels={"may": "yes"}))),))
OWNED = ("StatefulSet", "own")
KEEPS_EVICTOR = Limits(cycles=Cycles(keep=CycleKeeper.EVICTOR, window=100.0))


@table(
    "fields, own",
    ("a pair names its labels", {"victims": PAIR}, {"labels": {"may": "no"}}),
    ("it has had its attempts", {"limits": Limits(attempts_per_preemptor=1)}, {}),
    ("the victim's workload evicted its own", {"limits": KEEPS_EVICTOR}, {"owner": OWNED}),
)
async def test_what_keeps_one_keeps_no_other_of_its_shape(fields: dict, own: dict):
    """What is said of one preemptor alone is not said of another one that asks for the same."""
    setting = Setting(node("n1", "8"), under=policy(**fields))
    setting.add(pod("low", "8", node="n1", owner=("Job", "low")))
    desk = Desk(setting)
    evicted(desk.reconciler.evaluator.log, "StatefulSet/default/own", -9.0, "Job/default/low")
    setting.add(preemptor("a", "8", **own))
    desk.reconciler.look_at_all()
    queue = desk.reconciler.queue
    queue.plan_ended(queue.entries["default/a"], setting.clock.now, in_vain=True, at_once=True, reason="")
    setting.add(preemptor("b", "8", labels={"may": "yes"}))
    await desk.work(1.0)
    assert [line["preemptor"] for line in desk.lines("no preemption")] == ["default/a"]
    assert [line["preemptor"] for line in desk.lines("decision")] == ["default/b"]
