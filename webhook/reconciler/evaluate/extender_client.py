"""Asking a policy's extenders in the background, so that no decision waits for one (docs/semantics.md D5)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import aiohttp

from webhook.kube.objects import Pod, key_of
from webhook.policy.model import PreemptionPolicy
from webhook.preemption.extenders import ExtenderError
from webhook.reconciler.evaluate.extender_cache import Answers, ExtenderCache, Question, merged, url_of
from webhook.reconciler.evaluate.extender_request import ask

__all__ = ["ExtenderClient"]

log = logging.getLogger(__name__)


class ExtenderClient:
    """Puts questions and remembers the answers until a decision was reached.

    `answered(preemptor)` is called when it can be decided for again; whoever does not must `forget` it.
    """

    def __init__(self, answered: Callable[[Pod], None]) -> None:
        self._answered = answered
        self._said: dict[str, dict[str, Answers | ExtenderError]] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._session: aiohttp.ClientSession | None = None

    def extenders(self, policy: PreemptionPolicy, preemptor: Pod) -> list[ExtenderCache]:
        """The policy's extenders, as a decision for this preemptor asks them."""
        said = self._said.get(preemptor.metadata.uid, {})
        return [ExtenderCache(extender, said.get(url_of(extender), {})) for extender in policy.extenders]

    def ask(self, question: Question) -> None:
        """Put a question; a preemptor has one under way at a time."""
        uid = question.preemptor.metadata.uid
        task = asyncio.get_running_loop().create_task(self._ask(question))
        self._tasks[uid] = task
        task.add_done_callback(lambda _: self._tasks.pop(uid, None))

    def forget(self, uid: str) -> None:
        """A decision was reached for the pod of this uid, or none is wanted any more: the next one asks again."""
        self._said.pop(uid, None)

    async def close(self) -> None:
        """Stop asking and forget everything."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._said.clear()
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _ask(self, question: Question) -> None:
        preemptor, url = question.preemptor, url_of(question.extender)
        if self._session is None:
            self._session = aiohttp.ClientSession()
        said = self._said.setdefault(preemptor.metadata.uid, {})
        try:
            remaining = await ask(self._session, question)
            said[url] = merged(said.get(url, {}), question.candidates, remaining)
        except ExtenderError as error:
            log.warning("%s: %s", key_of(preemptor), error)
            said[url] = error
        except Exception as error:  # whatever it is, the preemptor must not wait for an answer without end
            log.exception("%s: extender %s could not be asked", key_of(preemptor), url)
            said[url] = ExtenderError(f"extender {url}: {type(error).__name__}: {error}")
        self._answered(preemptor)
