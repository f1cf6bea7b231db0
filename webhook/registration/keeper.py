"""Keeps the entries of the two webhook configurations: written once reviews come through, put back, taken away.

The objects themselves are made and deleted by whoever installs giveway; the keeper only fills in those that exist. It
writes an entry that could refuse anything only if the API server has just reached the webhook: it has its own probe
entries, which refuse nothing, written first, and asks through them. `docs/install.md` tells what happens at each step.

Static entries are applied by an administrator, and the server needs no right on webhook configurations: the keeper only
asks through them.
"""

import asyncio
import base64
import logging
import random
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

import msgspec

from webhook.admission.configmaps import PROBE
from webhook.kube.backoff import exponential
from webhook.kube.client import Client
from webhook.kube.errors import ApiError, unless_absent
from webhook.kube.resources import DEPLOYMENT, MUTATING_WEBHOOK_CONFIGURATION, VALIDATING_WEBHOOK_CONFIGURATION
from webhook.policy.model.policies import Policies
from webhook.registration import stored
from webhook.registration.entries import MUTATING, PHASES, VALIDATING, Entry, WebhookTarget, entries
from webhook.registration.probe import silent_phases
from webhook.registration.stored import Trust

log = logging.getLogger(__name__)

_RESOURCES = {MUTATING: MUTATING_WEBHOOK_CONFIGURATION, VALIDATING: VALIDATING_WEBHOOK_CONFIGURATION}
_SOON, _PERIOD = 0.2, 10.0
"""Seconds until the next look: while something is under way, doubled each time, and otherwise."""
_PATIENCE = 60.0
"""Seconds for which the entries of a replica of another version, or with other policies, are left alone."""
_LAST = 10.0
"""Seconds that taking the entries away may take when the process ends."""
_CONFLICT = 409

Json = dict[str, Any]


class KeeperSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Which objects are kept, and what they say; times are in seconds.

    `deployment` is the server's own, in the target's namespace; None if it has none. `owns_trust` says that nobody else
    renews `caBundle`, as is always so at a URL. `static` says that an administrator applies the entries.
    """

    name: str = "giveway"
    target: WebhookTarget = WebhookTarget()
    deployment: str | None = None
    owns_trust: bool = False
    static: bool = False
    period: float = _PERIOD
    patience: float = _PATIENCE


class ServerState(msgspec.Struct, frozen=True, kw_only=True):
    """What the keeper asks of its server.

    The policies in force, whether it can answer, whom the API server is to trust (PEM), and whether giveway's own
    namespace is being deleted.
    """

    policies: Callable[[], Policies]
    ready: Callable[[], bool]
    trust: Callable[[], bytes]
    terminating: Callable[[], bool]


class Keeper:
    """Keeps one server's entries, and looks at once when it is woken. Any number of servers may do so at once."""

    def __init__(self, api: Client, settings: KeeperSettings, situation: ServerState) -> None:
        self._api, self._settings, self._situation = api, settings, situation
        self._paths = {kind: resource.path(name=settings.name) for kind, resource in _RESOURCES.items()}
        self._working = asyncio.Lock()
        self._ended = False
        self._kept: dict[str, tuple[str, str]] = {}
        """By kind, the digests of what was written last, or found written, and of what the API server kept of it."""
        self._others: dict[str, tuple[str, float]] = {}
        """By kind, the digest of what another replica wrote instead, and since when it has been seen."""
        self._woken = asyncio.Event()
        self._hurried = 0
        self.in_force = False
        """Whether at the last look the API server sent reviews by all entries."""
        self.note = "not looked at yet"
        """How the entries stand."""

    def wake(self) -> None:
        """Look again at once: policies or the namespace have changed."""
        self._hurried = 0
        self._woken.set()

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            self._woken.clear()
            delay = await self.look()
            with suppress(TimeoutError):
                async with asyncio.timeout(delay * random.uniform(0.9, 1.1)):  # noqa: S311 - spreads replicas
                    await self._woken.wait()

    def _soon(self) -> float:
        self._hurried += 1
        return exponential(self._hurried, _SOON, self._settings.period)

    def _report(self, note: str, level: int = logging.INFO) -> None:
        if note != self.note:
            self.note = note
            log.log(level, "webhook configurations %s: %s", self._settings.name, note)

    async def look(self) -> float:
        """Compare, and write what is due; the seconds until the next look."""
        try:
            async with self._working:
                return self._settings.period if self._ended else await self._keep()
        except (ApiError, OSError) as error:
            if isinstance(error, ApiError) and error.status == _CONFLICT:
                return self._soon()
            self._report(f"cannot be kept: {error}", logging.ERROR)
        except Exception as error:
            log.exception("webhook configurations stay as they are")
            self._report(f"cannot be kept: {type(error).__name__}: {error}", logging.ERROR)
        return self._settings.period

    async def end(self) -> None:
        """Stop keeping; take the entries away if the server is not replaced but removed. Raises no ApiError.

        Whoever applied static entries takes them away, too.
        """
        try:
            async with asyncio.timeout(_LAST), self._working:
                self._ended = True
                if self._situation.terminating() or await self._is_removed():
                    await self._withdraw()
        except (ApiError, TimeoutError) as error:
            self._ended = True
            log.error("webhook configurations left as they are, not knowing whether this is a removal: %s", error)  # noqa: TRY400 - its text says all

    async def _keep(self) -> float:
        """Compare and write if due; the seconds until the next look."""
        situation = self._situation
        if situation.terminating():
            await self._withdraw()
            return self._settings.period
        if not situation.ready():
            return self._soon()
        if self._settings.static:
            self.in_force = await self._answers(self._paths, "; apply what giveway compile --webhook prints")
            if not self.in_force:
                return self._soon()
            self._hurried = 0
            self._report("in force, as an administrator applied them")
            return self._settings.period
        configurations = {
            kind: obj
            for kind in self._paths
            if (obj := await unless_absent(self._api.get(self._paths[kind]))) is not None
        }
        self.in_force = False
        if not configurations:
            self._report(f"there is none named {self._settings.name}: nothing is sent to this webhook", logging.WARNING)
            return self._settings.period
        # The file's authorities; if somebody else renews those in use, then these for new entries, too
        given, settings = base64.b64encode(situation.trust()).decode(), self._settings
        common = stored.trusted(configurations.values()) or given
        fixed = settings.owns_trust or settings.target.url is not None

        def trust(bundle: str) -> str:
            return (given or bundle) if fixed else (bundle or common)

        wanted = entries(situation.policies(), settings.target)
        due = [kind for kind, obj in configurations.items() if self._is_due(kind, obj, wanted[kind], trust)]
        if due and not await self._reached(configurations, wanted, trust):
            return self._soon()
        for kind in due:
            written = await self._api.replace(
                self._paths[kind], stored.with_entries(configurations[kind], wanted[kind], trust)
            )
            mine = stored.digest(wanted[kind])
            kept = stored.digest(written.get("webhooks") or ())
            if kept != mine and self._kept.get(kind) != (mine, kept):
                log.warning(
                    "%s %s: the API server keeps other entries than were written;"
                    " giveway needs Kubernetes 1.30 or newer",
                    *(kind, self._settings.name),
                )
            self._kept[kind] = mine, kept
            log.info("%s %s: %d entries written", kind, self._settings.name, len(wanted[kind]))
        self._hurried = 0
        self.in_force = len(configurations) == len(self._paths)
        self._report("in force" if self.in_force else f"in force in the {next(iter(configurations))} alone")
        return self._settings.period

    def _is_due(self, kind: str, configuration: Json, wanted: list[Entry], trust: Trust) -> bool:
        """Whether to write now. What another replica wrote is left alone for a while; anybody else's change is not."""
        mine, there = stored.digest(wanted), stored.digest(configuration.get("webhooks") or ())
        if there == mine or self._kept.get(kind) == (mine, there):
            self._kept[kind] = mine, there
            self._others.pop(kind, None)
            return stored.untrusted(configuration, trust)
        if not stored.is_ours(configuration) or self._kept.get(kind, ("",))[0] != mine:
            return True
        seen, since = self._others.get(kind, ("", 0.0))
        if seen != there:
            since = time.monotonic()
            self._others[kind] = (there, since)
        return time.monotonic() - since >= self._settings.patience

    async def _reached(
        self, configurations: Mapping[str, Json], wanted: Mapping[str, list[Entry]], trust: Trust
    ) -> bool:
        """Whether reviews come through right now, asked through the probe entries, which are written if need be.

        `configurations` is brought up to date with what was written.
        """
        for kind, configuration in configurations.items():
            if not stored.has_probes(configuration, wanted[kind], trust):
                written = await self._api.replace(
                    self._paths[kind], stored.with_probes(configuration, wanted[kind], trust)
                )
                configuration.clear()
                configuration.update(written)
        return await self._answers(configurations, "; nothing that refuses is written")

    async def _answers(self, kinds: Iterable[str], advice: str) -> bool:
        """Whether the API server reaches this webhook by the entries of these kinds."""
        namespace = self._settings.target.namespace
        try:
            unanswered = await silent_phases(self._api, namespace)
        except ApiError as error:
            self._report(f"waiting: ConfigMap {namespace}/{PROBE} cannot be probed with: {error}", logging.WARNING)
            return False
        silent = ", ".join(PHASES[kind] for kind in kinds if PHASES[kind] in unanswered)
        if silent:
            self._report(f"waiting: the API server does not reach this webhook yet ({silent}){advice}")
        return not silent

    async def _withdraw(self) -> None:
        """Take all entries away, so that nothing waits for a server that goes."""
        if self._settings.static:
            text = "giveway is being removed, and its entries stay: delete the webhook configurations"
            self._report(text, logging.WARNING)
            return
        self.in_force = False
        for path in self._paths.values():
            while (configuration := await unless_absent(self._api.get(path)) or {}).get("webhooks"):
                try:
                    await self._api.replace(path, stored.emptied(configuration))
                except ApiError as error:
                    if error.status != _CONFLICT:
                        raise
        self._report("taken away: giveway is being removed", logging.WARNING)

    async def _is_removed(self) -> bool:
        """Whether no other server follows this one, by its Deployment. Raises ApiError."""
        settings = self._settings
        if settings.deployment is None:
            return False
        path = DEPLOYMENT.path(settings.target.namespace, settings.deployment)
        deployed = await unless_absent(self._api.get(path))
        if deployed is None or deployed["metadata"].get("deletionTimestamp"):
            return True
        return bool(deployed["spec"].get("replicas", 1) == 0)
