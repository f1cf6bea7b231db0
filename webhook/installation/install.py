"""`giveway install` and `uninstall`: apply what the manifests say and wait, and take it out again.

Nothing that is applied refuses a pod: the webhook configurations are empty until the webhook was reached
(docs/install.md). So the order is only one of convenience, and every step can be tried again.

Removal goes in the order in which no pod is refused and no reservation stays behind. First the webhook configurations
and the bindings of native policies. Then the Deployments, so that nobody writes. Then plans and nominations are taken
off the pods that have them. Then everything else, the namespace last.
"""

import asyncio
import json
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from webhook.component_base.own_names import APPLIED, CONFIGURATION, IN_FORCE, RECONCILER, SYSTEM_NAMESPACE, WEBHOOK
from webhook.installation.applier import INVENTORY, RUNNING, Key, ObjectApplier, Told, key_of, ordered, refuses, within
from webhook.installation.kustomize import ManifestsError
from webhook.kube import resources
from webhook.kube.client import Client
from webhook.kube.errors import ApiError, unless_absent
from webhook.kube.rollouts import unready
from webhook.policy.files.loading import load_or_raise, texts_in
from webhook.policy.model.values import NOTICE, PLAN, POD_ANNOTATIONS
from webhook.reconciler.evictions.store import evictions_lease
from webhook.reconciler.state.annotations import notice_patch
from webhook.registration.entries import PROBES
from webhook.registration.probe import send_probe

Json = dict[str, Any]

_SERVED_ELSEWHERE = ("Deployment", "PodDisruptionBudget", "Service")
_SERVER_PODS = "app.kubernetes.io/name=giveway,app.kubernetes.io/component=webhook"
_VALIDATING = Key("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration", "", CONFIGURATION)
_ENDING = 60.0
"""Seconds in which the webhook's pods end, more than they get."""
_POLL = 0.5
TAKES_EFFECT = 2.0
"""Seconds after which an API server enforces an admission policy that was applied: it compiles new ones once a second
(docs/kubernetes-behaviour.md K25)."""


class Status(msgspec.Struct, frozen=True):
    """How far an installation has come.

    `waiting` are sentences for people, empty if everything runs and the API server asks the webhook. `started` says
    whether a webhook has ever been ready, or none is to be: it writes entries before the API server reaches it.
    """

    waiting: tuple[str, ...]
    started: bool

    @property
    def done(self) -> bool:
        """Whether nothing is waited for."""
        return not self.waiting


def outside_the_cluster(objects: Sequence[Json], *, reconciler: bool) -> list[Json]:
    """The objects without the webhook's own pods, for one that runs elsewhere and is reached by a URL.

    Without the `reconciler` that runs elsewhere, too: nodes cannot pull an image that nobody named.
    """
    outside = {WEBHOOK} if reconciler else {WEBHOOK, RECONCILER}
    return [obj for obj in objects if not (obj["kind"] in _SERVED_ELSEWHERE and obj["metadata"]["name"] in outside)]


def with_policies(objects: Sequence[Json], files: Mapping[str, str]) -> list[Json]:
    """The objects with these policy files instead of the shipped ones."""
    policies = "ConfigMap", APPLIED
    return [
        {**obj, "data": dict(files)} if (obj["kind"], obj["metadata"]["name"]) == policies else obj for obj in objects
    ]


def in_namespace(objects: Sequence[Json], namespace: str) -> list[Json]:
    """The objects as manifests for another namespace than giveway-system would have them, whatever names it."""
    renamed: list[Json] = json.loads(json.dumps(objects).replace(SYSTEM_NAMESPACE, namespace))
    return renamed


def policies_in(namespace: str) -> Key:
    """The policies: whoever installed giveway changes them, so another installation leaves them alone."""
    return Key("v1", "ConfigMap", namespace, APPLIED)


def made_by_webhook(namespace: str) -> tuple[Key, Key]:
    """What the webhook makes by itself; the reconciler follows the second as long as it is there."""
    return Key("v1", "Secret", namespace, "giveway-tls"), Key("v1", "ConfigMap", namespace, IN_FORCE)


def policy_files(directory: Path) -> dict[str, str]:
    """The policy files of a directory as the data of a ConfigMap. Raises PolicyError and ManifestsError."""
    load_or_raise(directory)
    files = {Path(name).name: text for name, text in texts_in(directory).texts}
    if not files:
        raise ManifestsError(f"{directory} holds no *.yaml file, so no policy; files in directories below do not count")
    return files


async def apply(
    cluster: ObjectApplier,
    objects: Sequence[Json],
    told: Told,
    kept: Collection[Key] = (),
    unwanted: Iterable[Key] = (),
) -> list[Key]:
    """Apply the objects and take away what an earlier installation had and this one has not.

    Those in `kept` are made if they are not there, and otherwise left as they are. What is `unwanted` and not among the
    objects is taken away whoever applied it. The list of applied objects is written before and after: a killed process
    leaves no object that is in no list. If what enforced the policies so far is not wanted any more, nothing is taken
    away yet: it is returned, for `take_away` once the objects enforce them. Raises ApiError, and UnfitClusterError
    before anything is applied.
    """
    await cluster.require_version()
    await cluster.require(objects)
    own = ordered(objects)
    wanted = [key_of(obj) for obj in own]
    before = await cluster.inventory()
    namespace = next(obj for obj in own if obj["kind"] == "Namespace")
    await cluster.apply(namespace, told)
    await cluster.write_inventory([*before, *wanted])
    for obj in own:
        key = key_of(obj)
        if key in kept and await cluster.get(key) is not None:
            told(key, "kept as it is")
        elif obj is not namespace:
            await cluster.apply(obj, told)
    left = [key for key in reversed(before) if key not in wanted and await cluster.is_ours(key)]
    left += [key for key in unwanted if key not in (*wanted, *left) and await cluster.get(key) is not None]
    enforcing = {_VALIDATING, *await cluster.native_policies()}
    if enforcing.isdisjoint(left):
        await take_away(cluster, wanted, left, told)
        return []
    await cluster.write_inventory([*reversed(left), *wanted])
    return left


async def take_away(cluster: ObjectApplier, wanted: Iterable[Key], left: Iterable[Key], told: Told) -> None:
    """Delete what an earlier installation has left, first what refuses pods; what remains is `wanted`.

    If that has no webhook, what a webhook made goes as well, once its pods have ended. Raises ApiError.
    """
    wanted, going = list(wanted), sorted(left, key=lambda key: not refuses(key.kind))
    await cluster.delete(going, told)
    await cluster.write_inventory(wanted)
    seconds = _ENDING if going else 0.0
    if _VALIDATING not in wanted and await within(seconds, lambda: cluster.has_no_pods(_SERVER_PODS)):
        await cluster.delete(made_by_webhook(cluster.namespace), told)


async def stay_until_it_answers(
    cluster: ObjectApplier,
    objects: Sequence[Json],
    seconds: float,
    show: Callable[[Status], None],
    *,
    backstop: bool = False,
) -> Status:
    """Look until everything runs and the API server has reached the webhook, or the time is over; the last status.

    Native policies among the objects get the time to take effect. `backstop` is as for `look`.
    """
    begun = time.monotonic()
    end, native = begun + seconds, any("AdmissionPolicy" in obj["kind"] for obj in objects)
    while True:
        try:
            status = await look(cluster, objects, backstop=backstop)
        except ApiError as error:
            if error.status not in (0, 429, 500, 503):
                raise
            status = Status((f"the API server does not answer: {error.message}",), started=True)
        if native and time.monotonic() - begun < TAKES_EFFECT:
            status = Status((*status.waiting, "the API server takes the native policies into use"), status.started)
        show(status)
        if status.done or time.monotonic() > end:
            return status
        await asyncio.sleep(_POLL)


async def are_in_force(client: Client, namespace: str, seconds: float) -> bool:
    """Whether the policies that were applied are in force within so many seconds. Raises ApiError."""

    async def are_kept() -> bool:
        applied = await client.get(resources.CONFIG_MAP.path(namespace, APPLIED))
        kept = await unless_absent(client.get(resources.CONFIG_MAP.path(namespace, IN_FORCE)))
        return kept is not None and (kept.get("data") or {}) == (applied.get("data") or {})

    return await within(seconds, are_kept)


async def look(cluster: ObjectApplier, objects: Sequence[Json], *, backstop: bool = False) -> Status:
    """How far the installation of these objects has come.

    Without webhook configurations among them, only their Deployments are waited for. With native policies as a
    `backstop` no entry may make pods wait for the webhook; the server writes the entries.
    """
    client, waiting = cluster.client, list[str]()
    fails_closed = static = False
    for obj in (obj for obj in objects if obj["kind"] == "Deployment"):
        key, server = key_of(obj), obj["spec"]["template"]["spec"]["containers"][0]
        deployment = await client.get(resources.DEPLOYMENT.path(key.namespace, key.name))
        selector = ",".join(map("=".join, (deployment["spec"]["selector"].get("matchLabels") or {}).items()))
        pods, _ = await client.list(resources.POD.path(key.namespace), labelSelector=selector)
        if why := unready(deployment, pods):
            waiting.append(why)
        fails_closed |= key.name == WEBHOOK and "Ignore" not in f"{server.get('args')} {server.get('env')}"
        static |= key.name == WEBHOOK and "--entries=static" in (server.get("args") or ())
    if _VALIDATING not in map(key_of, objects):
        return Status(tuple(waiting), started=True)
    stored = [
        (await unless_absent(client.get(kind.path(name=CONFIGURATION))) or {}).get("webhooks") or []
        for kind in (resources.MUTATING_WEBHOOK_CONFIGURATION, resources.VALIDATING_WEBHOOK_CONFIGURATION)
    ]
    entries = [entry for webhooks in stored for entry in webhooks]
    closed = {entry["name"] for entry in entries if entry.get("failurePolicy") != "Ignore"}
    passing = any(entry["name"].startswith("pods.") and entry.get("failurePolicy") == "Ignore" for entry in entries)
    silent = not all({entry["name"] for entry in webhooks} - PROBES for webhooks in stored)
    if silent and static:
        waiting.append(
            "nobody has applied the entries that giveway compile --webhook prints (docs/install.md#static-entries)"
        )
    elif silent and entries:
        port = "if this stays, TCP port 9443 of its pods is closed to the control plane (docs/install.md)"
        waiting.append(f"the API server has not reached the webhook yet; {port}")
    elif silent:
        waiting.append("no webhook server has been ready yet")
    elif passing and fails_closed:
        waiting.append("the entries still let pods pass while no webhook answers; the server changes that in a minute")
    elif backstop and closed:
        waiting.append(
            f"pods still wait for the webhook if it is away, by {', '.join(sorted(closed))}; a server with"
            " --failure-policy=Ignore changes that in a minute"
        )
    if not silent and not waiting and (probe := await send_probe(client, cluster.namespace)).silent:
        waiting.append(f"the API server gets no answer from the webhook: {probe.failure or 'it does not say why'}")
    return Status(tuple(waiting), started=bool(entries))


_LABEL = "app.kubernetes.io/name"


async def keys_to_remove(cluster: ObjectApplier, rendered: Sequence[Json]) -> list[Key]:
    """What is there of the manifests with all components, of earlier installations, and of what giveway made itself.

    In the order of removal, the namespace last, if nobody else has pods in it.
    """
    own, known = cluster.namespace, [key_of(obj) for obj in ordered(rendered)]
    known += [*made_by_webhook(own), Key("v1", "ConfigMap", own, INVENTORY)]
    known += [Key("coordination.k8s.io/v1", "Lease", own, name) for name in (RECONCILER, evictions_lease(RECONCILER))]
    # Whoever may write ConfigMaps there can list anything: only what an installation really applied is believed.
    known += [key for key in await cluster.inventory() if key not in known and await cluster.is_ours(key)]
    known += await cluster.native_policies()
    present = [key for key in dict.fromkeys(known) if await cluster.get(key) is not None]

    def place(key: Key) -> int:
        if refuses(key.kind):
            return 0
        return 1 if key.kind in RUNNING else 3 if key.kind == "Namespace" else 2

    # With somebody else's pods in it, the namespace is not giveway's to delete.
    others = not await cluster.has_no_pods(f"{_LABEL}!=giveway")
    return sorted((key for key in present if not (others and key.kind == "Namespace")), key=place)


async def remove(cluster: ObjectApplier, keys: Sequence[Key], told: Callable[[str], None], seconds: float) -> list[str]:
    """Remove these, wait until they are gone, and say what is left; empty if nothing is. Raises ApiError."""
    end = time.monotonic() + seconds

    def gone(key: Key, _: str) -> None:
        told(f"{key} deleted")

    first = [key for key in keys if refuses(key.kind)] + [key for key in keys if key.kind in RUNNING]
    await cluster.delete(first, gone)
    if not await within(seconds, lambda: cluster.has_no_pods(f"{_LABEL}=giveway")):
        told("some of giveway's pods still end; going on")
    plans, notices = await _take_plans_off(cluster.client)
    if plans:
        told(f"took the plan off {plans} pods that giveway wanted to make room for")
    if notices:
        told(f"took the notice off {notices} pods that giveway wanted to evict")
    await cluster.delete((key for key in keys if key not in first), gone)
    left: list[Key] = []

    async def all_gone() -> bool:
        left[:] = [key for key in keys if await cluster.get(key) is not None]
        return not left

    await within(end - time.monotonic(), all_gone)
    return [str(key) for key in left]


async def _take_plans_off(client: Client) -> tuple[int, int]:
    """Clear plans, nominations and notices: nobody else clears a nomination (docs/kubernetes-behaviour.md K11).

    So go records of what pods said: nobody guards them any more, and giveway would believe them if it came back.

    Returns from how many pods a plan was taken, and from how many a notice.
    """
    plans = notices = 0
    async for page in client.pages(resources.POD.path()):
        for pod in map(msgspec.json.decode, page.items or ()):
            annotations = pod["metadata"].get("annotations") or {}
            off = [row for row in POD_ANNOTATIONS if row.goes and row.key in annotations]
            if all(row.by == "pod" for row in off):
                continue  # nothing, or an answer to nothing, which is the pod's
            status: dict[str, Any] = {"nominatedNodeName": None} if PLAN in annotations else {}
            if NOTICE in annotations:
                status |= notice_patch(None, time.time())["status"]
            metadata, taken = pod["metadata"], dict.fromkeys(row.key for row in off)
            body = {"metadata": {"uid": metadata["uid"], "annotations": taken}, "status": status}
            path = resources.POD.path(metadata["namespace"], metadata["name"], "status")
            # It may be gone by now, or be another one
            if await unless_absent(client.patch(path, body, kind="strategic"), 404, 409) is not None:
                plans += PLAN in annotations
                notices += NOTICE in annotations
    return plans, notices
