"""Every field of a policy is compared, and of one that is not every change counts as giving something up."""

import msgspec
import pytest

from tests.policy.builders import mappings, policies, rule
from webhook.policy.model import (
    Definers,
    ExtenderConfig,
    LabelRate,
    MatchCondition,
    PodsMatch,
    Policies,
    PreemptionPair,
    PreemptionPolicy,
    PriorityPolicy,
    ProtectAnnotations,
    Protection,
    Rate,
    RequestMatch,
    Reserve,
    Schedule,
    Signal,
    Subject,
    WorkloadLimit,
)
from webhook.policy.removals import fields
from webhook.policy.removals.fields import registered
from webhook.policy.removals.removals import removals
from webhook.policy.shapes.object_shape import is_mapping, shape_of

COMPARED_WHOLE = {RequestMatch, Definers, Subject, MatchCondition, PreemptionPair, PodsMatch, Schedule}


@pytest.mark.parametrize(
    "model",
    [
        pytest.param(model, id=model.__name__)
        for model in mappings(PriorityPolicy, PreemptionPolicy)
        if model not in COMPARED_WHOLE
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


KEPT = "preemptors: {{priorityClasses: [online]}}\nprotection: {{maximum: {}}}\neviction: {}"


def test_every_change_of_an_unknown_field_of_a_preemption_policy_is_told(monkeypatch):
    """So it is with a PreemptionPolicy, by the path of the field."""
    monkeypatch.delitem(fields._COMPARISONS, (Protection, "maximum"))
    monkeypatch.delitem(fields._COMPARISONS, (PreemptionPolicy, "eviction"))
    old = policies(KEPT.format("1h", "delete"), "PreemptionPolicy")
    stricter = policies(KEPT.format("2h", "evict"), "PreemptionPolicy")
    told = ["p: protection.maximum says something else", "p: eviction says something else"]
    assert [str(one) for one in removals(old, stricter)] == told


IN_LISTS = {
    "limits.perWorkload": ("limits: {perWorkload: {evictions: 1, window: 1h}}", "the limit perWorkload", WorkloadLimit),
    "limits.perLabel": ("limits: {perLabel: {label: l, evictions: 1, window: 1h}}", "the limit perLabel", LabelRate),
    "victims.signals": ("victims: {signals: [{annotation: e.io/k, permits: [x]}]}", "victims.signals[e.io/k]", Signal),
    "extenders": (
        "extenders: [{urlPrefix: 'http://e:1', preemptVerb: p}]",
        "the extender http://e:1/p",
        ExtenderConfig,
    ),
}
"""Mappings that may be absent or stand in a list: what they hold is compared by a function that finds the other one."""
OTHER = {"evictions": 2, "window": 1.0, "permits": ("y",), "ignorable": True, "label": "m"}


@pytest.mark.parametrize(("text", "told", "model"), IN_LISTS.values(), ids=IN_LISTS)
def test_every_change_of_an_unknown_field_below_an_optional_one_is_told(text, told, model, monkeypatch):
    """What may be absent, or stands in a list, is compared by its fields, too, so a new field of it counts."""
    (policy,) = policies(f"preemptors: {{priorityClasses: [online]}}\n{text}", "PreemptionPolicy").preemption
    for field in shape_of(model).fields:
        monkeypatch.delitem(fields._COMPARISONS, (model, field.attribute))
    for attribute in OTHER.keys() & set(model.__struct_fields__):
        changed = _with(policy, model, {attribute: OTHER[attribute]})
        (found,) = removals(Policies(preemption=(policy,)), Policies(preemption=(changed,)))
        assert str(found) in [f"p: {told}{between}{attribute} says something else" for between in " ."]


def _with(value, model, changes):
    """The value with these changes in every struct of that kind."""
    if isinstance(value, model):
        return msgspec.structs.replace(value, **changes)
    if isinstance(value, tuple) and not hasattr(value, "_fields"):
        return tuple(_with(one, model, changes) for one in value)
    if isinstance(value, msgspec.Struct):
        within = {name: _with(getattr(value, name), model, changes) for name in value.__struct_fields__}
        return msgspec.structs.replace(value, **within)
    return value


def test_a_field_is_compared_once():
    """A second comparison of the same field, or one of a field that does not exist, is a mistake of the programmer."""
    with pytest.raises(ValueError, match=r"Rate\.window is no field, or is compared already"):
        fields.gives_nothing_up(Rate, "window")
    with pytest.raises(ValueError, match=r"Rate\.windows is no field"):
        fields.gives_nothing_up(Rate, "windows")
