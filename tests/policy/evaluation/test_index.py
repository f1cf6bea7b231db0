"""The index leaves out only what cannot match, and keeps the cost of the rest away."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.policy.builders import create, define, engine, namespace, outcomes, pod, rules, user
from webhook.kube.objects.meta import LabelSelector, Requirement
from webhook.policy.evaluation.engine import Engine
from webhook.policy.model.match import RequestMatch, Subject
from webhook.policy.model.policies import Policies
from webhook.policy.model.priority import PriorityPolicy
from webhook.policy.model.rules import Enforcement, PriorityClasses, PriorityRule, Reserve
from webhook.policy.shapes.yaml_nodes import SourcePosition

NAMES = st.sampled_from(["a", "b", "team-a", "team-b", "team-*", "t*", "*", "*-a"])
LABELS = st.dictionaries(st.sampled_from("xy"), st.sampled_from("12"), max_size=2)
ROWS = st.builds(
    Requirement,
    key=st.sampled_from("xy"),
    operator=st.sampled_from(["In", "NotIn"]),
    values=st.lists(st.sampled_from("12"), min_size=1),
)
SELECTORS = st.none() | st.builds(
    LabelSelector, match_labels=LABELS, match_expressions=st.none() | st.lists(ROWS, max_size=2)
)
SUBJECTS = st.builds(
    Subject, kind=st.sampled_from(["User", "Group"]), name=st.sampled_from(["u", "g", "*", "u*"])
) | st.builds(
    Subject, kind=st.just("ServiceAccount"), name=st.sampled_from(["s", "*"]), namespace=st.sampled_from(["n", "*"])
)
MATCHES = st.builds(
    RequestMatch,
    namespaces=st.none() | st.lists(NAMES, min_size=1, max_size=2).map(tuple),
    namespace_selector=SELECTORS,
    object_selector=SELECTORS,
    subjects=st.none() | st.lists(SUBJECTS, min_size=1, max_size=2).map(tuple),
    operations=st.none() | st.just(("CREATE",)) | st.just(("UPDATE",)),
)
BODIES = st.sampled_from(
    [
        {"priority_classes": PriorityClasses(deny=("*",))},
        {"reserve": Reserve(from_=0, to=5)},
        {"reserve": Reserve(from_=3, to=9)},
    ]
)
SOURCE = SourcePosition()


@st.composite
def policies(draw):
    """A few policies of one rule each, ranges overlapping or not."""
    rows = draw(st.lists(st.tuples(MATCHES, BODIES), max_size=6))
    return tuple(
        PriorityPolicy(
            name=f"p{number}",
            source=SOURCE,
            match=match,
            rules=(PriorityRule(name="r", source=SOURCE, enforcement=Enforcement.ENFORCE, **body),),
        )
        for number, (match, body) in enumerate(rows)
    )


REQUESTS = st.builds(
    lambda space, labels, space_labels, who, value, resource: (
        create(
            pod("c", labels=labels),
            namespace=space,
            namespace_object=namespace(space, **space_labels),
            user=who,
            priority=value,
        )
        if resource == "pods"
        else define("c", value, user=who)
    ),
    st.sampled_from(["a", "team-a", "team-b", "other"]),
    LABELS,
    LABELS,
    st.sampled_from([user("u"), user("x", "g"), user("system:serviceaccount:n:s")]),
    st.integers(0, 10),
    st.sampled_from(["pods", "priorityclasses"]),
)


@given(policies(), REQUESTS)
def test_an_index_changes_no_verdict(rows, request):
    """Every policy asked by itself says what all of them say together."""
    together = outcomes(Engine(Policies(priority=rows)), request)
    one_by_one = {}
    for row in rows:
        one_by_one |= outcomes(Engine(Policies(priority=(row,))), request)
    assert together == one_by_one


@pytest.mark.slow
def test_cost_hardly_grows_with_rules_that_do_not_match():
    """A thousand policies for other namespaces cost less than four times what ten cost."""

    def cost(count):
        rows = [
            rules("{name: r, priorityClasses: {deny: ['*']}}", match=f"{{namespaces: [other-{n}]}}")
            for n in range(count)
        ]
        judging, request = engine(*rows), create(pod("c"))
        best = float("inf")
        for _ in range(20):
            began = time.process_time()
            for _ in range(100):
                judging.judge(request)
            best = min(best, time.process_time() - began)
        return best

    assert cost(1000) < 4 * cost(10)
