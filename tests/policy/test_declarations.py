"""A body of a rule that nobody has thought of elsewhere: until it declares more, all others take the worst of it."""

from typing import Annotated

import msgspec
import pytest

from tests.admission.builders import HERE, ask, make_context, make_pod, make_policy, make_review, response
from tests.policy.builders import table
from webhook.clusters.simulated.objects import ClusterObjects
from webhook.inspection.judge import bounded
from webhook.policy.evaluation import engine as engine_module
from webhook.policy.evaluation.reads import PARTS, reads_on_update
from webhook.policy.evaluation.request import PODS
from webhook.policy.evaluation.rules import CompiledRule, compile_judging
from webhook.policy.model.declarations import Declaration
from webhook.policy.model.policies import Policies
from webhook.policy.model.rules import Enforcement, PriorityRule
from webhook.policy.shapes.object_shape import mapping
from webhook.policy.shapes.shapes import string
from webhook.simulation.judgeable import judgeable


class ServiceAccounts(msgspec.Struct, frozen=True):
    """Refuses pods of these service accounts; it says nothing of itself."""

    deny: tuple[str, ...]


class Declared(ServiceAccounts, frozen=True):
    """The same, and it says what it reads."""

    @property
    def declaration(self):
        fields = frozenset({("spec", "serviceAccountName")})
        return Declaration(about=frozenset({PODS}), fields=fields, asks_who=False, rights=())


@mapping("extended rule", alternatives=True)
class Extended(PriorityRule, frozen=True, kw_only=True):
    """A rule that may have the new body."""

    service_accounts: Annotated[ServiceAccounts | None, string("an account"), "Whose pods are refused."] = None


BODIES = [pytest.param(ServiceAccounts, id="undeclared"), pytest.param(Declared, id="declared")]
POD = make_pod(serviceAccountName="bad", priority=0, preemptionPolicy="PreemptLowerPriority")


def rule(body=ServiceAccounts):
    return Extended(name="r", source=HERE, enforcement=Enforcement.ENFORCE, service_accounts=body(("bad",)))


def policies(*rows):
    return Policies(priority=(make_policy("p", *rows),))


@pytest.fixture(autouse=True)
def _evaluated(monkeypatch):
    """The body is taught to the evaluation, and to nothing else."""

    def compile_all(policy, rule, twins):
        yield from compile_judging(policy, rule, twins)
        body = getattr(rule, "service_accounts", None)
        if body is not None:

            def run(attributes):
                named = attributes.new["spec"].get("serviceAccountName")
                return ("deny", f"not for {named}") if named in body.deny else ("allow", "")

            yield PODS, CompiledRule(policy.name, rule.name, rule.enforcement, run)

    monkeypatch.setattr(engine_module, "compile_judging", compile_all)


@pytest.mark.parametrize("body", BODIES)
def test_the_server_judges_what_explain_judges(body):
    """The rule gets the fields it reads, although no other rule reads them."""
    plain = make_context(policies=(make_policy("p", rule(body)),))
    assert response(ask(plain, "validate", make_review(POD)))["status"]["code"] == 403


def test_fields_that_rules_mostly_read_leave_pods_reduced():
    """A rule that declares no more than what the reduced pod has does not make the server decode pods in full."""
    assert not make_context(policies=(make_policy("p"),)).reads_everything
    assert make_context(policies=(make_policy("p", rule()),)).reads_everything


@table("body, parts", {"undeclared": (ServiceAccounts, set(PARTS)), "declared": (Declared, {"spec"})})
def test_changes_of_what_it_reads_travel(body, parts):
    """Every change is sent for a body that says nothing of itself."""
    assert reads_on_update(policies(rule(body))).parts == parts


def test_who_asks_makes_a_difference_until_it_is_denied():
    """The author of a workload is told what its pods will meet."""
    assert make_policy("p", rule()).asks_who
    assert not make_policy("p", rule(Declared)).asks_who


def test_a_scan_does_not_judge_it_of_an_unknown_maker():
    """Whoever made the object, the rule is taken once as refusing and once as not."""
    strict, lenient = (bounded(policies(rule()), refuses=one, subjects=True).priority[0] for one in (True, False))
    assert [one.rules[0].validate.expression for one in (strict, lenient)] == ["false", "true"]
    kept = policies(rule(Declared))
    assert bounded(kept, refuses=True, subjects=True) == kept


def test_a_simulation_leaves_it_out():
    """A snapshot has only what is known to decide of an object."""
    assert list(judgeable(policies(rule()), ClusterObjects(0.0)).left_out) == ["p/r"]


class Unkept(ServiceAccounts, frozen=True):
    """It says that it reads something that no snapshot keeps."""

    @property
    def declaration(self):
        return Declaration(about=frozenset({PODS}), fields=frozenset({("spec", "hostname")}), asks_who=False, rights=())


def test_a_simulation_leaves_out_what_a_snapshot_lacks():
    """A body that says what it reads is judged only if a snapshot keeps that of a pod."""
    left_out = judgeable(policies(rule(Unkept)), ClusterObjects(0.0)).left_out
    assert left_out == {"p/r": "it reads spec.hostname, which the snapshot does not have"}
