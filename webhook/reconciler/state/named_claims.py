"""Claims that pods name themselves, and that are not freed by evicting their users (docs/reconciler.md#devices). Pure.

A claim is taken back when its last consumer is gone. Who names an allocated claim gets it as it is: the pod that a
controller puts into the place of a victim, which is there before the victim has gone, or one that waits already. So
such a claim is shown to decisions as one that kube-controller-manager does not take back.
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from webhook.kube.objects.devices import ResourceClaim
from webhook.kube.objects.pod import Pod
from webhook.kube.pods import controller_of


class NamedClaims:
    """By claim `namespace/name` the keys of the pods that keep it in use, and by these the claims."""

    def __init__(self) -> None:
        self._users: dict[str, set[str]] = {}
        self._claims: dict[str, frozenset[str]] = {}

    @property
    def users(self) -> Collection[str]:
        """The pods, by `namespace/name`, that keep a claim in use."""
        return self._claims.keys()

    def put(self, key: str, pod: Pod) -> frozenset[str]:
        """A pod is there; the claims that are to be looked at again."""
        if not pod.spec.resource_claims:
            return self.drop(key)
        stays = not pod.spec.node_name or controller_of(pod.metadata) is not None
        names = [entry.get("resourceClaimName") for entry in pod.spec.resource_claims] if stays else []
        new = frozenset(f"{pod.metadata.namespace}/{name}" for name in names if name)
        old = self._claims.get(key, frozenset())
        if new == old:
            return frozenset()
        self.drop(key)
        if new:
            self._claims[key] = new
        for claim in new:
            self._users.setdefault(claim, set()).add(key)
        return new ^ old

    def drop(self, key: str) -> frozenset[str]:
        """A pod is gone; the claims that are to be looked at again."""
        claims = self._claims.pop(key, frozenset[str]())
        for claim in claims:
            users = self._users[claim]
            users.discard(key)
            if not users:
                del self._users[claim]
        return claims

    def overlay(self, key: str, claim: ResourceClaim) -> ResourceClaim:
        """The claim as decisions are to see it: without its finalizer if it stays in use."""
        if claim.status.allocation is None or key not in self._users or not claim.metadata.finalizers:
            return claim
        return msgspec.structs.replace(claim, metadata=msgspec.structs.replace(claim.metadata, finalizers=None))
