"""What whoever may not change a protected annotation is told of the policy's own part of the right, in both forms."""

from __future__ import annotations

from typing import Any

import pytest

from tests.native.comparing import Both, pod_request
from tests.policy.builders import engine, rules
from webhook.policy.model.values import CAN_BE_PREEMPTED as KEY

NAMESPACES = [{"kind": "Namespace", "metadata": {"name": "team-a", "labels": {"stage": "test"}}}]
LEADS = "subjects: [{kind: Group, name: leads}]"
ALLOW = f"{{name: s, protectAnnotations: {{keys: [{KEY}], operations: [CREATE, UPDATE], allow: {{{LEADS}}}}}}}"
IN_TEAM = ALLOW.replace(LEADS, "namespaces: [team-a]")
NONE: dict[str, str] = {}
GOLD, BOT = {"tier": "gold"}, "system:serviceaccount:team-a:bot"
GOLD_ONLY = {"match": "{objectSelector: {matchLabels: {tier: gold}}}"}
BY_LEADS = "rule p/s leaves that to Group leads"
BY_TEAM = "rule p/s leaves that to namespace team-a"
NOBODY = "rule builtin/shield leaves that to nobody once the pod exists"
MATCH, NOT_HERE = "(the policy's own match gives no right:", "(rule p/s gives the right, but not here:"
BEFORE_AND_AFTER = "objectSelector does not select the object's labels both before and after this change"
NO_LABELS = "objectSelector asks for labels, and a Binding tells none of its pod"
ASKED_BY = "who asks is not one of Group leads"


def pod(value: str = "", **labels: str) -> dict[str, Any]:
    meta = {"name": "a", "namespace": "team-a", "labels": labels, "annotations": {KEY: value} if value else {}}
    return {"kind": "Pod", "metadata": meta, "spec": {"containers": []}}


def change(*, before: dict[str, str] = NONE, after: dict[str, str] = NONE, **asked: Any) -> dict[str, Any]:
    """An update by a lead, of labels and of the annotation."""
    return pod_request(
        pod("true", **after), **({"groups": ("leads",)} | asked), operation="UPDATE", oldObject=pod(**before)
    )


def binding(**asked: Any) -> dict[str, Any]:
    meta = {"name": "a", "namespace": "team-a", "annotations": {KEY: "true"}}
    return pod_request({"kind": "Binding", "metadata": meta, "target": {"name": "n"}}, **asked)


CASES: dict[str, tuple[dict[str, str], dict[str, Any], str]] = {
    "the label comes with the change": (GOLD_ONLY, change(after=GOLD), f"{BY_LEADS} {MATCH} {BEFORE_AND_AFTER})"),
    "the label goes with the change": (GOLD_ONLY, change(before=GOLD), f"{BY_LEADS} {MATCH} {BEFORE_AND_AFTER})"),
    "a service account for somebody": (
        {"rule": IN_TEAM, "match": f"{{namespaces: [team-a], {LEADS}}}"},
        change(user=BOT, groups=()),
        f"{BY_TEAM} {MATCH} {ASKED_BY})",
    ),
    "the label of a pod that a Binding does not tell": (
        GOLD_ONLY,
        binding(groups=("leads",)),
        f"{BY_LEADS} {MATCH} {NO_LABELS})",
    ),
    "neither the match nor the right": (
        GOLD_ONLY,
        change(after=GOLD, groups=()),
        f"{BY_LEADS} {MATCH} {BEFORE_AND_AFTER})",
    ),
    "another namespace": (
        {"match": "{namespaces: [other]}"},
        change(),
        f"{NOBODY} {NOT_HERE} the namespace is not one of other)",
    ),
    "other labels": (GOLD_ONLY, change(), f"{NOBODY} {NOT_HERE} objectSelector does not select the object's labels)"),
    "a namespace with other labels": (
        {"match": "{namespaceSelector: {matchLabels: {stage: prod}}}"},
        change(),
        f"{NOBODY} {NOT_HERE} namespaceSelector does not select the namespace's labels)",
    ),
    "another operation": (
        {"match": "{operations: [CREATE]}"},
        change(),
        f"{NOBODY} {NOT_HERE} the operation is not CREATE)",
    ),
    "an exclusion": ({"exclude": "{namespaces: [team-a]}"}, change(), f"{NOBODY} {NOT_HERE} exclude holds)"),
    "a condition": (
        {"conditions": "[{name: named, expression: object.metadata.name == 'b'}]"},
        change(),
        f"{NOBODY} {NOT_HERE} condition named is false)",
    ),
    "somebody without the right": ({"match": "{namespaces: [other]}"}, change(groups=()), NOBODY),
}


@pytest.mark.parametrize(("parts", "request_", "text"), CASES.values(), ids=CASES)
def test_what_of_the_match_does_not_hold_is_told(parts, request_, text):
    """It is told to whoever has the right besides; and of a policy that does not apply only to them."""
    spec = {key: part for key, part in parts.items() if key != "rule"}
    for result in Both(engine(rules(parts.get("rule", ALLOW), **spec)).policies, NAMESPACES).validate(request_):
        (said,) = result.denied
        assert said.startswith(f'annotation {KEY} may not be set to "true": {text}; ')
