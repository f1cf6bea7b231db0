"""The trace of a request: every rule, and why it did or did not apply."""

from tests.policy.builders import create, deployment, engine, pod, rules, update
from webhook.policy.evaluation.engine import Engine
from webhook.policy.model.policies import Policies
from webhook.policy.model.values import CAN_BE_PREEMPTED as KEY

JUDGING = engine(
    rules(
        "{name: default, defaultPriorityClass: standard}",
        "{name: classes, priorityClasses: {allow: [standard]}}",
        "{name: band, reserve: {from: 900, to: 1000}}",
        "{name: copy, copyAnnotations: [godel.bytedance.com/can-be-preempted]}",
        f"{{name: shield, protectAnnotations: {{keys: [{KEY}]}}}}",
        "{name: cel, validate: {expression: 'object.spec.x == 1', message: m}}",
        "{name: define, validate: {expression: 'false', message: m, resources: [priorityclasses]}}",
    ),
    rules("{name: r, validate: {expression: 'false', message: m}}", match="{namespaces: [other]}"),
    rules("{name: r, validate: {expression: 'false', message: m}}", exclude="{namespaces: [team-a]}"),
    rules("{name: r, validate: {expression: 'false', message: m}}", conditions="[{name: c, expression: 'false'}]"),
    rules("{name: r, validate: {expression: 'false', message: m}}", conditions="[{name: c, expression: 'object.x'}]"),
)


def traced(request):
    """The trace as `policy/rule` to outcome and message."""
    rows = []
    JUDGING.judge(request, rows)
    return {row.id: (row.outcome, row.message) for row in rows}


def test_every_rule_is_there_with_its_reason():
    """Each rule of each policy has one line, in the order of the files, the built-in shield last."""
    found = traced(create(pod("online", x=1), priority=5))
    assert list(found) == [
        *(f"p/{name}" for name in ("default", "classes", "band", "copy", "shield", "cel", "define")),
        *("p2/r", "p3/r", "p4/r", "p5/c", "p5/r", "builtin/shield"),
    ]
    assert found["p/default"] == ("skip", "the pod has PriorityClass online; the default is standard")
    assert found["p/classes"][0] == "deny"
    assert found["p/band"] == ("skip", "5 does not lie in 900 to 1000")
    assert found["p/copy"] == ("allow", f"a new pod takes over {KEY} from its PriorityClass")
    assert found["p/shield"] == ("skip", "it says nothing of this request")
    assert found["p/cel"] == ("allow", "")
    assert found["p/define"] == ("skip", "it says nothing of this request")
    assert found["p2/r"] == ("skip", "the namespace is not one of other")
    assert found["p3/r"] == ("skip", "exclude holds")
    assert found["p4/r"] == ("skip", "condition c is false")
    assert found["p5/c"] == ("error", found["p5/r"][1])
    assert found["p5/r"][0] == "skip"
    assert found["builtin/shield"][0] == "skip"


def test_an_update_is_explained():
    """Rules for creation say that they do not act, rules about the class that it stays."""
    found = traced(update(pod("online", x=1), pod("online", x=1, annotations={KEY: "true"})))
    assert found["p/default"] == ("skip", "it says nothing of this request")
    assert found["p/classes"] == ("skip", "the PriorityClass does not change")
    assert found["p/shield"][0] == "deny"


def test_what_is_not_judged_says_so():
    """A request that no rule looks at has one line with the reason."""
    rows = []
    Engine(Policies()).judge(create(operation="DELETE"), rows)
    assert [row.message for row in rows] == ["operation DELETE is not judged"]
    rows = []
    request = deployment(pod(), operation="UPDATE", old_object={"spec": {"template": pod()}})
    Engine(Policies()).judge(request, rows)
    assert [row.message for row in rows] == ["the pod template did not change"]
