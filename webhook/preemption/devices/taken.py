"""What is taken of the devices, as if some claims were freed."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from webhook.preemption.snapshot.claim_index import ClaimIndex
from webhook.preemption.snapshot.device_index import DeviceId


class TakenDevices:
    """The allocations of all claims but those that are `freed`, by their keys; and the devices `beside` these."""

    def __init__(self, claims: ClaimIndex, freed: frozenset[str], beside: Collection[DeviceId] = ()) -> None:
        self._claims = claims
        self._freed = freed
        self._beside = beside

    def holds(self, device: DeviceId) -> bool:
        """Whether a claim has the device for itself."""
        keys = self._claims.holders.get(device)
        return (keys is not None and not keys <= self._freed) or device in self._beside

    def consumption(self, device: DeviceId) -> Mapping[str, int] | None:
        """What shares of the device consume of its capacities, in nanos; None if no share says."""
        total: dict[str, int] | None = None
        for key, shares in self._claims.shares.get(device, {}).items():
            for share in shares if key not in self._freed else ():
                if share is not None:
                    total = total or {}
                    for name, amount in share.items():
                        total[name] = total.get(name, 0) + amount
        return total

    def in_use(self, device: DeviceId) -> bool:
        """Whether a claim has the device, or a share of it."""
        return self.holds(device) or any(key not in self._freed for key in self._claims.shares.get(device, ()))
