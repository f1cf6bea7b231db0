"""The victims of a plan as it names them, and the digests that stand for them if they are too many to be named."""

from __future__ import annotations

import base64
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import blake2b
from itertools import chain, repeat

import msgspec

from webhook.kube.objects.meta import key_of
from webhook.kube.objects.pod import Pod

_DIGESTS_ROOM = 20 * 1024
"""Bytes of all digests, at most, before they are base64."""
_DIGEST = 8
"""Bytes of a digest, at most; with more than 2560 victims it is shorter, so that all have room."""
_UNIQUE_DIGEST = 6
"""Bytes by which a pod is found among all of a cluster; a shorter digest may be that of another pod, too."""
_DIGESTS = re.compile(r"[1-8]:[A-Za-z0-9+/]+={0,2}", re.ASCII)


class PlanVictim(msgspec.Struct, frozen=True, omit_defaults=True):
    """A pod that is to leave; the uid makes sure that it is not its successor of the same name.

    Victims of one `group` go whole or not at all; 0 is none.
    """

    namespace: str
    name: str
    uid: str
    group: int = 0

    @property
    def key(self) -> str:
        """`namespace/name`."""
        return f"{self.namespace}/{self.name}"


def as_victims(pods: Iterable[Pod], groups: Mapping[str, str]) -> tuple[PlanVictim, ...]:
    """These pods as the victims of a plan; `groups` names by key those that they go with, numbered from 1 on."""
    numbers, victims = {"": 0}, []
    for pod in pods:
        meta, number = pod.metadata, numbers.setdefault(groups.get(key_of(pod), ""), len(numbers))
        victims.append(PlanVictim(meta.namespace, meta.name, meta.uid, number))
    return tuple(victims)


def digests_of(victims: Iterable[PlanVictim]) -> tuple[str, tuple[int, ...]]:
    """The digests of the victims in the order of their groups, and how many are of no group, of group 1, and so on.

    The groups get new numbers, from 1 on; none if nobody is of a group.
    """
    ordered = sorted(victims, key=lambda victim: victim.group)
    counts = Counter(victim.group for victim in ordered)
    single = counts.pop(0, 0)
    size = max(1, min(_DIGEST, _DIGESTS_ROOM // len(ordered)))
    packed = b"".join(_digest(victim.uid, size) for victim in ordered)[:_DIGESTS_ROOM]
    return f"{size}:{base64.b64encode(packed).decode()}", (single, *counts.values()) if counts else ()


def found_again(
    text: str, groups: Sequence[int], pods: Iterable[PlanVictim], in_groups: Callable[[], Iterable[PlanVictim]]
) -> tuple[tuple[PlanVictim, ...], dict[str, int]]:
    """The victims with these digests and groups (`digests_of`); `pods` are those on the node of the plan.

    Only a victim of a group may be elsewhere: it is looked for among the pods `in_groups`. Also what stands for the
    victims that are not found, and their groups.
    """
    size, packed = int(text[0]), base64.b64decode(text[2:])
    digests = (packed[at : at + size] for at in range(0, len(packed), size))
    numbers = chain.from_iterable(repeat(number, count) for number, count in enumerate(groups))
    group_of = dict(zip(digests, chain(numbers, repeat(0)), strict=False))
    by_digest = {digest: pod for pod in pods if (digest := _digest(pod.uid, size)) in group_of}
    if groups and len(by_digest) < len(group_of) and size >= _UNIQUE_DIGEST:
        by_digest |= {digest: pod for pod in in_groups() if (digest := _digest(pod.uid, size)) in group_of}
    victims = tuple(msgspec.structs.replace(pod, group=group_of[digest]) for digest, pod in by_digest.items())
    return victims, {digest.hex(): group for digest, group in group_of.items() if digest not in by_digest}


def are_digests(text: str) -> bool:
    """Whether a text is one of digests."""
    try:
        return _DIGESTS.fullmatch(text) is not None and bool(base64.b64decode(text[2:], validate=True))
    except ValueError:
        return False


def _digest(uid: str, size: int) -> bytes:
    return blake2b(uid.encode(errors="surrogatepass"), digest_size=size).digest()
