"""The table of checks of `giveway doctor`, and the checks of pods, rights, certificates and policies, by rows."""

import base64
import pkgutil
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from importlib import import_module
from inspect import isfunction
from pathlib import Path

import msgspec
import pytest

from certs.rotation import CertificateSettings, renew_authority
from tests.admission.builders import HERE, make_policy, make_rule, manage
from tests.cases import cases
from tests.inspection.observing import (
    LOW,
    NOW,
    PREEMPTIBLE,
    assert_finds,
    configuration,
    entry,
    finds,
    observed,
    summary,
)
from webhook.inspection import checks
from webhook.inspection.checks import alive, certificates, policies, rights
from webhook.inspection.cluster_findings import ClusterFinding, counted, names
from webhook.inspection.doctor import CHECKS, examine
from webhook.inspection.observed import Nominated
from webhook.kube.instants import rfc3339
from webhook.kube.objects.cluster_scoped import Node
from webhook.kube.objects.meta import LabelSelector, ObjectMeta
from webhook.kube.resources import OLDEST, TESTED
from webhook.policy.model.match import RequestMatch
from webhook.policy.model.policies import Policies
from webhook.policy.model.preemption import GroupDisruption, Groups, PreemptionPolicy
from webhook.policy.model.priority import PolicyException
from webhook.policy.model.rules import PriorityClasses
from webhook.policy.model.values import CREATION, NOTICE, PLAN
from webhook.policy.model.victims import PodsMatch, PreemptionPair, VictimMode, Victims
from webhook.reconciler.state.annotations import NoticeRecord, PlanRecord, encode

DAY = 86_400
DOCS = Path(__file__).parents[2] / "docs"


def waiting(name="w", plan="", **fields):
    return summary(name, node="", annotations={PLAN: plan} if plan else {}, **fields)


def plan_until(seconds):
    """A plan that ends so many seconds from now."""
    return encode(PlanRecord(id="p", node="n1", deadline=rfc3339(NOW + seconds)))


def notice_until(seconds):
    """A notice that ends so many seconds from now."""
    return encode(NoticeRecord(plan="p", by=rfc3339(NOW + seconds), uid="u", priority=9))


def on_n1(pod):
    """A pod in a cluster with one node; two have been nominated, the other one a minute ago."""
    nominated = {"team-a/w": Nominated(rfc3339(NOW - 7300), "x"), "team-a/new": Nominated(rfc3339(NOW - 60))}
    return observed(pod, nodes=[Node(metadata=ObjectMeta(name="n1"))], nominated=nominated)


test_stuck_nominations = finds(
    "A nomination is stuck if its node is gone, its plan is over, or it is older than any plan.",
    alive.stuck,
    ("node gone", waiting(nominated="gone"), "warning: *which does not exist."),
    ("long", waiting(nominated="n1"), "warning: Pod team-a/w has been nominated to node n1 by x for 2 h*."),
    ("a minute", waiting("new", nominated="n1"), ""),
    ("nobody knows since when", waiting("other", nominated="n1"), ""),
    ("late plan", waiting(plan=plan_until(-600)), "error: *10 min ago."),
    ("plan under way", waiting(nominated="n1", plan=plan_until(60)), ""),
    ("no plan at all", waiting(nominated="n1", plan="[]"), ""),
    ("bound", summary(nominated="gone"), ""),
    given=on_n1,
)


test_overdue_notices = finds(
    "A pod whose notice is over for more than a minute: nobody asks it to leave, or says that it stays.",
    alive.overdue_notices,
    ("ten minutes over", notice_until(-600), "warning: *was over 10 min ago, and does not leave."),
    ("just over", notice_until(-30), ""),
    ("not over", notice_until(600), ""),
    ("no instant", '{"by":"soon"}', ""),
    ("no text", '{"by":7}', ""),
    ("no notice at all", "\ud800", ""),
    given=lambda text: observed(summary(annotations={NOTICE: text})),
)


def bound(subject, *, namespace="", resources=("pods/status",), verbs=("patch",), groups=("",), **rule):
    """RBAC objects by which a subject, by kind and name, has a right."""
    rights = {"apiGroups": list(groups), "resources": list(resources), "verbs": list(verbs), **rule}
    role = {"metadata": {"name": "r"}, "rules": [rights]}
    metadata = {"name": "b"} | ({"namespace": namespace} if namespace else {})
    kind, _, name = subject.partition(" ")
    place = {"namespace": name.rpartition("/")[0]} if "/" in name else {}
    subjects = [{"kind": kind, "name": name.rpartition("/")[2], **place}]
    binding = {"metadata": metadata, "roleRef": {"kind": "ClusterRole", "name": "r"}, "subjects": subjects}
    plural = "rolebindings" if namespace else "clusterrolebindings"
    return observed(clusterroles=[role], **{plural: [binding]})


BOB = "User bob"
STATUS = "warning: May write the status of pods (pods/status): User bob"
IMPERSONATES = {"resources": ("users",), "verbs": ("impersonate",)}
NODES = "info: May impersonate nodes, as any other user: User bob."


test_rights = finds(
    "Who may go round the shield, beside administrators and Kubernetes' own parts.",
    rights.around_the_shield,
    ("a person", bound(BOB), f"{STATUS}."),
    ("in a namespace", bound(BOB, namespace="team-a"), f"{STATUS} in team-a."),
    ("any status", bound(BOB, resources=("*/status",)), f"{STATUS}."),
    ("everybody", bound("Group system:authenticated"), "error: Everybody (Group system:auth*"),
    ("the scheduler", bound("User system:kube-scheduler"), ""),
    ("kube-system", bound("ServiceAccount kube-system/x"), ""),
    ("ours", bound("ServiceAccount giveway-system/giveway-reconciler"), ""),
    ("pods alone", bound(BOB, resources=("pods",)), ""),
    ("reads", bound(BOB, verbs=("get",)), ""),
    ("one pod", bound(BOB, resourceNames=["x"]), ""),
    ("impersonates anybody", bound(BOB, **IMPERSONATES), NODES),
    ("impersonates a node", bound(BOB, **IMPERSONATES, resourceNames=["system:node:n1"]), NODES),
    ("impersonates a person", bound(BOB, **IMPERSONATES, resourceNames=["alice"]), ""),
    ("an administrator", bound(BOB, groups=("*",), resources=("*",), verbs=("*",)), ""),
    ("configmaps elsewhere", bound(BOB, resources=("configmaps",), namespace="team-a"), ""),
    (
        "the policies",
        bound(BOB, resources=("configmaps",), namespace="giveway-system"),
        "info: May write ConfigMaps in giveway's namespace: User bob in giveway-system.",
    ),
)


def by_tier(disruption: GroupDisruption = GroupDisruption.POD) -> PreemptionPolicy:
    """A policy that selects victims by a label."""
    pair = PreemptionPair(victims=PodsMatch(labels=LabelSelector(match_labels={"tier": "batch"})))
    victims = Victims(mode=VictimMode.OPT_OUT, pairs=(pair,))
    return msgspec.structs.replace(manage("giveway-*"), victims=victims, groups=Groups(disruption=disruption))


@pytest.mark.parametrize(
    ("by", "annotations", "expected"),
    cases(
        ("no record", by_tier(), {}, ["label tier"]),
        ("of the group neither", by_tier(GroupDisruption.NEVER), {}, ["group", "label tier"]),
        ("older than the label", by_tier(GroupDisruption.NEVER), {CREATION: "{}"}, ["label tier"]),
        ("recorded", by_tier(), {CREATION: '{"absent":["tier"]}'}, []),
        ("no victim anyway", by_tier(), {PREEMPTIBLE: "false"}, []),
        ("no policy reads it", manage("giveway-*"), {}, []),
    ),
)
def test_pods_that_are_read_as_they_are_now(by, annotations, expected):
    """Pods whose labels or group were not recorded when they were made, and who may write them."""
    for who, cluster in (
        ("User bob in team-a.", bound(BOB, namespace="team-a")),
        ("User bob.", bound(BOB, resources=("pods",))),
        ("administrators alone.", bound(BOB, resources=("pods",), verbs=("get",))),
    ):
        cluster.policies, cluster.classes = Policies(preemption=(by,)), {LOW.metadata.name: LOW}
        cluster.pods.append(summary(annotations=annotations))
        began = (
            "warning: 1 pod whose {} counts as it is now, because it was not recorded when they were made: team-a (1)."
        )
        assert_finds(rights.unrecorded, cluster, [began.format(what) for what in expected])
        assert all(finding.why.endswith(who) for finding in rights.unrecorded(cluster))


OTHER = renew_authority(None, CertificateSettings(("x",)), datetime.now(UTC)).trust()


def trust(days, *, bundle=None):
    """A cluster whose webhook trusts an authority, after so many days, and its certificates."""
    made = renew_authority(
        None, CertificateSettings(("x",), timedelta(days=90), timedelta(days=3650)), datetime.fromtimestamp(NOW, UTC)
    )
    config = {"caBundle": base64.b64encode(bundle or made.trust()).decode()}
    configurations = {"validatingwebhookconfigurations": [configuration("giveway", entry(clientConfig=config))]}
    cluster = observed(**configurations, certificates=made.files())
    cluster.now = NOW + timedelta(days=days).total_seconds()
    return cluster


test_certificates = finds(
    "What is served is current and trusted; what is trusted does not end soon.",
    certificates.expiring,
    ("fresh", trust(1), ""),
    ("serving nearly over", trust(85), "warning: *giveway-tls expires on *"),
    ("serving over", trust(91), "error: *giveway-tls expired on *"),
    ("authority nearly over", trust(3645), ["error: *", "warning: The last authority*"]),
    ("no certificates", trust(1, bundle=b"x"), ["error: *holds no certificates.", "error: *trusts no authority*"]),
    ("another authority", trust(1, bundle=OTHER), "error: *"),
)


test_policies_that_match_nothing = finds(
    "Policies name namespaces and classes that are there.",
    policies.matching_nothing,
    ("matches", make_policy("p", namespaces=("team-*",)), ""),
    ("mistyped", make_policy("p", namespaces=("tema-*",)), "warning: *matches no namespace*"),
    ("default class", make_policy("p", make_rule("d", default_priority_class="none")), "error: *gives*"),
    (
        "allowed class",
        make_policy("p", make_rule("a", priority_classes=PriorityClasses(allow=("low", "x-*", "y")))),
        "info: *do not exist: y.",
    ),
    ("managed class", manage("low"), ""),
    ("no managed class", manage("giveway-*"), "info: *manages no PriorityClass of this cluster (giveway-*)."),
    given=lambda policy: observed(LOW, policy),
)


@pytest.mark.parametrize(
    ("seconds", "expected"),
    cases(
        ("ended", -1, "warning: {} ended 2027-01-15T07:59:59Z"),
        ("ends now", 0, "warning: {} ended 2027-01-15T08:00:00Z"),
        ("today", 1, "info: {} ends soon: 2027-01-15T08:00:01Z"),
        ("in 14 days", 14 * DAY, "info: {} ends soon: 2027-01-29T08:00:00Z"),
        ("later", 14 * DAY + 1, "info: {} holds until 2027-01-29T08:00:01Z"),
    ),
)
def test_exceptions(seconds, expected):
    """Each is listed with its end, owner and reason, over all policies the one that ends first; past ones go."""

    def excepted(name, until):
        exception = PolicyException(
            match=RequestMatch(namespaces=("team-a",)),
            rules=("allowed", "range"),
            reason="batch moves",
            owner="sam",
            until=until,
            source=HERE,
        )
        return msgspec.structs.replace(make_policy(name), exceptions=(exception,))

    wanted = expected.format("The exception of namespace team-a from p/allowed, p/range") + " (owner sam: batch moves)."
    cluster = observed(*(excepted(name, NOW + end) for name, end in (("q", 90 * DAY), ("p", seconds), ("o", -DAY))))
    assert_finds(policies.listed, cluster, ["warning: *from o/allowed*", wanted, "info: *from q/allowed*"])


test_versions = finds(
    "Versions on which the tests never ran are said.",
    alive.untested,
    ("too old", "29", "error: *"),
    ("older than tested", "31", "warning: *"),
    ("tested", "32+", ""),
    ("between", "34", "info: *"),
    ("newest tested", "36", ""),
    ("newer", "37", "warning: *"),
    ("unknown", "", "warning: *"),
    given=lambda minor: observed(version={"major": "1", "minor": minor}),
)


def test_the_tested_versions_are_the_documented_ones():
    """The installation page names them, and the oldest."""
    page = (DOCS / "install.md").read_text()
    assert tuple(map(int, re.findall(r"^\| 1\.(\d+) \| works.* \| passed", page, re.MULTILINE))) == TESTED
    assert f"Kubernetes 1.{OLDEST} or newer" in page


def test_every_check_is_in_the_table_and_explained():
    """Each public function of a file of checks has a row, and docs/operations.md says what it finds."""
    modules = [import_module(f"{checks.__name__}.{module.name}") for module in pkgutil.iter_modules(checks.__path__)]
    defined = [
        function
        for module in modules
        for name, function in vars(module).items()
        if isfunction(function) and function.__module__ == module.__name__ and not name.startswith("_")
        if function.__annotations__["return"] == Iterator[ClusterFinding]
    ]
    assert {check.run for check in CHECKS} == set(defined)
    assert len(CHECKS) == len(defined)
    table = (DOCS / "operations.md").read_text().partition("| check | what it finds |\n")[2].partition("\n\n")[0]
    explained = re.findall(r"`([a-z-]+)`", " ".join(re.findall(r"^\|(.*?) \| ", table, re.MULTILINE)))
    assert sorted(explained) == sorted([*(check.name for check in CHECKS), "canary"])


def test_what_cannot_be_read_is_not_checked():
    """Every check that needs it says so, by name, and the others go on."""
    cluster = observed(missing={"pods": "no right to list pods"}, version={"minor": "36"})
    skipped = {each.check: each.what for each in examine(cluster) if each.severity == "not checked"}
    assert skipped.keys() == {check.name for check in CHECKS if "pods" in check.needs}
    assert set(skipped.values()) == {"Not checked: no right to list pods."}


def test_names_for_people():
    """A few names, the rest as a number."""
    assert names({"b": 1, "a": 3}) == "a (3), b (1)"
    assert names(["x"] * 3) == "x"
    assert names(str(number) for number in range(7)) == "0, 1, 2, 3, 4 and 2 more"
    assert (counted(1, "pod"), counted(2, "class")) == ("1 pod", "2 classes")
