"""Which pods on nodes could run on no other node, by their specs, volumes and devices: they go last."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from webhook.kube.object_cache import Change
from webhook.kube.objects.cluster_scoped import Node
from webhook.kube.objects.devices import ResourceClaim, ResourceSlice
from webhook.kube.objects.pod import Pod
from webhook.kube.objects.storage import PersistentVolume, PersistentVolumeClaim
from webhook.preemption.filters.placement import affinity_mask, required_affinity, required_mask
from webhook.preemption.filters.volumes import wrong_zones
from webhook.preemption.snapshot.claim_index import devices_of
from webhook.preemption.snapshot.pod_info import claims_of
from webhook.preemption.snapshot.snapshot import Snapshot
from webhook.preemption.snapshot.volume_index import claim_key
from webhook.reconciler.state.index import Index, device_claims_of

Mask = NDArray[np.bool_]


class _Confinement(NamedTuple):
    """What pods that can run on the same nodes have in common, by `namespace/name` of claims on volumes and devices."""

    placement: bytes
    volumes: frozenset[str]
    devices: frozenset[str]


def _confinements(pod: Pod) -> tuple[_Confinement, ...]:
    spec, claims, required, devices = pod.spec, claims_of(pod), required_affinity(pod), device_claims_of(pod)
    volumes = claims.named if claims else frozenset()
    if not spec.node_name or not (spec.node_selector or required or volumes or devices):
        return ()
    return (_Confinement(msgspec.json.encode((spec.node_selector, required), order="deterministic"), volumes, devices),)


class ConfinedPods:
    """The pods on nodes that cannot run everywhere, and which of them could run on no other node."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._pods: Index[_Confinement, Pod] = Index(_confinements)
        self._claims: Index[str, _Confinement] = Index(lambda group: group.volumes | group.devices)
        """By claim, what it confines, by one of its pods."""
        self._node: dict[_Confinement, str] = {}
        """The one known node on which such pods can run, empty for none, of those that can run on no more."""
        self._unjudged: set[_Confinement] = set()
        """Those of which that is to be worked out."""
        self._drivers: dict[str, Mask] = {}
        """The nodes that have devices of each driver."""

    def put(self, key: str, pod: Pod | None) -> None:
        """Add or update a pod, None takes it away."""
        for group in self._pods.put(key, pod):
            self._claims.put(key, next(iter(self._pods.of(key)), None))
            if group not in self._pods:
                self._node.pop(group, None)
                self._unjudged.discard(group)
            elif len(self._pods[group]) == 1:
                self._unjudged.add(group)

    def changed(self, change: Change[Any]) -> None:
        """A node, volume, claim or device changed: what was worked out by it is worked out again."""
        old, new = change.old, change.new
        match new or old:
            case Node():
                if old is None or new is None or old.metadata.labels != new.metadata.labels:
                    self._drivers.clear()
                    self._unjudged.update(self._pods)
            case ResourceSlice():
                self._drivers.clear()
                self._unjudged.update(group for group in self._pods if group.devices)
            case PersistentVolume() | PersistentVolumeClaim() | ResourceClaim():
                for claim in {change.key, claim_key(old), claim_key(new)}:
                    self._unjudged.update(self._claims.get(claim, {}).values())
            case _:
                pass

    def on_one_node(self) -> list[str]:
        """The pods, by `namespace/name`, that could run on no other node than theirs."""
        for group in self._unjudged:
            node = self._only_node(group, next(iter(self._pods[group].values())))
            if node is None:
                self._node.pop(group, None)
            else:
                self._node[group] = node
        self._unjudged.clear()
        pods = ((node, item) for group, node in self._node.items() for item in self._pods[group].items())
        return [key for node, (key, pod) in pods if node in ("", pod.spec.node_name)]

    def _only_node(self, group: _Confinement, pod: Pod) -> str | None:
        snapshot, nodes = self._snapshot, self._snapshot.nodes
        claims = [claim for key in group.volumes if (claim := snapshot.claims.get(key)) is not None]
        bound = [claim for claim in claims if snapshot.volumes.get(claim.spec.volume_name) is not None]
        volumes = [snapshot.volumes.get(claim.spec.volume_name) for claim in bound]
        selectors = [volume.spec.node_affinity.required for volume in volumes if volume and volume.spec.node_affinity]
        if np.count_nonzero(nodes.valid[: nodes.rows]) <= 1:
            return None  # of one node nobody can say what another one would be like
        mask = nodes.valid[: nodes.rows] & required_mask(nodes, pod) & ~wrong_zones(snapshot, bound)
        for selector in selectors:
            mask &= affinity_mask(nodes, selector, fields=False)
        for used in filter(None, map(snapshot.device_claims.claims.get, group.devices)):
            for driver in {device.driver for device in devices_of(used)}:
                if len(self._drivers.get(driver, ())) != nodes.rows:
                    self._drivers[driver] = self._of_driver(driver)
                mask &= self._drivers[driver]
            if used.status.allocation and len(used.status.reserved_for or ()) > 1:  # it stays allocated for the others
                mask &= affinity_mask(nodes, used.status.allocation.node_selector)
        rows = np.flatnonzero(mask)
        return None if len(rows) > 1 else "".join(nodes.names[row] for row in rows.tolist())

    def _of_driver(self, driver: str) -> Mask:
        nodes, mask = self._snapshot.nodes, np.zeros(self._snapshot.nodes.rows, np.bool_)
        for spec in (published.slice.spec for published in self._snapshot.devices.slices.values()):
            if spec.driver != driver or not spec.devices:
                continue
            if spec.node_name:
                if (row := nodes.find(spec.node_name)) is not None:
                    mask[row] = True
            else:
                mask |= affinity_mask(nodes, None if spec.all_nodes else spec.node_selector)
        return mask
