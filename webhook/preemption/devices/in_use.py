"""Who holds the devices of a node, for people."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from webhook.preemption.snapshot.device_index import DeviceId
from webhook.preemption.snapshot.snapshot import Snapshot


class DeviceUse(NamedTuple):
    """The devices of one driver on a node: how many there are, are held, and would be freed if all who may go went.

    `holders` are `namespace/name` of the claims.
    """

    driver: str
    published: int
    held: int
    freed: int
    holders: list[str]


def devices_in_use(snapshot: Snapshot, node: str, may_go: Iterable[int]) -> list[DeviceUse]:
    """The devices that only this node reaches, by driver; `may_go` are the rows of the pods that may be evicted."""
    claims = snapshot.device_claims
    freed = claims.freed_without({snapshot.pods.uids[row] for row in may_go})
    by_driver: dict[str, set[DeviceId]] = {}
    for published in snapshot.devices.local.get(node, {}).values():
        by_driver.setdefault(published.slice.spec.driver, set()).update(published.ids)
    uses = []
    for driver, devices in sorted(by_driver.items()):
        users = {device: claims.users(device) for device in devices if claims.users(device)}
        holders = sorted({key for keys in users.values() for key in keys})
        freeable = sum(keys <= freed for keys in users.values())
        uses.append(DeviceUse(driver, len(devices), len(users), freeable, holders))
    return uses
