"""Pods that want fewer devices take what comes free first: nobody is evicted for them (docs/reconciler.md#devices)."""

from typing import Any

import msgspec
import pytest

from tests.cases import table
from tests.reconciler.builders import START, pod, preemptor
from tests.reconciler.device_settings import Devices, claim, uses
from webhook.kube.instants import rfc3339
from webhook.reconciler.evaluate.outcomes import Evicts, Unschedulable


def setting_of(*, whole: bool) -> Devices:
    """Two nodes with two devices each, held one by one on `n1`, and by one pod on `n2` if `whole`."""
    setting = Devices(n1=2, n2=2)
    if whole:
        for number in range(2):
            setting.remove(f"default/n2-{number}")
            setting.claim(claim(f"c-n2-{number}"))
        setting.add(pod("both", "100m", node="n2", annotations={}, class_name="", priority=90, spec=uses("c-both")))
        setting.claim(claim("c-both", 2, held=("d0", "d1"), on="n2", by=("both",)))
    return setting


REFUSED = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "lastTransitionTime": rfc3339(START)}]


def waits(setting: Devices, count: int, *, priority: int = 10, looked_at: bool = True, **spec: Any) -> None:
    """A pod waits for so many devices, and its scheduler has found no room for it, if it has looked at it at all."""
    setting.claim(claim("c-other", count))
    conditions = REFUSED if looked_at else []
    setting.add(pod("other", "100m", priority=priority, conditions=conditions, spec={**uses("c-other"), **spec}))


FIRST = (
    "on n1 devices come free one by one, and default/other of priority {}, which waits, would take a part of them first"
)


@table(
    "fields, node",
    ("nobody", None, "n1"),
    ("of lower priority", {"count": 1}, "n2"),
    ("of equal priority", {"count": 1, "priority": 100}, "n2"),
    ("of another scheduler", {"count": 1, "schedulerName": "other"}, "n2"),
    ("wants as much", {"count": 2}, "n1"),
    ("no scheduler looks at it", {"count": 1, "looked_at": False}, "n1"),
    ("goes elsewhere", {"count": 1, "nodeSelector": {"there": "not"}}, "n1"),
)
def test_devices_that_come_free_at_once_are_preferred(fields: dict[str, Any] | None, node: str):
    """One pod of higher priority goes rather than two whose devices a waiting pod would take one by one."""
    setting = setting_of(whole=True)
    if fields is not None:
        waits(setting, **fields)
    outcome = setting.evaluate(setting.wants("p", 2))
    assert isinstance(outcome, Evicts)
    assert outcome.node == node
    told = FIRST.format((fields or {}).get("priority", 10))
    assert (told in outcome.because, "would take" in outcome.because) == (node == "n2", node == "n2")


def test_a_candidate_behind_many_others():
    """Where all the best candidates come free one by one the first one is taken to which no pod that waits comes."""
    setting = Devices(**{f"n{number:02}": 2 for number in range(12)})
    for number in range(2):
        dear = pod(
            f"n11-{number}",
            "100m",
            priority=95,
            node="n11",
            class_name="",
            annotations={},
            spec=uses(f"c-n11-{number}"),
        )
        setting.add(dear)
    here = {"key": "kubernetes.io/hostname", "operator": "NotIn", "values": ["n11"]}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [here]}]}
    for name, known in setting.state.nodes.items().items():
        known.metadata.labels = {"kubernetes.io/hostname": name}
        setting.state.nodes.take(name, msgspec.structs.replace(known))
    waits(setting, 1, affinity={"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}})
    outcome = setting.evaluate(setting.wants("p", 2))
    assert isinstance(outcome, Evicts), outcome
    assert outcome.node == "n11"
    assert outcome.because.startswith(
        "on n00 devices come free one by one, and default/other of priority 10, which waits,"
    )


@pytest.mark.parametrize("fills", [False, True], ids=["room for both", "the preemptor fills the node"])
def test_where_they_come_free_one_by_one_everywhere(fills: bool):
    """Nobody is evicted, unless the preemptor's nomination keeps the other pod off the node by other resources."""
    setting = setting_of(whole=False)
    waits(setting, 1)
    made = preemptor("p", "8" if fills else "1", spec=uses("c-p"))
    setting.claim(claim("c-p", 2))
    outcome = setting.evaluate(made)
    if fills:
        assert isinstance(outcome, Evicts)
        return
    assert isinstance(outcome, Unschedulable)
    assert outcome.reason == (
        "wherever room can be made, devices come free one by one, and default/other of priority 10, which waits, would"
        " take a part of them first"
    )
    one_device = setting.evaluate(setting.wants("one", 1))
    assert isinstance(one_device, Evicts), "that is no part"
    assert "would take" not in one_device.because
    for name in ("other", "one"):
        setting.remove(f"default/{name}")
    assert isinstance(setting.evaluate(made), Evicts)


@table(
    "kind, count, evicts",
    ("ReplicaSet", "ReplicaSet", 2, False),
    ("StatefulSet", "StatefulSet", 2, False),
    ("a Job, which takes ten seconds", "Job", 2, True),
    ("one device", "ReplicaSet", 1, True),
)
def test_pods_that_are_replaced_at_once(kind: str, count: int, evicts: bool):
    """The pod in a victim's place wants one device again and takes the first that comes free."""
    setting = Devices(n1=2)
    for number in range(2):
        spec = {"resourceClaims": [{"name": "r", "resourceClaimTemplateName": "t"}]}
        setting.add(pod(f"n1-{number}", "100m", node="n1", annotations={}, owner=(kind, "w"), spec=spec))
    outcome = setting.evaluate(setting.wants("p", count))
    assert isinstance(outcome, Evicts if evicts else Unschedulable)
    if not evicts:
        assert f"the pod that {kind} w puts in place of a victim would take a part of them first" in outcome.reason


@pytest.mark.parametrize("alone", [True, False])
def test_members_of_a_gang(alone: bool):
    """Nobody is evicted for a gang either if a waiting pod takes a part of what a member needs; members do not."""
    setting = Devices(n1=2, n2=2)
    if not alone:
        waits(setting, 1)
    ready = []
    for number in range(2):
        setting.claim(claim(f"c-gang-{number}", 2))
        labels = {"scheduling.x-k8s.io/pod-group": "gang"}
        ready.append(preemptor(f"gang-{number}", "1", labels=labels, spec=uses(f"c-gang-{number}")))
    setting.group()
    outcome = setting.evaluate_gang(*ready)
    assert isinstance(outcome, Evicts if alone else Unschedulable), outcome
    assert alone or (
        outcome.behind and "default/other of priority 10, which waits, would take a part" in outcome.reason
    )
