"""The checks of `giveway doctor`, each over a cluster made by hand: what it finds, and what it leaves alone."""

import base64
import pkgutil
import re
from datetime import UTC, datetime, timedelta
from importlib import import_module
from inspect import isfunction
from pathlib import Path

import msgspec
import pytest

from certs.rotation import CertificateSettings, begin
from tests.admission.builders import HERE, make_policy, make_rule, manage
from tests.inspection.observing import (
    LOW,
    NOW,
    PREEMPTIBLE,
    configuration,
    entry,
    found,
    observed,
    severities,
    summary,
)
from webhook.inspection import checks
from webhook.inspection.checks import alive, certificates, policies, rights
from webhook.inspection.cluster_findings import counted, names
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
from webhook.policy.model.values import CREATION, NOTICE
from webhook.policy.model.victims import PodsMatch, PreemptionPair, VictimMode, Victims


def waiting(**fields):
    return summary("w", node="", **fields)


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        pytest.param(waiting(nominated="gone"), "which does not exist", id="node-gone"),
        pytest.param(waiting(nominated="n1"), "by x for 2 h", id="long"),
        pytest.param(summary("new", node="", nominated="n1"), None, id="a-minute"),
        pytest.param(summary("other", node="", nominated="n1"), None, id="nobody-knows-since-when"),
        pytest.param(
            waiting(annotations={"giveway.dev/plan": f'{{"deadline":"{rfc3339(NOW - 600)}"}}'}),
            "10 min ago",
            id="late-plan",
        ),
        pytest.param(
            waiting(nominated="n1", annotations={"giveway.dev/plan": f'{{"deadline":"{rfc3339(NOW + 60)}"}}'}),
            None,
            id="plan-under-way",
        ),
        pytest.param(waiting(nominated="n1", annotations={"giveway.dev/plan": "[]"}), None, id="no-plan-at-all"),
        pytest.param(summary(nominated="gone"), None, id="bound"),
    ],
)
def test_stuck_nominations(pod, expected):
    """A nomination is stuck if its node is gone, its plan is over, or it is older than any plan."""
    nominated = {"team-a/w": Nominated(rfc3339(NOW - 7300), "x"), "team-a/new": Nominated(rfc3339(NOW - 60))}
    cluster = observed(pod, nodes=[Node(metadata=ObjectMeta(name="n1"))], nominated=nominated)
    texts = [what for _, what in found(alive.stuck, cluster)]
    assert [expected in text for text in texts] == ([True] if expected else [])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(f'{{"by":"{rfc3339(NOW - 600)}"}}', "was over 10 min ago", id="ten-minutes-over"),
        pytest.param(f'{{"by":"{rfc3339(NOW - 30)}"}}', None, id="just-over"),
        pytest.param(f'{{"by":"{rfc3339(NOW + 600)}"}}', None, id="not-over"),
        pytest.param('{"by":"soon"}', None, id="no-instant"),
        pytest.param('{"by":7}', None, id="no-text"),
        pytest.param("\ud800", None, id="no-notice-at-all"),
    ],
)
def test_overdue_notices(text, expected):
    """A pod whose notice is over for more than a minute: nobody asks it to leave, or says that it stays."""
    texts = [what for _, what in found(alive.overdue_notices, observed(summary(annotations={NOTICE: text})))]
    assert [expected in text for text in texts] == ([True] if expected else [])


def bound(subject, *, namespace="", resources=("pods/status",), verbs=("patch",), groups=("",), **rule):
    """RBAC objects by which a subject has a right."""
    role = {
        "metadata": {"name": "r"},
        "rules": [{"apiGroups": list(groups), "resources": list(resources), "verbs": list(verbs), **rule}],
    }
    metadata = {"name": "b"} | ({"namespace": namespace} if namespace else {})
    binding = {"metadata": metadata, "roleRef": {"kind": "ClusterRole", "name": "r"}, "subjects": [subject]}
    plural = "rolebindings" if namespace else "clusterrolebindings"
    return observed(clusterroles=[role], **{plural: [binding]})


BOB = {"kind": "User", "name": "bob"}


@pytest.mark.parametrize(
    ("cluster", "expected"),
    [
        pytest.param(bound(BOB), [("warning", "May write the status of pods (pods/status): User bob.")], id="person"),
        pytest.param(
            bound(BOB, namespace="team-a"),
            [("warning", "May write the status of pods (pods/status): User bob in team-a.")],
            id="in-a-namespace",
        ),
        pytest.param(
            bound(BOB, resources=("*/status",)),
            [("warning", "May write the status of pods (pods/status): User bob.")],
            id="any-status",
        ),
        pytest.param(
            bound({"kind": "Group", "name": "system:authenticated"}),
            [("error", "Everybody (Group system:authenticated) may write the status of pods (pods/status).")],
            id="everybody",
        ),
        pytest.param(bound({"kind": "User", "name": "system:kube-scheduler"}), [], id="the-scheduler"),
        pytest.param(bound({"kind": "ServiceAccount", "namespace": "kube-system", "name": "x"}), [], id="kube-system"),
        pytest.param(
            bound({"kind": "ServiceAccount", "namespace": "giveway-system", "name": "giveway-reconciler"}),
            [],
            id="ours",
        ),
        pytest.param(bound(BOB, resources=("pods",)), [], id="pods-alone"),
        pytest.param(bound(BOB, verbs=("get",)), [], id="reads"),
        pytest.param(bound(BOB, resourceNames=["x"]), [], id="one-pod"),
        *(
            pytest.param(
                bound(BOB, resources=("users",), verbs=("impersonate",), **only),
                [("info", "May impersonate nodes, as any other user: User bob.")] * told,
                id=f"impersonates-{name}",
            )
            for name, only, told in (
                ("anybody", {}, 1),
                ("a-node", {"resourceNames": ["system:node:n1"]}, 1),
                ("a-person", {"resourceNames": ["alice"]}, 0),
            )
        ),
        pytest.param(bound(BOB, groups=("*",), resources=("*",), verbs=("*",)), [], id="administrator"),
        pytest.param(bound(BOB, resources=("configmaps",), namespace="team-a"), [], id="configmaps-elsewhere"),
        pytest.param(
            bound(BOB, resources=("configmaps",), namespace="giveway-system"),
            [("info", "May write ConfigMaps in giveway's namespace: User bob in giveway-system.")],
            id="the-policies",
        ),
    ],
)
def test_rights(cluster, expected):
    """Who may go round the shield, beside administrators and Kubernetes' own parts."""
    assert found(rights.around_the_shield, cluster) == expected


def trust(days, *, name="giveway", bundle=None):
    """A cluster whose webhook trusts an authority with so many days left, and its certificates."""
    start = datetime.fromtimestamp(NOW, UTC)
    made = begin(CertificateSettings(("x",), timedelta(days=90), timedelta(days=3650)), start)
    config = {"caBundle": base64.b64encode(bundle or made.trust()).decode()}
    configurations = {"validatingwebhookconfigurations": [configuration(name, entry(clientConfig=config))]}
    cluster = observed(**configurations, certificates=made.files())
    cluster.now = NOW + timedelta(days=days).total_seconds()
    return cluster


@pytest.mark.parametrize(
    ("cluster", "expected"),
    [
        pytest.param(trust(1), [], id="fresh"),
        pytest.param(trust(85), ["warning"], id="serving-nearly-over"),
        pytest.param(trust(91), ["error"], id="serving-over"),
        pytest.param(trust(3645), ["error", "warning"], id="authority-nearly-over"),
        pytest.param(trust(1, bundle=b"nonsense"), ["error", "error"], id="no-certificates"),
        pytest.param(
            trust(1, bundle=begin(CertificateSettings(("x",)), datetime.now(UTC)).trust()),
            ["error"],
            id="another-authority",
        ),
    ],
)
def test_certificates(cluster, expected):
    """What is served is current and trusted; what is trusted does not end soon."""
    assert severities(certificates.expiring, cluster) == expected


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        pytest.param(make_policy("p", namespaces=("team-*",)), [], id="matches"),
        pytest.param(make_policy("p", namespaces=("tema-*",)), ["warning"], id="mistyped"),
        pytest.param(make_policy("p", make_rule("d", default_priority_class="none")), ["error"], id="default-class"),
        pytest.param(
            make_policy("p", make_rule("a", priority_classes=PriorityClasses(allow=("low", "x-*", "y")))),
            ["info"],
            id="allowed-class",
        ),
        pytest.param(manage("low"), [], id="managed-class"),
        pytest.param(manage("giveway-*"), ["info"], id="no-managed-class"),
    ],
)
def test_policies_that_match_nothing(policy, expected):
    """Policies name namespaces and classes that are there."""
    assert severities(policies.matching_nothing, observed(LOW, policy)) == expected


DAY = 86_400


@pytest.mark.parametrize(
    ("until", "expected", "says"),
    [
        pytest.param(NOW - 1, "warning", "ended 2027-01-15T07:59:59Z", id="ended"),
        pytest.param(NOW, "warning", "ended 2027-01-15T08:00:00Z", id="ends-now"),
        pytest.param(NOW + 1, "info", "ends soon: 2027-01-15T08:00:01Z", id="today"),
        pytest.param(NOW + 14 * DAY, "info", "ends soon: 2027-01-29T08:00:00Z", id="in-14-days"),
        pytest.param(NOW + 14 * DAY + 1, "info", "holds until 2027-01-29T08:00:01Z", id="later"),
    ],
)
def test_exceptions(until, expected, says):
    """Each is listed with its end, owner and reason; one that has ended is to be taken out."""
    exception = PolicyException(
        match=RequestMatch(namespaces=("team-a",)),
        rules=("allowed", "range"),
        reason="batch moves",
        owner="sam",
        until=until,
        source=HERE,
    )
    policy = msgspec.structs.replace(make_policy("p"), exceptions=(exception,))
    [(severity, what)] = found(policies.listed, observed(policy))
    assert severity == expected
    assert what == f"The exception of namespace team-a from p/allowed, p/range {says} (owner sam: batch moves)."


def test_the_exception_that_ends_first_comes_first():
    """Over all policies, however they are written; none is left out."""
    ends = (NOW + 90 * DAY, NOW - DAY, NOW + DAY)
    given = [
        PolicyException(match=RequestMatch(), rules=("r",), reason="r", owner="o", until=end, source=HERE)
        for end in ends
    ]
    policies_ = [msgspec.structs.replace(make_policy(f"p{n}"), exceptions=(one,)) for n, one in enumerate(given)]
    whats = [what for _, what in found(policies.listed, observed(*policies_))]
    assert [re.search(r"from (p\d)/r", what)[1] for what in whats] == ["p1", "p2", "p0"]


@pytest.mark.parametrize(
    ("minor", "expected"),
    [
        pytest.param("29", ["error"], id="too-old"),
        pytest.param("31", ["warning"], id="older-than-tested"),
        pytest.param("32+", [], id="tested"),
        pytest.param("34", ["info"], id="between"),
        pytest.param("36", [], id="newest-tested"),
        pytest.param("37", ["warning"], id="newer"),
        pytest.param("", ["warning"], id="unknown"),
    ],
)
def test_versions(minor, expected):
    """Versions on which the tests never ran are said."""
    assert severities(alive.untested, observed(version={"major": "1", "minor": minor})) == expected


def test_the_tested_versions_are_the_documented_ones():
    """The installation page names them, and the oldest."""
    page = (Path(__file__).parents[2] / "docs" / "install.md").read_text()
    assert tuple(map(int, re.findall(r"^\| 1\.(\d+) \| works.* \| passed", page, re.MULTILINE))) == TESTED
    assert f"Kubernetes 1.{OLDEST} or newer" in page


def test_every_check_is_in_the_table():
    """A public function of a file of checks that yields findings has a row in `CHECKS`, and one only."""
    modules = [import_module(f"{checks.__name__}.{module.name}") for module in pkgutil.iter_modules(checks.__path__)]
    defined = [
        function
        for module in modules
        for name, function in vars(module).items()
        if isfunction(function) and function.__module__ == module.__name__ and not name.startswith("_")
        if function.__annotations__["return"] == "Iterator[ClusterFinding]"
    ]
    assert {check.run for check in CHECKS} == set(defined)
    assert len(CHECKS) == len(defined)


def test_every_check_is_explained():
    """The page on operations has each check by its name, and no other."""
    page = (Path(__file__).parents[2] / "docs/operations.md").read_text()
    table = page.partition("| check | what it finds |\n")[2].partition("\n\n")[0]
    explained = re.findall(r"`([a-z-]+)`", " ".join(re.findall(r"^\|(.*?) \| ", table, re.MULTILINE)))
    assert sorted(explained) == sorted([*(check.name for check in CHECKS), "canary"])


def test_what_cannot_be_read_is_not_checked():
    """Every check that needs it says so, by name, and the others go on."""
    cluster = observed(missing={"pods": "no right to list pods"}, version={"minor": "36"})
    skipped = {one.check: one.what for one in examine(cluster) if one.severity == "not checked"}
    assert skipped.keys() == {check.name for check in CHECKS if "pods" in check.needs}
    assert set(skipped.values()) == {"Not checked: no right to list pods."}


def test_names_for_people():
    """A few names, the rest as a number."""
    assert names({"b": 1, "a": 3}) == "a (3), b (1)"
    assert names(["x"] * 3) == "x"
    assert names(str(number) for number in range(7)) == "0, 1, 2, 3, 4 and 2 more"
    assert (counted(1, "pod"), counted(2, "class")) == ("1 pod", "2 classes")


def by_tier(disruption: GroupDisruption = GroupDisruption.POD) -> PreemptionPolicy:
    """A policy that selects victims by a label."""
    pair = PreemptionPair(victims=PodsMatch(labels=LabelSelector(match_labels={"tier": "batch"})))
    victims = Victims(mode=VictimMode.OPT_OUT, pairs=(pair,))
    return msgspec.structs.replace(manage("giveway-*"), victims=victims, groups=Groups(disruption=disruption))


@pytest.mark.parametrize(
    ("by", "annotations", "expected"),
    [
        pytest.param(by_tier(), {}, ["label tier"], id="no record"),
        pytest.param(by_tier(GroupDisruption.NEVER), {}, ["group", "label tier"], id="of the group neither"),
        pytest.param(by_tier(GroupDisruption.NEVER), {CREATION: "{}"}, ["label tier"], id="older than the label"),
        pytest.param(by_tier(), {CREATION: '{"absent":["tier"]}'}, [], id="recorded"),
        pytest.param(by_tier(), {PREEMPTIBLE: "false"}, [], id="no victim anyway"),
        pytest.param(manage("giveway-*"), {}, [], id="no policy reads it"),
    ],
)
def test_pods_that_are_read_as_they_are_now(by, annotations, expected):
    """Pods whose labels or group were not recorded when they were made, and who may write them."""
    cluster = bound(BOB, namespace="team-a")
    cluster.policies, cluster.classes = Policies(preemption=(by,)), {LOW.metadata.name: LOW}
    cluster.pods.append(summary("p", annotations=annotations))
    findings = list(rights.unrecorded(cluster))
    began = "1 pod whose {} counts as it is now, because it was not recorded when they were made: team-a (1)."
    assert [finding.what for finding in findings] == [began.format(what) for what in expected]
    assert all("User bob in team-a" in finding.why for finding in findings)


def test_who_may_write_pods_that_are_read_as_they_are_now():
    """Whoever may patch pods, too; if nobody else may, administrators alone."""
    for verbs, who in ((("patch",), "User bob."), (("get",), "administrators alone.")):
        cluster = bound(BOB, resources=("pods",), verbs=verbs)
        cluster.policies, cluster.classes = Policies(preemption=(by_tier(),)), {LOW.metadata.name: LOW}
        cluster.pods.append(summary("p"))
        [finding] = rights.unrecorded(cluster)
        assert finding.why.endswith(who)
