"""What is left of a review: its log line, and what is counted."""

import time
from types import SimpleNamespace

import msgspec
import pytest
from prometheus_client import CollectorRegistry, generate_latest

from tests.admission.builders import (
    UID,
    make_class,
    make_pod,
    make_policy,
    make_review,
    make_rule,
)
from webhook.admission.context import Objects
from webhook.admission.review import Answer
from webhook.admission.webhook import Reviewed
from webhook.kube.objects.cluster_scoped import Namespace
from webhook.kube.objects.meta import ObjectMeta
from webhook.policy.evaluation.engine import Engine
from webhook.policy.evaluation.rules import Verdict
from webhook.policy.model.match import RequestMatch
from webhook.policy.model.policies import Policies
from webhook.policy.model.priority import PolicyException
from webhook.policy.model.rules import Enforcement, PriorityClasses
from webhook.policy.shapes.yaml_nodes import SourcePosition
from webhook.serving import metrics

HIGH = make_class("high", 100)
GOOD = make_review(make_pod(priorityClassName="high"))


async def test_one_json_line_a_review(start):
    """The log says who asked for what and what became of it, and nothing of the object or a secret."""
    policy = make_policy("teams", make_rule("allowed", priority_classes=PriorityClasses(allow=("batch",))))
    secret = make_pod(
        meta={"annotations": {"token": "hunter2"}}, priorityClassName="high", priority=100,
        preemptionPolicy="PreemptLowerPriority",
    )  # fmt: skip
    async with start(objects=Objects([HIGH]), engine=Engine(Policies(priority=(policy,)))) as running:
        await running.post("/validate", make_review(secret))
        line = await running.logged(message="review")
        assert b"hunter2" not in running.log.getvalue()
    assert line.pop("ms") > 0
    assert line.pop("time").endswith("Z")
    assert line == {
        "level": "info",
        "message": "review",
        "phase": "validate",
        "uid": UID,
        "verdict": "denied",
        "user": "alice",
        "operation": "CREATE",
        "resource": "pods",
        "object": "team-a/a",
        "rule": "teams/allowed",
    }


async def test_metrics_count_reviews_rules_and_time(start):
    """Prometheus sees reviews by verdict, their time, and what each rule said."""
    policy = make_policy("teams", make_rule("allowed", priority_classes=PriorityClasses(allow=("batch",))))
    async with start(objects=Objects([HIGH]), engine=Engine(Policies(priority=(policy,)))) as running:
        await running.post("/mutate", GOOD)
        await running.post("/validate", GOOD)
        await running.post("/validate", b"")
        await running.post("/mutate", make_review({"kind": "Secret", "metadata": {"name": "a"}}))
        status, text = await running.get("/metrics")
    assert status == 200
    for line in (
        'giveway_admission_reviews_total{operation="CREATE",phase="mutate",resource="pods",verdict="patched"} 1.0',
        'giveway_admission_reviews_total{operation="CREATE",phase="validate",resource="pods",verdict="denied"} 1.0',
        'giveway_admission_reviews_total{operation="other",phase="validate",resource="other",verdict="error"} 1.0',
        'giveway_admission_reviews_total{operation="CREATE",phase="mutate",resource="other",verdict="allowed"} 1.0',
        'giveway_admission_duration_seconds_count{phase="validate"} 2.0',
        'giveway_policy_evaluations_total{policy="teams",rule="allowed",verdict="deny"} 1.0',
        'giveway_policy_evaluations_total{policy="builtin",rule="priority-resolved",verdict="deny"} 1.0',
        'giveway_policy_reloads_total{result="failure"} 0.0',
        "giveway_certificate_expiry_timestamp_seconds ",
    ):
        assert line in text


@pytest.mark.parametrize(
    ("how", "field", "denied"),
    [
        ("audit", "wouldDeny", False),
        ("warn", "warned", False),
        ("enforce", "rule", True),
        ("excepted", "excepted", False),
    ],
)
async def test_what_a_rule_refuses_or_would_leaves_a_trace(start, how, field, denied):
    """It is counted by rule and namespace, and the log says whom it hits: on trial, enforced, or excepted from."""
    enforcement = Enforcement.ENFORCE if how == "excepted" else Enforcement(how)
    policy = make_policy("teams", make_rule("allowed", enforcement, priority_classes=PriorityClasses(allow=("batch",))))
    if how == "excepted":
        end, here = time.time() + 3600, SourcePosition("p.yaml", 1, 1)
        match = RequestMatch(namespaces=("team-a", "made-up"))
        row = PolicyException(match=match, rules=("allowed",), reason="r", owner="o", until=end, source=here)
        policy = msgspec.structs.replace(policy, exceptions=(row,))
    objects = Objects([HIGH], [Namespace(metadata=ObjectMeta(name="team-a"))])
    body = make_review(make_pod(priorityClassName="high", priority=100, preemptionPolicy="PreemptLowerPriority"))
    elsewhere = {**body, "request": {**body["request"], "namespace": "made-up"}}
    async with start(objects=objects, engine=Engine(Policies(priority=(policy,)))) as running:
        for review in (body, body, elsewhere):
            _, answer = await running.post("/validate", review)
            assert answer["allowed"] is not denied
            assert ("by an exception until" in str(answer.get("warnings"))) is (how == "excepted")
        line = await running.logged(message="review")
        _, text = await running.get("/metrics")
    fields = ("rule", "warned", "wouldDeny", "excepted")
    assert {name: line[name] for name in fields if name in line} == {field: "teams/allowed"}
    assert (line["user"], line["object"]) == ("alice", "team-a/a")
    for namespace, count in (("team-a", 2.0), ("", 1.0)):
        labels = f'enforcement="{how}",namespace="{namespace}",policy="teams",rule="allowed"'
        assert f"giveway_policy_violations_total{{{labels}}} {count}" in text
    assert "made-up" not in text


def test_violations_are_counted_in_a_bounded_number_of_series(monkeypatch):
    """Namespaces beyond the bound are counted together."""
    monkeypatch.setattr(metrics, "MOST_VIOLATION_SERIES", 3)
    counted = metrics.AdmissionMetrics(CollectorRegistry())
    verdict = Verdict("teams", "allowed", Enforcement.AUDIT, "deny", "no")
    for number in range(10):
        asked = SimpleNamespace(kind=("", "pods"), resource="pods", operation="CREATE", namespace=f"team-{number}")
        reviewed = Reviewed(body=b"", answer=Answer(verdicts=[verdict]), asked=asked)
        counted.observe("validate", reviewed, 0.001, bool)
    text = generate_latest(counted.registry).decode()
    assert text.count("giveway_policy_violations_total{") == 4
    labels = 'enforcement="audit",namespace="other",policy="teams",rule="allowed"'
    assert f"giveway_policy_violations_total{{{labels}}} 7.0" in text


async def test_a_pod_without_a_name_yet_is_logged_by_what_it_will_begin_with(start):
    """Pods of controllers have no name at admission, only `generateName`."""
    pod = make_pod(meta={"name": "", "generateName": "web-7d9f-"}, priorityClassName="high")
    review = make_review(pod)
    review["request"]["name"] = ""
    async with start(objects=Objects([HIGH])) as running:
        await running.post("/mutate", review)
        line = await running.logged(message="review")
    assert line["object"] == "team-a/web-7d9f-*"
