"""What `giveway explain pod` says of a pod, on a cluster in memory."""

from datetime import datetime
from zoneinfo import ZoneInfo

import msgspec
import pytest

from tests.cases import cases
from tests.reconciler.builders import START, Setting, node, pod, policy, preemptor
from webhook.cli.explain import show_pod
from webhook.kube.instants import rfc3339
from webhook.kube.objects.cluster_scoped import PriorityClass
from webhook.policy.model.limits import Limits, Rate
from webhook.policy.model.preemption import ExtenderConfig, GroupDisruption, Groups
from webhook.policy.model.schedule import Schedule
from webhook.policy.model.values import DECISION, NOTICE, PLAN, PROTECTION_DURATION, READY
from webhook.policy.model.victims import VictimMode, Victims
from webhook.preemption.snapshot.kinds import PRIORITY_CLASSES
from webhook.reconciler.state.annotations import (
    DecidedVictim,
    DecisionRecord,
    NoticeRecord,
    PlanRecord,
    PlanVictim,
    encode,
)


@pytest.fixture(autouse=True)
def _wide(monkeypatch):
    """Nothing is folded."""
    monkeypatch.setenv("COLUMNS", "400")


@pytest.fixture
def said(capsys):
    """What is said of a pod that is added to the others."""

    def told(setting, one):
        setting.add(one)
        show_pod(one, setting.state, setting.policy_set)
        return " ".join(capsys.readouterr().out.split())

    return told


@pytest.fixture
def setting():
    """Two nodes under an opt-out policy."""
    return Setting(node("n1"), node("n2"), under=policy(victims=Victims(mode=VictimMode.OPT_OUT)))


@pytest.mark.parametrize("kind", ["Node", "DaemonSet"])
def test_the_plan_shown_is_the_one_that_would_be_carried_out(said, setting, kind):
    """A static pod, and a DaemonSet's while there is another way, is excluded in the table as in what would be done."""
    setting.add(pod("a", "7", node="n1", priority=10, owner=(kind, "owner")), pod("b", "7", node="n2"))
    text = said(setting, preemptor(cpu="4"))
    assert "Plan: evict 1 pod for room on n2, the best of 1 candidate among 2 nodes." in text
    assert f"default/a — test/{'static' if kind == 'Node' else 'exclusion'}: it is" in text
    assert "Now: default/p to n2 would be nominated, and default/b evicted." in text


GANG = {"kueue.x-k8s.io/pod-group-name": "ring"}
"""The label of a Kueue pod group, whose pods say how many they are."""


def member(number):
    """A preemptor that belongs to a gang of two."""
    made = preemptor(f"ring-{number}", "4", labels=GANG)
    made.metadata.annotations = {"kueue.x-k8s.io/pod-group-total-count": "2"}
    return made


def test_a_gang_is_explained_as_one(said, setting):
    """What would happen is said for all members: who is missing, then where they go and who goes for them."""
    setting.add(pod("a", "7", node="n1", priority=10), pod("b", "7", node="n2", priority=20))
    text = said(setting, member(0))
    assert "It belongs to Kueue pod group default/ring and is placed together with others of it" in text
    assert text.endswith("Kueue pod group default/ring needs 2 pods: 0 are bound and 1 wait, so 1 more have to come.")
    text = said(setting, member(1))
    placed = "default/ring-0 to n1, default/ring-1 to n1"
    assert text.endswith(f"Now: {placed} would be nominated, and default/a evicted.")


def test_what_cannot_be_judged_is_said_once_and_plainly(said, setting):
    """For a pod that asks for devices the reason is given, and nothing would be done."""
    setting.add(pod("b", "7", node="n2"))
    text = said(setting, preemptor(cpu="4", spec={"resourceClaims": [{"name": "gpu", "future": "x"}]}))
    assert text.endswith(
        "Now: nothing would be done: not eligible: it asks for devices, "
        "and its claim gpu is given in a way that is not known here."
    )


HOUR = (datetime.now(ZoneInfo("Europe/Berlin")).hour + 12) % 24
SCHEDULE = Schedule(cron=f"0 {HOUR} * * *", time_zone="Europe/Berlin", duration=3600.0)
EXTENDER = ExtenderConfig(url_prefix="http://127.0.0.1:9", preempt_verb="preempt")


@pytest.mark.parametrize(
    ("under", "cpu", "end"),
    cases(
        (
            "a schedule",
            policy(schedule=SCHEDULE),
            "4",
            f"its schedule ({SCHEDULE}): from {HOUR:02}:00 Europe/Berlin.",
        ),
        ("an extender", policy(extenders=(EXTENDER,)), "4", "http://127.0.0.1:9/preempt says where it may."),
        ("a rate", policy(limits=Limits(per_node=Rate(1, 60.0))), "8", "at once than limits.perNode ever allows."),
    ),
)
def test_what_a_policy_has_against_it_now(said, under, cpu, end):
    """From when its schedule lets it evict, which extender it would ask, which rate no plan can keep."""
    setting = Setting(node("n1"), under=under)
    setting.add(pod("a", "4", node="n1"), pod("b", "4", node="n1"))
    assert said(setting, preemptor(cpu=cpu)).endswith(end)


def test_nodes_that_were_left_out_are_named(said, setting):
    """What the last decision left out, and what happens where a fit stands, can be read off the pod."""
    record = DecisionRecord(
        plan="0123456789abcdef", at=rfc3339(START), node="n2", policy="test", attempt=2, left_out=("n1",)
    )
    made = preemptor(cpu="4")
    made.metadata.annotations = {DECISION: encode(record)}
    text = said(setting, made)
    assert "Left out then, since the scheduler did not bind it there though there was room: n1." in text
    assert "kube-scheduler can bind it, for example to n1, n2 (if it does not, the reconciler decides without" in text


def test_a_running_pod_is_told_who_could_evict_it(said, setting):
    """Of a possible victim explain names the classes, the rule and the moment, and kube-scheduler beside the policy."""
    for name, value, preempts in (("high", 100, "Never"), ("legacy", 150, None)):
        body = {"metadata": {"name": name}, "value": value, "preemptionPolicy": preempts}
        setting.state.snapshot.put(PRIORITY_CLASSES, msgspec.convert(body, PriorityClass))
    text = said(setting, pod("a", "7", node="n1", annotations={PROTECTION_DURATION: "900000000"}))
    assert "default/a is not acted for: it does not carry the label" in text
    assert "It runs on n1. Annotation" in text
    assert "│ giveway, policy test │ high (100) │ 2055-" in text
    assert "test/opt-out: neither its annotations" in text
    assert "│ kube-scheduler │ legacy (150) │ now │ priority: by priority alone" in text


def test_what_would_be_done_now_names_the_groups(said):
    """Those that would go whole, and those of the last decision."""
    train = {"jobset.sigs.k8s.io/jobset-name": "train"}
    setting = Setting(node("n1"), node("n2"), under=policy(groups=Groups(disruption=GroupDisruption.GROUP)))
    setting.add(pod("a", "6", node="n1", labels=train), pod("b", "1", node="n2", labels=train))
    setting.add(pod("kept", "7", node="n2", priority=1000))
    victims = (
        DecidedVictim(pod="default/a", priority=80, group="JobSet default/train"),
        DecidedVictim(pod="default/c", priority=80),
    )
    record = DecisionRecord(plan="x", at="2027-01-15T08:00:00Z", node="n1", policy="test", attempt=1, victims=victims)
    asks = preemptor("p", "5")
    asks.metadata.annotations = {DECISION: encode(record)}
    text = said(setting, asks)
    now = "default/p to n1 would be nominated, and default/a, default/b evicted, with all of JobSet default/train."
    assert text.endswith(now)
    assert "to evict default/a, default/c, with all of JobSet default/train (attempt 1)." in text


def test_hostile_names_are_said_literally(said):
    """A cluster file may name pods and nodes as no API server would: no name moves the cursor or is markup."""
    evil = "\x1b[2J[red]x[/red]\u202e\r"
    setting = Setting(node(evil), node("n2"), under=policy(victims=Victims(mode=VictimMode.OPT_OUT)))
    text = said(setting, pod(f"{evil}p", "4", node=evil))
    assert r"It runs on \u001b[2J[red]x[/red]\u202e" in text
    assert not {"\x1b", "\r", "\u202e"} & set(text)


def test_a_notice_is_explained_on_both_sides(said, setting):
    """The victim says by when it goes and for whom, the preemptor which victims were told and who is ready."""
    by, plan = "2027-01-15T08:00:00Z", PlanRecord(id="p1", node="n1", deadline="2027-01-15T09:00:00Z", notice=60.0)
    told = encode(NoticeRecord(plan="p1", by=by, uid="uid-p", priority=100, preemptor="default/p"))
    victims = tuple(PlanVictim("default", name, f"uid-{name}") for name in "ab")
    setting.add(pod("b", node="n1", annotations={NOTICE: told, READY: "true"}))
    text = said(setting, pod("a", node="n1", annotations={NOTICE: told}))
    assert f"It is asked to leave by {by}, for pod default/p of priority 100." in text
    assert "With giveway.dev/ready-to-leave=true it is asked at once." in text
    waiting = preemptor(cpu="4", nominated="n1")
    waiting.metadata.annotations = {PLAN: encode(msgspec.structs.replace(plan, victims=victims))}
    text = said(setting, waiting)
    assert "Its victims are told 60 s before they are asked to leave." in text
    assert f"Victim default/a is asked to leave by {by}." in text
    assert f"Victim default/b is asked to leave by {by}, and is ready." in text
