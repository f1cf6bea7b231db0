"""What a policy set gives up of the one before: rules, rights and verdicts, by id."""

from typing import get_args

import msgspec
import pytest

from tests.policy.builders import indented, rules
from webhook.policy.files.loading import load_texts
from webhook.policy.model import (
    Definers,
    MatchCondition,
    PreemptionPair,
    PreemptionPolicy,
    PriorityPolicy,
    ProtectAnnotations,
    Protection,
    Rate,
    RequestMatch,
    Reserve,
    Schedule,
    Subject,
)
from webhook.policy.removals import fields
from webhook.policy.removals.fields import registered
from webhook.policy.removals.removals import removals
from webhook.policy.shapes.object_shape import is_mapping, shape_of

EXCEPTED = "\nexceptions: [{match: {namespaces: [x, y]}, rules: [a], reason: r, owner: o, until: 2026-12-30}]"
TWO = rules("{name: a, priorityClasses: {deny: [x]}}", "{name: b, priorityClasses: {deny: [y]}}")


def policies(spec, kind="PriorityPolicy", name="p"):
    """One policy of this spec, or none for an empty one."""
    if not spec:
        return load_texts([]).policies
    head = f"apiVersion: giveway.dev/v1alpha1\nkind: {kind}\nmetadata: {{name: {name}}}\nspec:\n"
    found = load_texts([("p.yaml", head + indented(spec))])
    assert not found.errors, found.errors
    return found.policies


def rule(body, **parts):
    """A policy of one rule with this body."""
    return rules(f"{{name: r, {body}}}", **parts)


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        pytest.param(TWO, "", ["p: the PriorityPolicy with its 2 rules is gone"], id="policy"),
        pytest.param(
            TWO, rule("priorityClasses: {deny: [x]}"), ["p/a: the rule is gone", "p/b: the rule is gone"], id="rules"
        ),
        pytest.param(
            rule("priorityClasses: {deny: [x]}"),
            rule("priorityClasses: {deny: [x]}, enforcement: warn"),
            ["p/r: enforcement enforce becomes warn"],
            id="enforcement of a rule",
        ),
        pytest.param(
            rule("priorityClasses: {deny: [x]}"),
            rule("priorityClasses: {deny: [x]}", enforcement="audit"),
            ["p/r: enforcement enforce becomes audit"],
            id="enforcement of a policy",
        ),
        pytest.param(
            rule("priorityClasses: {deny: [x, y]}"),
            rule("priorityClasses: {deny: [x]}"),
            ["p/r: classes are no longer denied: y"],
            id="denied classes",
        ),
        pytest.param(
            rule("priorityClasses: {allow: [x]}"),
            rule("priorityClasses: {allow: [x, 'y-*']}"),
            ["p/r: more classes are allowed: y-*"],
            id="allowed classes",
        ),
        pytest.param(
            rule("priorityClasses: {allow: [x], deny: [y]}"),
            rule("priorityClasses: {deny: [y]}"),
            ["p/r: every class is allowed now"],
            id="every class",
        ),
        pytest.param(
            rule("reserve: {from: 10, to: 20, use: [{namespaces: [a]}]}"),
            rule("reserve: {from: 11, to: 20, use: [{namespaces: [a]}, {namespaces: [b]}]}"),
            ["p/r: the range 10 to 20 becomes 11 to 20", "p/r: more may use the range"],
            id="reserved range",
        ),
        pytest.param(
            rule("reserve: {from: 10, to: 20, use: [{subjects: [{kind: User, name: u}]}]}"),
            rule("reserve: {from: 10, to: 20, use: [{namespaces: [a], subjects: [{kind: User, name: u}]}]}"),
            ["p/r: more may use the range"],
            id="namespaces beside subjects let in what controllers make there",
        ),
        pytest.param(
            TWO + "\nexclude: {subjects: [{kind: User, name: u}]}",
            TWO + "\nexclude: {namespaces: [a], subjects: [{kind: User, name: u}]}",
            ["p: exclude leaves out more"],
            id="namespaces beside subjects leave out what controllers make there",
        ),
        pytest.param(
            rule("reserve: {from: 10, to: 20, define: [{names: [a]}]}"),
            rule("reserve: {from: 10, to: 20, define: [{names: [a, b]}]}"),
            ["p/r: more may define classes in the range"],
            id="definers",
        ),
        pytest.param(
            rule("protectAnnotations: {keys: [a.io/x, a.io/y]}"),
            rule("protectAnnotations: {keys: [a.io/x], allow: [{namespaces: [b]}]}"),
            ["p/r: annotations are no longer protected: a.io/y", "p/r: more may change the annotations"],
            id="protected annotations",
        ),
        pytest.param(
            rule("copyAnnotations: [a.io/x]"),
            rule("defaultPriorityClass: x"),
            ["p/r: it is a rule of another kind now"],
            id="another kind",
        ),
        pytest.param(
            TWO,
            TWO + "\nmatch: {namespaces: [a]}",
            ["p: match.namespaces takes in less, or something else"],
            id="match",
        ),
        pytest.param(
            TWO + "\nmatch: {namespaces: [a, b]}",
            TWO + "\nmatch: {namespaces: [b]}",
            ["p: match.namespaces takes in less, or something else"],
            id="fewer namespaces",
        ),
        pytest.param(TWO, TWO + "\nexclude: {namespaces: [a]}", ["p: exclude is new"], id="exclude"),
        pytest.param(
            TWO + "\nexclude: {namespaces: [a]}",
            TWO + "\nexclude: {namespaces: [a, b]}",
            ["p: exclude leaves out more"],
            id="more excluded",
        ),
        pytest.param(
            TWO,
            TWO + "\nconditions: [{name: odd, expression: 'object.spec.x'}]",
            ["p: the conditions odd are new: it applies only if they hold"],
            id="condition",
        ),
        pytest.param(
            TWO,
            TWO + EXCEPTED,
            ["p: an exception from a is new, wider or longer: until 2026-12-31T00:00:00Z (o)"],
            id="exception",
        ),
        pytest.param(
            TWO + EXCEPTED,
            TWO + EXCEPTED.replace("12-30", "12-31"),
            ["p: an exception from a is new, wider or longer: until 2027-01-01T00:00:00Z (o)"],
            id="longer exception",
        ),
        pytest.param(
            TWO + EXCEPTED,
            TWO + EXCEPTED.replace("[a]", "[a, b]").replace("y]", "y, z]"),
            ["p: an exception from a, b is new, wider or longer: until 2026-12-31T00:00:00Z (o)"],
            id="wider exception from more rules",
        ),
    ],
)
def test_given_up(old, new, found):
    """A rule that is gone, a wider right, a softer verdict: each is named."""
    assert [str(one) for one in removals(policies(old), policies(new))] == found


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param("", TWO, id="first policies"),
        pytest.param(TWO, TWO, id="the same"),
        pytest.param(
            rule("priorityClasses: {allow: [x, y]}"), rule("priorityClasses: {allow: [y]}"), id="fewer allowed"
        ),
        pytest.param(rule("priorityClasses: {deny: [x]}"), rule("priorityClasses: {deny: [x, y]}"), id="more denied"),
        pytest.param(
            rule("reserve: {from: 10, to: 20, use: [{namespaces: [a, b]}, {namespaces: [c]}]}"),
            rule("reserve: {from: 5, to: 25, use: [{namespaces: [a], subjects: [{kind: User, name: u}]}]}"),
            id="wider range, narrower rights",
        ),
        pytest.param(TWO + "\nmatch: {namespaces: [a]}", TWO + "\nmatch: {namespaces: [a, b]}", id="wider match"),
        pytest.param(
            TWO + "\nexclude: {namespaces: [a, b]}", TWO + "\nexclude: {namespaces: [a]}", id="narrower exclude"
        ),
        pytest.param(TWO + "\nexclude: {namespaces: [a]}", TWO, id="no exclude any more"),
        pytest.param(
            rule("priorityClasses: {deny: [x]}", enforcement="warn"),
            rule("priorityClasses: {deny: [x]}"),
            id="stricter",
        ),
        pytest.param(rule("defaultPriorityClass: a"), rule("defaultPriorityClass: b"), id="another default"),
        pytest.param(TWO + EXCEPTED, TWO, id="an exception that is gone"),
        pytest.param(
            TWO + EXCEPTED,
            TWO + EXCEPTED.replace("x, y", "x").replace("12-30", "12-29"),
            id="shorter, narrower exception",
        ),
        pytest.param(
            "rules: [{name: b, priorityClasses: {deny: [y]}}]", TWO + EXCEPTED, id="exception from a new rule"
        ),
        pytest.param(
            "enforcement: warn\n" + TWO,
            "enforcement: enforce\n" + TWO + EXCEPTED,
            id="an exception as the rule begins to refuse",
        ),
        pytest.param(
            "enforcement: audit\n" + TWO, "enforcement: audit\n" + TWO + EXCEPTED, id="exception from a trial"
        ),
    ],
)
def test_nothing_given_up(old, new):
    """A set that is at least as strict gives up nothing."""
    assert removals(policies(old), policies(new)) == []


CAN_BE = "godel.bytedance.com/can-be-preempted"
GUARD = rule("protectAnnotations: {keys: [a.io/x], allow: [{namespaces: [a]}]}")


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        pytest.param(
            "",
            rule(f"protectAnnotations: {{keys: [{CAN_BE}], allow: [{{namespaces: [a]}}]}}"),
            [f"p/r: more may change the annotations: {CAN_BE}"],
            id="what the built-in rule guarded",
        ),
        pytest.param(
            GUARD,
            GUARD.replace("[a.io/x]", f"[a.io/x, {CAN_BE}]"),
            [f"p/r: more may change the annotations: {CAN_BE}"],
            id="one more key",
        ),
        pytest.param(
            GUARD,
            GUARD + "\n- {name: s, protectAnnotations: {keys: [a.io/x], allow: [{namespaces: [b]}]}}",
            ["p/s: more may change the annotations: a.io/x"],
            id="a second right",
        ),
        pytest.param(
            GUARD + "\nmatch: {namespaces: [a, b]}",
            GUARD,
            ["p/r: more may change the annotations: a.io/x"],
            id="match of a right",
        ),
        pytest.param(
            GUARD + "\nexclude: {namespaces: [a]}",
            GUARD,
            ["p/r: more may change the annotations: a.io/x"],
            id="exclude of a right",
        ),
        pytest.param("", GUARD, [], id="what everybody could change"),
        pytest.param("", rule(f"protectAnnotations: {{keys: [{CAN_BE}]}}"), [], id="no right"),
        pytest.param(
            "",
            rule(f"protectAnnotations: {{keys: [{CAN_BE}], allow: [{{namespaces: [a]}}]}}", enforcement="warn"),
            [],
            id="a rule on trial gives nothing",
        ),
        pytest.param(
            GUARD,
            GUARD + "\nmatch: {namespaces: [a]}",
            ["p: match.namespaces takes in less, or something else"],
            id="smaller match",
        ),
    ],
)
def test_rights_that_are_added(old, new, found):
    """Rules that protect annotations give rights, which add up; so a rule more can open what was guarded."""
    assert [str(one) for one in removals(policies(old), policies(new))] == found


DAY = "schedule: {cron: 0 6 * * *, timeZone: Europe/Berlin, duration: 14h}"
DAY_TEXT = "0 6 * * * Europe/Berlin for 14h"
EXTENDER = "extenders: [{urlPrefix: 'http://e:1', preemptVerb: p}]\n"
PREEMPTION = f"""
{EXTENDER}preemptors: {{priorityClasses: [online], twins: {{high: high-never}}}}
protection: {{default: 30s, maximum: 1h}}
limits: {{perNode: {{evictions: 1, window: 1m}}, attemptsPerPreemptor: 3}}
"""


@pytest.mark.parametrize(
    ("change", "found"),
    [
        pytest.param(("[online]", "[other]"), "classes are no longer managed: online", id="class"),
        pytest.param((", twins: {high: high-never}", ""), "classes have no twin any more: high", id="twin"),
        pytest.param(("default: 30s", "default: 10s"), "pods are protected for 10 s instead of 30 s", id="protection"),
        pytest.param(("maximum: 1h", "maximum: 1m"), "pods may ask for at most 60 s of protection", id="maximum"),
        pytest.param(("perNode: {evictions: 1, window: 1m}, ", ""), "the limit perNode is gone", id="limit"),
        pytest.param(("evictions: 1", "evictions: 2"), "the limit perNode allows more evictions", id="rate"),
        pytest.param(("Preemptor: 3", "Preemptor: 4"), "attemptsPerPreemptor rises from 3 to 4", id="attempts"),
        pytest.param(
            ("protection", "victims: {mode: opt-out}\nprotection"),
            "pods need no longer opt in to be evicted",
            id="mode",
        ),
        pytest.param(("protection", "budgets: best-effort\nprotection"), "budgets may be broken", id="budgets"),
        pytest.param(
            ("protection", "eviction: delete\nprotection"), "victims are deleted instead of evicted", id="delete"
        ),
        pytest.param(
            ("protection", "victims: {schedulerNames: [default-scheduler, other]}\nprotection"),
            "pods of more schedulers may be evicted: other",
            id="schedulers of victims",
        ),
        pytest.param(
            ("protection", "gracePeriodSeconds: 5\nprotection"), "victims have only 5 s to end", id="grace period"
        ),
        pytest.param((EXTENDER, ""), "the extender http://e:1/p is no longer asked", id="extender"),
        pytest.param(
            ("preemptVerb: p", "preemptVerb: p, ignorable: true"),
            "the extender http://e:1/p is passed over if it fails",
            id="ignorable extender",
        ),
        pytest.param(
            ("preemptVerb: p", "preemptVerb: p, managedResources: [a.io/gpu]"),
            "the extender http://e:1/p is asked about fewer pods",
            id="managed resources of an extender",
        ),
        pytest.param(
            ("protection", "victims: {signals: [{annotation: e.io/k, permits: ['no']}]}\nprotection"),
            "values of e.io/k make a pod preemptible: no",
            id="signal that permits",
        ),
        pytest.param(
            ("protection", f"{DAY}\nprotection"),
            f"it evicts at other times: only by the schedule {DAY_TEXT} instead of always",
            id="schedule",
        ),
        pytest.param(
            ("maximum: 1h", f"maximum: 1h, {DAY}"),
            f"pods are protected only by the schedule {DAY_TEXT} instead of always",
            id="schedule of protection",
        ),
        pytest.param(
            ("window: 1m", f"window: 1m, {DAY}"),
            f"the limit perNode holds only by the schedule {DAY_TEXT} instead of always",
            id="schedule of a rate",
        ),
    ],
)
def test_preemption_policies(change, found):
    """Fewer pods served and fewer pods spared are both given up."""
    old, new = (policies(spec, "PreemptionPolicy") for spec in (PREEMPTION, PREEMPTION.replace(*change)))
    assert [str(one) for one in removals(old, new)] == [f"p: {found}"]
    assert removals(old, old) == []


@pytest.mark.parametrize(
    ("change", "found"),
    [
        pytest.param(
            ("protects: ['true', x]", "protects: [x]"), ["values of e.io/k no longer protect: true"], id="value"
        ),
        pytest.param((", duration: true", ""), ["a duration in e.io/k no longer protects"], id="duration"),
        pytest.param(
            ("e.io/k", "e.io/l"),
            ["values of e.io/k no longer protect: true, x", "a duration in e.io/k no longer protects"],
            id="key",
        ),
        pytest.param(
            ("preemptionToleration: true", "preemptionToleration: false"),
            ["the annotations of PreemptionToleration no longer protect"],
            id="toleration",
        ),
        pytest.param(("protects: ['true', x]", "protects: ['true', x, y]"), [], id="one more value"),
    ],
)
def test_signals(change, found):
    """Whatever no longer protects is told; what protects besides is not."""
    signals = (
        "victims: {preemptionToleration: true, signals: [{annotation: e.io/k, protects: ['true', x], duration: true}]}"
    )
    before = f"{signals}\n{PREEMPTION}"
    old, new = (policies(spec, "PreemptionPolicy") for spec in (before, before.replace(*change)))
    assert [str(one) for one in removals(old, new)] == [f"p: {one}" for one in found]


@pytest.mark.parametrize("change", [(", " + DAY, ""), ("14h", "15h")], ids=["always", "longer"])
@pytest.mark.parametrize("part", ["maximum: 1h", "window: 1m"])
def test_what_protects_for_longer_gives_nothing_up(part, change):
    """A protection or a rate that holds at more times than before is at least as strict."""
    old = PREEMPTION.replace(part, f"{part}, {DAY}")
    assert removals(policies(old, "PreemptionPolicy"), policies(old.replace(*change), "PreemptionPolicy")) == []


def test_a_policy_that_evicts_at_more_times_gives_quiet_hours_up():
    """Both directions are told: at some times more is evicted, at others pods wait."""
    old, new = f"{DAY}\n{PREEMPTION}", f"{DAY}\n{PREEMPTION}".replace("14h", "15h")
    (found,) = removals(policies(old, "PreemptionPolicy"), policies(new, "PreemptionPolicy"))
    assert str(found).startswith("p: it evicts at other times: only by the schedule 0 6 * * * Europe/Berlin for 15h")


def _mappings(model):
    """The structs of the model whose fields are compared one by one."""
    found = {model: None}
    for field in msgspec.structs.fields(model):
        parts = [field.type, *get_args(field.type)]
        parts += [part for one in parts for part in get_args(one)]
        for part in parts:
            if isinstance(part, type) and is_mapping(part) and part not in COMPARED_WHOLE:
                found |= _mappings(part)
    return found


COMPARED_WHOLE = {RequestMatch, Definers, Subject, MatchCondition, PreemptionPair, Schedule}


@pytest.mark.parametrize(
    "model",
    [
        pytest.param(model, id=model.__name__)
        for root in (PriorityPolicy, PreemptionPolicy)
        for model in _mappings(root)
    ],
)
def test_every_field_is_compared(model):
    """Somebody has said of every field what a change of it gives up. A new field fails here until somebody does."""
    unknown = [
        field.attribute
        for field in shape_of(model).fields
        if not registered(model, field.attribute) and not is_mapping(type(field.default))
    ]
    assert unknown == []


CHANGED = {
    Reserve: ("reserve: {from: 5, to: 7}", "reserve: {from: 5, to: 9}", "p/r: reserve.to says something else"),
    ProtectAnnotations: (
        "protectAnnotations: {keys: [a.io/x]}",
        "protectAnnotations: {keys: [a.io/x, a.io/y]}",
        "p/r: protectAnnotations.keys says something else",
    ),
}


@pytest.mark.parametrize("model", CHANGED, ids=lambda model: model.__name__)
def test_every_change_of_a_field_that_cannot_be_compared_is_told(model, monkeypatch):
    """A field that nobody taught to compare errs on the safe side: all its changes are held, the stricter ones, too."""
    old, stricter, told = CHANGED[model]
    old, stricter = policies(rule(old)), policies(rule(stricter))
    assert removals(old, stricter) == []
    for field in shape_of(model).fields:
        monkeypatch.delitem(fields._COMPARISONS, (model, field.attribute))
    assert [str(one) for one in removals(old, stricter)] == [told]
    assert removals(old, old) == []


def test_every_change_of_an_unknown_field_of_a_preemption_policy_is_told(monkeypatch):
    """So it is with a PreemptionPolicy, by the path of the field."""
    monkeypatch.delitem(fields._COMPARISONS, (Protection, "maximum"))
    monkeypatch.delitem(fields._COMPARISONS, (PreemptionPolicy, "eviction"))
    old = policies(PREEMPTION + "eviction: delete", "PreemptionPolicy")
    stricter = policies(PREEMPTION.replace("maximum: 1h", "maximum: 2h") + "eviction: evict", "PreemptionPolicy")
    told = ["p: protection.maximum says something else", "p: eviction says something else"]
    assert [str(one) for one in removals(old, stricter)] == told


def test_a_field_is_compared_once():
    """A second comparison of the same field, or one of a field that does not exist, is a mistake of the programmer."""
    with pytest.raises(ValueError, match=r"Rate\.window is no field, or is compared already"):
        fields.gives_nothing_up(Rate, "window")
    with pytest.raises(ValueError, match=r"Rate\.windows is no field"):
        fields.gives_nothing_up(Rate, "windows")
