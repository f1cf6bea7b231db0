"""A policy's scheduler extenders: asked over HTTP, heard by decisions (docs/semantics.md D5).

A decision does not wait: if it has to ask, it stops with `UnaskedError`. Once that is
answered it is decided again, on the state of then. An answer holds for a node with these
victims only, and new candidates do not stand.

The wire format is that of `k8s.io/kube-scheduler/extender/v1`: `ExtenderPreemptionArgs`
goes out, an `ExtenderPreemptionResult` comes back, always with uids.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
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
"""By offer, the candidate that remains of it; None if it was dropped."""
Said = dict[str, Answers | ExtenderError]
"""By address what an extender has said of a preemptor until a decision was reached."""


@dataclass(frozen=True, slots=True)
class Question:
    """Candidates that an extender has to be asked about; then it is decided again."""

    result: ClassVar = "asks"
    extender: ExtenderConfig
    preemptor: Pod
    candidates: list[Candidate]


class UnaskedError(Exception):
    """The decision cannot go on before this question is answered."""

    def __init__(self, question: Question) -> None:
        super().__init__(question)
        self.question = question


class ExtenderCache:
    """An extender as a decision sees it: it tells what was said, and never waits."""

    def __init__(self, extender: ExtenderConfig, said: Said) -> None:
        self.name = url_of(extender)
        self.ignorable = extender.ignorable
        self._extender = extender
        self._said = said.get(self.name, {})

    def is_interested(self, preemptor: Pod) -> bool:
        """Whether it manages a resource that the preemptor asks for, or none."""
        managed = self._extender.managed_resources
        return not managed or not requests(preemptor).keys().isdisjoint(managed)

    def __call__(self, preemptor: Pod, candidates: list[Candidate]) -> list[Candidate]:
        """The candidates that remain. Raises UnaskedError and ExtenderError."""
        if isinstance(self._said, ExtenderError):
            raise self._said
        said = self._said
        offers = [offer for offer in map(_offer_of, candidates) if offer in said]
        if not offers:
            raise UnaskedError(Question(self._extender, preemptor, candidates))
        return [candidate for offer in offers if (candidate := said[offer])]


def url_of(extender: ExtenderConfig) -> str:
    """The address of the preempt verb, by which errors name the extender."""
    return f"{extender.url_prefix.rstrip('/')}/{extender.preempt_verb.lstrip('/')}"


def _offer_of(candidate: Candidate) -> _Offer:
    return candidate.node, frozenset(row.uid for row in candidate.victims)


class ExtenderClient:
    """Puts questions. `news` gets those that are answered: it can be decided again."""

    def __init__(self, news: asyncio.Queue[Any]) -> None:
        self._news = news
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        """Nobody asks any more."""
        if self._session:
            await self._session.close()
            self._session = None

    async def ask(self, question: Question, said: Said) -> None:
        """Put a question, one at a time for a preemptor; `said` gets the answer."""
        key, url = key_of(question.preemptor), url_of(question.extender)
        if self._session is None:
            self._session = aiohttp.ClientSession()
        try:
            left = {row.node: row for row in await ask(self._session, question)}
            offers = map(_offer_of, question.candidates)
            answers = {(node, uids): left.get(node) for node, uids in offers}
            known = said.get(url)
            said[url] = {**known, **answers} if isinstance(known, dict) else answers
        except ExtenderError as error:
            log.warning("%s: %s", key, error)
            said[url] = error
        except Exception as error:  # no preemptor waits without end
            log.exception("%s: extender %s could not be asked", key, url)
            said[url] = ExtenderError(f"extender {url}: {type(error).__name__}: {error}")
        self._news.put_nowait(question)


async def ask(session: aiohttp.ClientSession, question: Question) -> list[Candidate]:
    """The candidates that remain. Raises ExtenderError, also for silence and nonsense."""
    extender, url = question.extender, url_of(question.extender)
    victims: dict[str, Any] = {}
    offered = {row.node: row for row in question.candidates}
    for node, candidate in offered.items():
        uids = [{"UID": row.uid} for row in candidate.victims]
        victims[node] = {"Pods": uids, "NumPDBViolations": candidate.pdb_violations}
    arguments = {"Pod": question.preemptor, "NodeNameToVictims": None, "NodeNameToMetaVictims": victims}
    post = partial(session.post, url, data=msgspec.json.encode(arguments), raise_for_status=True)
    limit = aiohttp.ClientTimeout(total=extender.http_timeout)
    headers = {"Content-Type": "application/json"}
    cause: Exception
    try:
        async with post(headers=headers, timeout=limit) as response:
            content, answer = response.content, b""
            while len(answer) < _LARGEST_ANSWER and (more := await content.read(_LARGEST_ANSWER)):
                answer += more
        result = msgspec.json.decode(answer, type=dict[str, Any])
        remaining = _field(result, "NodeNameToMetaVictims") or {}
        return [_chosen(node, victims, offered) for node, victims in sorted(remaining.items())]
    except TimeoutError as error:
        cause, why = error, f"no answer within {extender.http_timeout:g} s"
    except (aiohttp.ClientError, OSError) as error:
        cause, why = error, str(error) or type(error).__name__
    except (msgspec.DecodeError, ValueError, AttributeError, TypeError) as error:
        cause, why = error, f"not a fitting ExtenderPreemptionResult: {error}"
    raise ExtenderError(f"extender {url}: {why}") from cause


def _chosen(node: str, victims: dict[str, Any] | None, offered: dict[str, Candidate]) -> Candidate:
    """A remaining node as it was offered; null victims are none.

    Raises ValueError for nodes and victims that were not offered.
    """
    candidate = offered.get(node)
    if candidate is None:
        raise ValueError(f"node {node!r} is not one of the candidates")
    told = victims or {}
    uids = {_field(pod, "UID") for pod in _field(told, "Pods") or ()}
    unknown = uids - {row.uid for row in candidate.victims}
    if unknown:
        raise ValueError(f"no victim on node {node!r} has the uid {unknown.pop()!r}")
    remaining = [row for row in candidate.victims if row.uid in uids]
    return Candidate(node, remaining, int(_field(told, "NumPDBViolations") or 0))


def _field(parent: dict[str, Any], name: str) -> Any:
    """A field by its name in any case, as Go reads JSON."""
    return next((value for key, value in parent.items() if key.lower() == name.lower()), None)
