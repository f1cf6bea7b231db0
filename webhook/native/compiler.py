"""From a policy set to the objects that the API server enforces, and what cannot be given to it; and both as YAML."""

from collections.abc import Iterable
from pathlib import Path
from typing import TextIO

import msgspec

from webhook.admission.kubectl_yaml import write_yaml
from webhook.kube.objects.cluster_scoped import PriorityClass
from webhook.native.mutation import mutating_objects
from webhook.native.objects import Object, Settings
from webhook.native.protected import protected_objects
from webhook.native.rules import policy_objects
from webhook.native.sink import Inexpressible, Sink
from webhook.policy.evaluation.engine import originals
from webhook.policy.model.policies import Policies


class Compiled(msgspec.Struct, frozen=True):
    """The objects in a stable order, each policy followed by its binding, and what stays with the webhook."""

    objects: list[Object]
    inexpressible: list[Inexpressible]

    @property
    def lacks(self) -> list[Inexpressible]:
        """What it lacks by the policies; by the cluster's classes it may lack more, and be applied."""
        return [lack for lack in self.inexpressible if not lack.by_classes]


def compile_policies(
    policies: Policies, classes: Iterable[PriorityClass] | None, settings: Settings, now: float
) -> Compiled:
    """Compile a policy set for these PriorityClasses (None: not known) as of `now`, in seconds since the epoch."""
    sink = Sink(policies, classes, settings, now)
    made = [*mutating_objects(policies, sink)] if settings.mutates else []
    made += protected_objects(policies, sink)
    twins = originals(policies.preemption)
    for policy in policies.priority:
        made += policy_objects(policy, twins, sink)
    return Compiled(made, list(dict.fromkeys(sink.inexpressible)))


def write(compiled: Compiled, source: Path, to: TextIO) -> None:
    """Every object as a document for kubectl; expressions of several lines stay as they are."""
    do = "do not edit, change the policies and make it again"
    to.write(f"# Made by `giveway compile {source}`: {do}.\n")
    for inexpressible in compiled.inexpressible:
        text = inexpressible.told
        to.write(f"# {text[:1].upper()}{text[1:]}\n")
    write_yaml(compiled.objects, to)
