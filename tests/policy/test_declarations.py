"""A body of a rule that nobody has thought of elsewhere: all others know it by its declaration."""

from typing import Annotated

import msgspec
import pytest

from tests.admission.builders import HERE, ask, make_context, make_pod, make_policy, make_review, response
from webhook.clusters.simulated.objects import ClusterObjects
from webhook.inspection.judge import bounded
from webhook.policy.evaluation.reads import reads_on_update
from webhook.policy.evaluation.request import PODS
from webhook.policy.evaluation.rules import KINDS, CompiledRule
from webhook.policy.model.policies import Policies
from webhook.policy.model.rules import Declaration, Enforcement, PriorityRule
from webhook.policy.shapes.object_shape import mapping
from webhook.policy.shapes.shapes import string
from webhook.simulation.judgeable import judgeable


class ServiceAccounts(msgspec.Struct, frozen=True):
    """Refuses pods of these service accounts."""

    deny: tuple[str, ...]
    reads: str = "serviceAccountName"

    @property
    def declaration(self):
        return Declaration(about=(PODS,), fields=frozenset({("spec", self.reads)}))


@mapping("extended rule", alternatives=True)
class Extended(PriorityRule, frozen=True, kw_only=True):
    """A rule that may have the new body."""

    service_accounts: Annotated[ServiceAccounts | None, string("an account"), "Whose pods are refused."] = None


POD = make_pod(serviceAccountName="bad", priority=0, preemptionPolicy="PreemptLowerPriority")


def rule(**more):
    body = ServiceAccounts(("bad",), **more)
    return Extended(name="r", source=HERE, enforcement=Enforcement.ENFORCE, service_accounts=body)


def policies(*rows):
    return Policies(priority=(make_policy("p", *rows),))


@pytest.fixture(autouse=True)
def _evaluated(monkeypatch):
    """The body is taught to the evaluation, and to nothing else."""

    def compiled(_, rule, body, __):
        def run(attributes):
            named = attributes.new["spec"].get("serviceAccountName")
            return ("deny", f"not for {named}") if named in body.deny else ("allow", "")

        yield PODS, CompiledRule(rule, run)

    monkeypatch.setitem(KINDS, "service_accounts", compiled)


def test_the_server_judges_what_explain_judges():
    """The rule gets the fields it reads, although no other rule reads them."""
    plain = make_context(policies=(make_policy("p", rule()),))
    assert plain.reads_everything
    assert not make_context(policies=(make_policy("p"),)).reads_everything
    assert response(ask(plain, "validate", make_review(POD)))["status"]["code"] == 403


def test_changes_of_what_it_reads_travel():
    """The API server sends them; the author of a workload is not told what does not turn on who asks."""
    assert reads_on_update(policies(rule())).parts == {"spec"}
    assert not make_policy("p", rule()).asks_who
    assert bounded(policies(rule()), refuses=True, subjects=True) == policies(rule())


def test_a_simulation_leaves_out_what_a_snapshot_lacks():
    """A body is judged only if a snapshot keeps what it reads of a pod."""
    left_out = judgeable(policies(rule(reads="hostname")), ClusterObjects(0.0)).left_out
    assert left_out == {"p/r": "it reads spec.hostname, which the snapshot does not have"}
