"""Keeps applied policies in step with what turns on the cluster and on the time: the table of classes, and exceptions.

It changes policies that are there and makes, binds and deletes none: whether something is in force is for whoever
applies the output of `giveway compile`. So its service account needs only the right to update these objects.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress

from webhook.kube.client import Client
from webhook.kube.errors import ApiError, unless_absent
from webhook.kube.informer import Informer
from webhook.kube.objects.cluster_scoped import PriorityClass
from webhook.kube.resources import MUTATING_ADMISSION_POLICY, PRIORITY_CLASS, VALIDATING_ADMISSION_POLICY
from webhook.native.compiler import compile_policies
from webhook.native.drift import is_ours, same
from webhook.native.objects import MUTATING, VALIDATING, Settings
from webhook.native.sink import Inexpressible
from webhook.policy.model.policies import Policies
from webhook.policy.reports import next_end

log = logging.getLogger(__name__)

_RESOURCES = {VALIDATING: VALIDATING_ADMISSION_POLICY, MUTATING: MUTATING_ADMISSION_POLICY}


class PolicyKeeper:
    """Keeps a compiled policy set in step, by looks each `period` seconds and at changes; `note` says how it stands."""

    def __init__(
        self,
        client: Client,
        policies: Policies,
        settings: Settings,
        *,
        period: float = 60.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._client, self._policies, self._settings = client, policies, settings
        self._period, self._clock = period, clock
        self._classes = Informer(client, PRIORITY_CLASS.paths(), PriorityClass)
        self._woken = asyncio.Event()
        self._classes.handlers.append(lambda _: self._woken.set())
        self._told: set[Inexpressible] = set()
        self.note = "not looked at yet"

    async def run(self) -> None:
        """Keep the policies until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._classes.run())
            await self._classes.synced.wait()
            while True:
                self._woken.clear()
                try:
                    await self.look()
                except (ApiError, OSError) as error:
                    self._say(f"cannot be kept: {error}")
                except Exception as error:
                    log.exception("native policies stay as they are")
                    self._say(f"cannot be kept: {type(error).__name__}: {error}")
                # Until a class changes, an exception ends, or it is time to look again
                end = next_end(self._policies, self._clock())
                delay = self._period
                if end is not None:
                    delay = min(delay, max(0.0, end - self._clock()) + 0.05)
                with suppress(TimeoutError):
                    async with asyncio.timeout(delay):
                        await self._woken.wait()

    async def look(self) -> None:
        """Compile, and write each policy that is there and says something else."""
        classes = self._classes.items().values()
        compiled = compile_policies(self._policies, classes, self._settings, self._clock())
        for inexpressible in set(compiled.inexpressible) - self._told:
            log.warning("%s", inexpressible.told)
        self._told = set(compiled.inexpressible)
        absent = []
        for wanted in compiled.objects:
            kind, name = wanted["kind"], wanted["metadata"]["name"]
            if kind not in _RESOURCES:
                continue
            path = _RESOURCES[kind].path(name=name)
            stored = await unless_absent(self._client.get(path))
            if stored is None:
                absent.append(name)
            elif not is_ours({**stored, "kind": kind}):
                log.warning("%s %s is not giveway's and is left alone", kind, name)
            elif not same(stored, wanted):
                await self._client.replace(path, {**stored, "spec": wanted["spec"]})
                log.info("%s %s is in step again", kind, name)
        self._say(f"{len(absent)} are not applied: {', '.join(absent)}" if absent else "in step")

    def _say(self, note: str) -> None:
        """Note how things stand, and log it once."""
        if note != self.note:
            level = logging.INFO if note == "in step" else logging.WARNING
            log.log(level, "native policies: %s", note)
        self.note = note
