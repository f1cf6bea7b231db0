"""Entries that an administrator applies: whether reviews come through, and whether what is applied is old.

The server needs no right on webhook configurations for that. The entries that probe carry a digest of what the policies
need, in their match condition. A dry-run change of the probe's ConfigMap that names other digests is not sent to the
webhook.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Iterable
from contextlib import suppress

from webhook.admission.configmaps import PROBE
from webhook.kube.errors import ApiError
from webhook.policy.model.policies import Policies
from webhook.registration import stored
from webhook.registration.entries import PROBES, Entry, WebhookTarget, entries
from webhook.registration.keeper import EntriesLoop, is_removed
from webhook.registration.probe import silent_phases

log = logging.getLogger(__name__)

NEEDED = "giveway.dev/needed-entries"
"""The annotation of a probe that only entries of these digests send on."""
_STAMP = re.compile(
    rf" && object\.metadata\.\?annotations\[\?'{re.escape(NEEDED)}'\]\.orValue\('\w+'\)\.contains\('\w+'\)$"
)
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


class AppliedEntries(EntriesLoop):
    """Looks at entries that an administrator applied, by asking through them.

    Of the settings only the name, the namespace, the Deployment and the period count; of the server what is in force,
    and whether it can answer.
    """

    old = False
    """Whether at the last look they were not those that the policies need."""

    async def look(self) -> float:
        """Ask through the entries whether they are there, and those that are needed."""
        if self._situation.ready():
            try:
                await self._ask()
            except (ApiError, OSError) as error:
                self.in_force = False
                namespace = self._settings.target.namespace
                self._report(f"waiting: {namespace}/{PROBE} cannot be probed with: {error}", logging.WARNING)
        if not self.in_force:
            return self._soon()
        self._hurried = 0
        return self._settings.period

    async def end(self) -> None:
        """Say if the server is not replaced but removed: whoever applied the entries takes them away."""
        with suppress(ApiError, TimeoutError):
            async with asyncio.timeout(_LAST):
                if await is_removed(self._api, self._settings.target.namespace, self._settings.deployment):
                    self._report(
                        "giveway is being removed, and its entries stay: delete the webhook configurations",
                        logging.WARNING,
                    )

    async def _ask(self) -> None:
        namespace = self._settings.target.namespace
        digests = ",".join(needed(self._situation.policies()).values())
        fresh = await silent_phases(self._api, namespace, {NEEDED: digests})
        silent = await silent_phases(self._api, namespace, {}) if fresh else ()
        self.in_force, self.old = not silent, bool(fresh) and not silent
        if silent:
            self._report(
                f"waiting: the API server does not reach this webhook ({', '.join(silent)}), or nobody has applied what"
                " giveway compile --webhook prints",
                logging.WARNING,
            )
        elif fresh:
            self._report(
                "in force, but not those that the policies need: make them again with giveway compile --webhook, and"
                " apply them",
                logging.WARNING,
            )
        else:
            self._report("in force, as an administrator applied them")
