"""A policy set is used once before it replaces another: what raises only in use is an error with its place.

What raises already while it is read is in tests/admission/test_configmaps.py.
"""

import pytest

from tests.policy.builders import document, loaded, rules, table
from webhook.kube.instants import LAST_SECOND, epoch
from webhook.policy.evaluation import engine
from webhook.policy.evaluation import rules as rules_module
from webhook.policy.files import first_use
from webhook.policy.files.loading import load_texts
from webhook.policy.model.policies import Policies
from webhook.policy.model.schedule import Schedule

SPEC = rules(
    "{name: band, reserve: {from: 1, to: 9}}",
    "{name: v, validate: {expression: 'true', message: odd}}",
    exceptions="[{match: {namespaces: [a]}, rules: [v], reason: r, owner: o, until: 2030-01-01}]",
)
NIGHTLY = "preemptors: {priorityClasses: [a]}\nschedule: {cron: 0 22 * * *, duration: 8h}"


def failing(what):
    """A function that raises; it takes whatever the real one does."""

    def fail(*_args, **_more):
        raise OverflowError(what)

    return fail


def test_what_can_be_used_is_used_without_a_word():
    """A set of every kind of part has no findings."""
    for spec, kind in ((SPEC, "PriorityPolicy"), (NIGHTLY, "PreemptionPolicy")):
        assert loaded(spec, kind).findings == []


@table(
    "owner, name, spec, line",
    {
        "the text of an exception": (first_use, "excepted_text", SPEC, 5),
        "a range": (rules_module, "rights_text", SPEC, 7),
        "an expression": (engine.CompiledRule, "evaluate", SPEC, 8),
        "a schedule in words": (Schedule, "when", NIGHTLY, 1),
        "the end of a window": (Schedule, "ends", NIGHTLY, 1),
    },
)
def test_what_raises_is_an_error_at_its_place(owner, name, spec, line, monkeypatch):
    """Nothing of such a set is in use, and the finding says what raised."""
    monkeypatch.setattr(owner, name, failing("date value out of range"))
    found = loaded(spec, "PriorityPolicy" if spec is SPEC else "PreemptionPolicy")
    assert found.policies == Policies()
    errors = {error.source.line: error.message for error in found.errors}
    assert errors[line].startswith("this cannot be used: OverflowError: date value out of range")


@pytest.mark.parametrize("now", ["0001-01-01T00:00:00Z", "1970-01-01T00:00:00Z", "9999-12-31T23:59:59Z"])
@pytest.mark.parametrize("zone", ["Pacific/Kiritimati", "Etc/GMT+12"])
@pytest.mark.parametrize("cron", ["59 23 31 12 *", "0 0 29 2 *"])
def test_schedules_at_the_ends_of_time(cron, zone, now):
    """A schedule can be asked at any instant that there is; no window lies before year 1 or after year 9999."""
    spec = f"schedule: {{cron: '{cron}', duration: 744h, timeZone: {zone}}}\npreemptors: {{priorityClasses: [a]}}"
    found = load_texts([("m.yaml", document(spec, "PreemptionPolicy"))], now=epoch(now))
    assert found.errors == []
    (policy,) = found.policies.preemption
    assert policy.schedule.begins(LAST_SECOND) is None
