"""What was told of one pod: its Events, and the decisions written on preemptors that name it as a victim.

Both are read with a tenant's rights (`view` in the pod's namespace), and last longer than the pod.
"""

from typing import Any

import msgspec

from webhook.kube.client import Client
from webhook.kube.deep_json import decode_deep
from webhook.kube.errors import ApiError, unless_absent
from webhook.kube.objects.meta import key_of
from webhook.kube.objects.pod import Pod
from webhook.kube.resources import POD, Resource
from webhook.reconciler.reporting import CONTROLLER
from webhook.reconciler.state.annotations import DecisionRecord, decision_of

_EVENTS = Resource("", "v1", "events", "Event")
"""In the core group, where the role `view` lets tenants read them."""
_TELLING = (CONTROLLER, "default-scheduler")
"""Who tells of preemption: `reportingComponent`, or `source.component` of old Events."""
_POD = msgspec.json.Decoder(Pod)


class Told(msgspec.Struct, frozen=True):
    """One Event: when it happened last (RFC 3339), by whom it was told, and how often it happened.

    `is_earlier` says that it is about an earlier pod of the same name, as a StatefulSet makes them.
    """

    at: str
    by: str
    reason: str
    note: str
    count: int = 1
    is_earlier: bool = False

    def __str__(self) -> str:
        """As one sentence."""
        times = f" ({self.count} times)" if self.count > 1 else ""
        return f"{self.at} {self.reason}{times}: {self.note}"


async def told_of(client: Client, namespace: str, name: str, uid: str = "") -> list[Told]:
    """What was told of a pod, the newest last; nothing if Events may not be read. Raises ApiError.

    Without a `uid` the pod is gone, and Events of all pods that had the name are its.
    """
    selector = f"involvedObject.kind=Pod,involvedObject.name={name}"
    listed = await unless_absent(client.list(_EVENTS.path(namespace), fieldSelector=selector), 403)
    told = [_told(event, uid) for event in (listed[0] if listed else ())]
    return sorted((entry for entry in told if entry.by in _TELLING), key=lambda entry: entry.at)


async def decisions_against(client: Client, namespace: str, name: str) -> list[tuple[str, DecisionRecord]]:
    """The decisions by which the pod was to go, each with the preemptor (`namespace/name`) on which it is written.

    Those on pods that may be read, in all namespaces, or else in its own. Raises ApiError.
    """
    key, decisions = f"{namespace}/{name}", list[tuple[str, DecisionRecord]]()
    for path in (POD.path(), POD.path(namespace)):
        try:
            async for page in client.pages(path):
                pods = [decode_deep(_POD.decode, raw) for raw in page.items or ()]
                told = [(key_of(pod), record) for pod in pods if (record := decision_of(pod)) is not None]
                decisions += [row for row in told if key in {victim.pod for victim in row[1].victims}]
            break
        except ApiError as error:
            if error.status != 403:
                raise
    return sorted(decisions, key=lambda row: row[1].at)


def _told(event: dict[str, Any], uid: str) -> Told:
    about = (event.get("involvedObject") or {}).get("uid")
    series = event.get("series") or {}
    moments = (series.get("lastObservedTime"), event.get("lastTimestamp"), event.get("eventTime"))
    return Told(
        at=next(filter(None, moments), event["metadata"].get("creationTimestamp") or "")[:19] + "Z",
        by=event.get("reportingComponent") or (event.get("source") or {}).get("component") or "",
        reason=event.get("reason") or "",
        note=event.get("message") or "",
        count=series.get("count") or event.get("count") or 1,
        is_earlier=bool(uid and about and about != uid),
    )
