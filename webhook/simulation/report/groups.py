"""What became of pods that belong together: gangs that waited, and groups that lost pods."""

from __future__ import annotations

import math

import msgspec

from webhook.clusters.simulated.history import PodStory
from webhook.kube.objects.pod import Pod
from webhook.kube.pods import is_terminal
from webhook.preemption.snapshot.pod_groups import NO_GROUP, GroupKey, group_of, minimum_said_by
from webhook.simulation.simulation import Running

_NEVER = math.inf


class PodGroupRow(msgspec.Struct, rename="camel", kw_only=True):
    """A group of pods to which something happened, or that waits.

    `minimum` is how many members it needs, 0 if nothing says it; `running` and `waiting` are members in the end.
    `waited` is how long it took until as many as needed were placed, in seconds; None if they are not, or did not wait.
    """

    name: str
    minimum: int
    running: int
    waiting: int
    waited: float | None
    evicted: int
    whole: bool
    """Whether all members that ran were evicted."""
    broken: bool
    """Whether evictions left some of its members, fewer than it needs."""

    @property
    def waits(self) -> bool:
        """Whether it is a gang of which too few run."""
        return self.minimum > 1 and bool(self.waiting) and self.running < self.minimum


def pod_groups(result: Running) -> list[PodGroupRow]:
    """Every group to which something happened, those that lost pods first."""
    stories: dict[GroupKey, list[PodStory]] = {}
    for story in result.history.pods.values():
        stories.setdefault(group_of(story.pod), []).append(story)
    there: dict[GroupKey, dict[str, Pod]] = {}
    for pod in result.tracker.all("Pod").values():
        if not is_terminal(pod):
            there.setdefault(group_of(pod), {})[pod.metadata.uid] = pod
    rows, minimums = [], result.reconciler.minimums()
    for key in (stories.keys() | there.keys()) - {NO_GROUP}:
        pods = there.get(key, {})
        minimum = minimums.get(key, max(map(minimum_said_by, pods.values()), default=0))
        row = _row(key, minimum, stories.get(key, []), pods)
        if row.evicted or row.waits or row.waited is not None:
            rows.append(row)
    return sorted(rows, key=lambda row: (-row.evicted, -row.waiting, row.name))


def _row(key: GroupKey, minimum: int, stories: list[PodStory], pods: dict[str, Pod]) -> PodGroupRow:
    known = {story.pod.metadata.uid: story for story in stories}
    running = [known.get(uid) or PodStory(pod) for uid, pod in pods.items() if pod.spec.node_name]
    preempted = [story.eviction.at for story in stories if story.eviction and story.eviction.is_preemption]
    # Who ran when the last of them was evicted, and stayed
    last = max(preempted, default=-_NEVER)
    stayed = [story for story in running if story.eviction is None and (story.placed or -_NEVER) <= last]
    # When as many as needed had a node; those without a story have had one from the start
    placed = sorted(-_NEVER if story.waits_since is None else story.placed or 0.0 for story in running)
    since = [story.waits_since for story in stories if story.waits_since is not None and story.eviction is None]
    at = placed[minimum - 1] if 1 < minimum <= len(placed) else -_NEVER
    return PodGroupRow(
        name=f"{key.namespace}/{key.name}",
        minimum=minimum,
        running=len(running),
        waiting=len(pods) - len(running),
        waited=round(at - min(since), 3) if since and at > -_NEVER else None,
        evicted=len(preempted),
        whole=bool(preempted) and not stayed,
        broken=bool(preempted) and 0 < len(stayed) < minimum,
    )
