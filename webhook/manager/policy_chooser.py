"""The policies in use: loaded as a whole, compared with those in force, and kept where a restarted pod finds them.

Three sets can differ: what the source offers now, the set that is kept, and the set in use. `_choose` says which one is
to be used; everything else here brings that about. A broken offer, and one that gives up rules without anybody having
said that it is meant, leave the set in force where it is.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from functools import partial

import msgspec
from prometheus_client import CollectorRegistry, Counter, Gauge

from webhook.admission.configmaps import held_back, mend
from webhook.kube.errors import ApiError
from webhook.manager.kept_policies import KeptPolicies, files_by_key
from webhook.manager.policy_uses import USES
from webhook.policy.evaluation.engine import Engine
from webhook.policy.files.loading import Loaded, PolicySource, load_texts, texts_of
from webhook.policy.model.policies import Policies
from webhook.policy.reports import Removal, ended_findings, exceptions, removals
from webhook.policy.shapes.findings import Finding, PolicyError, Severity
from webhook.policy.shapes.yaml_nodes import SourcePosition

log = logging.getLogger(__name__)

_POLL_SECONDS = 5.0
_SHOWN = 3
_WIDER = "%s gives less protection than %s, and was not written by giveway: %s; %s"
_EXCEPTIONS = "Exceptions in the policies in use: active or ended."
_RELOADS = "Policy reloads, by result: success or failure."
_CURRENT = "1 if the policies in use are those in the files, 0 if the files are broken."
_HELD = "Rules, rights and verdicts that the policy files would give up, and that nobody has said may go."
_RESTORED = "Times the policies in force were found to give less protection than the files, by somebody's hand."


class _Set(msgspec.Struct, frozen=True):
    """A policy set as text by file name, and what loading it found."""

    texts: dict[str, str]
    loaded: Loaded

    @property
    def problem(self) -> str:
        """Why it cannot be used; empty if it can."""
        return str(PolicyError(self.loaded.findings)) if self.loaded.errors else ""


class PolicyMetrics:
    """How reloads went, what is held back, and the exceptions in use."""

    def __init__(self, registry: CollectorRegistry, in_use: Callable[[], Policies]) -> None:
        def number(*, ended: bool) -> int:
            return sum(exception.ended is ended for exception in exceptions(in_use(), time.time()))

        gauge = partial(Gauge, registry=registry)
        counter = partial(Counter, registry=registry)
        counted = gauge("giveway_policy_exceptions", _EXCEPTIONS, ["state"])
        for state in ("active", "ended"):
            counted.labels(state).set_function(partial(number, ended=state == "ended"))
        self.reloads = counter("giveway_policy_reloads", _RELOADS, ["result"])
        for result in ("success", "failure"):
            self.reloads.labels(result)
        self.policies_current = gauge("giveway_policies_current", _CURRENT)
        self.removals_held = gauge("giveway_policy_removals_held", _HELD)
        self.restored = counter("giveway_policies_in_force_restored", _RESTORED)


class PolicyChooser:
    """The engine of a source's policies. `problem` says why what it offers now is not in use, or is empty.

    With `kept`, what is in force is kept there, and broken files at the start are no end: the kept set is used. A
    process that does not `judge` the files (the reconciler) then uses the kept set as soon as there is one. `changed`
    is called when another engine is in use. Without `kept`, the constructor raises PolicyError for broken files.
    """

    def __init__(
        self,
        source: PolicySource,
        registry: CollectorRegistry,
        *,
        kept: KeptPolicies | None = None,
        judge: bool = True,
        allow_removal: bool = False,
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        self._source, self._kept = source, kept
        self._metrics = PolicyMetrics(registry, lambda: self.engine.policies)
        self._judge, self._allow_removal = judge or kept is None, allow_removal
        self.changed = changed
        self._offered = _read(source)
        if self._offered.problem and kept is None:
            raise PolicyError(self._offered.loaded.findings)
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
            self._use(self._offered)
            self._pending = False
            self.settled.set()
        self._metrics.policies_current.set(not self._offered.problem)

    async def reload(self) -> bool:
        """Look at the files, and take them into use if nothing speaks against it; whether they are."""
        offered = await asyncio.to_thread(_read, self._source)
        async with self._lock:
            self._offered, self._pending = offered, True
            await self._settle()
            self._metrics.reloads.labels("failure" if self.problem else "success").inc()
        if not self.problem:
            log.info("policies reloaded from %s", self._source.name)
        return not self.problem

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
        """How many policies are in use, in words, and why not those of the files."""
        if self.unready() and not self.problem:
            return self.unready()
        policies = self.engine.policies
        priority, preemption = len(policies.priority), len(policies.preemption)
        used = f"{priority} PriorityPolicies and {preemption} PreemptionPolicies in use"
        if self.problem:
            used += f"; the files are not in use: {self.problem}"
        return used

    async def _settle(self) -> None:
        """Use what is to be used now, and keep it."""
        try:
            in_force = await self._in_force()
            choice, problem = await self._choose(in_force)
            if choice is not None:
                if choice.texts != self._in_use.texts or not self.settled.is_set():
                    await self._replace(choice)
                self.settled.set()
                if self._judge and self._kept is not None:
                    # Keep what is in use now. If somebody else kept
                    # another set meanwhile, it must be looked at
                    unchanged = in_force is not None and choice.texts == in_force.texts
                    there = unchanged and (self._kept.is_there or not choice.texts)
                    before = in_force.loaded.policies if in_force else Policies()
                    given_up = (removal.id for removal in removals(before, choice.loaded.policies))
                    if not there and not await self._kept.write(choice.texts, given_up):
                        return
                if choice is self._offered:
                    self._pending = False
            if self._kept is not None:
                await self._kept.end_allowance()
        except ApiError as error:
            problem = f"{self._kept} cannot be read or written: {error}"
        except Exception as error:
            log.exception("the policies in use stay")
            problem = _unusable(error)
        if problem and problem != self.problem:
            log.error("policies not taken into use: %s", problem)
        self.problem = problem
        self._metrics.policies_current.set(not problem)

    async def _replace(self, choice: _Set) -> None:
        """Use a set instead of the one in use, which is in use again if that raises anything."""
        before = self.engine, self._in_use
        try:
            await asyncio.to_thread(self._use, choice)
            self.changed()
        except Exception as error:
            self.engine, self._in_use = before
            if self.settled.is_set():
                self.changed()
            if choice is self._offered:
                place = SourcePosition(self._source.name)
                finding = Finding(severity=Severity.ERROR, source=place, message=_unusable(error))
                self._offered = _Set(choice.texts, Loaded(Policies(), [finding]))
            else:
                self._unreadable = choice.texts
            raise

    async def _in_force(self) -> _Set | None:
        """The set that must not shrink: the kept one, or what is in use if none is kept any more."""
        if self._kept is None:
            return self._in_use
        texts = await self._kept.read()
        last = self._in_use if self.settled.is_set() else None
        if not texts:
            return last if self._judge else None
        if texts == self._in_use.texts:
            return self._in_use
        if texts == self._unreadable:
            return last
        source = texts_of(str(self._kept), texts)
        kept = _Set(texts, await asyncio.to_thread(load_texts, *source, uses=USES))
        if kept.problem:
            log.error("the policies in %s cannot be read by this version: %s", self._kept, kept.problem)
            self._unreadable = texts
            return last
        return kept

    async def _choose(self, in_force: _Set | None) -> tuple[_Set | None, str]:
        """The set to use, None for the one in use, and why it is not the files', reason by reason."""
        broken, new = self._offered.problem, self._offered.loaded.policies
        if in_force is not None and not (self._judge and self._pending):
            is_new = in_force is not self._in_use and self.settled.is_set()
            if is_new and (wider := self._widened(in_force)):
                log.error(_WIDER, *wider)
                self._metrics.restored.inc()
                in_force = self._offered if self._judge else self._in_use
            return in_force, "" if self._judge else broken
        if broken:
            return in_force, f"the files are not in use, the set in force stays:\n{broken}"
        before = in_force.loaded.policies if in_force is not None else Policies()
        if before != Policies() == new:
            text = f"{self._source.name} holds no policies any more"
            return in_force, f"{text}: this is probably a broken mount"
        allowed, held = list[str](), list[Removal]()
        if not self._allow_removal:
            removed = removals(before, new)
            if removed and self._kept is not None:
                allowed = await self._kept.allowed_removals()
            held = held_back(removed, allowed)
        self._metrics.removals_held.set(len(held))
        if held:
            text = mend(held, allowed, new)
            again = "" if self._kept else ", or start again"
            return in_force, f"the set in force stays: {text}{again}"
        return self._offered, ""

    def _widened(self, kept: _Set) -> tuple[object, ...]:
        """What another kept set gives up of sound files although no replica noted that it may go."""
        policies = self._offered.loaded.policies
        if self._kept is None or self._allow_removal:
            return ()
        if self._offered.problem or policies == Policies():
            return ()
        lacking = removals(policies, kept.loaded.policies)
        held = held_back(lacking, self._kept.given_up)
        if not held:
            return ()
        shown = "; ".join(map(str, held[:_SHOWN]))
        does = "it is put back" if self._judge else "the webhook puts it back"
        return self._kept, self._source.name, shown, does

    def _use(self, chosen: _Set) -> None:
        policies = chosen.loaded.policies
        for finding in (*chosen.loaded.findings, *ended_findings(policies, time.time())):
            log.warning("%s", finding)
        self.engine = Engine(policies)
        self._in_use = chosen


def _unusable(error: Exception) -> str:
    return f"these policies cannot be used: {type(error).__name__}: {error}"


def _read(source: PolicySource) -> _Set:
    """What a source offers, in the order in which it is kept: all who read it have the same."""
    texts, findings = source.read()
    files = files_by_key(texts)
    loaded = load_texts([text for _, text in sorted(zip(files, texts, strict=True))], uses=USES)
    return _Set(files, Loaded(loaded.policies, findings + loaded.findings))
