"""The components for the API server's own policies: what is compiled, who may keep it, and what each mode installs."""

from click.testing import CliRunner

from tests.manifests.objects import NAMESPACE, ROOT, documents
from tests.manifests.rendering import find, pod_of, rendered
from webhook.cli.main import main

NATIVE = ROOT / "manifests" / "components" / "native-policies"


def test_the_policies_are_those_that_are_shipped(tmp_path, monkeypatch):
    """The file is what `giveway compile` makes of policies/ for a cluster without classes; the keeper adds these."""
    monkeypatch.chdir(ROOT)
    (tmp_path / "none.yaml").write_text("{apiVersion: v1, kind: Namespace, metadata: {name: a}}")
    result = CliRunner().invoke(main, ["compile", "policies", "--objects", str(tmp_path / "none.yaml")])
    assert (result.exit_code, result.stderr) == (0, "")
    assert (NATIVE / "policies.yaml").read_text() == result.stdout


def test_the_keeper_may_change_these_policies_and_nothing_else():
    """Its role names every policy that is compiled; it can neither make, bind nor delete one."""
    policies = [one for one in documents(NATIVE / "policies.yaml") if not one["kind"].endswith("Binding")]
    role = next(one for one in documents(NATIVE / "keeper.yaml") if one["kind"] == "ClusterRole")
    classes, *named = role["rules"]
    assert classes == {"apiGroups": ["scheduling.k8s.io"], "resources": ["priorityclasses"], "verbs": ["list", "watch"]}
    assert {tuple(rule["verbs"]) for rule in named} == {("get", "update")}
    plurals = {
        "mutatingadmissionpolicies": "MutatingAdmissionPolicy",
        "validatingadmissionpolicies": "ValidatingAdmissionPolicy",
    }
    assert sorted((plurals[rule["resources"][0]], name) for rule in named for name in rule["resourceNames"]) == sorted(
        (one["kind"], one["metadata"]["name"]) for one in policies
    )


def test_the_keeper_runs_with_valid_arguments():
    """The command takes them, and the namespace is that of the policies."""
    container = pod_of(rendered("native-policies"), "giveway-native")["containers"][0]
    values = main.get_command(None, "compile")
    arguments = [
        argument.replace("/etc/giveway/policies", str(ROOT / "policies")) for argument in container["args"][1:]
    ]
    parsed = values.make_context("compile", arguments).params
    assert (parsed["watch"], parsed["system_namespace"]) == (True, NAMESPACE)


def test_as_a_backstop_the_webhook_may_be_passed_over():
    """Its entries are `Ignore`; everything else is there."""
    found = rendered("native-policies", "backstop")
    assert "--failure-policy=Ignore" in pod_of(found, "giveway-webhook")["containers"][0]["args"]
    assert find(found, "ValidatingAdmissionPolicyBinding", "giveway-kubernetes-pods-enforce")


def test_native_only_has_no_webhook():
    """Neither its Deployment nor its Service, rights and configurations; the reconciler and the policies are there."""
    found = rendered("native-policies", "native-only")
    assert not [key for key in found if key[3] in ("giveway-webhook", "giveway", "giveway-probe")]
    assert find(found, "Deployment", "giveway-reconciler")
    assert find(found, "Deployment", "giveway-native")
