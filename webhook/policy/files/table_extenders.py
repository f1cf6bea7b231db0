"""The table of scheduler extenders in a PreemptionPolicy; the names are those of KubeSchedulerConfiguration."""

from __future__ import annotations

from webhook.policy.files.object_shape import Field, ObjectShape, Values, plain
from webhook.policy.files.reader import Reader
from webhook.policy.files.shapes import Duration, Flag, ListOf, Text
from webhook.policy.files.yamltree import YamlNode
from webhook.policy.model import ExtenderConfig

__all__ = ["EXTENDER"]

_LONGEST_TIMEOUT = 60
"""Seconds."""


def _extender_check(values: Values, nodes: dict[str, YamlNode], reader: Reader) -> None:
    if not 0 < values.get("http_timeout", 1.0) <= _LONGEST_TIMEOUT:
        reader.error(nodes["http_timeout"], f"more than 0s and at most {_LONGEST_TIMEOUT}s, for the preemptor waits")


EXTENDER = ObjectShape(
    "extender",
    "A component beside the scheduler that may drop candidates; its fields are those of KubeSchedulerConfiguration.",
    (
        Field(
            "urlPrefix",
            "url_prefix",
            Text(
                "an address such as http://extender.kube-system.svc/scheduler",
                pattern=r"^https?://[^\s/?#]+[^\s?#]*$",
            ),
            "Where the extender is.",
            required=True,
        ),
        Field(
            "preemptVerb",
            "preempt_verb",
            Text("a path below urlPrefix", pattern=r"^[A-Za-z0-9._/-]+$"),
            "Appended to urlPrefix.",
            required=True,
        ),
        Field("httpTimeout", "http_timeout", Duration(), "How long an answer may take.", default="5s"),
        Field("ignorable", "ignorable", Flag(), "Whether preemption goes on without it if it fails.", default=False),
        Field(
            "managedResources",
            "managed_resources",
            ListOf(Text("the name of a resource"), least=1),
            "It is asked only about pods that request one of these; about all if absent.",
        ),
    ),
    plain(ExtenderConfig),
    check=_extender_check,
)
