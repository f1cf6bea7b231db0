"""Which change could help a preemptor that found no room (docs/semantics.md F3)."""

from collections.abc import Callable
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
FREE, HELD, HELD_BY_ONE = claim("c"), claim("c", held=("d0",), by=("a", "b")), claim("c", held=("d0",), by=("a",))
HERE = Namespace()


def with_meta(thing: Any, **fields: Any) -> Any:
    return msgspec.structs.replace(thing, metadata=msgspec.structs.replace(thing.metadata, **fields))


@pytest.mark.parametrize(
    ("hint", "old", "new", "helps"),
    [
        pytest.param(hints.frees_room, RUNNING, None, True, id="a pod is gone"),
        pytest.param(hints.frees_room, RUNNING, pod("v", node="n1", phase="Succeeded"), True, id="a pod has ended"),
        pytest.param(hints.frees_room, pod("v", node="n1", phase="Failed"), None, False, id="an ended pod is gone"),
        pytest.param(
            hints.frees_room, RUNNING, pod("v", node="n1", deleted=rfc3339(START)), True, id="a pod begins to leave"
        ),
        pytest.param(hints.frees_room, RUNNING, pod("v", node="n1", annotations={}), True, id="annotations changed"),
        pytest.param(
            hints.frees_room, RUNNING, OWN_WRITES, False, id="what the reconciler writes itself, and the answer"
        ),
        pytest.param(hints.frees_room, RUNNING, pod("v", node="n1", labels={"a": "b"}), True, id="labels changed"),
        pytest.param(hints.frees_room, pod("v"), None, False, id="a pending pod is gone"),
        pytest.param(hints.frees_room, pod("v", nominated="n1"), None, True, id="a nominated pod is gone"),
        pytest.param(hints.frees_room, pod("v", nominated="n1"), pod("v"), True, id="a nomination is cleared"),
        pytest.param(hints.frees_room, SHRINKING, RUNNING, True, id="a pod has shrunk in place"),
        pytest.param(hints.frees_room, None, RUNNING, False, id="a pod came"),
        pytest.param(hints.frees_room, RUNNING, pod("v", node="n1"), False, id="nothing changed"),
        pytest.param(hints.claim_helps, None, FREE, True, id="a claim came"),
        pytest.param(hints.claim_helps, None, HELD, False, id="a claim with devices came"),
        pytest.param(hints.claim_helps, FREE, HELD, False, id="a claim got devices"),
        pytest.param(hints.claim_helps, HELD, FREE, True, id="a claim lost its devices"),
        pytest.param(hints.claim_helps, HELD, HELD_BY_ONE, True, id="a claim lost a user"),
        pytest.param(hints.claim_helps, HELD_BY_ONE, HELD, False, id="a claim got a user"),
        pytest.param(hints.claim_helps, HELD, None, True, id="a claim is gone"),
        pytest.param(hints.claim_helps, FREE, claim("c", 2), True, id="a claim asks for others"),
        pytest.param(hints.makes_company, None, RUNNING, True, id="company came"),
        pytest.param(hints.makes_company, pod("v"), RUNNING, True, id="company is bound"),
        pytest.param(hints.makes_company, RUNNING, RUNNING, False, id="company was there"),
        pytest.param(hints.makes_company, RUNNING, None, False, id="company is gone"),
        pytest.param(hints.node_helps, None, node("n1"), True, id="a node came"),
        pytest.param(hints.node_helps, node("n1"), node("n1", "16"), True, id="a node grew"),
        pytest.param(hints.node_helps, node("n1"), with_status(node("n1"), conditions=[]), False, id="a heartbeat"),
        pytest.param(
            hints.node_helps,
            node("n1"),
            with_status(node("n1"), declared_features=["F"]),
            True,
            id="a kubelet was upgraded",
        ),
        pytest.param(hints.node_helps, node("n1"), None, False, id="a node is gone"),
        pytest.param(
            hints.budget_helps, budget("b", 0, {"a": "b"}), budget("b", 1, {"a": "b"}), True, id="one more may go"
        ),
        pytest.param(
            hints.budget_helps, budget("b", 1, {"a": "b"}), budget("b", 0, {"a": "b"}), False, id="one less may go"
        ),
        pytest.param(
            hints.budget_helps, budget("b", 0, {"a": "b"}), budget("b", 0, {"a": "c"}), True, id="it covers others"
        ),
        pytest.param(
            hints.budget_helps,
            budget("b", 1, {"a": "b"}),
            with_status(budget("b", 1, {"a": "b"}), observed_generation=2),
            True,
            id="it was counted again",
        ),
        pytest.param(hints.budget_helps, budget("b", 0, {"a": "b"}), None, True, id="it is gone"),
        pytest.param(hints.budget_helps, None, budget("b", 0, {"a": "b"}), False, id="it came"),
        pytest.param(
            hints.relevant_difference, HERE, with_meta(HERE, resource_version="9"), False, id="what is not read changed"
        ),
        pytest.param(
            hints.relevant_difference, HERE, with_meta(HERE, labels={"tier": "batch"}), True, id="a namespace changed"
        ),
        pytest.param(hints.relevant_difference, None, HERE, True, id="a namespace came"),
    ],
)
def test_what_is_worth_another_try(hint: Callable[[Change[Any]], bool], old: Any, new: Any, helps: bool):
    """Room that comes up, pods that may go from now on, and company for those that want to be near it."""
    assert hint(change(old, new)) is helps
