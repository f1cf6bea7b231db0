"""By which annotations a pod may go or stays: Gödel's rules, one row a rule, and those of other tools.

The latter mean something under a policy that names them, and nothing under one that does not.
"""

import math

from tests.cases import table
from tests.preemption.building import cluster, decided, node, outcome, pod, priority_class, rules, victim
from webhook.policy.model import values
from webhook.policy.model.preemption import Protection
from webhook.policy.model.values import CAN_BE_PREEMPTED, MINIMUM_PREEMPTABLE_PRIORITY, PROTECTION_DURATION
from webhook.policy.model.victims import Signal, VictimMode

LONGEST = "9223372036854775807"


@table(
    "own, its_class, window, started, rule",
    ("no class", "true", ("", None), None, 60, "no-priority-class"),
    ("its own word", "true", ("low", None), None, 60, ""),
    ("whatever its class", "true", ("unknown", None), None, 60, ""),
    ("its own word comes first", "false", ("low", "true"), None, 60, "opt-in"),
    ("only the exact word", "True", ("low", "true"), None, 60, "opt-in"),
    ("without a space", " true", ("low", "true"), None, 60, "opt-in"),
    ("the word of its class", None, ("low", "true"), None, 60, ""),
    ("where its own is empty", "", ("low", "true"), None, 60, ""),
    ("the exact word of its class", None, ("low", "True"), None, 60, "opt-in"),
    ("nobody says anything", None, ("low", None), None, 60, "opt-in"),
    ("a class that is not known", None, ("unknown", None), None, 60, "opt-in"),
    ("within its window", "true", ("low", None), "30", 29, "protection"),
    ("at its end", "true", ("low", None), "30", 30, ""),
    ("a window of 0", "true", ("low", None), "0", 0, ""),
    ("a negative one", "true", ("low", None), "-5", 0, ""),
    ("one that is no number", "true", ("low", None), "30s", 0, ""),
    ("one with a sign", "true", ("low", None), "+30", 10, "protection"),
    ("not started", "true", ("low", None), "30", None, "protection"),
    ("the longest window", "true", ("low", None), LONGEST, 10**6, "protection"),
    ("not started and no window", "true", ("low", None), None, None, ""),
)
def test_goedels_rules(own, its_class, window, started, rule):
    """A pod may go exactly where Gödel lets it go, and otherwise names the rule that keeps it.

    As `CanPodBePreempted` of pkg/util/pod/util.go has it, and the plugin startrecently.
    """
    class_name, of_class = its_class
    given = {CAN_BE_PREEMPTED: own, PROTECTION_DURATION: window}
    says = {key: value for key, value in given.items() if value is not None}
    judged = victim(says=says, priorityClassName=class_name, started=math.inf if started is None else started)
    classes = [priority_class("low", **({} if of_class is None else {CAN_BE_PREEMPTED: of_class}))]
    expected = ([], {"victim": f"policy/{rule}"}) if rule else (["victim"], {})
    assert outcome([judged], rules(mode=VictimMode.OPT_IN), priorityClasses=classes) == expected


@table(
    "protection, asked, started, may_go",
    ("the default holds without an annotation", Protection(default=60), None, 59, False),
    ("and with one that is no number", Protection(default=60), "soon", 59, False),
    ("but not against an annotation of 0", Protection(default=60), "0", 0, True),
    ("the maximum caps what a pod asks for", Protection(maximum=60), "3600", 61, True),
    ("and leaves that much", Protection(maximum=60), "3600", 59, False),
    ("and caps the default", Protection(default=90, maximum=60), None, 61, True),
)
def test_protection_by_policy(protection, asked, started, may_go):
    """The policy sets the window where a pod sets none, and the longest a pod may ask for."""
    says = {CAN_BE_PREEMPTED: "true"} | ({PROTECTION_DURATION: asked} if asked else {})
    went, _ = outcome([victim(says=says, started=started)], rules(mode=VictimMode.OPT_IN, protection=protection))
    assert bool(went) is may_go


KARPENTER = "karpenter.sh/do-not-disrupt"
AUTOSCALER = "cluster-autoscaler.kubernetes.io/safe-to-evict"
DESCHEDULER = "descheduler.alpha.kubernetes.io/prefer-no-eviction"
PINNED = "example.com/pinned"
SIGNALS = (
    Signal(annotation=KARPENTER, protects=("true",), duration=True),
    Signal(annotation=AUTOSCALER, protects=("false",), permits=("true",)),
    Signal(annotation=DESCHEDULER, protects=("*",)),
    Signal(annotation=PINNED, permits=("false", "no")),
)


def policy(*, toleration=False, **more):
    return rules(**{"signals": SIGNALS, "preemption_toleration": toleration} | more)


LOW = priority_class("low")


def kept(by, *, started=60, priority=100, classes=(LOW,), **annotations):
    """The rule that keeps the only pod from going; empty if it goes."""
    preemptor = pod("preemptor", priority=priority, cpu="4")
    went, excluded = outcome(
        [victim(says=annotations, started=started)], by, preemptor=preemptor, priorityClasses=list(classes)
    )
    assert bool(went) is not bool(excluded)
    return excluded.get("victim", "")


@table(
    "key, value, started, rule",
    ("do-not-disrupt forever", KARPENTER, "true", 10**6, "signal"),
    ("do-not-disrupt for a time", KARPENTER, "5m", 299, "protection"),
    ("and no longer", KARPENTER, "5m", 300, ""),
    ("in hours and minutes", KARPENTER, "1h30m", 5399, "protection"),
    ("a value that means nothing", KARPENTER, "True", 0, ""),
    ("a duration that is none", KARPENTER, "-5m", 0, ""),
    ("an empty value", KARPENTER, "", 0, ""),
    ("safe-to-evict false", AUTOSCALER, "false", 60, "signal"),
    ("safe-to-evict true", AUTOSCALER, "true", 60, ""),
    ("a duration where none is read", AUTOSCALER, "5m", 60, ""),
    ("prefer-no-eviction, whatever it says", DESCHEDULER, "", 60, "signal"),
)
def test_each_signal(key, value, started, rule):
    """A pod stays by what it says for another tool, and goes where the policy does not name that."""
    assert kept(policy(), started=started, **{key: value}) == (f"policy/{rule}" if rule else "")
    assert kept(policy(signals=()), started=started, **{key: value}) == ""


@table(
    "annotations, rule",
    ("nothing is said", {}, "opt-in"),
    ("a signal permits", {AUTOSCALER: "true"}, ""),
    ("an inverted key permits by its no", {PINNED: "no"}, ""),
    ("another value does not", {PINNED: "true"}, "opt-in"),
    ("the pod's own word comes first", {AUTOSCALER: "true", CAN_BE_PREEMPTED: "false"}, "opt-in"),
    ("one that protects wins", {AUTOSCALER: "true", KARPENTER: "true"}, "signal"),
    ("over the pod's own word as well", {CAN_BE_PREEMPTED: "true", KARPENTER: "true"}, "signal"),
)
def test_signals_under_opt_in(annotations, rule):
    """A signal lets a pod go that says nothing else."""
    assert kept(policy(mode=VictimMode.OPT_IN), **annotations) == (f"policy/{rule}" if rule else "")


def test_the_longest_window_counts_up_to_the_maximum():
    """Of the protection annotation and the durations the longest holds, and the policy caps it."""
    both = {KARPENTER: "10m", PROTECTION_DURATION: "60"}
    assert kept(policy(), started=599, **both) == "policy/protection"
    assert kept(policy(), started=600, **both) == ""
    assert kept(policy(protection=Protection(maximum=120)), started=120, **both) == ""


@table(
    "minimum, seconds, priority, started, rule",
    ("below the minimum", "50", "3600", 49, 60, "toleration"),
    ("at the minimum", "50", "3600", 50, 60, ""),
    ("in the last second", "50", "3600", 49, 3599, "toleration"),
    ("after it", "50", "3600", 49, 3600, ""),
    ("forever", "50", "-1", 49, 10**6, "toleration"),
    ("for no time", "50", "0", 49, 0, ""),
    ("no minimum is said", None, "3600", 49, 60, ""),
    ("a minimum that is no number", "50.5", "3600", 49, 60, ""),
    ("a time that is no number", "50", "1h", 49, 60, ""),
    ("not started", "50", "60", 49, math.inf, "toleration"),
    ("the largest minimum", "2147483647", "-1", 49, 60, "toleration"),
    ("a minimum that is no int32", "2147483648", "-1", 49, 60, ""),
    ("the longest time", "50", LONGEST, 49, 10**6, "toleration"),
)
def test_preemption_toleration(minimum, seconds, priority, started, rule):
    """As the scheduler plugin has it: preemptors below the minimum wait for the seconds to pass; others do not."""
    given = {MINIMUM_PREEMPTABLE_PRIORITY: minimum, values.TOLERATION_SECONDS: seconds}
    classes = [priority_class("low", **{key: text for key, text in given.items() if text is not None})]
    for by, expected in ((policy(toleration=True), rule), (policy(), "")):
        stays = kept(by, started=started, priority=priority, classes=classes)
        assert stays == (f"policy/{expected}" if expected else "")


@table("classes", ("gone", []), ("made again", [priority_class("low", 1)]))
def test_whoever_deletes_a_class_takes_no_toleration_off(classes):
    """What a class tolerates is not known once it does not speak for the pod: then the pod stays, whatever it says."""
    of_class = {MINIMUM_PREEMPTABLE_PRIORITY: "500", values.TOLERATION_SECONDS: "-1"}
    own = {CAN_BE_PREEMPTED: "true"}
    assert kept(policy(toleration=True), classes=[priority_class("low", **of_class)], **own) == "policy/toleration"
    assert kept(policy(toleration=True), classes=classes, **own) == "policy/toleration"
    assert kept(policy(), classes=classes, **own) == ""


def test_the_reason_names_the_annotation_and_the_time():
    """People read which annotation keeps the pod, and for how long."""
    texts, tolerates = {}, {MINIMUM_PREEMPTABLE_PRIORITY: "500", values.TOLERATION_SECONDS: "90"}
    own, preemptor = {CAN_BE_PREEMPTED: "true"}, pod("p", priority=100, cpu="4")
    cases = ("signal", 0, {AUTOSCALER: "false"}), ("window", 0, {KARPENTER: "5m"}), ("class", 0, {}), ("again", 7, own)
    for name, value, annotations in cases:
        classes = [priority_class("low", value, **tolerates)]
        judged = victim(says=annotations, started=60)
        data = cluster([node("n1")], [judged], preemptor, priorityClasses=classes)
        (found,) = decided(data, policy(toleration=True)).excluded("n1")
        texts[name] = found.text
    assert texts == {
        "signal": f'its annotation {AUTOSCALER} says "false"',
        "window": "it is protected for 240 s more of 300 s from its start",
        "class": "its PriorityClass tolerates preemption by priorities below 500 for 30 s more of 90 s from its start",
        "again": "whose preemption it tolerates is not known: PriorityClass low was made again: its value is 7, and the"
        " priority is 0",
    }
