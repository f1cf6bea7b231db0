"""What extenders said, as decisions see it (docs/semantics.md D5). Pure.

A decision does not wait. If it would have to ask it stops with `UnaskedError`; once the question is answered, the
preemptor is decided for again, on the state of then. What an extender said of a node with certain victims holds for
that node with these victims; of the candidates of then, those it was not asked about do not stand.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from webhook.kube.objects import Pod
from webhook.policy.model import ExtenderConfig
from webhook.preemption.extenders import ExtenderError
from webhook.preemption.snapshot.amounts import requests
from webhook.preemption.victims.candidates import Candidate

__all__ = ["Answers", "ExtenderCache", "Question", "UnaskedError", "merged", "url_of"]

_Offer = tuple[str, frozenset[str]]
"""A node and the uids of the victims on it."""
Answers = Mapping[_Offer, Candidate | None]
"""What became of each offer: the candidate that remains of it, None if it was dropped."""


class Question(NamedTuple):
    """Candidates that an extender has not been asked about yet."""

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

    def __init__(self, extender: ExtenderConfig, said: Answers | ExtenderError) -> None:
        self.name = url_of(extender)
        self.ignorable = extender.ignorable
        self._extender = extender
        self._said = said

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


def merged(before: Answers | ExtenderError, asked: list[Candidate], remaining: list[Candidate]) -> Answers:
    """What is known after one more question, of which these candidates remain."""
    offers = {candidate.node: _offer_of(candidate) for candidate in asked}
    known: dict[_Offer, Candidate | None] = {} if isinstance(before, ExtenderError) else dict(before)
    known.update(dict.fromkeys(offers.values()))
    known.update({offers[candidate.node]: candidate for candidate in remaining})
    return known


def url_of(extender: ExtenderConfig) -> str:
    """The address of the preempt verb; it names the extender in errors."""
    return f"{extender.url_prefix.rstrip('/')}/{extender.preempt_verb.lstrip('/')}"


def _offer_of(candidate: Candidate) -> _Offer:
    return candidate.node, frozenset(victim.uid for victim in candidate.victims)
