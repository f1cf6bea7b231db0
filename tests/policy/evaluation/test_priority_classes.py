"""Which PriorityClasses pods may name, and which they get by default."""

import pytest

from tests.policy.builders import create, deployment, engine, only_message, outcomes, pod, priority_class, rules, update

ALLOWED = '{name: r, priorityClasses: {allow: [standard, "batch-*"], deny: ["system-*", batch-x]}}'


@pytest.mark.parametrize(
    ("name", "outcome"),
    [
        pytest.param("standard", "allow", id="literally allowed"),
        pytest.param("batch-a", "allow", id="allowed by glob"),
        pytest.param("batch-x", "deny", id="deny wins over allow"),
        pytest.param("system-node-critical", "deny", id="denied by glob"),
        pytest.param("online", "deny", id="in neither list"),
    ],
)
def test_allow_and_deny(name, outcome):
    """A class must be allowed and must not be denied."""
    assert outcomes(engine(rules(ALLOWED)), create(pod(name))) == {"p/r": outcome}


def test_pod_without_class_is_not_meant():
    """A pod that has no class uses none."""
    assert outcomes(engine(rules(ALLOWED)), create(pod())) == {}


def test_class_by_global_default_is_meant():
    """A class that the pod gets by default counts as if it were named."""
    request = create(pod(), priority_class=priority_class("online"))
    assert outcomes(engine(rules(ALLOWED)), request) == {"p/r": "deny"}


def test_denied_text_tells_what_is_allowed():
    """The author learns the class, the place, the rule and the classes that would do."""
    text = only_message(engine(rules(ALLOWED)), create(pod("online")))
    assert '"online" may not be used in namespace team-a' in text
    assert "rule p/r allows standard, batch-* and denies system-*, batch-x" in text


def test_update_that_keeps_the_class_is_never_refused():
    """A policy that comes later does not freeze the pods that run."""
    request = update(pod("online", priority=5), pod("online", labels={"a": "b"}, priority=5))
    assert outcomes(engine(rules(ALLOWED)), request) == {}


def test_template_is_judged_for_its_author():
    """Applying a workload shows what its pods would run into."""
    assert outcomes(engine(rules(ALLOWED)), deployment(pod("online"))) == {"p/r": "deny"}


def test_workload_update_that_keeps_the_template_passes():
    """Scaling and status updates of a workload applied before the policy go on."""
    request = deployment(pod("online"), operation="UPDATE")
    request.old_object = {"metadata": {"name": "d"}, "spec": {"replicas": 1, "template": pod("online")}}
    assert outcomes(engine(rules(ALLOWED)), request) == {}


def test_workload_update_that_changes_the_template_is_judged():
    """A new template is judged like a new workload."""
    request = deployment(pod("online"), operation="UPDATE")
    request.old_object = {"metadata": {"name": "d"}, "spec": {"template": pod("standard")}}
    assert outcomes(engine(rules(ALLOWED)), request) == {"p/r": "deny"}


@pytest.mark.parametrize(
    ("body", "outcome"),
    [
        pytest.param("{allow: [online]}", "allow", id="allowed under its first name"),
        pytest.param("{deny: [online]}", "deny", id="denied under its first name"),
        pytest.param("{allow: [online-managed]}", "allow", id="allowed under the twin's name"),
    ],
)
def test_twin_counts_as_the_class_it_stands_for(body, outcome):
    """The webhook moves pods to a twin; what their author chose is what is judged."""
    judging = engine(
        rules(f"{{name: r, priorityClasses: {body}}}"), preemption="preemptors: {twins: {online: online-managed}}"
    )
    assert outcomes(judging, create(pod("online-managed"))) == {"p/r": outcome}


def test_default_class():
    """A pod that names no class gets the first default whose policy applies; the rule is named."""
    judging = engine(
        rules("{name: d, defaultPriorityClass: other}", match="{namespaces: [other]}"),
        rules("{name: d, defaultPriorityClass: standard}", match='{namespaces: ["team-*"]}'),
        rules("{name: d, defaultPriorityClass: last}"),
    )
    assert judging.default_priority_class(create(pod())) == ("standard", "p2/d")
    assert judging.default_priority_class(create(pod(), namespace="x")) == ("last", "p3/d")


@pytest.mark.parametrize(
    "request_",
    [
        pytest.param(create(pod("named")), id="names a class"),
        pytest.param(update(pod(), pod()), id="exists"),
        pytest.param(create(pod(), resource="priorityclasses"), id="is no pod"),
    ],
)
def test_no_default_class(request_):
    """Only new pods without a class get one."""
    assert engine(rules("{name: d, defaultPriorityClass: standard}")).default_priority_class(request_) is None


def test_default_class_of_a_template():
    """The pod that a template describes gets the default too, so that its template is judged by it."""
    judging = engine(rules("{name: d, defaultPriorityClass: standard}"))
    assert judging.default_priority_class(deployment(pod())) == ("standard", "p/d")


def test_copied_annotations_name_their_first_rule():
    """Each key to copy comes once, with the rule that asked first."""
    judging = engine(
        rules("{name: a, copyAnnotations: [volcano.sh/preemptable]}"),
        rules("{name: b, copyAnnotations: [godel.bytedance.com/can-be-preempted, volcano.sh/preemptable]}"),
    )
    assert judging.annotations_to_copy(create(pod())) == [
        ("volcano.sh/preemptable", "p/a"),
        ("godel.bytedance.com/can-be-preempted", "p2/b"),
    ]
    assert judging.annotations_to_copy(update(pod(), pod())) == []
    assert judging.annotations_to_copy(deployment(pod())) == []


@pytest.mark.parametrize(
    ("name", "managed", "twin"),
    [
        pytest.param("online-a", True, None, id="by glob"),
        pytest.param("old", True, "new", id="has a twin"),
        pytest.param("new", True, None, id="is a twin"),
        pytest.param("system-node-critical", False, None, id="Kubernetes' own"),
        pytest.param("other", False, None, id="not named"),
        pytest.param("", False, None, id="no class"),
    ],
)
def test_managed_classes(name, managed, twin):
    """A class is managed when a PreemptionPolicy names it, or as either half of a pair of twins."""
    found = engine(
        rules(ALLOWED), preemption='preemptors: {priorityClasses: ["online-*", "*-critical"], twins: {old: new}}'
    ).managed(name)
    assert (found is not None, found and found.twin) == (managed, twin)
