"""Objects that exist, judged as if they were made again by who made them."""

import msgspec
import pytest

from tests.admission.builders import HERE, make_policy, make_rule
from tests.cases import cases
from tests.inspection.builders import owned_by, policies, running, said
from webhook.inspection.judge import UNKNOWN, maker_of, maker_of_template
from webhook.kube.objects.meta import LabelSelector, ObjectMeta
from webhook.policy.model.match import RequestMatch, Subject
from webhook.policy.model.priority import MatchCondition, PolicyException
from webhook.policy.model.rules import Enforcement, PriorityClasses, ProtectAnnotations, Reserve, Validate

LEADS = (Subject("Group", "leads"),)


def made_by(pod):
    return maker_of(msgspec.convert(pod["metadata"], ObjectMeta), "n1")


CONTROLLER = made_by(running(**owned_by("ReplicaSet")))
OPERATOR = made_by(running(**owned_by("Database", api_version="example.com/v1")))
URGENT = {"class_name": "urgent"}
NOT_URGENT = PriorityClasses(deny=("urgent",))


def reserve(**use):
    return make_rule("range", reserve=Reserve(from_=100_000, to=900_000, use=(RequestMatch(**use),) if use else ()))


@pytest.mark.parametrize(
    ("maker", "user"),
    cases(
        ("replicaset", CONTROLLER, "system:serviceaccount:kube-system:replicaset-controller"),
        (
            "job",
            made_by(running(**owned_by("Job", api_version="batch/v1"))),
            "system:serviceaccount:kube-system:job-controller",
        ),
        ("mirror-pod", made_by(running(annotations={"kubernetes.io/config.mirror": "x"})), "system:node:n1"),
        ("template-of-cronjob", maker_of_template("cronjobs"), "system:serviceaccount:kube-system:job-controller"),
    ),
)
def test_who_made_it_is_known(maker, user):
    """Kubernetes' own controllers and kubelets have names."""
    assert (maker.kind, maker.user.username) == ("named", user)


def test_who_made_it_is_not_known():
    """A bare pod tells nothing; one of a custom resource tells that a service account made it."""
    assert (made_by(running()), OPERATOR.kind) == (UNKNOWN, "controller")


@pytest.mark.parametrize(
    ("rule", "expected"),
    cases(
        ("deny", make_rule("r", priority_classes=PriorityClasses(allow=("standard",))), {"p/r": "refused"}),
        ("warn", make_rule("r", Enforcement.WARN, priority_classes=NOT_URGENT), {"p/r": "warned"}),
        ("audit", make_rule("r", Enforcement.AUDIT, priority_classes=NOT_URGENT), {"p/r": "audited"}),
        ("allow", make_rule("r", priority_classes=PriorityClasses(allow=("urgent",))), {}),
        ("not-bound-yet", make_rule("r", validate=Validate(expression="!has(object.spec.nodeName)")), {}),
        ("no-status", make_rule("r", validate=Validate(expression="!has(object.status)")), {}),
        ("kind", make_rule("r", validate=Validate(expression="object.kind == 'Pod'")), {}),
        ("error", make_rule("r", validate=Validate(expression="object.spec.nope == 1")), {"p/r": "refused"}),
    ),
)
def test_a_pod_is_judged_as_it_was_sent(rule, expected):
    """Every enforcement has its verdict; what the cluster added since does not count."""
    assert said(policies(make_policy("p", rule)), running(**URGENT), CONTROLLER) == expected


def changed(**changes):
    return msgspec.structs.replace(make_policy("p", reserve()), **changes)


def excepted(**match):
    """The range with an exception for what matches."""
    exception = PolicyException(
        match=RequestMatch(**match), rules=("range",), reason="r", owner="o", until=4e9, source=HERE
    )
    return changed(exceptions=(exception,))


BY_NAME = "request.userInfo.username == 'x'"
ELSEWHERE = RequestMatch(subjects=LEADS, namespace_selector=LabelSelector(match_labels={"a": "b"}))


@pytest.mark.parametrize(
    ("policy", "bare", "controlled"),
    cases(
        ("nobody", make_policy("p", reserve()), "refused", "refused"),
        ("by-namespace", make_policy("p", reserve(namespaces=("team-*",))), None, None),
        ("by-subject", make_policy("p", reserve(subjects=LEADS)), "cannot be judged", "refused"),
        ("by-both", make_policy("p", reserve(subjects=LEADS, namespaces=("team-a",))), "cannot be judged", None),
        ("other-namespace", make_policy("p", reserve(subjects=LEADS, namespaces=("other",))), "refused", "refused"),
        ("match-by-subject", make_policy("p", reserve(), subjects=LEADS), "cannot be judged", "refused"),
        ("match-elsewhere", make_policy("p", reserve(), subjects=LEADS, namespaces=("other",)), None, None),
        (
            "expression",
            make_policy("p", make_rule("range", validate=Validate(expression="request.userInfo.username != 'x'"))),
            "cannot be judged",
            None,
        ),
        ("exclude-by-subject", changed(exclude=RequestMatch(subjects=LEADS)), "cannot be judged", "refused"),
        ("exclude-elsewhere", changed(exclude=ELSEWHERE), "refused", "refused"),
        ("condition", changed(conditions=(MatchCondition("c", BY_NAME, HERE),)), "cannot be judged", None),
        ("exception-by-subject", excepted(subjects=LEADS), "cannot be judged", "refused"),
        ("exception-elsewhere", excepted(subjects=LEADS, namespaces=("other",)), "refused", "refused"),
        ("exception-by-namespace", excepted(namespaces=("team-a",)), "warned", "warned"),
    ),
)
def test_what_reads_the_requester(policy, bare, controlled):
    """Of a bare pod it cannot be judged unless it says the same of everybody; of a controller's pod by namespace."""
    assert said(policies(policy), running(**URGENT), UNKNOWN).get("p/range") == bare
    pod = running(**URGENT, **owned_by("ReplicaSet"))
    assert said(policies(policy), pod, CONTROLLER).get("p/range") == controlled


def test_an_operators_pod_is_a_service_accounts_pod():
    """Rights hold for it by namespace, and only expressions that read the user's name cannot be judged."""
    pod = running(**URGENT, **owned_by("Database", api_version="example.com/v1"))
    assert said(policies(make_policy("p", reserve(subjects=LEADS))), pod, OPERATOR) == {"p/range": "refused"}
    named = make_policy("p", make_rule("r", validate=Validate(expression=BY_NAME)))
    assert said(policies(named), pod, OPERATOR) == {"p/r": "cannot be judged"}


def test_what_the_reconciler_wrote_is_no_violation():
    """Mutation takes plan and decision off a new pod, so a preemptor that runs is not refused for them."""
    pod = running(annotations={"giveway.dev/plan": "{}", "giveway.dev/decision": "{}"})
    assert said(policies(), pod, UNKNOWN) == {}


@pytest.mark.parametrize(
    ("define", "expected"),
    cases(
        ("nobody", (), "refused"),
        ("by-name", (RequestMatch(names=("urgent",)),), None),
        ("by-subject", (RequestMatch(subjects=LEADS),), "cannot be judged"),
    ),
)
def test_classes(define, expected):
    """A PriorityClass in a reserved range is judged by its name; who made it is not known."""
    rule = make_rule("range", reserve=Reserve(from_=100_000, to=900_000, define=define))
    found = {"metadata": {"name": "urgent", "uid": "u"}, "value": 500_000, "preemptionPolicy": "Never"}
    assert said(policies(make_policy("p", rule)), found, UNKNOWN, "priorityclasses").get("p/range") == expected


def test_annotations_set_at_creation():
    """A right to set an annotation that only some people have cannot be judged of a bare pod."""
    body = ProtectAnnotations(keys=("example.com/x",), allow=(RequestMatch(subjects=LEADS),), operations=("CREATE",))
    policy = make_policy("p", make_rule("shield", protect_annotations=body))
    pod = running(annotations={"example.com/x": "1"})
    assert said(policies(policy), pod, UNKNOWN) == {"p/shield": "cannot be judged"}
