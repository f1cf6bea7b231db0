"""Builders: engines from YAML, and requests as admission makes them."""

from typing import Any

import pytest

from webhook.kube.objects.cluster_scoped import Namespace, PriorityClass
from webhook.kube.objects.meta import ObjectMeta
from webhook.policy.evaluation.engine import Engine
from webhook.policy.evaluation.request import PolicyRequest, UserInfo
from webhook.policy.files.loading import Loaded, load_texts
from webhook.policy.model.policies import Policies
from webhook.policy.shapes.object_shape import ObjectShape


def table(names: str, rows: dict[str, Any]) -> pytest.MarkDecorator:
    """A test for each row, called by its key; `names` as for `parametrize`."""
    return pytest.mark.parametrize(names, list(rows.values()), ids=list(rows))


def document(spec: str, kind: str = "PriorityPolicy", name: str = "p") -> str:
    """A policy whose spec is this YAML; its first line is line 5."""
    head = f"apiVersion: giveway.dev/v1alpha1\nkind: {kind}\nmetadata: {{name: {name}}}\nspec:\n"
    return head + "".join(f"  {line}\n" for line in spec.strip("\n").splitlines())


def loaded(spec: str, kind: str = "PriorityPolicy", name: str = "p") -> Loaded:
    """One policy whose spec is this YAML, loaded."""
    return load_texts([("p.yaml", document(spec, kind, name))])


def policies(*documents: str) -> Policies:
    """The policies of these documents, each in a file of its own, free of errors."""
    found = load_texts([(f"{number}.yaml", text) for number, text in enumerate(documents)])
    assert not found.errors, "\n".join(map(str, found.errors))
    return found.policies


def element(shape: Any) -> Any:
    """The shape of what a field holds, one by one if it is a list."""
    return element(shape.of) if hasattr(shape, "of") else shape


def mappings(*shapes: Any) -> dict[str, ObjectShape]:
    """The mappings of these shapes that make a struct of the model, themselves included, by their titles."""
    made: dict[str, ObjectShape] = {}
    for shape in map(element, shapes):
        if isinstance(shape, ObjectShape):
            made |= {shape.title: shape} if shape.model else {}
            made |= mappings(*(field.shape for field in shape.fields))
    return made


def engine(*specs: str, preemption: str = "") -> Engine:
    """An engine of PriorityPolicies p, p2, p3 … and one PreemptionPolicy; the files must be free of errors."""
    documents = [document(spec, name=f"p{number if number > 1 else ''}") for number, spec in enumerate(specs, 1)]
    return Engine(policies(*documents, *([document(preemption, "PreemptionPolicy", "m")] if preemption else [])))


def rules(*rows: str, **parts: str) -> str:
    """A spec of these rules, each in flow style, and further parts."""
    lines = [f"{name}: {value}" for name, value in parts.items()]
    return "\n".join([*lines, "rules:", *(f"- {row}" for row in rows)])


def rule(body: str, **parts: str) -> str:
    """A spec of one rule r with this body, in flow style, and further parts."""
    return rules(f"{{name: r, {body}}}", **parts)


def priority_class(name: str, value: int = 0, **annotations: str) -> PriorityClass:
    """A PriorityClass; annotations are given with `_` for the part after the last slash of Gödel's keys."""
    keys = {key.replace("_", "-"): text for key, text in annotations.items()}
    meta = ObjectMeta(name=name, annotations={f"godel.bytedance.com/{key}": text for key, text in keys.items()})
    return PriorityClass(metadata=meta, value=value)


def namespace(name: str, **labels: str) -> Namespace:
    """A namespace with labels."""
    return Namespace(metadata=ObjectMeta(name=name, labels=labels))


def user(name: str = "alice", *groups: str) -> UserInfo:
    """Someone who asks."""
    return UserInfo(username=name, groups=("system:authenticated", *groups))


def pod(
    class_name: str = "",
    *,
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    """A pod as JSON data."""
    meta: dict[str, Any] = {"name": "a", "namespace": "team-a"}
    meta |= {key: value for key, value in {"labels": labels, "annotations": annotations}.items() if value is not None}
    return {"metadata": meta, "spec": spec | ({"priorityClassName": class_name} if class_name else {})}


def create(obj: dict[str, Any] | None = None, **more: Any) -> PolicyRequest:
    """The CREATE of a pod in namespace team-a by alice, unless told otherwise."""
    fields = {"operation": "CREATE", "resource": "pods", "namespace": "team-a", "name": "a", "user": user()} | more
    return PolicyRequest(object=pod() if obj is None else obj, **fields)


def update(old: dict[str, Any], new: dict[str, Any], **more: Any) -> PolicyRequest:
    """The UPDATE of a pod in namespace team-a by alice, unless told otherwise."""
    return create(new, **({"operation": "UPDATE", "old_object": old} | more))


def deployment(template: dict[str, Any], **more: Any) -> PolicyRequest:
    """The CREATE of a Deployment with this pod template."""
    return create({"metadata": {"name": "d"}, "spec": {"template": template}}, **({"resource": "deployments"} | more))


def define(name: str, value: Any, **more: Any) -> PolicyRequest:
    """The CREATE of a PriorityClass."""
    obj = {"metadata": {"name": name}, "value": value}
    return create(obj, **({"resource": "priorityclasses", "namespace": "", "name": name} | more))


def outcomes(engine: Engine, request: PolicyRequest) -> dict[str, str]:
    """What each rule that applied said, by its id."""
    return {verdict.id: verdict.outcome for verdict in engine.judge(request)}


def only_message(engine: Engine, request: PolicyRequest) -> str:
    """The message of the one verdict that is no `allow`."""
    (verdict,) = [verdict for verdict in engine.judge(request) if verdict.outcome != "allow"]
    return verdict.message
