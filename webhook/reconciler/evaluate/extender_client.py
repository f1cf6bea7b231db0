"""A policy's scheduler extenders: asked over HTTP in the background, heard by decisions (docs/semantics.md D5).

A decision does not wait. If it would have to ask, it stops with `UnaskedError`. Once the question is answered, the
preemptor is decided for again, on the state of then. An answer about a node with certain victims holds for that node
with these victims only. Candidates that the extender was not asked about do not stand in the new decision.

The wire format is that of `k8s.io/kube-scheduler/extender/v1`: `ExtenderPreemptionArgs` goes out, an
`ExtenderPreemptionResult` comes back, always with uids.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import aiohttp
import msgspec

from webhook.kube.objects.meta import key_of
from webhook.kube.objects.pod import Pod
from webhook.policy.model.preemption import ExtenderConfig
from webhook.preemption.extenders import ExtenderError
from webhook.preemption.snapshot.amounts import requests
from webhook.preemption.victims.candidates import Candidate

log = logging.getLogger(__name__)

_LARGEST_ANSWER = 64 * 2**20
"""Bytes."""
_Offer = tuple[str, frozenset[str]]
"""A node and the uids of the victims on it."""
Answers = Mapping[_Offer, Candidate | None]
"""What became of each offer: the candidate that remains of it, None if it was dropped."""
Said = dict[str, Answers | ExtenderError]
"""What extenders, by their addresses, have said of one preemptor until a decision was reached."""


@dataclass(frozen=True, slots=True)
class Question:
    """Candidates that an extender has to be asked about; it is decided again once the extender has answered."""

    result: ClassVar = "asks"
    extender: ExtenderConfig
    preemptor: Pod
    candidates: list[Candidate]


class UnaskedError(Exception):
    """The decision cannot go on before this question is answered."""

    def __init__(self, question: Question) -> None:
        super().__init__(f"extender {url_of(question.extender)} has to be asked")
        self.question = question


class ExtenderCache:
    """An extender as a decision sees it: it answers from what was said, and never waits."""

    def __init__(self, extender: ExtenderConfig, said: Said) -> None:
        self.name = url_of(extender)
        self.ignorable = extender.ignorable
        self._extender = extender
        self._said = said.get(self.name, {})

    def is_interested(self, preemptor: Pod) -> bool:
        """Whether the preemptor asks for a resource that the extender manages; one that manages none sees all."""
        managed = self._extender.managed_resources
        return not managed or not requests(preemptor).keys().isdisjoint(managed)

    def __call__(self, preemptor: Pod, candidates: list[Candidate]) -> list[Candidate]:
        """The candidates that remain. Raises UnaskedError if none is known, ExtenderError if it failed."""
        if isinstance(self._said, ExtenderError):
            raise self._said
        known = [offer for candidate in candidates if (offer := _offer_of(candidate)) in self._said]
        if not known:
            raise UnaskedError(Question(self._extender, preemptor, candidates))
        return [candidate for offer in known if (candidate := self._said[offer]) is not None]


def url_of(extender: ExtenderConfig) -> str:
    """The address of the preempt verb; it names the extender in errors."""
    return f"{extender.url_prefix.rstrip('/')}/{extender.preempt_verb.lstrip('/')}"


def _offer_of(candidate: Candidate) -> _Offer:
    return candidate.node, frozenset(victim.uid for victim in candidate.victims)


class ExtenderClient:
    """Puts questions; `news` gets each one when the preemptor can be decided for again."""

    def __init__(self, news: asyncio.Queue[Any]) -> None:
        self._news = news
        self._tasks: set[asyncio.Task[None]] = set()
        self._session: aiohttp.ClientSession | None = None

    def ask(self, question: Question, said: Said) -> None:
        """Put a question, and add the answer to what is `said`; a preemptor has one under way at a time."""
        task = asyncio.get_running_loop().create_task(self._ask(question, said))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Stop asking."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _ask(self, question: Question, said: Said) -> None:
        """Put one question, remember the answer or the failure, and tell."""
        preemptor, url = question.preemptor, url_of(question.extender)
        if self._session is None:
            self._session = aiohttp.ClientSession()
        try:
            remaining = await ask(self._session, question)
            left = {candidate.node: candidate for candidate in remaining}
            before = said.get(url, {})
            known = {} if isinstance(before, ExtenderError) else before
            answers = {_offer_of(candidate): left.get(candidate.node) for candidate in question.candidates}
            said[url] = {**known, **answers}
        except ExtenderError as error:
            log.warning("%s: %s", key_of(preemptor), error)
            said[url] = error
        except Exception as error:  # whatever it is, the preemptor must not wait for an answer without end
            log.exception("%s: extender %s could not be asked", key_of(preemptor), url)
            said[url] = ExtenderError(f"extender {url}: {type(error).__name__}: {error}")
        self._news.put_nowait(question)


async def ask(session: aiohttp.ClientSession, question: Question) -> list[Candidate]:
    """The candidates that remain. Raises ExtenderError for silence, refusal and answers that make no sense."""
    extender, preemptor, candidates = question.extender, question.preemptor, question.candidates
    url = url_of(extender)
    victims = {
        candidate.node: {
            "Pods": [{"UID": victim.uid} for victim in candidate.victims],
            "NumPDBViolations": candidate.pdb_violations,
        }
        for candidate in candidates
    }
    arguments = msgspec.json.encode({"Pod": preemptor, "NodeNameToVictims": None, "NodeNameToMetaVictims": victims})
    limit = aiohttp.ClientTimeout(total=extender.http_timeout)
    headers = {"Content-Type": "application/json"}
    try:
        async with session.post(url, data=arguments, headers=headers, timeout=limit, raise_for_status=True) as response:
            answer = await response.content.read(_LARGEST_ANSWER)
            while len(answer) < _LARGEST_ANSWER and (more := await response.content.read(_LARGEST_ANSWER)):
                answer += more
    except TimeoutError as error:
        raise ExtenderError(f"extender {url}: no answer within {extender.http_timeout:g} s") from error
    except (aiohttp.ClientError, OSError) as error:
        raise ExtenderError(f"extender {url}: {error or type(error).__name__}") from error
    try:
        result = msgspec.json.decode(answer, type=dict[str, Any])
        remaining = _field(result, "NodeNameToMetaVictims") or {}
        offered = {candidate.node: candidate for candidate in candidates}
        return [_chosen(node, victims, offered) for node, victims in sorted(remaining.items())]
    except (msgspec.DecodeError, ValueError, AttributeError, TypeError) as error:
        raise ExtenderError(f"extender {url}: not a fitting ExtenderPreemptionResult: {error}") from error


def _chosen(node: str, victims: dict[str, Any] | None, offered: dict[str, Candidate]) -> Candidate:
    """A remaining node in terms of what was offered; one whose victims are null has none.

    Raises ValueError for nodes and victims that were not offered.
    """
    candidate = offered.get(node)
    if candidate is None:
        raise ValueError(f"node {node!r} is not one of the candidates")
    uids = {_field(pod, "UID") for pod in _field(victims or {}, "Pods") or ()}
    unknown = uids - {victim.uid for victim in candidate.victims}
    if unknown:
        raise ValueError(f"no victim on node {node!r} has the uid {unknown.pop()!r}")
    remaining = [victim for victim in candidate.victims if victim.uid in uids]
    return Candidate(node, remaining, int(_field(victims or {}, "NumPDBViolations") or 0))


def _field(parent: dict[str, Any], name: str) -> Any:
    """A field by its name in any case, as Go reads JSON: extenders in other languages differ."""
    return next((value for key, value in parent.items() if key.lower() == name.lower()), None)
