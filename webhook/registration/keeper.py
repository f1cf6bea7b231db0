"""Keeps the entries of the two webhook configurations: written once reviews come through, put back, taken away.

The objects themselves are made and deleted by whoever installs giveway; the keeper only fills in those that exist. It
writes an entry that could refuse anything only if the API server has just reached the webhook: it has its own probe
entries, which refuse nothing, written first, and asks through them. `docs/install.md` tells what happens at each step.

Static entries are applied by an administrator: the keeper only asks through them, and needs no right on them.
"""

import asyncio
import base64
import logging
import random
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress

from webhook.admission.configmaps import PROBE
from webhook.component_base.component import Component, ReadinessCheck
from webhook.component_base.own_names import CONFIGURATION
from webhook.kube.backoff import Backoff
from webhook.kube.client import Client
from webhook.kube.errors import ApiError, unless_absent
from webhook.kube.resources import DEPLOYMENT, MUTATING_WEBHOOK_CONFIGURATION, VALIDATING_WEBHOOK_CONFIGURATION
from webhook.policy.evaluation.engine import Engine
from webhook.policy.model.policies import Policies
from webhook.registration import stored
from webhook.registration.entries import MUTATING, PHASES, VALIDATING, Entry, Json, WebhookTarget, entries
from webhook.registration.probe import hear, silent_phases
from webhook.registration.stored import Trust

log = logging.getLogger(__name__)

_PATHS = {
    MUTATING: MUTATING_WEBHOOK_CONFIGURATION.path(name=CONFIGURATION),
    VALIDATING: VALIDATING_WEBHOOK_CONFIGURATION.path(name=CONFIGURATION),
}
_SOON, _PERIOD = 0.2, 10.0
"""Seconds until the next look: while something is under way, doubled each time, and otherwise."""
_PATIENCE = 60.0
"""Seconds for which the entries of a replica of another version, or with other policies, are left alone."""
_LAST = 10.0
"""Seconds that taking the entries away may take when the process ends."""
_CONFLICT = 409
_STATIC = "giveway is being removed, and its entries stay: delete the webhook configurations"


class Keeper(Component):
    """Keeps one server's entries, and looks at once when it is woken. Any number of servers may do so at once.

    `deployment` is the server's own, in the target's namespace; None if it has none. `owns_trust` says that nobody else
    renews `caBundle`, as is always so at a URL; `static` that an administrator applies the entries. The server says
    whether it is `ready` to answer, whom to `trust` (PEM), and whether giveway's own namespace is `terminating`.
    """

    def __init__(
        self,
        api: Client,
        target: WebhookTarget,
        *,
        deployment: str | None = None,
        owns_trust: bool = False,
        static: bool = False,
        ready: Callable[[], bool],
        trust: Callable[[], bytes],
        terminating: Callable[[], bool],
    ) -> None:
        self._api, self._target, self._deployment = api, target, deployment
        self._owns_trust, self._static = owns_trust or target.url is not None, static
        self._ready, self._trust, self._terminating = ready, trust, terminating
        self._policies = Policies()
        self._working = asyncio.Lock()
        self._ended = False
        self._kept: dict[str, tuple[str, str]] = {}
        """By kind, the digests of what was written last, or found written, and of what the API server kept of it."""
        self._others: dict[str, tuple[str, float]] = {}
        """By kind, the digest of what another replica wrote instead, and since when it has been seen."""
        self._woken = asyncio.Event()
        self._soon = Backoff(_SOON, _PERIOD)
        self.in_force = False
        """Whether at the last look the API server sent reviews by all entries."""
        self.note = "not looked at yet"
        """How the entries stand."""

    def tasks(self) -> Mapping[str, Callable[[], Awaitable[object]]]:
        """Keeping the configurations, or looking at them."""
        return {"configurations": self._run}

    def checks(self) -> list[ReadinessCheck]:
        """How the configurations are; a server is ready before they send anything to it."""
        return [ReadinessCheck("configurations", True, self.note)]

    def use(self, engine: Engine) -> None:
        """Look at once whether these policies need other entries."""
        self._policies = engine.policies
        self.wake()

    def wake(self) -> None:
        """Look again at once: something has changed."""
        self._soon.reset()
        self._woken.set()

    async def _run(self) -> None:
        """Compare, write what is due, and look again soon or after the period, until cancelled."""
        while True:
            self._woken.clear()
            under_way = False
            try:
                async with self._working:
                    under_way = not self._ended and await self._keep()
            except (ApiError, OSError) as error:
                under_way = isinstance(error, ApiError) and error.status == _CONFLICT
                if not under_way:
                    self._report(f"cannot be kept: {error}", logging.ERROR)
            except Exception as error:
                log.exception("webhook configurations stay as they are")
                self._report(f"cannot be kept: {type(error).__name__}: {error}", logging.ERROR)
            if under_way:
                delay = self._soon.next()
            else:
                delay = _PERIOD * random.uniform(0.9, 1.1)  # noqa: S311 - spreads replicas
                self._soon.reset()
            with suppress(TimeoutError):
                async with asyncio.timeout(delay):
                    await self._woken.wait()

    def _report(self, note: str, level: int = logging.INFO) -> None:
        if note != self.note:
            self.note = note
            log.log(level, "webhook configurations %s: %s", CONFIGURATION, note)

    async def drain(self) -> None:
        """Stop keeping; take entries away, if they are not static, on removal. Raises no ApiError."""
        self._ended = True
        try:
            async with asyncio.timeout(_LAST), self._working:
                if self._terminating() or await self._is_removed():
                    await self._withdraw()
        except (ApiError, TimeoutError) as error:
            log.error("webhook configurations left as they are, not knowing whether this is a removal: %s", error)  # noqa: TRY400 - its text says all

    async def _keep(self) -> bool:
        """Compare and write if due; whether something is under way, and the next look comes soon."""
        if self._terminating():
            await self._withdraw()
            return False
        if not self._ready():
            return True
        if self._static:
            self.in_force = await self._answers(_PATHS, "; apply what giveway compile --webhook prints")
            if self.in_force:
                self._report("in force, as an administrator applied them")
            return not self.in_force
        read = {kind: await unless_absent(self._api.get(path)) for kind, path in _PATHS.items()}
        configurations = {kind: obj for kind, obj in read.items() if obj is not None}
        self.in_force = False
        if not configurations:
            self._report(f"there is none named {CONFIGURATION}: nothing is sent to this webhook", logging.WARNING)
            return False
        # The file's authorities; if somebody else renews those in use, these for new entries
        given = base64.b64encode(self._trust()).decode()
        common = stored.trusted(configurations.values()) or given

        def trust(bundle: str) -> str:
            return (given or bundle) if self._owns_trust else (bundle or common)

        wanted = entries(self._policies, self._target)
        due = [kind for kind, obj in configurations.items() if self._is_due(kind, obj, wanted[kind], trust)]
        if due and not await self._reached(configurations, wanted, trust):
            return True
        for kind in due:
            written = await self._api.replace(
                _PATHS[kind], stored.with_entries(configurations[kind], wanted[kind], trust)
            )
            mine, kept = stored.digest(wanted[kind]), stored.digest(written.get("webhooks") or ())
            if kept != mine and self._kept.get(kind) != (mine, kept):
                log.warning(
                    "%s %s: the API server keeps other entries than were written;"
                    " giveway needs Kubernetes 1.30 or newer",
                    *(kind, CONFIGURATION),
                )
            self._kept[kind] = mine, kept
            log.info("%s %s: %d entries written", kind, CONFIGURATION, len(wanted[kind]))
        self.in_force = len(configurations) == len(_PATHS)
        alone = "" if self.in_force else f" in the {next(iter(configurations))} alone"
        self._report(f"in force{alone}")
        return False

    def _is_due(self, kind: str, configuration: Json, wanted: list[Entry], trust: Trust) -> bool:
        """Whether to write now. Another replica's entries are left alone for a while, others' are not."""
        mine = stored.digest(wanted)
        there = stored.digest(configuration.get("webhooks") or ())
        kept, _ = known = self._kept.get(kind, ("", ""))
        if there == mine or known == (mine, there):
            self._kept[kind] = mine, there
            self._others.pop(kind, None)
            return stored.untrusted(configuration, trust)
        if not stored.is_ours(configuration) or kept != mine:
            return True
        other, since = self._others.get(kind, ("", 0.0))
        if other != there:
            since = time.monotonic()
            self._others[kind] = there, since
        return time.monotonic() - since >= _PATIENCE

    async def _reached(self, configurations: dict[str, Json], wanted: dict[str, list[Entry]], trust: Trust) -> bool:
        """Whether reviews come by the probe entries, written into `configurations` if need be."""
        for kind, before in configurations.items():
            if not stored.has_probes(before, wanted[kind], trust):
                probing = stored.with_probes(before, wanted[kind], trust)
                configurations[kind] = await self._api.replace(_PATHS[kind], probing)
        return await self._answers(configurations, "; nothing that refuses is written")

    async def _answers(self, kinds: Iterable[str], advice: str) -> bool:
        """Whether the API server reaches this webhook by the entries of these kinds."""
        namespace = self._target.namespace
        try:
            unanswered = silent_phases(await hear(self._api, namespace))
        except ApiError as error:
            self._report(f"waiting: ConfigMap {namespace}/{PROBE} cannot be probed with: {error}", logging.WARNING)
            return False
        silent = ", ".join(PHASES[kind] for kind in kinds if PHASES[kind] in unanswered)
        if silent:
            text = "waiting: the API server does not reach this webhook yet"
            self._report(f"{text} ({silent}){advice}")
        return not silent

    async def _withdraw(self) -> None:
        """Take all entries away, so that nothing waits for a server that goes."""
        if self._static:
            self._report(_STATIC, logging.WARNING)
            return
        self.in_force = False
        for path in _PATHS.values():
            while (configuration := await unless_absent(self._api.get(path)) or {}).get("webhooks"):
                await unless_absent(self._api.replace(path, stored.emptied(configuration)), _CONFLICT)
        self._report("taken away: giveway is being removed", logging.WARNING)

    async def _is_removed(self) -> bool:
        """Whether no other server follows this one, by its Deployment. Raises ApiError."""
        if self._deployment is None:
            return False
        path = DEPLOYMENT.path(self._target.namespace, self._deployment)
        deployed = await unless_absent(self._api.get(path))
        if deployed is None or deployed["metadata"].get("deletionTimestamp"):
            return True
        return bool(deployed["spec"].get("replicas", 1) == 0)
