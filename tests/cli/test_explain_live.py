"""`giveway explain` as a process: for an administrator, for a tenant, and for a pod that is gone."""

import pytest

from tests.cases import cases
from tests.inspection.command import giveway, user
from tests.reconciler.acting import managing, playing
from tests.workloads import eventually
from webhook.kube.resources import (
    CONFIG_MAP,
    EVENT,
    NAMESPACE,
    POD,
    VALIDATING_WEBHOOK_CONFIGURATION,
)
from webhook.policy.model.limits import Limits, Rate

POLICY = """
apiVersion: giveway.dev/v1alpha1
kind: PreemptionPolicy
metadata: {name: test}
spec:
  preemptors: {priorityClasses: [high]}
"""


@pytest.fixture
async def play():
    """A node that is full of what may be evicted, a reconciler, and the policies in force as the webhook keeps them."""
    limits = Limits(per_cluster=Rate(1, 600.0))
    async with playing() as played, played.reconciling(managing(limits=limits)):
        await played.client.create(NAMESPACE.path(), {"metadata": {"name": "giveway-system"}})
        kept = {"metadata": {"name": "giveway-policies-in-force"}, "data": {"p.yaml": POLICY}}
        await played.client.create(CONFIG_MAP.path("giveway-system"), kept)
        yield played


def explain(play, *arguments, kubeconfig=None):
    return giveway("explain", *arguments, "--kubeconfig", kubeconfig or play.cluster.kubeconfig)


def tenant(play, role):
    """The kubeconfig of somebody with a role in namespace default."""
    return user(play.cluster, play.client, role, within="default")


async def told(play, reason):
    found, _ = await play.client.list(EVENT.path("default"), dict)
    return [event for event in found if event["reason"] == reason]


async def test_the_policies_in_force_are_read(play):
    """Without --policies, by the short form and by the long one; what the reconciler told is shown, too."""
    await play.victim("a", "node-1", "6")
    await play.preemptor("p")
    await play.bound("p")
    await play.victim("b", "node-1", "4")
    await play.preemptor("q", cpu="8")
    await eventually(lambda: told(play, "PreemptionWaits"))
    short = await explain(play, "default/q")
    assert short.exit_code == 0, short.stderr
    text = " ".join(short.stdout.split())
    assert "default/q is acted for, by policy test." in text
    assert "PreemptionWaits: No pod is evicted for it now: " in text
    assert "when limits.perCluster leaves room again" in text
    assert (await explain(play, "pod", "q", "-n", "default")).exit_code == 0


async def test_a_pod_that_is_gone(play):
    """Who evicted it, from its Event and from the decision on the preemptor; a tenant sees the same."""
    await play.victim("a", "node-1", "6")
    await play.preemptor("p")
    await play.bound("p")
    await eventually(lambda: told(play, "Preempted"))
    for kubeconfig in (None, await tenant(play, "view")):
        text = " ".join((await explain(play, "default/a", kubeconfig=kubeconfig)).stdout.split())
        assert "There is no pod default/a now. giveway decided at " in text
        assert "that it goes from node node-1 for default/p, by test/opt-in: " in text
        assert "Preempted: Preempted by pod default/p of priority 100 on node node-1" in text
    again = {
        "metadata": {"name": "a"},
        "spec": {"schedulerName": "nobody", "containers": [{"name": "c", "image": "x"}]},
    }
    await play.client.create(POD.path("default"), again)
    of_both = (await explain(play, "default/a")).stdout
    assert "What was told of it" not in of_both, "as in kubectl describe, which goes by uid"
    assert "Preempted: " in of_both.partition("What was told of an earlier pod of its name (Events):")[2]
    never = await explain(play, "default/never")
    assert never.exit_code == 1
    assert "no Event or decision that may be read tells of one" in never.stderr
    query = never.stderr.splitlines()[-1].strip()
    assert query == 'sum by (policy, rule) (increase(giveway_evictions_total{namespace="default"}[1d])) > 0'


async def test_a_tenant_learns_what_the_pod_tells(play):
    """With the role edit: one sentence for all that may not be read, and what pod and Events say, in seconds."""
    await play.victim("a", "node-1", "6")
    await play.preemptor("p", cpu="9")
    await eventually(lambda: told(play, "PreemptionWaits"))
    result = await explain(play, "default/p", kubeconfig=await tenant(play, "edit"))
    assert result.exit_code == 0, result.stderr
    text = " ".join(result.stdout.split())
    assert (
        "default/p is acted for, if its scheduler finds no room. Its PriorityClass is high, its priority 100."
        " Its scheduler says: 0/1 nodes are available" in text
    )
    assert text.count("you may not read") == text.count("podgroups") == 1
    assert "is not said: no right to get ConfigMap giveway-system/giveway-policies-in-force, in which the" in text
    assert "No pod is evicted for it now: no node where evicting" in text
    assert not result.stderr
    nobody = play.cluster.write_kubeconfig("nobody", play.cluster.add_user("nobody"))
    refused = await explain(play, "default/a", kubeconfig=nobody)
    assert refused.exit_code == 1
    assert refused.stderr.startswith('Error: a right is missing: pods "a" is forbidden: User "nobody" cannot get')


async def test_no_right_is_named_that_is_not_missing(play):
    """Who may read everything learns that there are no policies, and what to do."""
    await play.preemptor("p", cpu="9")
    await play.client.delete(CONFIG_MAP.path("giveway-system", "giveway-policies-in-force"))
    configured = {"metadata": {"name": "giveway"}, "webhooks": []}
    await play.client.create(VALIDATING_WEBHOOK_CONFIGURATION.path(), configured)
    text = " ".join((await explain(play, "default/p")).stdout.split())
    assert "you may not read" not in text
    why = "there is no ConfigMap giveway-system/giveway-policies-in-force, in which the webhook keeps the policies"
    assert f"What preemption would do now is not said: {why} in force: name the files with --policies DIR" in text


async def test_a_workload_that_was_not_evicted(play):
    """Its kind is taken in any case; which workloads of the namespace were evicted is not known either."""
    counts = "0 in the last hour, 0 in the last day, 0 in the last week, 0 in the last 30 days"
    shown = await explain(play, "workload", "deployment/web", "-n", "default")
    assert shown.stdout == f"deployment/default/web was evicted: {counts}.\n", shown.stderr


@pytest.mark.parametrize(
    "arguments",
    cases(
        ("too-many-parts", ["a/b/c"]),
        ("no-namespace", ["/b"]),
        ("two-namespaces", ["a/b", "-n", "c"]),
        ("two-pods", ["a", "b"]),
        ("no-kind", ["workload", "a"]),
    ),
)
async def test_what_names_no_pod(arguments):
    """A usage error says what would be right."""
    result = await giveway("explain", *arguments)
    assert result.exit_code == 2
    assert result.stderr.startswith("Usage: giveway explain")
