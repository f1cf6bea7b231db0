"""Entries that an administrator applies: whether reviews come through, and whether what is applied is old.

The server needs no right on webhook configurations for that. The entries that probe carry a digest of what the policies
need, in their match condition. A dry-run change of the probe's ConfigMap that names other digests is not sent to the
webhook.
"""

from __future__ import annotations

import asyncio
import logging
import random
import re
from collections.abc import Iterable
from contextlib import suppress

from webhook.admission.configmaps import PROBE
from webhook.kube.backoff import exponential
from webhook.kube.errors import ApiError
from webhook.policy.model.policies import Policies
from webhook.registration import stored
from webhook.registration.entries import PROBES, Entry, WebhookTarget, entries
from webhook.registration.keeper import ConfigurationClient, KeeperSettings, ServerState, is_removed
from webhook.registration.probe import silent_phases

log = logging.getLogger(__name__)

NEEDED = "giveway.dev/needed-entries"
"""The annotation of a probe that only entries of these digests send on."""
_STAMP = re.compile(
    rf" && object\.metadata\.\?annotations\[\?'{re.escape(NEEDED)}'\]\.orValue\('\w+'\)\.contains\('\w+'\)$"
)
_SOON = 0.2
"""Seconds until the next look while the webhook is not reached, doubled each time."""
_LAST = 10.0
"""Seconds that looking for the Deployment may take when the process ends."""


def needed(policies: Policies) -> dict[str, str]:
    """By kind, a digest of what these policies need of the entries, wherever these lead."""
    return {kind: stored.digest(of_kind) for kind, of_kind in entries(policies, WebhookTarget()).items()}


def applied_entries(policies: Policies, target: WebhookTarget) -> dict[str, list[Entry]]:
    """The `webhooks` of both configurations for an administrator to apply, by kind: those that probe tell their age."""
    applied, digests = entries(policies, target), needed(policies)
    for kind, webhooks in applied.items():
        for entry in webhooks:
            if entry["name"] in PROBES:
                [condition] = entry["matchConditions"]
                digest = digests[kind]
                said = f"object.metadata.?annotations[?'{NEEDED}'].orValue('{digest}').contains('{digest}')"
                entry["matchConditions"] = [{**condition, "expression": f"{condition['expression']} && {said}"}]
    return applied


def is_applied(webhooks: Iterable[Entry]) -> bool:
    """Whether these are entries for an administrator to apply."""
    conditions = (
        match_condition
        for entry in webhooks
        if entry["name"] in PROBES
        for match_condition in entry.get("matchConditions") or ()
    )
    return any(_STAMP.search(condition.get("expression", "")) for condition in conditions)


class AppliedEntries:
    """Looks at entries that an administrator applied, by asking through them. `note` says how they stand.

    Of the settings only the namespace, the Deployment and the period count; of the server what is in force, and whether
    it can answer.
    """

    def __init__(self, api: ConfigurationClient, settings: KeeperSettings, situation: ServerState) -> None:
        self._api, self._settings, self._situation = api, settings, situation
        self._namespace = settings.target.namespace
        self._woken = asyncio.Event()
        self._failures = 0
        self.in_force = False
        """Whether at the last look the API server sent reviews through both configurations."""
        self.old = False
        """Whether at the last look they were not those that the policies need."""
        self.note = "not looked at yet"

    def wake(self) -> None:
        """Look again at once: policies have changed."""
        self._failures = 0
        self._woken.set()

    async def run(self) -> None:
        """Look until cancelled."""
        period = self._settings.period
        while True:
            self._woken.clear()
            if self._situation.ready():
                try:
                    await self._look()
                except (ApiError, OSError) as error:
                    self.in_force = False
                    self._report(f"waiting: {self._namespace}/{PROBE} cannot be probed with: {error}", logging.WARNING)
            self._failures = 0 if self.in_force else self._failures + 1
            delay = exponential(self._failures, _SOON, period) if self._failures else period
            with suppress(TimeoutError):
                async with asyncio.timeout(delay * random.uniform(0.9, 1.1)):  # noqa: S311 - spreads replicas
                    await self._woken.wait()

    async def end(self) -> None:
        """Say if the server is not replaced but removed: whoever applied the entries takes them away."""
        with suppress(ApiError, TimeoutError):
            async with asyncio.timeout(_LAST):
                if await is_removed(self._api, self._namespace, self._settings.deployment):
                    self._report(
                        "giveway is being removed, and its entries stay: delete the webhook configurations",
                        logging.WARNING,
                    )

    async def _look(self) -> None:
        digests = ",".join(needed(self._situation.policies()).values())
        fresh = await silent_phases(self._api, self._namespace, {NEEDED: digests})
        silent = await silent_phases(self._api, self._namespace, {}) if fresh else ()
        self.in_force, self.old = not silent, bool(fresh) and not silent
        if silent:
            self._report(
                f"waiting: the API server does not reach this webhook ({', '.join(silent)}), or nobody has applied what"
                " giveway configurations prints",
                logging.WARNING,
            )
        elif fresh:
            self._report(
                "in force, but not those that the policies need: make them again with giveway configurations, and apply"
                " them",
                logging.WARNING,
            )
        else:
            self._report("in force, as an administrator applied them")

    def _report(self, note: str, level: int = logging.INFO) -> None:
        if note != self.note:
            self.note = note
            log.log(level, "webhook configurations: %s", note)
