"""What is read of giveway itself: Deployments and pods, the lease, its policies twice, and whether it answers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from typing import Any, TypeVar

import msgspec

from webhook.admission.configmaps import ALLOW_REMOVAL, POLICIES
from webhook.component_base.own_names import IN_FORCE, RECONCILER, WEBHOOK
from webhook.kube.client import Client
from webhook.kube.errors import ApiError
from webhook.kube.instants import epoch, epoch_or
from webhook.kube.lease import Lease
from webhook.kube.resources import CONFIG_MAP, DEPLOYMENT, LEASE, POD
from webhook.registration.probe import Probe, send_probe

_OWN_PODS = "app.kubernetes.io/name=giveway"
_LOOK_AGAIN = 5.0
"""Seconds, at most, after which a lease that seems old is read once more: the clocks here and there may differ."""

Json = dict[str, Any]
T = TypeVar("T")


class PolicyMap(msgspec.Struct, frozen=True):
    """A ConfigMap with policy files, which removals it allows, and when it was written last (seconds; 0 if unknown)."""

    files: dict[str, str]
    allowed: tuple[str, ...] = ()
    written: float = 0.0


class OwnState(msgspec.Struct, kw_only=True):
    """giveway in its namespace. What could not be read is in `missing`, by plural, as in `Observed`.

    `lease_unchanged` says that the lease was read twice and nobody had renewed it in between.
    """

    deployments: dict[str, Json] = {}
    pods: list[Json] = []
    lease: Lease | None = None
    lease_unchanged: bool = False
    applied: PolicyMap | None = None
    in_force: PolicyMap | None = None
    probe: Probe | None = None
    """None if nothing was asked, because there are no entries to ask through."""
    missing: dict[str, str] = {}

    @property
    def static_entries(self) -> bool:
        """Whether the webhook in the cluster leaves the entries of its configurations to an administrator."""
        pod = self.deployments.get(WEBHOOK, {}).get("spec", {}).get("template", {}).get("spec", {})
        return any("--entries=static" in (container.get("args") or ()) for container in pod.get("containers", ()))


async def read_own_state(client: Client, own: str, now: float, *, probing: bool) -> OwnState:
    """Read giveway's own objects in the namespace `own`, and probe if there are entries to probe.

    What may not be read is noted. Raises ApiError if the cluster does not answer at all.
    """
    state = OwnState(missing={})

    async def ask(what: str, verb: str, asked: Awaitable[T]) -> T | None:
        """An answer; None if there is no such object, or no right to it, which is noted."""
        try:
            return await asked
        except ApiError as error:
            if error.status in (0, 401):
                raise
            if error.status != 404:
                right = f"no right to {verb} {what} in {own}"
                state.missing[what] = right if error.status == 403 else f"{what} in {own} could not be read: {error}"
            return None

    deployments = await ask("deployments", "list", client.list(DEPLOYMENT.path(own), labelSelector=_OWN_PODS))
    state.deployments = {deployment["metadata"]["name"]: deployment for deployment in (deployments or ([],))[0]}
    if state.deployments:
        pods = await ask("pods", "list", client.list(POD.path(own), labelSelector=_OWN_PODS))
        state.pods = (pods or ([],))[0]
    state.applied = _policy_map(await ask("configmaps", "get", client.get(CONFIG_MAP.path(own, POLICIES))))
    state.in_force = _policy_map(await ask("configmaps", "get", client.get(CONFIG_MAP.path(own, IN_FORCE))))
    if probing:
        state.probe = await ask("giveway-probe", "patch ConfigMap", send_probe(client, own))
    # Last, because it may take some seconds
    state.lease = await ask("leases", "get", client.get(LEASE.path(own, RECONCILER), Lease))
    if state.lease is not None and now - renewed(state.lease) > (state.lease.spec.lease_duration_seconds or 15):
        await asyncio.sleep(min(_LOOK_AGAIN, (state.lease.spec.lease_duration_seconds or 15) / 3))
        again = await ask("leases", "get", client.get(LEASE.path(own, RECONCILER), Lease))
        state.lease_unchanged = again is not None and again.spec.renew_time == state.lease.spec.renew_time
        state.lease = again
    return state


def renewed(lease: Lease) -> float:
    """When the lease was renewed last, in seconds since the epoch; 0 if it does not say."""
    return epoch_or(lease.spec.renew_time, 0.0)


def _policy_map(config_map: Mapping[str, Any] | None) -> PolicyMap | None:
    if config_map is None:
        return None
    metadata = config_map["metadata"]
    allowed = (metadata.get("annotations") or {}).get(ALLOW_REMOVAL, "").replace(",", " ").split()
    times = [field["time"] for field in metadata.get("managedFields") or () if field.get("time")]
    return PolicyMap(dict(config_map.get("data") or {}), tuple(allowed), max(map(epoch, times), default=0.0))
