"""What example pods show of PreemptionPolicies: who chooses to evict or to stay, and what does nothing."""

import pytest

from tests.cases import table
from tests.policy.builders import document
from tests.policy.example_requests.builders import policy as priority
from tests.policy.example_requests.builders import validate
from webhook.policy.files.loading import load_texts
from webhook.policy.shapes.findings import Severity
from webhook.preemption.example_pods import example_pod_findings

ON, OFF = 'priorityClasses: ["online-*"]', 'priorityClasses: ["offline-*"]'
TIER, GOLD = (f"labels: {{matchLabels: {{tier: {value}}}}}" for value in ("batch", "gold"))
OUT = "mode: opt-out"
NAME = "kubernetes.io/metadata.name"


def pair(preemptors="", victims=""):
    """A pair with what these sides say; one that says nothing is left out."""
    sides = {"preemptors": preemptors, "victims": victims}
    return f"{{{', '.join(f'{name}: {{{said}}}' for name, said in sides.items() if said)}}}"


def policy(*pairs, preemptors=ON, victims="mode: opt-in", name="m"):
    """A PreemptionPolicy with these pairs, in flow style."""
    rows = f", pairs: [{', '.join(pairs)}]" if pairs else ""
    return document(f"preemptors: {{{preemptors}}}\nvictims: {{{victims}{rows}}}", "PreemptionPolicy", name)


def told(*texts, severity=Severity.WARNING):
    """What is found in these policies, which must be free of errors."""
    loaded = load_texts([(f"{number}.yaml", text) for number, text in enumerate(texts)])
    assert not loaded.errors, "\n".join(map(str, loaded.errors))
    found = example_pod_findings(loaded.policies, 1_700_000_000)
    return [finding.message for finding in found if finding.severity is severity]


def namespaces(selector):
    """A side of a pair by the labels of namespaces."""
    return f"namespaceSelector: {{{selector}}}"


def labels(operator, key="keep", values=""):
    """A side of a pair by one row of matchExpressions."""
    return f"labels: {{{expression(operator, key, values)}}}"


def expression(operator, key="keep", values=""):
    """One row of matchExpressions."""
    return f"matchExpressions: [{{key: {key}, operator: {operator}{f', values: [{values}]' if values else ''}}}]"


def signals(*said, victims=OUT):
    """A policy with signals of the annotation e.com/k."""
    rows = ", ".join(f"{{annotation: e.com/k, {one}}}" for one in said)
    return policy(victims=f"{victims}, signals: [{rows}]")


JOINS = "m lets the author of a pod choose to be a preemptor: a pod of PriorityClass "
STAYS = "m lets the author of a pod choose to be no victim: "
NOBODY = "victims.pairs[0] of PreemptionPolicy m lets nobody evict anybody: "
OTHER_NAMESPACES = (
    "m lets pods of a namespace that it does not name be preemptors: a pod of PriorityClass online-a in some-"
)
URGENT_ONES = "priorityClasses: [urgent]"
URGENT = policy(pair(URGENT_ONES, OFF))
LOCAL = "namespaces: [team-a], "
BY_Q = "priorityClasses: [online-x], " + labels("In", "q", "y, z")
JOINING = {
    "a label": ("online-a with the label tier=gold in some-namespace", policy(pair(GOLD))),
    "a label in one namespace": ("online-a with the label tier=gold in team-a", policy(pair(LOCAL + GOLD))),
    "a label that is there": (
        "online-a with the label urgent=x in some-namespace", policy(pair(labels("Exists", "urgent")))
    ),
    "a label that is left off": ("online-a in some-namespace", policy(pair(labels("DoesNotExist")))),
    "a label beside a class": ("online-x with the label q=y in some-namespace", policy(pair(BY_Q))),
    "a label by the second pair": (
        "online-a with the label tier=gold in some-namespace",
        policy(pair("", OFF), pair(GOLD, "priorityClasses: [standard]")),
    ),
}  # fmt: skip
"""By what makes a preemptor: the pod whose author makes it one, and the policy."""
IN_VAIN = {
    "preemptors of a class that is not managed": URGENT,
    "preemptors of a class of another policy": f"{URGENT}---\n{policy(preemptors=URGENT_ONES, name='q')}",
    "a class and its twin": policy(
        pair("priorityClasses: [high]", "priorityClasses: [high-never]"), preemptors="twins: {high: high-never}"
    ),
    "system classes are no victims": policy(pair("", 'priorityClasses: ["system-*"]'), victims=OUT),
    "a regular expression for namespaces": policy(pair("", 'namespaces: ["team-.*"]')),
    "labels that contradict each other": policy(
        pair("", f"labels: {{matchLabels: {{tier: b}}, {expression('DoesNotExist', 'tier')}}}")
    ),
    "labels of namespaces that contradict each other": policy(
        pair(namespaces("matchLabels: {a: b}, " + expression("NotIn", "a", "b")))
    ),
    "two names for one namespace": policy(pair("", f"namespaces: [a], {namespaces(f'matchLabels: {{{NAME}: b}}')}")),
}
"""Policies of which the first pair lets nobody evict anybody."""
ALL_OFF = pair("", OFF)
NEEDLESS = {
    "a class that no glob means": (
        "preemptors.priorityClasses[1]", policy(preemptors='priorityClasses: ["online-*", "urgent-.*"]')
    ),
    "a class twice": ("preemptors.priorityClasses[1]", policy(preemptors='priorityClasses: ["online-*", online-x]')),
    "pairs that mean everybody": ("victims.pairs[0]", policy("{}")),
    "a pair within another one": (
        "victims.pairs[1]", policy(ALL_OFF, pair("namespaces: [a]", "priorityClasses: [offline-x]"))
    ),
    "any class": (
        "victims.pairs[0].preemptors.priorityClasses",
        policy(pair('priorityClasses: ["*"]', "priorityClasses: [offline]")),
    ),
    "any namespace": (
        "victims.pairs[0].victims.namespaces", policy(pair("", 'priorityClasses: [offline], namespaces: ["*"]'))
    ),
    "any labels of the namespace": ("victims.pairs[0].preemptors.namespaceSelector", policy(pair(namespaces(""), OFF))),
    "the name of a namespace twice": (
        "victims.pairs[0].victims.namespaces",
        policy(pair("", f"namespaces: [a], {namespaces(f'matchLabels: {{{NAME}: a}}')}")),
    ),
    "one class of a list that is not managed": (
        "victims.pairs[0].preemptors.priorityClasses[1]", policy(pair("priorityClasses: [online-a, urgent]", OFF))
    ),
    "one glob of a list that means nothing": (
        "victims.pairs[0].victims.priorityClasses[1]", policy(pair("", 'priorityClasses: [offline, "offline-.*"]'))
    ),
    "a value that protects and permits": (
        "victims.signals[0].permits[0]", signals("protects: [a, b], permits: [a, c]", victims="mode: opt-in")
    ),
    "a signal after another one of its annotation": (
        "victims.signals[1].permits[0]", signals("protects: [a]", "permits: [a]", victims="mode: opt-in")
    ),
    "a value that permits beside any that protects": (
        "victims.signals[0].permits[0]", signals('protects: ["*"], permits: ["no"]')
    ),
}  # fmt: skip
"""Parts that make no difference, and policies that have them."""
BY_CLASS = "a pod of PriorityClass some-class with the class annotation godel.bytedance.com/can-be-preempted=true"
DEFAULT = "schedulerNames: [default-scheduler]"
OTHERS = {
    "every namespace but some has preemptors": (
        OTHER_NAMESPACES, policy(pair(namespaces(expression("DoesNotExist", "guest"))))
    ),
    "every namespace but one value has preemptors": (
        OTHER_NAMESPACES, policy(pair(namespaces(expression("NotIn", "team", "guests")), OFF))
    ),
    "a label that is left off keeps a pod": (STAYS + BY_CLASS, policy(pair("", TIER))),
    "a label keeps a pod": (
        f"{STAYS}a pod of PriorityClass some-class with the label keep=x in some-namespace, made by anybody",
        policy(pair("", labels("DoesNotExist")), victims=OUT),
    ),
    "a label of another value keeps a pod": (
        f"{STAYS}a pod of PriorityClass some-class with the label keep=yes in some-namespace, made by anybody",
        policy(pair("", labels("NotIn", "keep", '"yes"')), victims=OUT),
    ),
    "a label keeps a pod of a class": (
        f"{STAYS}a pod of PriorityClass offline with the label keep=x in some-namespace, made by anybody",
        policy(pair("", f"priorityClasses: [offline], {labels('DoesNotExist')}"), victims=OUT),
    ),
    "a scheduler keeps a pod": (
        f'{STAYS}a pod of PriorityClass some-class with spec.schedulerName "x" in some-namespace, made by anybody',
        policy(victims=f"{OUT}, {DEFAULT}"),
    ),
    "a regular expression for victims": (
        f"{NOBODY}a pod of PriorityClass online-a in some-", policy(pair("", 'priorityClasses: ["offline-.*"]'))
    ),
    "one pair of two lets nobody evict": (
        "victims.pairs[1] of PreemptionPolicy m lets nobody evict anybody: ",
        policy(ALL_OFF, pair("priorityClasses: [urgent]", OFF)),
    ),
    "preemptors by any scheduler": ("m lets nobody evict anybody: ", policy(preemptors=f'{ON}, schedulerNames: ["*"]')),
    "a regular expression for preemptors": (
        "m manages no pod; name priorityClasses or twins", policy(preemptors='priorityClasses: ["online-.*"]')
    ),
}  # fmt: skip
SURPRISING = {
    **{name: (f"{JOINS}{who}, made by anybody, evicts a", text) for name, (who, text) in JOINING.items()},
    **{name: (NOBODY, text) for name, text in IN_VAIN.items()},
    **{name: (f"{part} of PreemptionPolicy m makes no difference: ", text) for name, (part, text) in NEEDLESS.items()},
    **OTHERS,
}


@pytest.mark.parametrize("name", SURPRISING)
def test_what_would_surprise_is_shown(name):
    """The finding has pods that anybody can make, and what becomes of them."""
    expected, text = SURPRISING[name]
    found = told(text)
    assert any(message.startswith(expected) for message in found), "\n".join(found)


ABC = [f"priorityClasses: [{name}]" for name in "abc"]
UNSURPRISING = {
    "nothing but classes": policy(),
    "victims by class and the namespace's label": policy(
        pair("", f'priorityClasses: [offline, "offline-*"], {namespaces("matchLabels: {workload: offline}")}')
    ),
    "preemptors of all classes that are managed": policy(pair(ON, OFF)),
    "preemptors by the namespace's label": policy(pair(namespaces("matchLabels: {urgent: allowed}"), OFF)),
    "victims of all namespaces but some": policy(pair("", namespaces(expression("DoesNotExist")))),
    "three classes above each other": policy(
        pair(ABC[0], "priorityClasses: [b, c]"),
        pair(ABC[1], ABC[2]),
        pair(ABC[2], "namespaces: [x]"),
        preemptors="priorityClasses: [a, b, c]",
    ),
    "a signal of any value": signals('protects: ["*"]', victims="mode: opt-in"),
    "two pairs": policy(
        pair("priorityClasses: [online-a]", OFF), pair("priorityClasses: [online-b]", "namespaces: [a]")
    ),
    "managed classes among each other": policy(pair("priorityClasses: [online-a]", "priorityClasses: [online-b]")),
    "a twin alone": policy(pair("priorityClasses: [high]"), preemptors="twins: {high: high-never}"),
    "opt-out of any scheduler": policy(victims=f'{OUT}, schedulerNames: ["*"]'),
    "signals": signals('protects: ["true"], permits: ["false"], duration: true', victims="mode: opt-in"),
    "another scheduler's preemptors": policy(preemptors=f"{ON}, schedulerNames: [gang-scheduler]"),
}


@pytest.mark.parametrize("name", UNSURPRISING)
def test_what_is_meant_is_let_be(name):
    """No finding about policies that do what they seem to say."""
    assert told(UNSURPRISING[name]) == []


@table(
    "text, guard",
    ("the label of preemptors", policy(pair(GOLD)), '!("tier" in object.metadata.labels)'),
    ("the label that keeps", policy(pair("", labels("DoesNotExist"))), '!("keep" in object.metadata.labels)'),
    ("the scheduler", policy(victims=f"{OUT}, {DEFAULT}"), 'object.spec.schedulerName == "default-scheduler"'),
)
def test_a_rule_that_another_one_makes_safe(text, guard):
    """The set is asked as a whole: nobody chooses what a rule refuses to everybody."""
    assert told(text)
    assert told(text, priority(validate(guard))) == []


def test_annotations_by_which_pods_stay():
    """Under opt-out a notice says that the author of a pod may annotate it, unless a rule refuses the annotation."""
    opt_out = policy(victims=OUT)
    (notice,) = told(opt_out, severity=Severity.NOTICE)
    assert notice.startswith(
        STAYS
        + "a pod of PriorityClass some-class with the annotation godel.bytedance.com/can-be-preempted=false in some-"
    )
    assert told(policy(), severity=Severity.NOTICE) == []
    refuse = priority(validate('!("godel.bytedance.com/can-be-preempted" in object.metadata.annotations)'))
    (longer,) = told(opt_out, refuse, severity=Severity.NOTICE)
    assert "the annotation godel.bytedance.com/protection-duration-from-preemption=" in longer
    bounded = opt_out + "  protection: {maximum: 1h}\n"
    assert told(bounded, refuse, severity=Severity.NOTICE) == []
