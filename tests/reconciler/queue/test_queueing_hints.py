"""Which change could help a preemptor that found no room (docs/semantics.md F3)."""

from typing import Any

import msgspec
import pytest

from tests.reconciler.builders import START, budget, node, pod
from tests.reconciler.device_settings import claim
from webhook.kube.instants import rfc3339
from webhook.kube.object_cache import Change
from webhook.kube.objects.cluster_scoped import Namespace
from webhook.kube.objects.pod import ContainerStatus, ResourceRequirements
from webhook.policy.model.values import CAN_BE_PREEMPTED, READY, RECONCILER_ANNOTATIONS
from webhook.reconciler.queue import event_handlers as hints


def change(old: Any, new: Any) -> Change[Any]:
    return Change("added" if old is None else "deleted" if new is None else "modified", "k", old, new)


RUNNING = pod("v", node="n1")


def with_status(thing: Any, **fields: Any) -> Any:
    return msgspec.structs.replace(thing, status=msgspec.structs.replace(thing.status, **fields))


OWN_WRITES = pod(
    "v", node="n1", annotations={CAN_BE_PREEMPTED: "true", **dict.fromkeys((*RECONCILER_ANNOTATIONS, READY), "x")}
)
SHRINKING = with_status(
    RUNNING, container_statuses=[ContainerStatus(name="c", resources=ResourceRequirements(requests={"cpu": "64"}))]
)


@pytest.mark.parametrize(
    ("old", "new", "helps"),
    [
        pytest.param(RUNNING, None, True, id="a pod is gone"),
        pytest.param(RUNNING, pod("v", node="n1", phase="Succeeded"), True, id="a pod has ended"),
        pytest.param(pod("v", node="n1", phase="Failed"), None, False, id="an ended pod is gone"),
        pytest.param(RUNNING, pod("v", node="n1", deleted=rfc3339(START)), True, id="a pod begins to leave"),
        pytest.param(RUNNING, pod("v", node="n1", annotations={}), True, id="annotations changed"),
        pytest.param(RUNNING, OWN_WRITES, False, id="what the reconciler writes itself, and the answer"),
        pytest.param(RUNNING, pod("v", node="n1", labels={"a": "b"}), True, id="labels changed"),
        pytest.param(pod("v"), None, False, id="a pending pod is gone"),
        pytest.param(pod("v", nominated="n1"), None, True, id="a nominated pod is gone"),
        pytest.param(pod("v", nominated="n1"), pod("v"), True, id="a nomination is cleared"),
        pytest.param(SHRINKING, RUNNING, True, id="a pod has shrunk in place"),
        pytest.param(None, RUNNING, False, id="a pod came"),
        pytest.param(RUNNING, pod("v", node="n1"), False, id="nothing changed"),
    ],
)
def test_pods(old, new, helps: bool):
    """Room that comes up, and pods that may go from now on, are worth another try."""
    assert hints.frees_room(change(old, new)) is helps


def test_claims_on_devices():
    """A claim that came, lost a user or its devices, or is gone may help; one that got devices helps nobody."""
    free, held = claim("c"), claim("c", held=("d0",), by=("a", "b"))
    for old, new, helps in (
        (None, free, True),
        (None, held, False),
        (free, held, False),
        (held, free, True),
        (held, claim("c", held=("d0",), by=("a",)), True),
        (claim("c", held=("d0",), by=("a",)), held, False),
        (held, None, True),
        (free, claim("c", 2), True),
    ):
        assert hints.claim_helps(change(old, new)) is helps


def test_company():
    """A pod that comes to a node can only help one that wants to be near it."""
    assert hints.makes_company(change(None, RUNNING))
    assert hints.makes_company(change(pod("v"), RUNNING))
    assert not hints.makes_company(change(RUNNING, RUNNING))
    assert not hints.makes_company(change(RUNNING, None))


@pytest.mark.parametrize(
    ("old", "new", "helps"),
    [
        pytest.param(None, node("n1"), True, id="a node came"),
        pytest.param(node("n1"), node("n1", "16"), True, id="a node grew"),
        pytest.param(node("n1"), with_status(node("n1"), conditions=[]), False, id="a heartbeat"),
        pytest.param(node("n1"), with_status(node("n1"), declared_features=["F"]), True, id="a kubelet was upgraded"),
        pytest.param(node("n1"), None, False, id="a node is gone"),
    ],
)
def test_nodes(old, new, helps: bool):
    """A node that came or changed is worth another try, a heartbeat is not."""
    assert hints.node_helps(change(old, new)) is helps


@pytest.mark.parametrize(
    ("old", "new", "helps"),
    [
        pytest.param(budget("b", 0, {"a": "b"}), budget("b", 1, {"a": "b"}), True, id="one more may go"),
        pytest.param(budget("b", 1, {"a": "b"}), budget("b", 0, {"a": "b"}), False, id="one less may go"),
        pytest.param(budget("b", 0, {"a": "b"}), budget("b", 0, {"a": "c"}), True, id="it covers others"),
        pytest.param(
            budget("b", 1, {"a": "b"}),
            with_status(budget("b", 1, {"a": "b"}), observed_generation=2),
            True,
            id="it was counted again",
        ),
        pytest.param(budget("b", 0, {"a": "b"}), None, True, id="it is gone"),
        pytest.param(None, budget("b", 0, {"a": "b"}), False, id="it came"),
    ],
)
def test_budgets(old, new, helps: bool):
    """A budget that lets more go is worth another try."""
    assert hints.budget_helps(change(old, new)) is helps


def test_minor_kinds():
    """Of classes, namespaces and volumes only a change of what is read counts."""
    here = Namespace()
    there = msgspec.structs.replace(here, metadata=msgspec.structs.replace(here.metadata, resource_version="9"))
    labelled = msgspec.structs.replace(here, metadata=msgspec.structs.replace(here.metadata, labels={"tier": "batch"}))
    assert not hints.relevant_difference(change(here, there))
    assert hints.relevant_difference(change(here, labelled))
    assert hints.relevant_difference(change(None, here))
