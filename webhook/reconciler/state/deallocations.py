"""Claims whose consumers are gone, and that kube-controller-manager has yet to take back. Pure.

A moment lies between the end of a pod and the update that frees its devices (docs/kubernetes-behaviour.md K42). In that
moment the claims count as they will be: without the consumers that are gone, and without allocation after the last.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import msgspec

from webhook.kube.objects.devices import ResourceClaim

_FINALIZER = "resource.kubernetes.io/delete-protection"


class Deallocations:
    """By claim `namespace/name` the uids of its consumers that are gone, and by these the claims."""

    def __init__(self) -> None:
        self._gone: dict[str, set[str]] = {}
        self._claims: dict[str, set[str]] = {}

    def expect(self, uid: str, claims: Iterable[str]) -> None:
        """The pod with this uid is gone, which uses these claims."""
        for key in claims:
            self._gone.setdefault(key, set()).add(uid)
            self._claims.setdefault(uid, set()).add(key)

    def forget_pod(self, uid: str) -> list[str]:
        """The pod is there after all; the claims that are to be looked at."""
        keys = list(self._claims.get(uid, ()))
        for key in keys:
            self._drop(key, {uid})
        return keys

    def forget(self, key: str) -> None:
        """The claim is gone."""
        self._drop(key, self._gone.get(key, set()).copy())

    def waits_for(self, uids: Iterable[str]) -> bool:
        """Whether a claim of one of these pods has yet to be taken back."""
        return any(uid in self._claims for uid in uids)

    def _drop(self, key: str, uids: Collection[str]) -> None:
        for table, owner, others in ((self._gone, key, uids), *((self._claims, uid, (key,)) for uid in uids)):
            known = table.get(owner, set())
            known.difference_update(others)
            if not known:
                table.pop(owner, None)

    def overlay(self, key: str, claim: ResourceClaim) -> ResourceClaim:
        """The claim as it will be seen; what is seen is expected no longer.

        Without its finalizer a claim keeps its allocation.
        """
        gone, consumers = self._gone.get(key), claim.status.reserved_for or []
        if gone is None:
            return claim
        self._drop(key, gone - {consumer.uid for consumer in consumers})
        if not gone:
            return claim
        staying = [consumer for consumer in consumers if consumer.uid not in gone]
        freed = not staying and _FINALIZER in (claim.metadata.finalizers or ())
        allocation = None if freed else claim.status.allocation
        status = msgspec.structs.replace(claim.status, reserved_for=staying or None, allocation=allocation)
        return msgspec.structs.replace(claim, status=status)
