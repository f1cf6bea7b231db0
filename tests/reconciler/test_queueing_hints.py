"""Which change could help a preemptor that found no room (docs/semantics.md F3)."""

from collections.abc import Callable
from typing import Any

import msgspec

from tests.cases import table
from tests.reconciler.builders import START, budget, node, pod
from tests.reconciler.device_settings import claim
from webhook.kube.instants import rfc3339
from webhook.kube.objects.cluster_scoped import Namespace
from webhook.kube.objects.pod import ContainerStatus, ResourceRequirements
from webhook.policy.model.values import CAN_BE_PREEMPTED, READY, RECONCILER_ANNOTATIONS
from webhook.reconciler import preempting as hints

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
NONE, ONE = (budget("b", allowed, {"a": "b"}) for allowed in (0, 1))
UPGRADED = with_status(node("n1"), declared_features=["F"])


def with_meta(thing: Any, **fields: Any) -> Any:
    return msgspec.structs.replace(thing, metadata=msgspec.structs.replace(thing.metadata, **fields))


@table(
    "hint, old, new, helps",
    ("a pod is gone", hints.frees_room, RUNNING, None, True),
    ("a pod has ended", hints.frees_room, RUNNING, pod("v", node="n1", phase="Succeeded"), True),
    ("an ended pod is gone", hints.frees_room, pod("v", node="n1", phase="Failed"), None, False),
    ("a pod begins to leave", hints.frees_room, RUNNING, pod("v", node="n1", deleted=rfc3339(START)), True),
    ("annotations changed", hints.frees_room, RUNNING, pod("v", node="n1", annotations={}), True),
    ("what the reconciler writes itself, and the answer", hints.frees_room, RUNNING, OWN_WRITES, False),
    ("labels changed", hints.frees_room, RUNNING, pod("v", node="n1", labels={"a": "b"}), True),
    ("a pending pod is gone", hints.frees_room, pod("v"), None, False),
    ("a nominated pod is gone", hints.frees_room, pod("v", nominated="n1"), None, True),
    ("a nomination is cleared", hints.frees_room, pod("v", nominated="n1"), pod("v"), True),
    ("a pod has shrunk in place", hints.frees_room, SHRINKING, RUNNING, True),
    ("a pod came", hints.frees_room, None, RUNNING, False),
    ("nothing changed", hints.frees_room, RUNNING, pod("v", node="n1"), False),
    ("a claim came", hints.claim_helps, None, FREE, True),
    ("a claim with devices came", hints.claim_helps, None, HELD, False),
    ("a claim got devices", hints.claim_helps, FREE, HELD, False),
    ("a claim lost its devices", hints.claim_helps, HELD, FREE, True),
    ("a claim lost a user", hints.claim_helps, HELD, HELD_BY_ONE, True),
    ("a claim got a user", hints.claim_helps, HELD_BY_ONE, HELD, False),
    ("a claim is gone", hints.claim_helps, HELD, None, True),
    ("a claim asks for others", hints.claim_helps, FREE, claim("c", 2), True),
    ("company came", hints.makes_company, None, RUNNING, True),
    ("company is bound", hints.makes_company, pod("v"), RUNNING, True),
    ("company was there", hints.makes_company, RUNNING, RUNNING, False),
    ("company is gone", hints.makes_company, RUNNING, None, False),
    ("a node came", hints.node_helps, None, node("n1"), True),
    ("a node grew", hints.node_helps, node("n1"), node("n1", "16"), True),
    ("a heartbeat", hints.node_helps, node("n1"), with_status(node("n1"), conditions=[]), False),
    ("a kubelet was upgraded", hints.node_helps, node("n1"), UPGRADED, True),
    ("a node is gone", hints.node_helps, node("n1"), None, False),
    ("one more may go", hints.budget_helps, NONE, ONE, True),
    ("one less may go", hints.budget_helps, ONE, NONE, False),
    ("it covers others", hints.budget_helps, NONE, budget("b", 0, {"a": "c"}), True),
    ("it was counted again", hints.budget_helps, ONE, with_status(ONE, observed_generation=2), True),
    ("it is gone", hints.budget_helps, NONE, None, True),
    ("it came", hints.budget_helps, None, NONE, False),
    ("what is not read changed", hints.relevant_difference, HERE, with_meta(HERE, resource_version="9"), False),
    ("a namespace changed", hints.relevant_difference, HERE, with_meta(HERE, labels={"tier": "batch"}), True),
    ("a namespace came", hints.relevant_difference, None, HERE, True),
)
def test_what_is_worth_another_try(hint: Callable[[Any, Any], bool], old: Any, new: Any, helps: bool):
    """Room that comes up, pods that may go from now on, and company for those that want to be near it."""
    assert hint(old, new) is helps
