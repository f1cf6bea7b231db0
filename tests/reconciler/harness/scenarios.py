"""Small clusters of which every step is known, and how they live."""

import copy
import math
import random
from collections.abc import Callable, Iterator
from itertools import pairwise
from operator import methodcaller
from typing import Any, NamedTuple

from tests.preemption.building import node
from tests.reconciler.builders import policy
from tests.reconciler.harness.cluster import Cluster
from tests.reconciler.harness.pods import GANG, Json, fixed, group, members, preemptor, victim
from tests.reconciler.harness.virtual_time import later, now, run
from webhook.kube.errors import ApiError
from webhook.policy.model.preemption import GroupDisruption, Groups
from webhook.policy.model.victims import Victims

Happens = Callable[[Cluster], object]
does = methodcaller
"""What somebody does to a cluster, by the name of its method."""
WHOLE = Groups(disruption=GroupDisruption.GROUP)


class Scene(NamedTuple):
    """How a cluster is made: its nodes, pods and groups, what else is done to it, and the fields of its policy.

    A node may be given by its CPUs alone: they are n1, n2 and so on.
    """

    parts: tuple[Json | str | Happens, ...]
    fields: dict[str, Any]

    def __call__(self) -> Cluster:
        nodes = [
            node(f"n{number}", part) if isinstance(part, str) else copy.deepcopy(part)
            for number, part in enumerate(filter(_is_node, self.parts), 1)
        ]
        made = Cluster(policy(**self.fields), nodes, random.Random(1))
        _take(made, *(part for part in self.parts if not _is_node(part)))
        return made

    def but(self, *parts: Json | str | Happens, **fields: Any) -> "Scene":
        """The same with more parts, and other fields of the policy."""
        return Scene((*self.parts, *parts), {**self.fields, **fields})


def scene(*parts: Json | str | Happens, **fields: Any) -> Scene:
    """A cluster of these parts, under a policy with these fields."""
    return Scene(parts, fields)


def _is_node(part: Json | str | Happens) -> bool:
    return isinstance(part, str) or (isinstance(part, dict) and "allocatable" in part.get("status", {}))


def _take(made: Cluster, *parts: Json | Happens) -> None:
    for part in parts:
        if callable(part):
            part(made)
        elif "containers" in part["spec"]:
            made.put(copy.deepcopy(part))
        else:
            made.groups.append(copy.deepcopy(part))


def at(seconds: float, *parts: Json | Happens) -> Happens:
    """These come, or happen, so many seconds later."""
    return lambda made: later(seconds, _take, made, *parts)


def having(**values: Any) -> Happens:
    """These attributes of a cluster or of its scheduler have these values; what is several has these, too."""

    def give(made: Cluster) -> None:
        for name, value in values.items():
            owner: Any = made.scheduler if hasattr(made.scheduler, name) else made
            if isinstance(value, dict | set):
                getattr(owner, name).update(value)
            else:
                setattr(owner, name, value)

    return give


def full(
    *others: Json | Happens,
    cpu: str = "5",
    takes: float = 0.0,
    grace: int | None = None,
    spare: bool = True,
    nominated: str = "",
    **fields: Any,
) -> Scene:
    """Node n1 is full of pod a, which takes so long to end, n2 of two that may go if `spare`; p comes after 2 s."""
    second = (victim("b1", "n2"), victim("b2", "n2")) if spare else (fixed("b", "n2", "8"),)
    waits = preemptor(cpu=cpu)
    waits["status"]["nominatedNodeName"] = nominated
    a = victim("a", "n1", "6", grace=int(takes) if grace is None else grace)
    return scene("8", "8", a, *second, having(ends_after={"a": takes}), at(2.0, waits), *others, **fields)


def crowded(*parts: Json | Happens, cpu: str, covered: str = "", **fields: Any) -> Scene:
    """A node full of these pods, where every write takes its time; a budget may cover those of one app."""
    kept = does("cover", covered, 9)
    return scene("8", slow, having(slow_writes=True), kept, *parts, preemptor(cpu=cpu), **fields)


def two_victims(*others: Json | Happens, nodes: int = 1, notice: float = 20.0, **fields: Any) -> Scene:
    """A full node with two pods, both of which a preemptor needs to go; they are told so many seconds before."""
    parts = (victim("a", "n1"), victim("b", "n1"), *others, preemptor(cpu="8"))
    return scene(*["8"] * nodes, *parts, victims=Victims(notice=notice), **fields)


def plain_gang(*more: Json | Happens, count: int = 3, whole: bool = False, **fields: Any) -> Scene:
    """As many full nodes as members, with two victims each, of which one has to go; in groups that go whole if so."""
    labels = {half: {"app": "c", GANG: half} if whole else {"app": "c"} for half in "ab"}
    victims = [victim(f"v{n}{half}", f"n{n}", grace=1, **labels[half]) for n in range(1, count + 1) for half in "ab"]
    parts = (*["8"] * count, group("gang", count), *victims, *members("gang", count, 4), *more)
    return scene(*parts, groups=WHOLE if whole else Groups(), **fields)


def led(*ends: float, gap: float = 0.0, ahead: float = 0.0) -> Happens:
    """One leader after the other, until these seconds and with gaps between; the clocks of the later ones are ahead."""
    bounds = list(pairwise((-gap, *ends, math.inf)))
    return having(terms=[(begin + gap, end, ahead if place else 0.0) for place, (begin, end) in enumerate(bounds)])


class Slowest(random.Random):
    """Everything takes as long as it can."""

    def choice(self, seq: Any) -> Any:
        return seq[-1]


def slow(made: Cluster) -> None:
    """Everything takes as long as it can."""
    made.dice = made.scheduler.dice = Slowest()


def changed(name: str, **status: Any) -> Happens:
    """Somebody changes the status of a pod that is there."""
    return does("edit", name, lambda pod: pod["status"].update(status))


def annotated(name: str, texts: dict[str, str], where: str = "annotations") -> Happens:
    """Somebody writes annotations, or labels, on a pod that is there."""
    return does("edit", name, lambda pod: pod["metadata"].setdefault(where, {}).update(texts))


def on_decision(what: Happens) -> Happens:
    """Something happens as soon as the first decision is told."""

    def listen(made: Cluster) -> None:
        def hear(line: Json) -> None:
            if [known["message"] for known in made.told].count("decision") == 1 and line["message"] == "decision":
                later(0.0, what, made)

        made.heard.append(hear)

    return listen


def on_request(
    what: Happens, *verbs: str, of: str = "", about: str = "", times: float = 1, done: bool = False
) -> Happens:
    """Something happens at the first requests of these verbs, when they arrive or were `done`.

    It may raise the answer, or take its time; `of` is the name of a pod or a Lease, or how that ends, and `about` an
    annotation that is written or taken off.
    """

    def listen(made: Cluster) -> None:
        left = [times]

        def hear(verb: str, name: str, body: Json) -> object:
            written = body.get("metadata", {}).get("annotations") or {}
            if verb not in verbs or not name.endswith(of) or (about and about not in written) or not left[0]:
                return None
            left[0] -= 1
            return what(made)

        (made.answered if done else made.arriving).append(hear)

    return listen


def answering(error: ApiError, *verbs: str, until: float = math.inf, times: float = math.inf, **which: Any) -> Happens:
    """The server answers such requests like that until then."""

    def answer(_: Cluster) -> None:
        if now() < until:
            raise error

    return on_request(answer, *verbs, times=times, **which)


throttle_after_the_first = on_request(lambda made: setattr(made, "throttled", (now() + 20.0, 1.0)), "evict", done=True)
"""The server has too much to do for 20 seconds once the first victim has gone."""


def clearing(said: str = "no node") -> Happens:
    """A scheduler clears each nomination after a second; without PostFilter plugins it says nothing of preemption."""
    why = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": said}

    def listen(made: Cluster) -> None:
        def hear(_: Json | None, new: Json | None) -> None:
            if new is not None and new["status"].get("nominatedNodeName"):
                clear = changed(new["metadata"]["name"], nominatedNodeName="", conditions=[why])
                later(1.0, clear, made)

        made.changes.append(hear)

    return listen


def lived(
    make: Callable[[], Cluster],
    seconds: float = 300.0,
    *,
    killed_at: int = 0,
    is_judged: bool = True,
    **happens: Happens,
) -> Cluster:
    """The cluster that is made when it has lived; something `happens` at `at_SECONDS`, a process is killed at a step.

    No judge has found anything then, unless what happens is not told them.
    """
    lives: list[Cluster] = []

    async def live() -> None:
        made = make()
        lives.append(made)
        made.killed_at |= {killed_at}
        for moment, what in happens.items():
            later(float(moment[3:].replace("_", ".")), what, made)
        await made.live(seconds)
        assert not is_judged or made.faults() == [], f"killed at step {killed_at}"

    run(live())
    return lives[0]


def killed_at_each_step(
    make: Callable[[], Cluster], seconds: float = 300.0, **more: Any
) -> Iterator[tuple[int, Cluster]]:
    """The same clusters when they have lived, each with another step that is the last of a process; 0 is none."""
    for step in range(lived(make, seconds, **more).steps + 1):
        yield step, lived(make, seconds, killed_at=step, **more)


def bound(made: Cluster, *names: str) -> list[str]:
    """The pods of these names that have a node, or whose names begin so."""
    return sorted(name for name, pod in made.pods.items() if name.startswith(names) and pod["spec"].get("nodeName"))


def ended(made: Cluster, preemptor: str = "") -> list[str]:
    """How plans ended, or those for a pod, but for those that went on under the next leader."""
    over = [line for line in made.told if line["message"] == "plan ended" and line["ending"] != "deposed"]
    return [line["ending"] for line in over if line["preemptor"].endswith(preemptor)]
