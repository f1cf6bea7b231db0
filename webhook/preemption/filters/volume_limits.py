"""How many volumes the CSI drivers can attach to a node (NodeVolumeLimits of kube-scheduler 1.36).

A volume counts once on a node however many pods use it. So users are counted by node and
volume, for the drivers of the preemptor's volumes, and only on nodes where the pods' claims,
each taken for a volume, could be too many.

Not known are volumes being detached (VolumeAttachments), disks that pods name, in-tree
Portworx volumes, and `preventPodSchedulingIfMissing` of a CSIDriver (off in 1.36). None
leaves out a node.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from webhook.preemption.filters.counters import UNBOUNDED, PlacedPods, ThingsInUse, things_in_use
from webhook.preemption.snapshot.snapshot import Snapshot
from webhook.preemption.snapshot.volume_index import AttachedVolume, class_of_claim, volume_of_class

EXCEEDED = "node(s) exceed max volume count"


def attach_limits(claims: list[str], live: PlacedPods) -> ThingsInUse | None:
    """The limits for a pod with these claims (`namespace/name`), if any."""
    snapshot, limits = live.snapshot, live.snapshot.attach_limits
    attached = {_attached(snapshot, claim) for claim in claims}
    own = {volume for volume in attached if volume and volume.driver in limits}
    if not own:
        return None
    drivers = Counter(volume.driver for volume in own)
    kinds = {driver: number for number, driver in enumerate(drivers)}
    counts = np.array([*drivers.values()], np.int64)
    limit = np.full((len(drivers), snapshot.nodes.rows), UNBOUNDED)
    for driver, number in kinds.items():
        for name, most in limits[driver].items():
            row = snapshot.nodes.find(name)
            if row is not None:
                limit[number, row] = most
    # Only nodes whose limit would not do were each claim a volume of this driver
    pods = snapshot.pods
    sizes = snapshot.table(("claims",), pods.claims, np.int64, lambda some: len(some.named | some.made))
    rows, nodes = live._replace(coming=pods.nominees()).those(pods.claim_set, sizes > 0)
    claimed = np.bincount(nodes, sizes[pods.claim_set[rows]], minlength=snapshot.nodes.rows)
    tight = np.asarray((claimed + counts[:, None] > limit).any(axis=0))
    used = {}
    for id_ in np.unique(pods.claim_set[rows[tight[nodes]]]).tolist():
        claim_set = pods.claims.values[id_]
        assert claim_set is not None
        volumes = {_attached(snapshot, claim) for claim in claim_set.named | claim_set.made}
        concerned = (volume for volume in volumes if volume and volume.driver in kinds)
        used[id_] = [(kinds[volume.driver], volume) for volume in concerned]
    mine = [(kinds[volume.driver], volume) for volume in own]
    limit = np.where(tight, limit, UNBOUNDED)
    return things_in_use("volumes", live, pods.claim_set, used, mine, limit=limit)


def _attached(snapshot: Snapshot, key: str) -> AttachedVolume | None:
    """The volume behind the claim `namespace/name`, if it is attached (`getCSIDriverInfo`).

    A claim without a volume will get its own by its class.
    """
    claim = snapshot.claims.get(key)
    if claim is None:
        return None
    if claim.spec.volume_name in snapshot.volumes.attached:
        return snapshot.volumes.attached[claim.spec.volume_name]
    storage_class = snapshot.storage_classes.get(class_of_claim(claim))
    return volume_of_class(key, storage_class) if storage_class else None
