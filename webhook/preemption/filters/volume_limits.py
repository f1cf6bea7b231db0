"""How many volumes the CSI drivers can attach to a node (the NodeVolumeLimits filter of kube-scheduler 1.36).

A volume counts once on a node however many pods use it, and the preemptor's volumes that are there already need no
room. So there is a number of users for every (node, volume), of the drivers that the preemptor's volumes have, and
only on nodes where the claims of the pods, each taken for a volume, could be too many: elsewhere nothing is looked up.

Not known: volumes that are still being detached (VolumeAttachments), disks that pods name themselves, Portworx volumes
of the in-tree kind, and `preventPodSchedulingIfMissing` of a CSIDriver (off in 1.36). None of them leaves out a node.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field

import numpy as np

from webhook.preemption.filters.counters import UNBOUNDED, PlacedPods
from webhook.preemption.snapshot.columns import Ints, Mask, Rows
from webhook.preemption.snapshot.snapshot import Snapshot
from webhook.preemption.snapshot.volume_index import AttachedVolume, class_of_claim, volume_of_class

EXCEEDED = "node(s) exceed max volume count"


@dataclass(eq=False)
class AttachLimits:
    """The limits of the preemptor's drivers, and the volumes of these drivers that pods use, as pairs with the node.

    `limit` has a row a driver and a column a node, `own` the number of the preemptor's volumes by driver. Pair 0
    stands for no volume. `users` is the number of pods on the node that use the pair's volume, `beside` the same with
    the nominated pods.
    """

    stage = "volumes"
    limit: Ints
    own: Ints
    node: Rows
    driver: Rows
    is_own: Mask
    users: Ints
    pairs_at: Rows
    beside: Ints = field(init=False)

    def __post_init__(self) -> None:
        self.beside = self.users

    def pairs_of(self, rows: Rows) -> Rows:
        """The pairs of pods, in a further axis that is as long as the most volumes of a pod."""
        return self.pairs_at[rows]

    def nominate(self, rows: Rows, _nodes: Rows) -> None:
        """Count these pods as nominated to their nodes."""
        self.beside = self.users.copy()
        np.add.at(self.beside, self.pairs_of(rows), 1)

    def fits(self, users: Ints) -> Mask:
        """The nodes to which the preemptor's volumes can be attached beside those with users."""
        used = users > 0
        used[0] = False
        cells, shape = self.driver * self.limit.shape[1] + self.node, self.limit.shape
        others, present = (
            np.bincount(cells[used & some], minlength=self.limit.size).reshape(shape)
            for some in (~self.is_own, self.is_own)
        )
        own = self.own[:, None]
        fits: Mask = ((present == own) | (others + own <= self.limit)).all(axis=0)
        return fits

    def fails(self, *, nominated: bool) -> Mask:
        """The nodes to which the preemptor's volumes cannot be attached."""
        return ~self.fits(self.beside if nominated else self.users)

    def rooms(self, nodes: Rows, gone: Rows) -> list[Attached]:
        """What stays attached, beside the nominated pods and without them: they may go elsewhere."""
        pairs = np.concatenate(np.moveaxis(self.pairs_of(gone), -1, 0))
        both = (self.users,) if self.beside is self.users else (self.beside, self.users)
        return [Attached(self, users, nodes, pairs) for users in both]


class Attached:
    """What is attached to some nodes while pods come back; `users` are those of the volumes when all were there.

    The `pairs` of the pods that are gone have a layer a volume, a row a step and a column a node.
    """

    def __init__(self, limits: AttachLimits, users: Ints, nodes: Rows, pairs: Rows) -> None:
        self._limits, self._nodes, self._pairs = limits, nodes, pairs
        self._users = _added(users, pairs, -1)

    def fits_beside(self, step: int, back: Mask, fits: Mask) -> None:
        """Take out of `fits` where the preemptor's volumes cannot be attached beside those of one more pod a node."""
        self._more = self._pairs[:, step] * back
        fits &= self._limits.fits(_added(self._users, self._more, 1))[self._nodes]

    def put_back(self, stays: Mask) -> None:
        """Let those pods be there again where they stay."""
        self._users = _added(self._users, self._more * stays, 1)


def _added(users: Ints, pairs: Rows, sign: int) -> Ints:
    return users + sign * np.bincount(pairs.ravel(), minlength=len(users))


def attach_limits(snapshot: Snapshot, claims: list[str], live: PlacedPods) -> AttachLimits | None:
    """The limits that concern a preemptor with these claims (`namespace/name`); None if none does."""
    attached = {_attached(snapshot, claim) for claim in claims}
    own = {volume for volume in attached if volume is not None and volume.driver in snapshot.attach_limits}
    if not own:
        return None
    drivers = Counter(volume.driver for volume in own)
    counts = np.array(list(drivers.values()), np.int64)
    limit = np.full((len(drivers), snapshot.nodes.rows), UNBOUNDED, np.int64)
    for number, driver in enumerate(drivers):
        for name, most in snapshot.attach_limits[driver].items():
            if (row := snapshot.nodes.find(name)) is not None:
                limit[number, row] = most
    # Only nodes where a limit would not do were every claim there a volume of its own of this driver
    pods, nominees = snapshot.pods, snapshot.pods.nominees()
    rows, nodes = np.append(live.rows, nominees), np.append(live.nodes, pods.nominated[nominees]).astype(np.intp)
    sizes = snapshot.table(
        ("claims",), pods.claims, np.int64, lambda claim_set: len(claim_set.named) + len(claim_set.made)
    )
    claimed = np.bincount(nodes, sizes[pods.claim_set[rows]], minlength=snapshot.nodes.rows)
    tight = np.asarray((claimed + counts[:, None] > limit).any(axis=0))
    users = np.flatnonzero((pods.claim_set[rows] > 0) & tight[nodes])
    numbers, pairs = _pairs(snapshot, drivers, pods.claim_set[rows[users]].tolist(), nodes[users].tolist())
    pairs_at = np.zeros((pods.rows, pairs.shape[1]), np.intp)
    pairs_at[rows[users]] = pairs
    count = np.zeros(len(numbers) + 1, np.int64)
    np.add.at(count, pairs[users < len(live.rows)], 1)
    places = {driver: number for number, driver in enumerate(drivers)}
    return AttachLimits(
        limit=np.where(tight, limit, UNBOUNDED),
        own=counts,
        node=np.array([0, *(node for node, _ in numbers)], np.intp),
        driver=np.array([0, *(places[volume.driver] for _, volume in numbers)], np.intp),
        is_own=np.array([False, *(volume in own for _, volume in numbers)], np.bool_),
        users=count,
        pairs_at=pairs_at,
    )


def _attached(snapshot: Snapshot, key: str) -> AttachedVolume | None:
    """The volume behind the claim `namespace/name`, as `getCSIDriverInfo` of kube-scheduler; None if none is attached.

    A claim without a volume will get one of its own by its class.
    """
    claim = snapshot.claims.get(key)
    if claim is None:
        return None
    if claim.spec.volume_name in snapshot.volumes.attached:
        return snapshot.volumes.attached[claim.spec.volume_name]
    storage_class = snapshot.storage_classes.get(class_of_claim(claim))
    return volume_of_class(key, storage_class) if storage_class is not None else None


def _pairs(
    snapshot: Snapshot, drivers: Collection[str], claim_sets: list[int], nodes: list[int]
) -> tuple[list[tuple[int, AttachedVolume]], Rows]:
    """The pairs of a node and a volume of these drivers that pods use, and of each pod its pairs; pair 0 is none.

    Of each pod its claims and its node are given.
    """
    numbers: dict[tuple[int, AttachedVolume], int] = {}
    rows: list[list[int]] = []
    for claim_set, node in zip(claim_sets, nodes, strict=True):
        claims = snapshot.pods.claims.values[claim_set]
        assert claims is not None
        volumes = {_attached(snapshot, claim) for claim in (*claims.named, *claims.made)}
        mine = [(node, volume) for volume in volumes if volume and volume.driver in drivers]
        rows.append([numbers.setdefault(pair, len(numbers) + 1) for pair in mine])
    width = max([1, *map(len, rows)])
    pairs = [[*some, *[0] * (width - len(some))] for some in rows]
    return list(numbers), np.array(pairs, np.intp).reshape(len(rows), width)
