"""The pods without a node that belong to a group, by group: the members of a gang are decided for together."""

from __future__ import annotations

from webhook.kube.objects.pod import Pod
from webhook.kube.pods import is_terminal
from webhook.preemption.snapshot.pod_groups import NO_GROUP, GroupKey, group_of


class WaitingMembers:
    """Pending pods of groups, those held back by scheduling gates included."""

    def __init__(self) -> None:
        self._members: dict[GroupKey, dict[str, Pod]] = {}
        self._group: dict[str, GroupKey] = {}

    def put(self, key: str, pod: Pod) -> None:
        """Add or update a pod; one that has a node, has ended or is being deleted does not wait."""
        self.drop(key)
        if pod.spec.node_name or pod.metadata.deletion_timestamp or is_terminal(pod):
            return
        if (group := group_of(pod)) is not NO_GROUP:
            self._group[key] = group
            self._members.setdefault(group, {})[key] = pod

    def drop(self, key: str) -> None:
        """Forget a pod."""
        group = self._group.pop(key, None)
        if group is None:
            return
        members = self._members[group]
        del members[key]
        if not members:
            del self._members[group]

    def of(self, group: GroupKey) -> list[Pod]:
        """The members of a group that wait."""
        return list(self._members.get(group, {}).values())
