"""The victims of a plan as it names them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Annotated

import msgspec

from webhook.kube.objects.meta import key_of
from webhook.kube.objects.pod import Pod

_DNS = r"(?=.{1,253}\Z)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
NAME = re.compile(rf"\A{_DNS}\Z")
Name = Annotated[str, msgspec.Meta(pattern=NAME.pattern)]
"""A DNS subdomain, as Kubernetes names nodes, namespaces and pods."""
NameOrNone = Annotated[str, msgspec.Meta(pattern=rf"\A({_DNS})?\Z")]
Id = Annotated[str, msgspec.Meta(pattern=r"\A[A-Za-z0-9.-]{1,128}\Z")]
"""The id of a plan, or a uid."""


class PlanVictim(msgspec.Struct, frozen=True, omit_defaults=True):
    """A pod that is to leave; the uid makes sure that it is not its successor of the same name.

    Victims of one `group` go whole or not at all; 0 is none. A victim without a name is known by its uid alone.
    """

    namespace: NameOrNone = ""
    name: NameOrNone = ""
    uid: Id = ""
    group: int = 0

    @property
    def key(self) -> str:
        """`namespace/name`; the uid if the name is not known."""
        return f"{self.namespace}/{self.name}" if self.name else self.uid


def as_victims(pods: Iterable[Pod], groups: Mapping[str, str]) -> tuple[PlanVictim, ...]:
    """These pods as the victims of a plan; `groups` names by key those that they go with, numbered from 1 on."""
    numbers, victims = {"": 0}, []
    for pod in pods:
        meta, number = pod.metadata, numbers.setdefault(groups.get(key_of(pod), ""), len(numbers))
        victims.append(PlanVictim(meta.namespace, meta.name, meta.uid, number))
    return tuple(victims)
