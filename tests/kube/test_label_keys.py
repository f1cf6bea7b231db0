"""What becomes of matchLabelKeys and mismatchLabelKeys when a pod is made."""

import copy

from webhook.kube.label_keys import merge_label_keys

HOST = "kubernetes.io/hostname"


def made(labels, **spec):
    """A new pod after the merge."""
    pod = {"metadata": {"labels": labels}, "spec": copy.deepcopy(spec)}
    merge_label_keys(pod)
    return pod["spec"]


def row(key, operator, value):
    return {"key": key, "operator": operator, "values": [value]}


def test_keys_become_rows_of_the_selector():
    """Required and preferred terms, both ways, and spread constraints; the keys stay written beside them."""
    term = {"topologyKey": HOST, "labelSelector": {"matchLabels": {"app": "a"}}, "matchLabelKeys": ["v", "none"]}
    other = {"topologyKey": HOST, "labelSelector": {}, "mismatchLabelKeys": ["tenant"]}
    affinity = {
        "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]},
        "podAntiAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": other}]
        },
    }
    spec = made({"v": "1", "tenant": "t"}, affinity=affinity, topologySpreadConstraints=[copy.deepcopy(term)])
    merged = {**term, "labelSelector": {"matchLabels": {"app": "a"}, "matchExpressions": [row("v", "In", "1")]}}
    assert spec["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] == [merged]
    assert spec["topologySpreadConstraints"] == [merged]
    (preferred,) = spec["affinity"]["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert preferred["podAffinityTerm"]["labelSelector"] == {"matchExpressions": [row("tenant", "NotIn", "t")]}


def test_without_a_selector_there_is_nothing_to_merge_into():
    """A term without a selector selects nothing, and goes on doing so."""
    term = {"topologyKey": HOST, "matchLabelKeys": ["v"]}
    assert made({"v": "1"}, topologySpreadConstraints=[term])["topologySpreadConstraints"] == [term]


def test_pods_without_labels_or_affinity_stay_as_they_are():
    """Nothing is added where there is nothing."""
    assert made(None, containers=[]) == {"containers": []}
