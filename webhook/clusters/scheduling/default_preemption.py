"""kube-scheduler's own preemption (DefaultPreemption), on the project's decision with Kubernetes' plain rules."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from webhook.kube.client import Client
from webhook.kube.errors import ApiError, unless_absent
from webhook.kube.events import Occurrence, Recorder, reference
from webhook.kube.instants import Clock, rfc3339
from webhook.kube.objects.meta import ObjectMeta
from webhook.kube.objects.pod import Pod
from webhook.kube.resources import POD
from webhook.preemption.decision import decide
from webhook.preemption.snapshot.pod_view import priority_of
from webhook.preemption.snapshot.snapshot import Snapshot
from webhook.preemption.victims.candidates import Candidate, Victim
from webhook.preemption.victims.rules import kubernetes_rules

log = logging.getLogger(__name__)

NAME = "default-scheduler"
NOT_FOUND = 404
CONFLICT = 409


async def patch_status(client: Client, namespace: str, name: str, body: Mapping[str, object]) -> None:
    """Patch a pod's status; one that is refused is left as it is."""
    try:
        await client.patch(POD.path(namespace, name, "status"), body, kind="strategic")
    except ApiError as error:
        log.debug("status of %s/%s: %s", namespace, name, error)


class Preemption:
    """Decides at once and carries out in the background; while a plan runs its preemptor gets no other."""

    def __init__(self, client: Client, record: Recorder, clock: Clock) -> None:
        self._client = client
        self._rules = kubernetes_rules()
        self._record = record
        self._clock = clock
        self._running: dict[str, asyncio.Task[None]] = {}

    @property
    def is_idle(self) -> bool:
        """Whether no plan is being carried out."""
        return not self._running

    async def close(self) -> None:
        """Stop what is under way."""
        for task in self._running.values():
            task.cancel()

    def attempt(self, snapshot: Snapshot, pod: Pod) -> tuple[str, str]:
        """The node to nominate, if any, and what the pod's status says about preemption."""
        uid = pod.metadata.uid
        if uid in self._running:
            return "", ""
        decision = decide(snapshot, pod, self._rules, self._clock.wall())
        if not decision.eligible:
            return "", f"preemption: {decision.reason}."
        if decision.asks_for_devices:  # kube-scheduler does not see that a victim's devices would be free
            return "", "preemption: not eligible: it asks for devices."
        selected = decision.selected
        if selected is None:
            hopeless, total = len(decision.unresolvable), len(snapshot.nodes.known())
            counts = (
                (hopeless, "Preemption is not helpful for scheduling"),
                (total - hopeless, "No preemption victims found for incoming pod"),
            )
            rows = sorted(f"{count} {reason}" for count, reason in counts if count)
            return "", f"preemption: 0/{total} nodes are available: {', '.join(rows)}."
        pods, node = snapshot.pods, snapshot.nodes.find(selected.node)
        outranked = [
            (pods.namespaces[row], pods.names[row])
            for row in pods.nominees().tolist()
            if pods.nominated[row] == node and pods.priority[row] < priority_of(pod)
        ]
        task = asyncio.create_task(self._carry_out(pod, selected, outranked))
        self._running[uid] = task
        task.add_done_callback(lambda _: self._running.pop(uid, None))
        return selected.node, ""

    async def _carry_out(self, preemptor: Pod, plan: Candidate, outranked: list[tuple[str, str]]) -> None:
        """Clear lower nominations, remove the victims side by side, the last one last (docs/semantics.md E3)."""
        for namespace, name in outranked:
            await patch_status(self._client, namespace, name, {"status": {"nominatedNodeName": None}})
        *first, last = plan.victims
        results = await asyncio.gather(*(self._remove(victim, preemptor) for victim in first))
        if all(results):
            await self._remove(last, preemptor)

    async def _remove(self, victim: Victim, preemptor: Pod) -> bool:
        condition = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "PreemptionByScheduler",
            "message": f"{NAME}: preempting to accommodate a higher priority pod",
            "lastTransitionTime": rfc3339(self._clock.wall()),
        }
        await patch_status(self._client, victim.namespace, victim.name, {"status": {"conditions": [condition]}})
        try:
            body = {"preconditions": {"uid": victim.uid}}
            await unless_absent(self._client.delete(POD.path(victim.namespace, victim.name), body), NOT_FOUND, CONFLICT)
        except ApiError as error:
            log.warning("victim %s: %s", victim.key, error)
            return False
        metadata = ObjectMeta(namespace=victim.namespace, name=victim.name, uid=victim.uid)
        note = f"Preempted by pod {preemptor.metadata.uid} on node {victim.node}"
        regarding, related = reference(POD, metadata), reference(POD, preemptor.metadata)
        self._record(Occurrence(regarding, related, "Normal", "Preempted", "Preempting", note))
        return True
