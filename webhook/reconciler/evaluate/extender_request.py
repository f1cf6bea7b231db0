"""A scheduler extender asked over HTTP which candidates of a preemption may stand (docs/semantics.md D5).

The wire format is that of `k8s.io/kube-scheduler/extender/v1`: `ExtenderPreemptionArgs` goes out, an
`ExtenderPreemptionResult` comes back, always with uids.
"""

from __future__ import annotations

from typing import Any

import aiohttp
import msgspec

from webhook.kube.objects import Pod
from webhook.preemption.extenders import ExtenderError
from webhook.preemption.victims.candidates import Candidate
from webhook.reconciler.evaluate.extender_cache import Question, url_of

__all__ = ["ask"]

_LARGEST_ANSWER = 64 * 2**20


async def ask(session: aiohttp.ClientSession, question: Question) -> list[Candidate]:
    """The candidates that remain. Raises ExtenderError for silence, refusal and answers that make no sense."""
    extender, preemptor, candidates = question
    url = url_of(extender)
    try:
        answer = await _post(session, url, _arguments(preemptor, candidates), extender.http_timeout)
    except TimeoutError as error:
        raise ExtenderError(f"extender {url}: no answer within {extender.http_timeout:g} s") from error
    except (aiohttp.ClientError, OSError) as error:
        raise ExtenderError(f"extender {url}: {error or type(error).__name__}") from error
    try:
        result = msgspec.json.decode(answer, type=dict[str, Any])
        remaining = _field(result, "NodeNameToMetaVictims") or {}
        offered = {candidate.node: candidate for candidate in candidates}
        return [_chosen(node, victims, offered) for node, victims in sorted(remaining.items())]
    except (msgspec.DecodeError, _NonsenseError, AttributeError, TypeError) as error:
        raise ExtenderError(f"extender {url}: not a fitting ExtenderPreemptionResult: {error}") from error


async def _post(session: aiohttp.ClientSession, url: str, body: bytes, seconds: float) -> bytes:
    limit = aiohttp.ClientTimeout(total=seconds)
    headers = {"Content-Type": "application/json"}
    async with session.post(url, data=body, headers=headers, timeout=limit, raise_for_status=True) as response:
        answer = await response.content.read(_LARGEST_ANSWER)
        while len(answer) < _LARGEST_ANSWER and (more := await response.content.read(_LARGEST_ANSWER)):
            answer += more
        return answer


def _arguments(preemptor: Pod, candidates: list[Candidate]) -> bytes:
    victims = {
        one.node: {
            "Pods": [{"UID": victim.uid} for victim in one.victims],
            "NumPDBViolations": one.pdb_violations,
        }
        for one in candidates
    }
    return msgspec.json.encode({"Pod": preemptor, "NodeNameToVictims": None, "NodeNameToMetaVictims": victims})


class _NonsenseError(ValueError):
    """An answer about nodes or victims that were not offered."""


def _chosen(node: str, victims: dict[str, Any] | None, offered: dict[str, Candidate]) -> Candidate:
    """A remaining node in terms of what was offered; one whose victims are null has none."""
    candidate = offered.get(node)
    if candidate is None:
        raise _NonsenseError(f"node {node!r} is not one of the candidates")
    uids = {_field(pod, "UID") for pod in _field(victims or {}, "Pods") or ()}
    unknown = uids - {victim.uid for victim in candidate.victims}
    if unknown:
        raise _NonsenseError(f"no victim on node {node!r} has the uid {unknown.pop()!r}")
    remaining = [victim for victim in candidate.victims if victim.uid in uids]
    return Candidate(node, remaining, int(_field(victims or {}, "NumPDBViolations") or 0))


def _field(parent: dict[str, Any], name: str) -> Any:
    """A field by its name in any case, as Go reads JSON: extenders in other languages differ."""
    return next((value for key, value in parent.items() if key.lower() == name.lower()), None)
