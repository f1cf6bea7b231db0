"""The policies in use: loaded as a whole, compared with those in force, and kept where a restarted pod finds them.

Three sets can differ: the files as they are now, the set that is kept, and the set in use. `_choose` says which one is
to be used; everything else here brings that about. Broken files, and files that give up rules without anybody having
said that it is meant, leave the set in force where it is.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter as Counts
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
from prometheus_client import CollectorRegistry, Counter, Gauge
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from webhook.admission.configmaps import held_back, mend
from webhook.kube.client import ApiError
from webhook.manager.kept_policies import KeptPolicies, files_by_key
from webhook.policy.evaluation.engine import Engine
from webhook.policy.exceptions import ended_findings, exceptions
from webhook.policy.files.loading import Loaded, load_texts, read_texts
from webhook.policy.model import Policies
from webhook.policy.removals import removals
from webhook.policy.shapes.findings import PolicyError

__all__ = ["PolicyFiles", "PolicyMetrics"]

log = logging.getLogger(__name__)

_POLL_SECONDS = 5.0


class _Exceptions(Collector):
    """The exceptions of the policies in use, as of each scrape."""

    def __init__(self) -> None:
        self.policies = Policies()

    def collect(self) -> Iterator[Metric]:
        """The family, as of now."""
        found = GaugeMetricFamily(
            "giveway_policy_exceptions", "Exceptions in the policies in use: active or ended.", labels=["state"]
        )
        states = Counts("ended" if one.ended else "active" for one in exceptions(self.policies, time.time()))
        for state in ("active", "ended"):
            found.add_metric([state], states[state])
        yield found


class PolicyMetrics:
    """How reloads went, what is held back, and the exceptions in use."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._exceptions = _Exceptions()
        registry.register(self._exceptions)
        self.reloads = Counter(
            "giveway_policy_reloads", "Policy reloads, by result: success or failure.", ["result"], registry=registry
        )
        self.policies_current = Gauge(
            "giveway_policies_current",
            "1 if the policies in use are those in the files, 0 if the files are broken.",
            registry=registry,
        )
        self.removals_held = Gauge(
            "giveway_policy_removals_held",
            "Rules, rights and verdicts that the policy files would give up, and that nobody has said may go.",
            registry=registry,
        )
        for result in ("success", "failure"):
            self.reloads.labels(result)

    def use(self, policies: Policies) -> None:
        """Count the exceptions of these policies from now on."""
        self._exceptions.policies = policies


class _Set(msgspec.Struct, frozen=True):
    """A policy set as text by file name, and what loading it found."""

    texts: dict[str, str]
    loaded: Loaded

    @property
    def problem(self) -> str:
        """Why it cannot be used; empty if it can."""
        return str(PolicyError(self.loaded.findings)) if self.loaded.errors else ""


class PolicyFiles:
    """The engine of a directory's policies. `problem` says why the files as they are now are not in use, or is empty.

    With `kept`, what is in force is kept there, and broken files at the start are no end: the kept set is used. A
    process that does not `judge` the files (the reconciler) then uses the kept set as soon as there is one. `changed`
    is called when another engine is in use. Without `kept`, the constructor raises PolicyError for broken files.
    """

    def __init__(
        self,
        directory: Path,
        metrics: PolicyMetrics,
        *,
        kept: KeptPolicies | None = None,
        judge: bool = True,
        allow_removal: bool = False,
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        self._directory, self._metrics = directory, metrics
        self._kept, self._judge, self._allow_removal = kept, judge or kept is None, allow_removal
        self.changed = changed
        self._files = _read(directory)
        if self._files.problem and kept is None:
            raise PolicyError(self._files.loaded.findings)
        self._pending = True
        """Whether the files wait to be taken into use."""
        self._in_use = _Set({}, Loaded(Policies(), []))
        self._unreadable: dict[str, str] | None = None
        """What is kept, if this version cannot read it: parsed and logged once, not at every look."""
        self.engine = Engine(Policies())
        self.problem = ""
        self.settled = asyncio.Event()
        """Set as soon as it is known which set is in force."""
        self._lock = asyncio.Lock()
        if kept is None:
            self._use(self._files)
            self._pending = False
            self.settled.set()
        metrics.policies_current.set(not self._files.problem)

    async def reload(self) -> None:
        """Look at the files as they are now, and take them into use if nothing speaks against it."""
        files = await asyncio.to_thread(_read, self._directory)
        async with self._lock:
            self._files, self._pending = files, True
            await self._settle()
            self._metrics.reloads.labels("failure" if self.problem else "success").inc()
        if not self.problem:
            log.info("policies reloaded from %s", self._directory)

    async def follow(self) -> None:
        """Keep to what is kept, and offer again what was held back; runs until cancelled."""
        while True:
            async with self._lock:
                await self._settle()
            await asyncio.sleep(_POLL_SECONDS if self.settled.is_set() else _POLL_SECONDS / 10)

    def unready(self) -> str:
        """Why no review can be judged yet; empty if one can."""
        if self.settled.is_set():
            return ""
        return self.problem or f"the policies in force have not been read from {self._kept} yet"

    def describe(self) -> str:
        """How many policies are in use, in words."""
        policies = self.engine.policies
        return f"{len(policies.priority)} PriorityPolicies and {len(policies.preemption)} PreemptionPolicies in use"

    async def _settle(self) -> None:
        """Use what is to be used now, and keep it."""
        try:
            in_force = await self._in_force()
            choice, problem = await self._choose(in_force)
            if choice is not None:
                if choice.texts != self._in_use.texts or not self.settled.is_set():
                    await asyncio.to_thread(self._use, choice)
                    self.changed()
                self.settled.set()
                if self._judge and self._kept is not None:
                    # Keep what is in use now. If somebody else kept another set meanwhile, it must be looked at
                    unchanged = in_force is not None and choice.texts == in_force.texts
                    there = unchanged and (self._kept.is_there or not choice.texts)
                    if not there and not await self._kept.write(choice.texts):
                        return
                if choice is self._files:
                    self._pending = False
        except ApiError as error:
            problem = f"{self._kept} cannot be read or written: {error}"
        if problem and problem != self.problem:
            log.error("policies not taken into use: %s", problem)
        self.problem = problem
        self._metrics.policies_current.set(not problem)

    async def _in_force(self) -> _Set | None:
        """The set that must not shrink: the kept one, or what is in use if nothing is kept, or not any more."""
        if self._kept is None:
            return self._in_use
        texts = await self._kept.read()
        if not texts:
            return self._in_use if self._judge and self.settled.is_set() else None
        if texts == self._in_use.texts:
            return self._in_use
        last = self._in_use if self.settled.is_set() else None
        if texts == self._unreadable:
            return last
        named = [(f"{self._kept}/{name}", text) for name, text in sorted(texts.items())]
        found = _Set(texts, await asyncio.to_thread(load_texts, named))
        if found.problem:
            log.error("the policies in %s cannot be read by this version: %s", self._kept, found.problem)
            self._unreadable = texts
            return last
        return found

    async def _choose(self, in_force: _Set | None) -> tuple[_Set | None, str]:
        """The set to use, None for the one in use, and why it is not that of the files; in the order of the reasons."""
        if in_force is not None and not (self._judge and self._pending):
            return in_force, "" if self._judge else self._files.problem
        if self._files.problem:
            return in_force, f"the files are broken, the set in force stays:\n{self._files.problem}"
        if in_force is not None and in_force.loaded.policies != Policies() == self._files.loaded.policies:
            return in_force, f"{self._directory} holds no policies any more: this is probably a broken mount"
        if in_force is not None and not self._allow_removal:
            found = removals(in_force.loaded.policies, self._files.loaded.policies)
            allowed = await self._kept.allowed_removals() if found and self._kept is not None else []
            held = held_back(found, allowed)
            self._metrics.removals_held.set(len(held))
            if held:
                return in_force, f"the set in force stays: {mend(held)}, or start with --allow-removal"
        self._metrics.removals_held.set(0)
        return self._files, ""

    def _use(self, chosen: _Set) -> None:
        policies = chosen.loaded.policies
        for finding in (*chosen.loaded.findings, *ended_findings(policies, time.time())):
            log.warning("%s", finding)
        self._metrics.use(policies)
        self.engine = Engine(policies)
        self._in_use = chosen


def _read(directory: Path) -> _Set:
    texts, findings = read_texts(directory)
    loaded = load_texts(texts)
    return _Set(files_by_key(texts), Loaded(loaded.policies, findings + loaded.findings))
