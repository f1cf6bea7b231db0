"""A scheduler extender asked over HTTP which candidates of a preemption may stand (SEMANTICS D5).

The wire format is that of `k8s.io/kube-scheduler/extender/v1`: `ExtenderPreemptionArgs` goes out, an
`ExtenderPreemptionResult` comes back, always with uids. Calls block, as the decision does, for a bounded time.
"""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from webhook.kube.objects import Pod, key_of
from webhook.preemption.amounts import requests
from webhook.preemption.extending import ExtenderError
from webhook.preemption.plan import Candidate, Victim

__all__ = ["HttpExtender"]

_LARGEST_ANSWER = 64 * 2**20


class HttpExtender:
    """An extender's preempt verb.

    `url` is urlPrefix and verb joined, `timeout` in seconds. An extender that is `ignorable` may fail without
    stopping the decision. With `managed_resources` it is asked only about pods that request one of them. Where it
    keeps its own cache (`nodeCacheCapable`) it gets uids, else `pod_of` must give whole pods by key.
    """

    def __init__(
        self,
        url: str,
        *,
        timeout: float = 5.0,
        ignorable: bool = False,
        managed_resources: frozenset[str] = frozenset(),
        pod_of: Callable[[str], Mapping[str, Any]] | None = None,
    ) -> None:
        if not url.startswith(("http://", "https://")):
            raise ValueError(f"an extender's URL starts with http:// or https://, not {url!r}")
        self.name = url
        self.ignorable = ignorable
        self._timeout = timeout
        self._managed_resources = managed_resources
        self._pod_of = pod_of

    def is_interested(self, preemptor: Pod) -> bool:
        """Whether the preemptor asks for a resource that the extender manages; one that manages none sees all."""
        return not self._managed_resources or not self._managed_resources.isdisjoint(requests(preemptor))

    def __call__(self, preemptor: Pod, candidates: list[Candidate]) -> list[Candidate]:
        """The candidates that remain. Raises ExtenderError for silence, refusal and answers that make no sense."""
        answer = self._post(msgspec.json.encode(self._arguments(preemptor, candidates)))
        try:
            result = msgspec.json.decode(answer, type=dict[str, Any])
            remaining = _field(result, "NodeNameToMetaVictims") or {}
            return [_chosen(node, victims, candidates) for node, victims in sorted(remaining.items())]
        except (msgspec.DecodeError, _NonsenseError, AttributeError, TypeError) as error:
            raise ExtenderError(f"extender {self.name}: not a fitting ExtenderPreemptionResult: {error}") from error

    def _arguments(self, preemptor: Pod, candidates: list[Candidate]) -> dict[str, Any]:
        pod_of = self._pod_of
        if pod_of is None:
            uids = {one.node: _victims(one, lambda victim: {"UID": victim.uid}) for one in candidates}
            return {"Pod": preemptor, "NodeNameToVictims": None, "NodeNameToMetaVictims": uids}
        whole = {one.node: _victims(one, lambda victim: pod_of(victim.key)) for one in candidates}
        return {"Pod": pod_of(key_of(preemptor)), "NodeNameToVictims": whole, "NodeNameToMetaVictims": None}

    def _post(self, body: bytes) -> bytes:
        request = urllib.request.Request(self.name, body, {"Content-Type": "application/json"})  # noqa: S310  # see __init__
        try:
            with urllib.request.urlopen(request, timeout=self._timeout) as response:  # noqa: S310  # see __init__
                answer: bytes = response.read(_LARGEST_ANSWER)
        except urllib.error.HTTPError as error:
            raise ExtenderError(f"extender {self.name}: answered {error.code} {error.reason}") from error
        except (OSError, ValueError) as error:
            raise ExtenderError(f"extender {self.name}: {getattr(error, 'reason', error) or error}") from error
        return answer


class _NonsenseError(ValueError):
    """An answer about nodes or victims that were not offered."""


def _victims(candidate: Candidate, shown: Callable[[Victim], Mapping[str, Any]]) -> dict[str, Any]:
    return {"Pods": [shown(victim) for victim in candidate.victims], "NumPDBViolations": candidate.pdb_violations}


def _chosen(node: str, victims: dict[str, Any] | None, candidates: list[Candidate]) -> Candidate:
    """A remaining node in terms of what was offered; one whose victims are null has none."""
    offered = next((candidate for candidate in candidates if candidate.node == node), None)
    if offered is None:
        raise _NonsenseError(f"node {node!r} is not one of the candidates")
    uids = {_field(pod, "UID") for pod in _field(victims or {}, "Pods") or ()}
    unknown = uids - {victim.uid for victim in offered.victims}
    if unknown:
        raise _NonsenseError(f"no victim on node {node!r} has the uid {unknown.pop()!r}")
    remaining = [victim for victim in offered.victims if victim.uid in uids]
    return Candidate(node, remaining, int(_field(victims or {}, "NumPDBViolations") or 0))


def _field(parent: dict[str, Any], name: str) -> Any:
    """A field by its name in any case, as Go reads JSON: extenders in other languages differ."""
    return next((value for key, value in parent.items() if key.lower() == name.lower()), None)
