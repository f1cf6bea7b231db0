"""Small builders: reviews, pods, classes, policies, and answers read back."""

import base64
import json
from typing import Any

from jsonpatch import apply_patch

from tests.policy.builders import document, policies, rules
from webhook.admission.context import Context, Objects
from webhook.admission.webhook import Reviewed, review, review_of
from webhook.kube.objects.cluster_scoped import Namespace, PriorityClass
from webhook.kube.objects.meta import ObjectMeta
from webhook.policy.evaluation.engine import Engine
from webhook.policy.model.match import RequestMatch
from webhook.policy.model.policies import Policies
from webhook.policy.model.preemption import PreemptionPolicy, Preemptors
from webhook.policy.model.priority import PriorityPolicy
from webhook.policy.model.rules import Enforcement, PriorityRule
from webhook.policy.model.values import CAN_BE_PREEMPTED, PROTECTION_DURATION
from webhook.policy.shapes.yaml_nodes import SourcePosition

UID = "705ab4f5-6393-11e8-b7cc-42010a800002"
HERE = SourcePosition("policies.yaml", 1, 1)


def make_class(name: str, value: int = 0, *, never: bool = False, default: bool = False, **annotations: str):
    keys = {"preemptible": CAN_BE_PREEMPTED, "protection": PROTECTION_DURATION}
    return PriorityClass(
        metadata=ObjectMeta(name=name, annotations={keys[key]: text for key, text in annotations.items()} or None),
        value=value,
        global_default=default,
        preemption_policy="Never" if never else "PreemptLowerPriority",
    )


def make_rule(name: str, enforcement: Enforcement = Enforcement.ENFORCE, **body: Any) -> PriorityRule:
    return PriorityRule(name=name, source=HERE, enforcement=enforcement, **body)


def make_policy(name: str, *rules: PriorityRule, **match: Any) -> PriorityPolicy:
    return PriorityPolicy(name=name, source=HERE, rules=rules, match=RequestMatch(**match))


def policy(name: str, *rows: str, **parts: str) -> PriorityPolicy:
    """A PriorityPolicy of these rules and further parts, each in flow style."""
    return policies(document(rules(*rows, **parts), name=name)).priority[0]


def manage(*classes: str, **twins: str) -> PreemptionPolicy:
    return PreemptionPolicy(name="preempt", source=HERE, preemptors=Preemptors(priority_classes=classes, twins=twins))


def make_context(*objects: Any, policies: tuple[Any, ...] = ()) -> Context:
    classes = [item for item in objects if isinstance(item, PriorityClass)]
    spaces = [item for item in objects if isinstance(item, Namespace)]
    spaces = spaces or [Namespace(metadata=ObjectMeta(name="team-a"))]
    compiled = Engine(
        Policies(
            priority=tuple(item for item in policies if isinstance(item, PriorityPolicy)),
            preemption=tuple(item for item in policies if isinstance(item, PreemptionPolicy)),
        )
    )
    return Context(compiled, Objects(classes, spaces))


def make_pod(name: str = "a", *, meta: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "team-a", **(meta or {})},
        "spec": {"containers": [{"name": "c", "image": "nginx"}], **spec},
    }


def pod_of(priority_class: PriorityClass, *, meta: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    """A pod that carries what its class says."""
    numbers = {"priority": priority_class.value, "preemptionPolicy": priority_class.preemption_policy}
    return make_pod(meta=meta, **{"priorityClassName": priority_class.metadata.name, **numbers, **spec})


def make_workload(kind: str, *, meta: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    template = {"metadata": meta or {}, "spec": {"containers": [{"name": "c", "image": "nginx"}], **spec}}
    body = {"jobTemplate": {"spec": {"template": template}}} if kind == "CronJob" else {"template": template}
    return {"kind": kind, "metadata": {"name": "web", "namespace": "team-a"}, "spec": body}


def make_review(obj: Any, old: Any = None, *, operation: str | None = None, user: str = "alice", **more: Any) -> dict:
    shown = obj or old
    meta = shown["metadata"]
    body = review_of(
        shown["kind"],
        obj,
        {"username": user, "groups": ["dev", "system:authenticated"]},
        operation=operation or ("UPDATE" if old else "CREATE"),
        old_object=old,
        namespace=meta.get("namespace", ""),
        name=meta.get("name", ""),
    )
    body["request"] |= {"uid": UID} | more
    return body


def ask(context: Context, phase: Any, body: dict | bytes) -> Reviewed:
    sent = body if isinstance(body, bytes) else json.dumps(body).encode()
    return review(context, phase, sent)


def response(reviewed: Reviewed | bytes) -> dict[str, Any]:
    body = json.loads(reviewed if isinstance(reviewed, bytes) else reviewed.body)
    assert set(body) == {"apiVersion", "kind", "response"}
    assert body["apiVersion"] == "admission.k8s.io/v1"
    assert body["kind"] == "AdmissionReview"
    return body["response"]


def patch_of(answer: dict[str, Any]) -> list[dict[str, Any]]:
    assert ("patch" in answer) == ("patchType" in answer)
    return json.loads(base64.b64decode(answer["patch"], validate=True)) if "patch" in answer else []


def message_of(answer: dict[str, Any]) -> str:
    assert answer["allowed"] is False
    return answer["status"]["message"]


def denied_by(answer: dict[str, Any]) -> str:
    """The rules that refused, as the audit log names them."""
    return answer.get("auditAnnotations", {}).get("denied-by", "")


def judged(context: Context, obj: Any, old: Any = None, **more: Any) -> dict[str, Any]:
    """What validation answers."""
    return response(ask(context, "validate", make_review(obj, old, **more)))


def filled(context: Context, obj: Any, old: Any = None, **more: Any) -> dict[str, Any]:
    """What mutation answers."""
    return response(ask(context, "mutate", make_review(obj, old, **more)))


def mutated(context: Context, obj: dict[str, Any], old: dict[str, Any] | None = None) -> dict[str, Any]:
    """The object after mutation; running it through again must change nothing."""
    result = apply_patch(obj, patch_of(filled(context, obj, old)))
    assert patch_of(filled(context, result, old)) == []
    return result
