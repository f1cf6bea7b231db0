"""What of an object is written into a file of a cluster, and under which names."""

from __future__ import annotations

import re
import types
import typing
from typing import Any

import msgspec
import pytest

from tests.preemption.snapshot.test_pod_groups import NAMED
from tests.simulation.clusters import pod
from webhook.clusters.model.workloads import TemplateSpec
from webhook.clusters.simulated.objects import BY_KIND, KINDS
from webhook.kube.objects.devices import ResourceClaim
from webhook.kube.objects.pod import Pod
from webhook.policy.model.creation import at_creation, creation_record
from webhook.policy.model.values import CREATION, POD_CONDITIONS
from webhook.preemption.snapshot.pod_groups import group_of, minimum_said_by
from webhook.simulation.cluster_file.redacting import ALWAYS_KEPT, Anonymizer, redact

COUNT = "kueue.x-k8s.io/pod-group-total-count"
SINCE = "2026-01-01T00:00:00Z"
MARKER = re.compile(r"leak\d+x")


class Filled:
    """An object of a type with a text in every place that can have one; `places` says by text where it is."""

    def __init__(self, type_: Any) -> None:
        self.places: dict[str, str] = {}
        self.body = self._of(type_, "")

    def _text(self, place: str) -> str:
        text = f"leak{len(self.places)}x"
        self.places[text] = place
        return text

    def _of(self, type_: Any, place: str) -> Any:
        if isinstance(type_, type) and issubclass(type_, msgspec.Struct):
            hints = typing.get_type_hints(type_)
            base = type_.__base__ if type_ is TemplateSpec else type_
            of = {row.name: base.__name__ for row in msgspec.structs.fields(base)}
            return {
                row.encode_name: self._of(hints[row.name], f"{of.get(row.name, type_.__name__)}.{row.name}")
                for row in msgspec.structs.fields(type_)
            }
        origin, given = typing.get_origin(type_), typing.get_args(type_)
        if origin in (types.UnionType, typing.Union):
            return self._of(str if str in given else given[0], place)
        if origin is list:
            return [self._of(given[0], place)]
        if origin is dict:
            return {self._text(f"{place} key"): self._of(given[1], place)}
        return {int: 1, bool: True}[type_] if type_ in (int, bool) else self._text(place)

    def survivors(self, item: Any) -> set[str]:
        """The places whose texts are in the item still."""
        return {self.places[text] for text in MARKER.findall(msgspec.json.encode(item).decode())}


STAYS = {
    "Kubernetes' own words": """
        Condition.status Container.restart_policy ContainerPort.protocol RestartRule.action
        ExactDeviceRequest.allocation_mode
        PersistentVolumeClaimSpec.access_modes PersistentVolumeClaimSpec.volume_mode PersistentVolumeSpec.access_modes
        PersistentVolumeSpec.volume_mode PodDisruptionBudgetSpec.unhealthy_pod_eviction_policy PodStatus.phase
        PodSpec.preemption_policy PriorityClass.preemption_policy Requirement.operator StorageClass.volume_binding_mode
        Taint.effect Toleration.effect Toleration.operator TopologySpreadConstraint.node_affinity_policy
        TopologySpreadConstraint.node_taints_policy TopologySpreadConstraint.when_unsatisfiable
        SimulatedSpec.pod_management_policy NodeStatus.declared_features
    """,
    "instants and versions": """
        ObjectMeta.creation_timestamp ObjectMeta.deletion_timestamp PodStatus.start_time
        ObjectMeta.resource_version WorkloadStatus.completed_indexes PodDisruptionBudgetStatus.disrupted_pods
    """,
    "amounts": """
        CapacityPolicy.default CapacityPolicy.valid_values CapacityRange.max CapacityRange.min CapacityRange.step
        ContainerStatus.allocated_resources CounterValue.value DeviceCapacity.value
        DeviceRequestResult.consumed_capacity NodeStatus.allocatable PersistentVolumeSpec.capacity PodSpec.overhead
        PodDisruptionBudgetSpec.max_unavailable PodDisruptionBudgetSpec.min_available PodStatus.allocated_resources
        ResourceRequirements.limits ResourceRequirements.requests NewPodRules.overhead
    """,
    "kinds": "ClaimConsumer.api_group ClaimConsumer.resource ObjectReference.kind OwnerReference.api_version"
    " OwnerReference.kind",
    "PriorityClasses and schedulers, which policies are about": "PodGroupSpec.priority_class_name"
    " PodSpec.priority_class_name PodSpec.scheduler_name",
    "keys of labels and taints": """
        PodAffinityTerm.match_label_keys PodAffinityTerm.topology_key Requirement.key Taint.key Toleration.key
        TopologyConstraint.key TopologySpreadConstraint.match_label_keys TopologySpreadConstraint.topology_key
    """,
    "what devices and volumes are, and who drives them": """
        AllocatedDeviceStatus.driver CELSelector.expression CSINodeDriver.name CSIVolume.driver DeviceAttribute.text
        DeviceAttribute.version DeviceClassSpec.extended_resource_name DeviceConstraint.distinct_attribute
        DeviceConstraint.match_attribute DeviceRequestResult.driver ResourceSliceSpec.driver StorageClass.provisioner
    """,
}
"""The places whose texts are under their own names in an anonymous file."""
KEYS = """
    ContainerStatus.allocated_resources CounterConsumption.counters CounterSet.counters
    Device.attributes Device.capacity DeviceRequestResult.consumed_capacity NodeStatus.allocatable PodSpec.overhead
    PersistentVolumeSpec.capacity PodStatus.allocated_resources ResourceRequirements.limits
    ResourceRequirements.requests LabelSelector.match_labels ObjectMeta.annotations ObjectMeta.labels
    PodSpec.node_selector SelectingSpec.selector
    PersistentVolumeSpec.aws_elastic_block_store PersistentVolumeSpec.azure_disk PersistentVolumeSpec.cinder
    PersistentVolumeSpec.gce_persistent_disk PodSpec.resource_claims PodSpec.scheduling_gates PodSpec.scheduling_group
    PodStatus.resource_claim_statuses StorageClass.allowed_topologies SimulatedSpec.selector SimulatedSpec.strategy
    SimulatedSpec.update_strategy NewPodRules.overhead NewPodRules.scheduling NewPodRules.spec
    SimulatedSpec.ordinals SimulatedSpec.pod_failure_policy SimulatedSpec.success_policy
    SimulatedSpec.persistent_volume_claim_retention_policy
"""
"""The maps whose keys stay: those by resource, attribute or label, and those by field."""


def redacted(kind, *, annotated=True):
    """An object of the kind that has a text everywhere, as it is written down, with all of its annotations or none."""
    filled = Filled(kind.type)
    return filled, redact(msgspec.convert(filled.body, kind.type), filled.places if annotated else ())


def test_no_text_stays_but_those_that_are_no_names():
    """In each kind that a file has every text gets another name, but for those in these tables."""
    stay: set[str] = set()
    for kind in KINDS:
        filled, item = redacted(kind)
        left = filled.survivors(Anonymizer()(kind, item))
        assert ("ObjectMeta.name" in left) == (kind.name == "PriorityClass")
        stay |= left - {"ObjectMeta.name"}
    keys = {f"{place} key" for place in KEYS.split()}
    assert stay == keys.union(*(places.split() for places in STAYS.values()))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_what_is_for_people_is_not_written(kind):
    """No message, image or description of any kind, and no annotation that nobody reads."""
    filled, item = redacted(kind, annotated=False)
    left = filled.survivors(item)
    assert not {place for place in left if place.endswith((".message", ".image", ".description"))}
    assert not {"ObjectMeta.annotations", "ObjectMeta.annotations key"} & left


def test_since_when_a_pod_was_told_is_kept():
    """Of giveway's own conditions all but the message stays: a simulation goes on from there."""
    told = [
        {"type": name, "status": "True", "message": "x", "lastTransitionTime": SINCE} for name in (*POD_CONDITIONS, "a")
    ]
    item = Anonymizer(["a"])(BY_KIND["Pod"], redact(msgspec.convert({"status": {"conditions": told}}, Pod), ()))
    kept = {condition.type: (condition.last_transition_time, condition.message) for condition in item.status.conditions}
    assert kept == {**dict.fromkeys(POD_CONDITIONS, (SINCE, "")), "a": (None, "")}


def written(body):
    """A pod as a file has it, the same one anonymous, and what changes its names."""
    item, change = redact(msgspec.convert(body, Pod), ALWAYS_KEPT), Anonymizer()
    return item, change(BY_KIND["Pod"], item), change


@pytest.mark.parametrize("source", NAMED)
def test_a_file_has_the_groups_of_the_pods(source):
    """By whatever pods name their group, a file has it, and how many members it needs."""
    body = pod("p", "1", labels=NAMED[source].get("labels", {}), spec=NAMED[source].get("spec", {}))
    body["metadata"]["annotations"] = {**NAMED[source].get("annotations", {}), COUNT: "3"}
    group = group_of(msgspec.convert(body, Pod))
    item, other, change = written(body)
    assert (group_of(item), minimum_said_by(item)) == (group, 3)
    assert (group_of(other).name, minimum_said_by(other)) == (change.text(group.name), 3)


def test_a_file_has_what_pods_said_when_they_were_made():
    """Under the names that their labels and groups have there, so that the decision is the same."""
    record = creation_record({"tier": "gold-7"}, {"scheduling.k8s.io/group-name": "gang-a"}, ["absent", "tier"])
    item, other, change = written(pod("p", "1", labels={"tier": "now"}, annotations={CREATION: record}))
    assert at_creation(item.metadata).labels["tier"] == "gold-7"
    assert at_creation(other.metadata).labels["tier"] == change.text("gold-7")
    assert group_of(other).name == change.text("gang-a")


@pytest.mark.parametrize("text", ["true", "12", "1.5", "1h30m", "10Gi", SINCE])
def test_what_policies_compare_stays_in_annotations(text):
    """Numbers, quantities, durations and instants; another text gets another name."""
    item = msgspec.convert({"metadata": {"annotations": {"a": text, "b": "gold", "c": f"gold-{text}"}}}, Pod)
    other = Anonymizer()(BY_KIND["Pod"], item).metadata.annotations
    assert (other["a"], "gold" in f"{other}") == (text, False)


def test_binding_conditions_are_found_again():
    """What a device waits for and what its driver says of it have one name."""
    result = {"request": "r", "driver": "d", "pool": "p", "device": "x", "bindingConditions": ["example.com/there"]}
    said = {"driver": "d", "pool": "p", "device": "x", "conditions": [{"type": "example.com/there", "status": "True"}]}
    body = {"status": {"allocation": {"devices": {"results": [result]}}, "devices": [said]}}
    claim = Anonymizer()(BY_KIND["ResourceClaim"], redact(msgspec.convert(body, ResourceClaim), ()))
    [given], [device] = claim.status.allocation.devices.results, claim.status.devices
    assert given.binding_conditions == [condition.type for condition in device.conditions]
    assert given.binding_conditions != ["example.com/there"]
