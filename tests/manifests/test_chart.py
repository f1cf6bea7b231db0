"""The Helm chart: it makes the objects of the kustomize base and its components, and refuses other values."""

import copy
import json
import re

import pytest

from tests.cases import cases
from tests.manifests.helm import CHART, helm, refusal, template
from tests.manifests.objects import NAMESPACE, documents
from tests.manifests.rendering import MODES, NAMES, find, pod_of, rendered
from webhook.admission.configmaps import ALLOW_REMOVAL

pytestmark = pytest.mark.kubectl

ON = {"enabled": True}
VALUES = {
    "cert-manager": {"certificates": {"source": "cert-manager"}},
    "client-certificate": {"clientCertificate": ON},
    "exempt-label": {"exemptLabel": ON},
    "flow-schema": {"flowSchemas": ON},
    "host-network": {"hostNetwork": True},
    "network-policy": {"networkPolicy": ON},
    "priority-plugin-off": {"priorityPluginOff": True},
    "prometheus": {"prometheus": ON},
    "scan": {"scan": ON},
    "static-entries": {"staticEntries": True},
}
"""By kustomize component, the values that mean the same."""
NATIVE_ONLY = {"native": ON, "webhook": {"enabled": False}}
BY_MODE = {
    ("native-policies",): {"native": ON},
    ("native-policies", "backstop"): {"native": ON, "failurePolicy": "Ignore"},
    ("native-policies", "native-only"): NATIVE_ONLY,
}
"""By the components of a mode of native policies, the values that mean the same."""
POLICY = """\
# Made by `giveway compile mine`
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata:
  name: giveway-mine-pods-enforce
spec:
  variables:
  - {name: own, expression: "'giveway-system'"}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: giveway-mine-pods-enforce
spec: {policyName: giveway-mine-pods-enforce, validationActions: [Deny]}
"""


def normalized(objects):
    """Objects without what has no meaning: empty lists, and the order of a container's options."""
    found = copy.deepcopy(objects)
    for obj in found.values():
        if obj["kind"] == "Deployment":
            spec = obj["spec"]["template"]["spec"]
            if not spec.get("initContainers", True):
                del spec["initContainers"]
            for container in spec["containers"]:
                command = container["args"].index("issue") + 1 if "issue" in container["args"] else 1
                container["args"][command:] = sorted(container["args"][command:])
    return found


def without_namespace(objects):
    return {key: obj for key, obj in objects.items() if obj["kind"] != "Namespace"}


def same(found, expected):
    """Compare object by object, so that a difference can be read."""
    found, expected = normalized(found), normalized(expected)
    assert found.keys() == expected.keys()
    for one, obj in expected.items():
        assert found[one] == obj, one


ALL = {name: value for each in VALUES.values() for name, value in each.items()}
ALIKE = [
    ((), {}),
    *(((name,), values) for name, values in VALUES.items()),
    (tuple(NAMES), ALL),
    *BY_MODE.items(),
]


def test_every_component_has_a_value():
    """Whatever kustomize offers, the chart does."""
    assert sorted(VALUES) == NAMES
    assert {component for components in BY_MODE for component in components} == MODES


@pytest.mark.parametrize(("components", "values"), ALIKE, ids=lambda given: "+".join(given) or "base")
def test_values_make_what_the_base_with_components_is(components, values):
    """But for the Namespace, which Helm itself makes: with `namespace.create` it is there, too."""
    same(template({"namespace": {"create": True}, **values}), rendered(*components))
    if not components:
        same(template({}), without_namespace(rendered()))


def test_native_policies_of_ones_own():
    """They replace the shipped ones, in the release's namespace, and the keeper may change them and no others."""
    own = {"native": {**ON, "policies": POLICY}, "policies": {"files": {"mine.yaml": "x: 1\n"}}}
    found = template(own, namespace="policy")
    assert {one[1:] for one in found if "AdmissionPolicy" in one[1]} == {
        ("ValidatingAdmissionPolicy", "", "giveway-mine-pods-enforce"),
        ("ValidatingAdmissionPolicyBinding", "", "giveway-mine-pods-enforce"),
    }
    in_windows = {"native": {**ON, "policies": POLICY.replace("\n", "\r\n")}, "policies": own["policies"]}
    assert template(in_windows, namespace="policy") == found
    policy = find(found, "ValidatingAdmissionPolicy", "giveway-mine-pods-enforce")
    assert policy["spec"] == {"variables": [{"name": "own", "expression": "'policy'"}]}
    _, *rules = find(found, "ClusterRole", "giveway-native")["rules"]
    assert [(rule["resources"], rule["resourceNames"]) for rule in rules] == [
        (["validatingadmissionpolicies"], ["giveway-mine-pods-enforce"])
    ]


def test_other_policies_start_the_keeper_again():
    """It reads them when it starts, and would write the former ones back."""

    def pods(content):
        files = {"policies": {"files": {"mine.yaml": content}}}
        found = template({"native": {**ON, "policies": POLICY}, **files})
        return find(found, "Deployment", "giveway-native")["spec"]["template"]

    assert pods("x: 1\n") == pods("x: 1\n") != pods("x: 2\n")


def test_certificates_of_ones_own():
    """As with cert-manager, but for its objects, from the Secret that is named."""
    found = template({"certificates": {"source": "secret", "secretName": "mine"}})
    with_manager = without_namespace(rendered("cert-manager"))
    assert found.keys() == {key for key in with_manager if key[0] != "cert-manager.io/v1"}
    expected = copy.deepcopy(pod_of(with_manager, "giveway-webhook"))
    [volume] = [one for one in expected["volumes"] if one["name"] == "certificates"]
    volume["secret"]["secretName"] = "mine"
    del expected["initContainers"]
    expected["containers"][0]["args"].sort()
    found_pod = pod_of(found, "giveway-webhook")
    found_pod["containers"][0]["args"].sort()
    assert found_pod == expected
    other = template({"certificates": {"source": "cert-manager", "secretName": "mine"}})
    assert find(other, "Certificate", "giveway-webhook")["spec"]["secretName"] == "mine"


def test_in_another_namespace():
    """Every object is there, nothing names the usual one, and the programs are told."""
    for values in (ALL, NATIVE_ONLY):
        found = template(values, namespace="policy")
        assert "giveway-system" not in json.dumps(list(found.values()))
        assert {key[2] for key in found} == {"", "policy"}
        for name in (name for _, kind, _, name in found if kind == "Deployment"):
            assert "--system-namespace=policy" in pod_of(found, name)["containers"][0]["args"]


PLACED = {
    "replicas": 3,
    "resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"memory": "2Gi"}},
    "priorityClassName": "mine",
    "nodeSelector": {"pool": "system"},
    "tolerations": [{"key": "system", "operator": "Exists"}],
    "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}},
    "topologySpreadConstraints": [{"maxSkew": 2, "topologyKey": "rack", "whenUnsatisfiable": "DoNotSchedule"}],
    "podAnnotations": {"a/b": "c"},
    "podLabels": {"team": "platform"},
    "extraArgs": ["--poll-interval=1"],
}


@pytest.mark.parametrize("name", ["webhook", "reconciler"])
def test_pods_are_placed_as_the_values_say(name):
    """Replicas, resources and placement of one Deployment, and nothing of the other."""
    found, before = template({name: PLACED}), template({})
    deployment = find(found, "Deployment", f"giveway-{name}")["spec"]
    template_, spec = deployment["template"]["metadata"], deployment["template"]["spec"]
    server = spec["containers"][0]
    assert deployment["replicas"] == PLACED["replicas"]
    assert server["resources"] == PLACED["resources"]
    assert server["args"][-1] == "--poll-interval=1"
    for field in ("priorityClassName", "nodeSelector", "tolerations", "topologySpreadConstraints", "affinity"):
        expected = PLACED[field] | {"kubernetes.io/os": "linux"} if field == "nodeSelector" else PLACED[field]
        assert spec[field] == expected
    assert template_["annotations"] == PLACED["podAnnotations"]
    assert template_["labels"] == deployment["selector"]["matchLabels"] | PLACED["podLabels"]
    changed = {one[3] for one, obj in found.items() if obj != before[one]}
    assert changed == {f"giveway-{name}"}
    assert "topologySpreadConstraints" not in pod_of(
        template({name: {"topologySpreadConstraints": []}}), f"giveway-{name}"
    )


def images(objects):
    return set(re.findall(r'"image": "([^"]*)"', json.dumps(list(objects.values()))))


def test_the_image_is_where_the_values_say():
    """By tag or digest, for every container of every pod; credentials go to the service accounts."""
    digest = f"sha256:{'0' * 64}"
    named = {"repository": "registry.example.com/giveway", "tag": "1.2"}
    everything = {"imagePullSecrets": ["registry"], "scan": ON, "native": ON}
    found = template({"image": {**named, "pullPolicy": "Always"}, **everything})
    assert images(found) == {"registry.example.com/giveway:1.2"}
    accounts = [obj for obj in found.values() if obj["kind"] == "ServiceAccount"]
    assert len(accounts) == 4
    assert all(account["imagePullSecrets"] == [{"name": "registry"}] for account in accounts)
    assert pod_of(found, "giveway-reconciler")["containers"][0]["imagePullPolicy"] == "Always"
    assert images(template({"image": {**named, "digest": digest}})) == {f"registry.example.com/giveway@{digest}"}


@pytest.mark.parametrize(
    ("values", "kind", "name", "part"),
    cases(
        (
            "labels",
            {"prometheus": {**ON, "labels": {"release": "mine"}}},
            "PrometheusRule",
            "giveway",
            '"release": "mine"',
        ),
        ("interval", {"prometheus": {**ON, "interval": "5m"}}, "ServiceMonitor", "giveway", '"interval": "5m"'),
        (
            "monitoring",
            {"networkPolicy": {**ON, "monitoringNamespace": "metrics"}},
            "NetworkPolicy",
            "giveway-reconciler",
            '"kubernetes.io/metadata.name": "metrics"',
        ),
        ("schedule", {"scan": {**ON, "schedule": "@weekly"}}, "CronJob", "giveway-scan", '"@weekly"'),
        ("open", {"failurePolicy": "Ignore"}, "Deployment", "giveway-webhook", "--failure-policy=Ignore"),
        ("removal", {"policies": {"allowRemoval": "*"}}, "ConfigMap", "giveway-policies", f'"{ALLOW_REMOVAL}": "*"'),
        (
            "policies",
            {"policies": {"files": {"a.yaml": "x: 1\n"}}},
            "ConfigMap",
            "giveway-policies",
            '{"a.yaml": "x: 1\\n"}',
        ),
    ),
)
def test_what_a_value_changes(values, kind, name, part):
    """A value arrives where it belongs."""
    assert part not in json.dumps(list(template({top: ON for top in values if "enabled" in str(values[top])}).values()))
    assert part in json.dumps(find(template(values), kind, name))


def test_policies_of_ones_own():
    """Without `policies.create` the ConfigMap is somebody else's."""
    before, after = template({}), template({"policies": {"create": False}})
    assert before.keys() - after.keys() == {("v1", "ConfigMap", NAMESPACE, "giveway-policies")}


@pytest.mark.parametrize(
    ("values", "message"),
    cases(
        ("a-slip-of-the-pen", {"webhook": {"replica": 3}}, "replica"),
        ("failure-policy", {"failurePolicy": "fail"}, "failurePolicy"),
        ("certificates", {"certificates": {"source": "vault"}}, "source"),
        ("no-boolean", {"networkPolicy": {"enabled": "yes"}}, "enabled"),
        ("replicas", {"webhook": {"replicas": -1}}, "replicas"),
        ("argument", {"webhook": {"extraArgs": ["poll-interval=1"]}}, "extraArgs"),
        ("digest", {"image": {"digest": "sha256:abc"}}, "digest"),
        ("no-policy-file", {"policies": {"files": {"notes.txt": ""}}}, "notes.txt"),
        ("selector-label", {"reconciler": {"podLabels": {"app.kubernetes.io/name": "x"}}}, "app.kubernetes.io/name"),
        ("interval", {"prometheus": {"interval": "soon"}}, "interval"),
        ("runbooks", {"prometheus": {"runbooks": "page"}}, "runbooks"),
        ("native-policies", {"native": {"policies": [POLICY]}}, "/native/policies"),
        ("webhook", {"webhook": {"enabled": "no"}}, "enabled"),
        # What the schema does not know: modes that cannot be, with what to set
        ("nothing-left", {"webhook": {"enabled": False}}, "nothing would enforce the policies"),
        ("not-enabled", {"native": {"policies": POLICY}}, "native.enabled is false"),
        ("without-the-plugin", {"native": ON, "priorityPluginOff": True}, "refuse every pod"),
        ("other-policies", {"native": ON, "policies": {"files": {"a.yaml": "x: 1\n"}}}, "set native.policies"),
        ("kind", {"native": {**ON, "policies": "{kind: ConfigMap, metadata: {name: a}}"}}, "holds a ConfigMap"),
        ("no-kind", {"native": {**ON, "policies": "a: 1"}}, "without a kind"),
        ("no-yaml", {"native": {**ON, "policies": "a: ["}}, "is not YAML"),
        (
            "separators",
            {"native": {**ON, "policies": POLICY.replace("\n---\n", "\n--- # next\n")}},
            "a line of --- and nothing else",
        ),
        ("empty", {"native": {**ON, "policies": "# nothing\n"}}, "holds no admission policy"),
    ),
)
def test_bad_values_are_refused(values, message):
    """With what is wrong, by the schema or by the chart, before anything is made."""
    assert message in refusal(values)


def test_the_schema_knows_every_value():
    """Each value that has a default is in the schema, and the other way round."""

    def leaves(values, schema, path=()):
        known = schema.get("properties")
        if known is None:
            return
        assert schema["additionalProperties"] is False, path
        assert values.keys() == known.keys() - {"global", "claims"}, path
        for name, value in values.items():
            leaves(value, known[name], (*path, name))

    [values] = documents(CHART / "values.yaml")
    leaves(values, json.loads((CHART / "values.schema.json").read_text()))


def test_helm_lint_has_nothing_to_say(tmp_path):
    """No error, and no warning, also with everything switched on."""
    (tmp_path / "values.json").write_text(json.dumps(ALL))
    (tmp_path / "native.json").write_text(json.dumps(NATIVE_ONLY))
    for more in ([], *(["--values", str(tmp_path / f"{name}.json")] for name in ("values", "native"))):
        result = helm("lint", "--strict", "--quiet", str(CHART), *more)
        assert result.returncode == 0, result.stdout


def test_a_packaged_chart_is_whole(tmp_path):
    """What it takes from beside it in the checkout is in the package, without examples and tests of policies."""
    assert helm("package", str(CHART), "--destination", str(tmp_path)).returncode == 0
    [package] = tmp_path.glob("*.tgz")
    same(template({"namespace": {"create": True}, "prometheus": ON}, chart=package), rendered("prometheus"))
    assert ("v1", "ConfigMap", NAMESPACE, "giveway-policies") in template({}, chart=package)
    assert package.stat().st_size < 100_000
