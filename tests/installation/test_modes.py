"""`giveway install --mode`: what each mode makes, how one follows the other, and that nothing stays behind."""

import json
import time
from functools import partial

import pytest

from tests.installation.test_install import done, everything, install, run, with_entries
from tests.manifests.objects import BASE, NAMESPACE
from webhook.clusters.embedded.protocol import api_resources
from webhook.clusters.embedded.rendering import discovery
from webhook.clusters.embedded.storage import object_store
from webhook.installation.applier import ObjectApplier, UnfitClusterError
from webhook.installation.install import TAKES_EFFECT, look, made_by_webhook
from webhook.installation.kustomize import components, render
from webhook.installation.modes import COMPONENTS, NATIVE, with_native_policies
from webhook.kube import resources
from webhook.kube.resources import Resource

WAITS = "What enforced the policies before stays until a run that waits."
TEAMS = """
apiVersion: giveway.dev/v1alpha1
kind: PriorityPolicy
metadata: {name: teams}
spec:
  rules:
  - name: allowed
    priorityClasses: {allow: [batch]}
"""
BEYOND = TEAMS.replace(
    "priorityClasses: {allow: [batch]}", 'validate: {expression: "object.metadata.?managedFields.orValue([]) == []"}'
)
ROLE = Resource("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", namespaced=False)
BINDINGS = resources.VALIDATING_ADMISSION_POLICY_BINDING


@pytest.fixture(autouse=True)
def admission_policies(monkeypatch):
    """The cluster stores admission policies, and enforces none of them."""
    kinds = [resources.MUTATING_ADMISSION_POLICY, resources.MUTATING_ADMISSION_POLICY_BINDING]
    kinds += [resources.VALIDATING_ADMISSION_POLICY, BINDINGS]
    row_of = partial(api_resources.ApiResource, namespaced=False, traits=frozenset({"generation"}))
    rows = [row_of(one.group, one.version, one.plural, one.kind) for one in kinds]
    for row in rows:
        monkeypatch.setitem(api_resources.BY_NAME, (row.api_version, row.plural), row)
        monkeypatch.setitem(api_resources.BY_KIND, (row.api_version, row.kind), row)
        monkeypatch.setitem(api_resources.BY_PLURAL, row.plural, row)
    monkeypatch.setattr(object_store, "STORED", (*api_resources.STORED, *rows))
    monkeypatch.setattr(discovery, "RESOURCES", (*api_resources.RESOURCES, *rows))


async def names(admin, resource):
    found, _ = await admin.list(resource.path())
    return {one["metadata"]["name"] for one in found if one["metadata"]["name"].startswith("giveway")}


async def diagnosis(bare):
    """What doctor says of who enforces, and of native policies that are not as they should be."""
    found = json.loads((await run(bare, "doctor", "--format=json")).stdout)["findings"]
    return [one["what"] for one in found if one["check"] in ("native-policies", "registered")]


async def test_native_alone(bare, as_found):
    """Nothing of a webhook is made; a second run changes nothing, doctor agrees, and uninstall takes all of it."""
    begun = time.monotonic()
    first = await run(bare, "install", "--mode=native")
    assert "waiting: the API server takes the native policies into use" in first.stderr + first.stdout
    assert time.monotonic() - begun > TAKES_EFFECT
    assert "enforces the policies by itself from now on" in first.stdout
    made = {(kind, name) for kind, _, name in await everything(bare.admin) - as_found}
    assert {("Deployment", "giveway-reconciler"), ("Deployment", "giveway-native")} <= made
    assert not {kind for kind, name in made if "Webhook" in kind or name == "giveway-webhook"}
    assert await diagnosis(bare) == ["The policies are enforced by: native policies only."]
    again = await done(bare, "install", "--mode=native")
    assert "created" not in again
    assert "changed," not in again.replace("unchanged", "")
    assert "PolicyBinding giveway-" in (await done(bare, "uninstall", "--yes")).splitlines()[0]


async def test_policies_of_ones_own(bare, tmp_path):
    """They are compiled for the cluster's classes; the keeper may change these, reads them, and starts again."""
    (tmp_path / "teams.yaml").write_text(TEAMS)
    await install(bare, "--mode=backstop")
    path = resources.DEPLOYMENT.path(NAMESPACE, "giveway-native")
    shipped = (await bare.admin.get(path))["spec"]["template"]["metadata"]["annotations"]
    text = await install(bare, "--mode=backstop", "--policies", tmp_path)
    assert WAITS in text
    policies = await names(bare.admin, resources.VALIDATING_ADMISSION_POLICY)
    assert "giveway-teams-pods-enforce" in policies & await names(bare.admin, BINDINGS)
    _, *rules = (await bare.admin.get(ROLE.path(name="giveway-native")))["rules"]
    named = {name for rule in rules for name in rule["resourceNames"]}
    assert "giveway-teams-pods-enforce" in named
    assert named <= policies | await names(bare.admin, resources.MUTATING_ADMISSION_POLICY)
    assert (await bare.admin.get(path))["spec"]["template"]["metadata"]["annotations"] != shipped
    webhook = await bare.admin.get(resources.DEPLOYMENT.path(NAMESPACE, "giveway-webhook"))
    assert "--failure-policy=Ignore" in webhook["spec"]["template"]["spec"]["containers"][0]["args"]
    # Without --policies those of the cluster are compiled, not the shipped ones
    await install(bare, "--mode=backstop")
    assert "giveway-teams-pods-enforce" in await names(bare.admin, BINDINGS)


async def test_from_the_webhook_to_native_and_back(bare):
    """What enforced before goes only once what follows does, and then all of it, with what the webhook had made."""
    await install(bare)
    # The Secret of the certificates is there from the start; the policies in force are what the webhook makes
    await bare.admin.get(resources.SECRET.path(NAMESPACE, "giveway-tls"))
    await bare.admin.create(resources.CONFIG_MAP.path(NAMESPACE), {"metadata": {"name": "giveway-policies-in-force"}})
    assert WAITS in await install(bare, "--mode=native")
    assert ("Deployment", NAMESPACE, "giveway-webhook") in await everything(bare.admin)
    assert "  MutatingWebhookConfiguration giveway removed" in await done(bare, "install", "--mode=native")
    found = await everything(bare.admin)
    assert ("Deployment", NAMESPACE, "giveway-webhook") not in found
    assert not {(key.kind, key.namespace, key.name) for key in made_by_webhook(NAMESPACE)} & found
    assert WAITS in await install(bare)
    assert await names(bare.admin, BINDINGS)
    async with bare.serving():
        lines = (await done(bare, "install")).splitlines()
        removed = [line.split()[0] for line in lines if line.endswith(" removed")]
        assert removed[0].endswith("PolicyBinding")
        assert not await names(bare.admin, BINDINGS)
        assert await diagnosis(bare) == []


async def test_a_webhook_that_kubectl_applied_goes_as_well(bare):
    """And what a run that was killed left of a webhook's own objects goes with the next one."""
    await bare.kubectl("apply", "-k", str(BASE))
    await done(bare, "install", "--mode=native")
    assert ("Deployment", NAMESPACE, "giveway-webhook") not in await everything(bare.admin)
    await bare.admin.create(resources.CONFIG_MAP.path(NAMESPACE), {"metadata": {"name": "giveway-policies-in-force"}})
    assert "ConfigMap giveway-system/giveway-policies-in-force removed" in await install(bare, "--mode=native")
    assert await diagnosis(bare) == ["The policies are enforced by: native policies only."]


async def test_entries_that_let_pods_pass_are_waited_for(bare):
    """A webhook that is no backstop's any more is done when its entries fail closed again."""
    await install(bare)
    for policy in ("Ignore", "Fail"):
        await with_entries(bare, "pods", policy, policy)
        texts = (await look(ObjectApplier(bare.admin), render(BASE))).waiting
        assert any("still let pods pass" in text for text in texts) == (policy == "Ignore")


async def test_a_backstop_is_done_once_nothing_waits_for_the_webhook(bare):
    """The server writes the entries, here outside the cluster: as long as one is `Fail`, pods wait, and it is told."""
    arguments = ["install", "--url=https://127.0.0.1:1", "--mode=backstop"]
    await install(bare, *arguments[1:])
    for policies, missing in (("", "Ignore"), True), (("Ignore", "Ignore"), False):
        await with_entries(bare, "pods", *policies)
        told = (await run(bare, *arguments, "--wait=1")).stderr
        assert ("pods still wait for the webhook" in told) == missing, told
        assert ("by pods.mutate.giveway.dev; a server with --failure-policy=Ignore" in told) == missing
    assert "gets no answer from the webhook" in told


@pytest.mark.parametrize("mode", ["webhook", "backstop", "native"])
async def test_without_accounts_that_may_change_what_is_asked(bare, mode):
    """With static-entries the entries are waited for, and native policies have no keeper."""
    text = await install(bare, f"--mode={mode}", "--component=static-entries")
    found = {(kind, name) for kind, _, name in await everything(bare.admin)}
    assert not {("Deployment", "giveway-native"), ("ClusterRole", "giveway-native")} & found
    assert (("ValidatingAdmissionPolicy", "giveway-builtin-pods-enforce") in found) == (mode != "webhook")
    if mode != "native":
        objects = render(BASE, components(("static-entries",)))
        assert any(
            "giveway compile --webhook prints" in each
            for each in (await look(ObjectApplier(bare.admin), objects)).waiting
        ), text


@pytest.mark.usefixtures("as_found")
async def test_what_cannot_be_native(bare, tmp_path):
    """Alone nothing is applied, because nobody would enforce it; beside the webhook it is said."""
    (tmp_path / "teams.yaml").write_text(BEYOND)
    result = await run(bare, "install", "--mode=native", "--policies", tmp_path)
    assert result.exit_code == 1
    assert "--mode backstop keeps the webhook:\n  - teams/allowed: " in result.stderr
    result = await run(bare, "install", "--mode=backstop", "--policies", tmp_path, "--dry-run")
    assert result.exit_code == 0
    assert result.stderr.startswith("not enforced natively: teams/allowed: ")
    assert "name: giveway-builtin-pods-mutate" in result.stdout


async def test_a_cluster_without_mutating_admission_policies(bare, monkeypatch):
    """It is said before anything is applied."""
    monkeypatch.setattr("webhook.installation.applier.OLDEST_NATIVE", 99)
    objects = render(BASE, components(COMPONENTS[NATIVE]))
    with pytest.raises(UnfitClusterError, match=r"native policies need Kubernetes 1\.99 or newer\."):
        await with_native_policies(ObjectApplier(bare.admin), objects, own=True, alone=True)
