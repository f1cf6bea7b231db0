"""ExtenderConfig: a scheduler extender with a preempt verb. Durations are seconds."""

from __future__ import annotations

from typing import Annotated

from webhook.policy.shapes.findings import Reader
from webhook.policy.shapes.object_shape import FILLED, Checked, Nodes, Values, mapping
from webhook.policy.shapes.shapes import DURATION, string

_ADDRESS = string("an address such as http://extender.kube-system.svc/scheduler", r"^https?://[^\s/?#]+[^\s?#]*$")
_PATH = string("a path below urlPrefix", r"^[A-Za-z0-9._/-]+$")
_RESOURCE = string("the name of a resource")
_LONGEST_TIMEOUT = 60
"""Seconds that an extender may take to answer, at most."""


@mapping("extender")
class ExtenderConfig(Checked, frozen=True, kw_only=True):
    """A component beside the scheduler that may drop candidates; its fields are those of KubeSchedulerConfiguration."""

    url_prefix: Annotated[str, _ADDRESS, "Where the extender is."]
    preempt_verb: Annotated[str, _PATH, "Appended to urlPrefix."]
    http_timeout: Annotated[float, DURATION, "How long an answer may take."] = 5.0
    ignorable: Annotated[bool, "Whether preemption goes on without it if it fails."] = False
    managed_resources: Annotated[
        tuple[Annotated[str, _RESOURCE], ...],
        FILLED,
        "It is asked only about pods that request one of these; about all if absent.",
    ] = ()

    @staticmethod
    def check(values: Values, nodes: Nodes, reader: Reader) -> None:
        """The preemptor does not wait for it too long."""
        if not 0 < values.get("http_timeout", 1.0) <= _LONGEST_TIMEOUT:
            reader.error(
                nodes["http_timeout"], f"more than 0s and at most {_LONGEST_TIMEOUT}s, for the preemptor waits"
            )
