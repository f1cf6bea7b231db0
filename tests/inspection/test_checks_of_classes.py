"""The checks of `giveway doctor` about PriorityClasses and their values: what they find, and what they leave alone."""

import msgspec

from tests.admission.builders import make_class, make_policy, make_rule, manage
from tests.inspection.observing import LOW, PREEMPTIBLE, PROTECTION, finds, observed, summary
from webhook.inspection.checks import classes
from webhook.policy.model.match import RequestMatch, Subject
from webhook.policy.model.rules import Reserve
from webhook.policy.model.victims import PodsMatch, PreemptionPair, Victims

HIGH = make_class("high", 1000)
USES = summary("user", "high", 1000)
SAYS_NO = summary("kept", annotations={PREEMPTIBLE: "false"})
MAY_GO = {PREEMPTIBLE: "true"}
GIVEN = {"giveway.dev/given": '{"class":"low","copied":{"godel.bytedance.com/can-be-preempted":"true"}}'}


test_classes_that_preempt_past_protections = finds(
    "A class is a finding if kube-scheduler evicts for it whom the policies protect; a warning if somebody said so.",
    classes.preempting,
    ("past an annotation", (HIGH, LOW, USES, SAYS_NO), "warning: *it is used by 1 pod: team-a (1)."),
    ("past a window", (HIGH, LOW, USES, summary(annotations={**MAY_GO, PROTECTION: "60"})), "warning: *"),
    ("past silence", (HIGH, LOW, USES, summary()), "info: *"),
    ("unused", (HIGH, LOW, SAYS_NO), "info: *"),
    ("opted in", (HIGH, LOW, USES, summary(annotations=MAY_GO)), ""),
    ("Never", (make_class("high", 1000, never=True), LOW, USES, SAYS_NO), ""),
    ("moved to its twin", (make_class("online", 1000), LOW, SAYS_NO), ""),
    ("no PreemptionPolicy", (HIGH, LOW, USES, SAYS_NO, make_policy("p")), ""),
    given=lambda given: observed(*given),
)


ONLINE = make_class("online", 5)


test_twins = finds(
    "A twin exists, with the value of its class and Never.",
    classes.twins,
    ("missing", [ONLINE], "error: Twin giveway-online of PriorityClass online does not exist."),
    (
        "another value",
        [ONLINE, make_class("giveway-online", 6, never=True)],
        "error: *has value 6 and preemptionPolicy Never; it needs value 5 and Never.",
    ),
    (
        "not Never",
        [ONLINE, make_class("giveway-online", 5)],
        ["error: *preemptionPolicy PreemptLowerPriority; it needs*", "error: *managed*"],
    ),
    (
        "managed and not Never",
        [make_class("giveway-x", 5)],
        "error: *its preemptionPolicy is PreemptLowerPriority.",
    ),
    ("right", [ONLINE, make_class("giveway-online", 5, never=True)], ""),
    ("no original", [], ""),
    given=lambda given: observed(*given),
)


def copied_of(preemptible, annotations):
    """A class that says this or nothing, and a pod with these annotations, which are copied to new ones."""
    own = make_class("low", 10, **({"preemptible": preemptible} if preemptible else {}))
    copies = make_policy("p", make_rule("copy", copy_annotations=(PREEMPTIBLE,)))
    return observed(own, summary(annotations=annotations), copies)


test_drift = finds(
    "What was copied and is not what the class says today; what an author chose is no drift.",
    classes.drifted,
    ("the same", "true", MAY_GO, ""),
    ("absent", "true", {}, 'is absent, and the class says "true"'),
    ("copied and changed since", "false", {**MAY_GO, **GIVEN}, 'is "true", and the class says "false"'),
    ("chosen by its author", "false", MAY_GO, ""),
    ("taken off the class", None, {**MAY_GO, **GIVEN}, 'is "true", and the class says nothing'),
    ("neither", None, {}, ""),
    given=copied_of,
    said=f"warning: 1 pod of PriorityClass low: annotation {PREEMPTIBLE} {{}} (team-a (1)).",
)


def band(**rights):
    return make_policy("p", make_rule("band", reserve=Reserve(from_=500, to=5000, **rights)))


BAND = band(use=(RequestMatch(namespaces=("ingress",)),))
LEADS = (Subject("Group", "leads"),)
CLASS = "PriorityClass high has value 1000, in a range that rule p/band reserves"


test_reserved_ranges = finds(
    "Classes that nobody may define there, and pods that may not be there, are errors; what depends is said.",
    classes.reserved,
    (
        "refused",
        (HIGH, LOW, USES, summary("user-2", "high", 1000), BAND),
        [
            f"error: {CLASS} (refused).",
            "error: 2 pods of priority 1000 (PriorityClass high) in a range that rule p/band *: team-a (2) (*).",
        ],
    ),
    (
        "by who used it",
        (HIGH, LOW, USES, band(use=(RequestMatch(subjects=LEADS),))),
        ["error: *", "info: *team-a (1) (cannot be judged)."],
    ),
    ("by who made it", (HIGH, band(define=(RequestMatch(subjects=LEADS),))), f"info: {CLASS} (cannot be judged)."),
    ("elsewhere", (LOW, summary(), BAND), ""),
    given=lambda given: observed(*given),
)


def test_a_class_that_its_owners_may_have_made_needs_no_mend():
    """Nobody knows who made it: as the page about bands says it, those who may."""
    [finding] = classes.reserved(observed(HIGH, band(define=(RequestMatch(subjects=LEADS),))))
    assert finding.fix.startswith("Nothing, if it is meant: ")


test_pods_whose_class_does_not_speak_for_them_are_counted_by_class = finds(
    "A class that is gone or has another value says nothing of its pods; a pod without a class needs none.",
    classes.silent,
    ("gone", (), "PriorityClass low does not exist"),
    (
        "made again",
        (make_class("low", 1),),
        "PriorityClass low was made again: its value is 1, and the priority is 10",
    ),
    ("the same value", (make_class("low", 10),), ""),
    given=lambda found: observed(summary("a"), summary("b"), summary("c", class_name="", priority=0), *found),
    said="warning: 2 pods of PriorityClass low for which it does not speak: {} (team-a (2)).",
)


SERVED = make_class("giveway-high", 1000, never=True)
PAIRS = Victims(pairs=(PreemptionPair(victims=PodsMatch(namespaces=("team-b",))),))
PAIRED = msgspec.structs.replace(manage("giveway-*"), victims=PAIRS)


KEPT = "warning: 1 pod of PriorityClass batch, of a priority below -10, may not be evicted by *: team-a (1)."


def batch(priority=-20, **fields):
    return summary("batch", "batch", priority, **fields)


test_pods_that_cluster_autoscaler_counts_as_gone = finds(
    "Nobody helps a preemptor that fits in the place of pods below -10 which may not be evicted.",
    classes.expendable,
    ("not opted in", [SERVED, batch()], KEPT),
    ("refuses", [SERVED, batch(annotations={PREEMPTIBLE: "false"})], KEPT),
    ("may go", [SERVED, batch(annotations=MAY_GO)], ""),
    ("in no pair", [SERVED, batch(annotations=MAY_GO), PAIRED], KEPT),
    ("at the cutoff", [SERVED, batch(-10)], ""),
    ("it waits", [SERVED, batch(node="")], ""),
    ("no managed class", [HIGH, batch()], ""),
    given=lambda given: observed(*given),
)
