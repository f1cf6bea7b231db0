"""Mistakes in a PreemptionPolicy: each found at its place, with what would be right."""

from tests.policy.builders import loaded, table
from tests.policy.files.mistakes import check
from webhook.policy.shapes.findings import Severity


def preemption(body):
    """The rest of a PreemptionPolicy that names a class."""
    return "preemptors: {priorityClasses: [a]}\n" + body


def schedule(parts, duration="1h"):
    """The rest of a PreemptionPolicy that evicts by a schedule."""
    return preemption(f"schedule: {{{parts}, duration: {duration}}}")


@table(
    "spec, place, words",
    {
        "base 60": ("preemptors: {delay: 1:30, priorityClasses: [a]}", "1:30", "write 30s, 1h, 1h30m"),
        "fraction": ("preemptors: {delay: 1.5h, priorityClasses: [a]}", "1.5h", "is not a duration"),
        "negative": ("preemptors: {delay: -1, priorityClasses: [a]}", "-1", "is not a duration"),
        "octal": ("preemptors: {delay: 010, priorityClasses: [a]}", "010", "is not a duration"),
        "system class": ("preemptors: {priorityClasses: [system-x]}", "[system-x]", "never managed"),
        "own twin": ("preemptors: {twins: {a: a}}", "{a: a}", "is its own twin"),
        "twin of a twin": ("preemptors: {twins: {a: b, b: c}}", "{a: b, b: c}", "has a twin itself"),
        "system twin": ("preemptors: {twins: {a: system-x}}", "{a: system-x}", "never managed"),
        "mode": (preemption("victims: {mode: optin}"), "optin", 'did you mean "opt-in"?'),
        "notice": (preemption("victims: {notice: soon}"), "soon", "is not a duration"),
        "negative notice": (preemption("victims: {notice: -5s}"), "-5s", "is not a duration"),
        "notice of more than a day": (preemption("victims: {notice: 25h}"), "25h", "is longer than 24h"),
        "budgets": (preemption("budgets: loose"), "loose", "there are best-effort, strict"),
        "eviction": (preemption("eviction: kill"), "kill", "there are delete, evict"),
        "protection": (preemption("protection: {default: 2h, maximum: 1h}"), "2h", "longer than the maximum"),
        "rate": (preemption("limits: {perNode: 5}"), "5", "expected rate (a mapping), found a number"),
        "rate without number": (preemption("limits: {perNode: {window: 1m}}"), "{window: 1m}", 'needs "evictions"'),
        "no attempts": (preemption("limits: {attemptsPerPreemptor: 0}"), "0", "is outside 1 to"),
        "force delete": (preemption("gracePeriodSeconds: 0"), "0", "0 is a force delete"),
        "no preemptors": ("budgets: strict", "b", 'needs "preemptors"'),
        "no scheme": (preemption("extenders: [{urlPrefix: gpu.svc, preemptVerb: p}]"), "gpu.svc", "is not an address"),
        "no verb": (
            preemption("extenders: [{urlPrefix: 'http://a'}]"),
            "{urlPrefix: 'http://a'}",
            'needs "preemptVerb"',
        ),
        "not a boolean": (
            preemption("extenders: [{urlPrefix: 'http://a', preemptVerb: p, ignorable: yes}]"),
            "yes",
            'expected true or false, found "yes"',
        ),
        "long timeout": (
            preemption("extenders: [{urlPrefix: 'http://a', preemptVerb: p, httpTimeout: 5m}]"),
            "5m",
            "at most 60s",
        ),
        "four fields": (schedule("cron: 0 6 * *"), "0 6 * *", "no cron expression of five fields"),
        "macro": (schedule("cron: '@daily'"), "'@daily'", "no cron expression of five fields"),
        "hour": (schedule("cron: 0 25 * * *"), "0 25 * * *", "the hour is wrong"),
        "day of week": (schedule("cron: 0 6 * * MOO"), "0 6 * * MOO", "the day of week is wrong"),
        "30 February": (schedule("cron: 0 0 30 2 *"), "0 0 30 2 *", "or there is no such day"),
        "number": (schedule("cron: 5"), "5", "found the number 5"),
        "unknown time zone": (
            schedule("cron: 0 6 * * *, timeZone: Europe/Berln"),
            "Europe/Berln",
            'is no time zone such as Europe/Berlin; did you mean "Europe/Berlin"?',
        ),
        "half a minute": (schedule("cron: 0 6 * * *", "90s"), "90s", "whole minutes, from 1m to 744h"),
        "no duration": (schedule("cron: 0 6 * * *", "0s"), "0s", "whole minutes, from 1m"),
        "too long": (schedule("cron: 0 6 * * *", "745h"), "745h", "whole minutes, from 1m to 744h"),
    },
)
def test_errors(spec, place, words):
    """An error keeps the policy from being used, and points at its place."""
    found = loaded(spec, kind="PreemptionPolicy")
    check(found.findings, Severity.ERROR, place, words)
    assert found.policies.preemption == ()


DAY = "schedule: {cron: 0 6 * * *, timeZone: Europe/Berlin, duration: 14h}"


def test_schedules_that_are_right():
    """A policy and its limits may have schedules."""
    spec = f"{DAY}\nlimits: {{perNode: {{evictions: 1, {DAY}}}, perCluster: {{evictions: 9}}}}"
    found = loaded(preemption(spec), kind="PreemptionPolicy")
    assert found.findings == []
    assert str(found.policies.preemption[0].schedule) == "0 6 * * * Europe/Berlin for 14h"


NIGHT = "schedule: {cron: 0 23 * * *, duration: 4h}"


@table(
    "spec, place, words",
    {
        "rate that never holds": (
            preemption(f"{DAY}\nlimits: {{perNode: {{evictions: 1, {NIGHT}}}}}"),
            f"{{perNode: {{evictions: 1, {NIGHT}}}}}",
            "perNode never holds",
        ),
        "protection that never holds": (
            preemption(f"{DAY}\nprotection: {{default: 5m, {NIGHT}}}"),
            f"{{default: 5m, {NIGHT}}}",
            "protection never holds",
        ),
    },
)
def test_warnings_of_schedules(spec, place, words):
    """What holds at no time at which its policy does."""
    found = loaded(spec, kind="PreemptionPolicy")
    check(found.findings, Severity.WARNING, place, words)
    assert len(found.policies.preemption) == 1
