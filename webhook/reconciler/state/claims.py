"""What decisions are to see of claims on devices, beside what the watch shows (docs/reconciler.md#devices). Pure.

A moment lies between the end of a pod and the update by which kube-controller-manager takes its claims back
(docs/kubernetes-behaviour.md K42). In that moment the claims count as they will be: without the consumers that are
gone, and without allocation after the last.

A claim that pods name themselves is not freed by evicting its users. Who names an allocated claim gets it as it is: the
pod that a controller puts into the place of a victim, which is there before the victim has gone, or one that waits
already. So such a claim counts as one that kube-controller-manager does not take back.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import msgspec

from webhook.kube.objects.devices import ResourceClaim
from webhook.kube.objects.pod import Pod
from webhook.kube.pods import controller_of

_FINALIZER = "resource.kubernetes.io/delete-protection"


class Claims:
    """What is known of the pods that use claims, which are named by `namespace/name`."""

    def __init__(self) -> None:
        self._gone: dict[str, set[str]] = {}
        """By claim that is yet to be taken back the uids of its consumers that are gone."""
        self._users: dict[str, set[str]] = {}
        """By claim the keys of the pods that keep it in use."""
        self._named: dict[str, frozenset[str]] = {}
        """By these the claims."""

    @property
    def users(self) -> Collection[str]:
        """The pods, by `namespace/name`, that keep a claim in use."""
        return self._named.keys()

    def put(self, key: str, pod: Pod) -> frozenset[str]:
        """A pod is there; the claims that are to be looked at again."""
        uid = pod.metadata.uid
        back = frozenset(claim for claim, gone in self._gone.items() if uid in gone)
        for claim in back:
            self._expect_no_more(claim, {uid})
        stays = not pod.spec.node_name or controller_of(pod.metadata) is not None
        names = [entry.get("resourceClaimName") for entry in pod.spec.resource_claims or ()] if stays else []
        new = frozenset(f"{pod.metadata.namespace}/{name}" for name in names if name)
        if new == (old := self._named.get(key, frozenset())):
            return back
        self.drop(key)
        if new:
            self._named[key] = new
        for claim in new:
            self._users.setdefault(claim, set()).add(key)
        return back | (new ^ old)

    def drop(self, key: str) -> frozenset[str]:
        """A pod is gone; the claims that are to be looked at again."""
        claims = self._named.pop(key, frozenset[str]())
        for claim in claims:
            self._users[claim].discard(key)
            if not self._users[claim]:
                del self._users[claim]
        return claims

    def expect_deallocated(self, uid: str, claims: Iterable[str]) -> None:
        """The pod with this uid is gone, which uses these claims."""
        for claim in claims:
            self._gone.setdefault(claim, set()).add(uid)

    def waits_for(self, uids: Collection[str]) -> bool:
        """Whether a claim of one of these pods has yet to be taken back."""
        return any(not gone.isdisjoint(uids) for gone in self._gone.values())

    def forget(self, claim: str) -> None:
        """The claim is gone."""
        self._gone.pop(claim, None)

    def overlay(self, key: str, claim: ResourceClaim) -> ResourceClaim:
        """The claim as decisions are to see it; a consumer that is seen to be gone is expected no longer.

        Without its finalizer a claim keeps its allocation, and so does one that stays in use.
        """
        consumers = claim.status.reserved_for or []
        self._expect_no_more(key, self._gone.get(key, set()) - {consumer.uid for consumer in consumers})
        if gone := self._gone.get(key):
            staying = [consumer for consumer in consumers if consumer.uid not in gone]
            freed = not staying and _FINALIZER in (claim.metadata.finalizers or ())
            allocation = None if freed else claim.status.allocation
            status = msgspec.structs.replace(claim.status, reserved_for=staying or None, allocation=allocation)
            claim = msgspec.structs.replace(claim, status=status)
        if claim.status.allocation is not None and key in self._users and claim.metadata.finalizers:
            claim = msgspec.structs.replace(claim, metadata=msgspec.structs.replace(claim.metadata, finalizers=None))
        return claim

    def _expect_no_more(self, claim: str, uids: Collection[str]) -> None:
        if claim in self._gone:
            self._gone[claim].difference_update(uids)
            if not self._gone[claim]:
                del self._gone[claim]
