"""ConfigMaps: the probe is answered, and what is wrong in the policies is told to whoever applies them."""

import pytest

from tests.admission.builders import UID, ask, make_context, make_policy, make_review, make_rule, message_of, response
from tests.policy.builders import table
from tests.processor_time import within
from webhook.admission.configmaps import ALLOW_REMOVAL, POLICIES, PROBE, answers
from webhook.policy.cel.program import AllowanceError
from webhook.policy.model.rules import PriorityClasses

TEAMS = """\
apiVersion: giveway.dev/v1alpha1
kind: PriorityPolicy
metadata: {name: teams}
spec:
  rules:
  - {name: allowed, priorityClasses: {allow: [standard]}}
"""
IN_FORCE = make_policy("teams", make_rule("allowed", priority_classes=PriorityClasses(allow=("standard",))))


def config_map(text=TEAMS, name="giveway-policies", allowed=None, namespace="giveway-system"):
    """The ConfigMap with one file, and what it says may be given up."""
    annotations = {ALLOW_REMOVAL: allowed} if allowed else {}
    meta = {"name": name, "namespace": namespace, "annotations": annotations}
    return {"kind": "ConfigMap", "metadata": meta, "data": {"teams.yaml": text, "README.md": "no policy"}}


def judged(obj, *policies):
    """The answer to applying it while these policies are in force."""
    return response(ask(make_context(policies=policies or (IN_FORCE,)), "validate", make_review(obj)))


def test_the_same_policies_pass():
    """Applying what is in force changes nothing."""
    assert judged(config_map())["allowed"]


def test_what_may_be_given_up():
    """The ConfigMap lists it by name or glob."""
    for allowed, held in (("teams", False), ("other, teams*", False), ("others other/*", True)):
        assert judged(config_map("", allowed=allowed))["allowed"] is not held


@table(
    "rule, place, what",
    {
        "a selector without values": (
            "reserve: {from: 1, to: 9, use: [{namespaceSelector: {matchExpressions: [{key: a, operator: In}]}}]}",
            "6:112",
            "operator In of key 'a' needs at least one value",
        ),
        "an end that nobody can write down": (
            (
                "priorityClasses: {allow: [standard]}}\n  exceptions:\n  - {match: {namespaces: [a]}, rules: [allowed],"
                " reason: r, owner: o, until: '9999-12-31T23:59:59-14:00'"
            ),
            "8:78",
            "lies outside the years 0001 to 9999",
        ),
    },
)
def test_what_would_end_a_server(rule, place, what):
    """It is refused with its place: an answer that is no verdict would let it in."""
    said = message_of(judged(config_map(TEAMS.replace("priorityClasses: {allow: [standard]}", rule))))
    assert "builtin/policies" in said
    assert f"giveway-policies/teams.yaml:{place}: error: " in said
    assert what in said


@pytest.mark.parametrize("name", [POLICIES, PROBE])
def test_only_the_own_namespace_has_policies_and_a_probe(name):
    """A review of a ConfigMap of these names elsewhere tells nobody what the policies are, or the version."""
    for phase in ("mutate", "validate"):
        for body in (
            make_review(config_map("", name, namespace="team-a")),
            make_review(config_map("", name), namespace=""),
        ):
            said = response(ask(make_context(policies=(IN_FORCE,)), phase, body))
            assert said == {"uid": UID, "allowed": True}


def test_the_own_namespace_is_what_it_is_told_to_be():
    """A server in another namespace judges the policies there, and no others."""
    context = make_context(policies=(IN_FORCE,))
    context.namespace = "priorities"
    for namespace, allowed in (("priorities", False), ("giveway-system", True)):
        body = make_review(config_map("", namespace=namespace))
        assert response(ask(context, "validate", body))["allowed"] is allowed


def test_warnings():
    """What lint warns of is told to the author."""
    odd = TEAMS.replace("{allow: [standard]}", "{allow: [yes]}")
    answer = judged(config_map(TEAMS + "---\n" + odd.replace("name: teams", "name: more")))
    where = "giveway-policies/teams.yaml:13:47 (spec.rules[0].priorityClasses.allow[0])"
    assert any(text.startswith(f"{where}: YAML 1.1 readers") for text in answer["warnings"])


LARGE = {
    "all files": ({f"{n}.yaml": "# " + "x" * 130_000 for n in range(9)}, "a set has at most 1048576"),
    "many files": ({f"{n}.yaml": "" for n in range(100_000)}, "at most 1000 policy files"),
    "many names": ({f"{'x' * 200}{n}.yaml": "" for n in range(6000)}, "at most 1000 policy files"),
}


@pytest.mark.parametrize(("data", "words"), LARGE.values(), ids=LARGE)
def test_a_config_map_is_bounded_as_files_are(data, words):
    """What is too much is refused before it is parsed, in a second at most."""
    with within(1):
        said = message_of(judged(config_map() | {"data": data}))
    assert words in said


def test_a_list_of_what_may_go_is_bounded():
    """Somebody's long list of globs takes no time."""
    with within(1):
        assert "is gone" in message_of(judged(config_map("", allowed="*a*b*c*d* " * 700_000)))


def test_takes_time():
    """Where there is no time to compile policies, it is done where there is."""
    context = make_context(policies=(IN_FORCE,))
    context.allowance = 1.0
    with pytest.raises(AllowanceError):
        ask(context, "validate", make_review(config_map()))


@pytest.mark.parametrize("data", [None, [], "text", {"a.yaml": 7}, {"a.yaml": None}])
def test_odd_data(data):
    """Data that is no map of texts holds no policies, and so gives up those in force."""
    assert "is gone" in message_of(judged(config_map() | {"data": data}))


def probe_map(name):
    return {"kind": "ConfigMap", "metadata": {"name": name, "namespace": "giveway-system"}}


@pytest.mark.parametrize("phase", ["mutate", "validate"])
def test_the_probe_is_answered(phase):
    """Each phase says that it was reached, and by which version."""
    body = make_review(probe_map(PROBE), probe_map(PROBE))
    assert response(ask(make_context(), phase, body)) == {"uid": UID, "allowed": True, "warnings": [answers(phase)]}


@pytest.mark.parametrize("phase", ["mutate", "validate"])
def test_other_config_maps_pass_in_silence(phase):
    """Nothing else is said of ConfigMaps."""
    body = make_review(probe_map("other"), probe_map("other"))
    assert response(ask(make_context(), phase, body)) == {"uid": UID, "allowed": True}
