"""Who may set, change or remove the preemptibility annotations (docs/semantics.md C5)."""

import pytest

from tests.policy.builders import (
    create,
    deployment,
    engine,
    only_message,
    outcomes,
    pod,
    priority_class,
    rules,
    table,
    update,
    user,
)
from webhook.policy.model.values import CAN_BE_PREEMPTED as KEY
from webhook.policy.model.values import PROTECTION_DURATION

NONE = rules("{name: x, defaultPriorityClass: standard}")
SHIELD = f"{{name: s, protectAnnotations: {{keys: [{KEY}], allow: {{subjects: [{{kind: Group, name: leads}}]}}}}}}"
LEADS, OWNERS = rules(SHIELD), rules(SHIELD.replace("leads", "owners"))
ELSEWHERE, TRIAL = rules(SHIELD, match="{namespaces: [other]}"), rules(SHIELD, enforcement="warn")
AT_CREATE = rules(SHIELD.replace("allow:", "operations: [CREATE, UPDATE], allow:"))
OF_CLASSES = rules(SHIELD.replace("allow:", "resources: [priorityclasses], allow:"))
LEAD = user("lena", "leads")
SPELLING = "volcano.sh/preemptable"
READ = f"preemptors: {{priorityClasses: [a]}}\nvictims: {{annotations: {{preemptible: [{SPELLING}]}}}}"
BATCH = priority_class("batch", can_be_preempted="true")


def change(before, after, key=KEY, **more):
    """The UPDATE of a pod that changes one annotation."""
    return update(
        pod(annotations={} if before is None else {key: before}),
        pod(annotations={} if after is None else {key: after}),
        **more,
    )


def new(text="true", make=create, **more):
    """A new pod that says it."""
    return make(pod(annotations={KEY: text}), **more)


@table(
    "before, after, words",
    {
        "removed": ("true", None, 'may not be removed (it is "true")'),
        "two lines": (None, "two\nlines", 'set to "two\\nlines":'),
        "a long value": (None, "x" * 300, f'set to "{"x" * 255}…":'),
    },
)
@pytest.mark.parametrize("key", [KEY, PROTECTION_DURATION])
def test_nobody_changes_a_running_pod(before, after, words, key):
    """Without a policy nobody may change a preemptibility annotation of a pod that exists.

    The whole texts are in tests/admission/test_refusals.py.
    """
    verdicts = engine(NONE).judge(change(before, after, key, user=user("root", "system:masters")))
    assert [(verdict.id, verdict.outcome, verdict.denies) for verdict in verdicts] == [("builtin/shield", "deny", True)]
    assert words in verdicts[0].message


BUILTIN, DENIED, ALLOWED = {"builtin/shield": "deny"}, {"p/s": "deny"}, {"p/s": "allow"}
SAID = {
    "without a policy everyone may at CREATE": ((NONE,), new(), {}),
    "other changes pass": (
        (LEADS,),
        update(pod(annotations={KEY: "true"}), pod(annotations={KEY: "true", "x": "y"}, labels={"a": "b"})),
        {},
    ),
    "a key that nothing reads": ((NONE,), change(None, "true", SPELLING), {}),
    "a key that a PreemptionPolicy reads": ((NONE, READ), change(None, "true", SPELLING), BUILTIN),
    "a policy gives the right": ((LEADS,), change("true", "false", user=LEAD), ALLOWED),
    "to those it names": ((LEADS,), change("true", "false"), DENIED),
    "and for its keys": ((LEADS,), change(None, "5", PROTECTION_DURATION, user=LEAD), BUILTIN),
    "rights add up": ((LEADS, OWNERS), change("true", "false", user=user("o", "owners")), {"p2/s": "allow"}),
    "if one allows": ((LEADS, OWNERS), change("true", "false"), {**DENIED, "p2/s": "deny"}),
    "a rule on trial gives nothing": ((TRIAL,), change("true", "false", user=LEAD), ALLOWED | BUILTIN),
    "and reports": ((TRIAL,), change("true", "false"), DENIED | BUILTIN),
    "a right in one namespace holds in no other": ((ELSEWHERE,), change("true", "false", user=LEAD), BUILTIN),
    "protected at CREATE": ((AT_CREATE,), new(), DENIED),
    "but for those it names": ((AT_CREATE,), new(user=LEAD), ALLOWED),
    "in a template": ((AT_CREATE,), new(make=deployment), DENIED),
    "a pod that says nothing": ((AT_CREATE,), create(pod()), {}),
    "what the class says may be said by the pod": ((AT_CREATE,), new(priority_class=BATCH), {}),
    "and nothing else": ((AT_CREATE,), new("false", priority_class=BATCH), DENIED),
    "a rule about classes says nothing of pods": ((OF_CLASSES,), change("true", "false", user=LEAD), BUILTIN),
    "what is no text counts as absent": (
        (NONE,),
        update(pod(annotations={KEY: "true"}), pod(annotations={KEY: ["true"]})),
        BUILTIN,
    ),
}


@table("specs, request_, said", SAID)
def test_who_may(specs, request_, said):
    """A rule that enforces replaces the built-in one for its keys, its operations and where its policy applies."""
    preemption = READ if READ in specs else ""
    judging = engine(*(spec for spec in specs if spec != READ), preemption=preemption)
    assert outcomes(judging, request_) == said


GOLD, LEADS_OF_GOLD = {"tier": "gold"}, rules(SHIELD, match="{objectSelector: {matchLabels: {tier: gold}}}")
IN_TEAM = SHIELD.replace("subjects: [{kind: Group, name: leads}]", "namespaces: [team-a]")
BOT = user("system:serviceaccount:team-a:bot")
NO_RIGHT, NOT_HERE = " (the policy's own match gives no right: ", " (rule p/s gives the right, but not here: "
BEFORE_AND_AFTER = "objectSelector does not select the object's labels both before and after this change"


def labelled(before=None, after=None, **more):
    """An update that sets the annotation, by a lead, of a pod with these labels."""
    return update(
        pod(labels=before or {}), pod(labels=after or {}, annotations={KEY: "true"}), **({"user": LEAD} | more)
    )


@table(
    "spec, request_, words",
    {
        "the label comes with the change": (LEADS_OF_GOLD, labelled(after=GOLD), f"{NO_RIGHT}{BEFORE_AND_AFTER})"),
        "the label goes with the change": (LEADS_OF_GOLD, labelled(before=GOLD), f"{NO_RIGHT}{BEFORE_AND_AFTER})"),
        "neither the match nor the right": (
            LEADS_OF_GOLD,
            labelled(after=GOLD, user=user()),
            f"{NO_RIGHT}{BEFORE_AND_AFTER})",
        ),
        "a service account for somebody": (
            rules(IN_TEAM, match="{namespaces: [team-a], subjects: [{kind: Group, name: leads}]}"),
            labelled(user=BOT),
            f"{NO_RIGHT}who asks is not one of Group leads)",
        ),
        "a Binding, which tells no labels": (
            LEADS_OF_GOLD,
            labelled(labels_known=False),
            f"{NO_RIGHT}objectSelector asks for labels, and a Binding tells none of its pod)",
        ),
        "another namespace": (ELSEWHERE, labelled(), f"{NOT_HERE}the namespace is not one of other)"),
        "other labels": (LEADS_OF_GOLD, labelled(), f"{NOT_HERE}objectSelector does not select the object's labels)"),
        "a namespace with other labels": (
            rules(SHIELD, match="{namespaceSelector: {matchLabels: {stage: prod}}}"),
            labelled(),
            f"{NOT_HERE}namespaceSelector does not select the namespace's labels)",
        ),
        "another operation": (
            rules(SHIELD, match="{operations: [CREATE]}"),
            labelled(),
            f"{NOT_HERE}the operation is not CREATE)",
        ),
        "an exclusion": (rules(SHIELD, exclude="{namespaces: [team-a]}"), labelled(), f"{NOT_HERE}exclude holds)"),
        "a condition": (
            rules(SHIELD, conditions="[{name: named, expression: object.metadata.name == 'b'}]"),
            labelled(),
            f"{NOT_HERE}condition named is false)",
        ),
        "somebody without the right": (ELSEWHERE, labelled(user=user()), "nobody once the pod exists"),
    },
)
def test_what_of_the_match_does_not_hold_is_told(spec, request_, words):
    """It is told to whoever has the right besides; and of a policy that does not apply only to them."""
    assert f"{words}; " in only_message(engine(spec), request_)


def test_a_right_that_only_the_policy_keeps_from_holding_lacks_nothing():
    """The policy's own match is part of the right: where that does not hold, no empty reason is told."""
    allow = "{namespaces: [team-a], objectSelector: {matchExpressions: [{key: x, operator: DoesNotExist}]}}"
    spec = rules(
        f"{{name: s, protectAnnotations: {{keys: [{KEY}], allow: {allow}}}}}",
        match="{subjects: [{kind: Group, name: leads}]}",
    )
    request = change("true", "false", user=user("system:serviceaccount:team-a:bot"))
    assert "()" not in only_message(engine(spec), request)
