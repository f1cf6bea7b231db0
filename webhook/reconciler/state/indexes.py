"""Pods by what is asked about them: leaving, nominated to a node, of one owner, pinned to one node. Pure."""

from __future__ import annotations

from webhook.kube.objects import Pod
from webhook.kube.pods import is_pinned, workload_of

__all__ = ["Indexes"]


class Indexes:
    """Keys (`namespace/name`) of pods by what they have in common, the pods taken with what is expected of them."""

    def __init__(self) -> None:
        self.leaving: dict[str, Pod] = {}
        """Pods on a node that are terminating."""
        self.nominated: dict[str, set[str]] = {}
        """Node to the pending pods nominated to it."""
        self.owned: dict[str, set[str]] = {}
        """Owner (`kube.pods.workload_of`) to its pods on nodes."""
        self.pinned: set[str] = set()
        """The pods on nodes that name the one node they can run on."""
        self._nomination: dict[str, str] = {}
        self._owner: dict[str, str] = {}

    def put(self, key: str, pod: Pod) -> None:
        """Add or update a pod."""
        if not pod.spec.node_name:
            self.drop(key)
            _file(self.nominated, self._nomination, key, pod.status.nominated_node_name)
            return
        _file(self.nominated, self._nomination, key, "")
        _file(self.owned, self._owner, key, workload_of(pod))
        if pod.metadata.deletion_timestamp:
            self.leaving[key] = pod
        else:
            self.leaving.pop(key, None)
        if is_pinned(pod):
            self.pinned.add(key)
        else:
            self.pinned.discard(key)

    def drop(self, key: str) -> None:
        """Forget a pod."""
        _file(self.nominated, self._nomination, key, "")
        _file(self.owned, self._owner, key, "")
        self.leaving.pop(key, None)
        self.pinned.discard(key)


def _file(groups: dict[str, set[str]], group_of: dict[str, str], key: str, group: str) -> None:
    """Move a key to a group, to none if the name is empty; groups without keys are forgotten."""
    before = group_of.get(key, "")
    if before == group:
        return
    if before:
        del group_of[key]
        groups[before].discard(key)
        if not groups[before]:
            del groups[before]
    if group:
        group_of[key] = group
        groups.setdefault(group, set()).add(key)
