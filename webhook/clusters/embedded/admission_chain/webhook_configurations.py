"""Admission webhooks as registered: which requests each one asks for.

Compiled from Mutating- and ValidatingWebhookConfigurations; the meanings of rules, scope and selectors are those
of `k8s.io/apiserver/pkg/admission/plugin/webhook`. `matchConditions` are CEL over the AdmissionRequest, every one of
which must hold.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import msgspec

from webhook.clusters.embedded.protocol.api_resources import Object
from webhook.clusters.embedded.protocol.calls import WriteRequest
from webhook.kube.objects.meta import LabelSelector
from webhook.kube.selectors import Matcher, label_matcher
from webhook.policy.cel.program import CelError, CelRuntimeError, Inputs, compile_bool

CONFIGURATIONS = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")
EVENT_GROUPS = ("", "events.k8s.io")
"""The API groups of the one resource that is served in two; `matchPolicy: Equivalent` sees both as one."""


def _asks(rule: Mapping[str, Any], change: WriteRequest, group: str) -> bool:
    """Whether a row of `rules` asks for the request, whose resource is taken to be one of this API group.

    A Namespace object counts as cluster-wide although its request names a namespace.
    """
    plural, version = change.resource.plural, change.resource.version
    scope = "Namespaced" if change.namespace and plural != "namespaces" else "Cluster"
    wanted = {"operations": change.operation, "apiGroups": group, "apiVersions": version}
    return (
        (rule.get("scope") or "*") in ("*", scope)
        and all({"*", value} & set(rule.get(part) or ()) for part, value in wanted.items())
        and any(
            resource in ("*", plural) and subresource in ("*", change.subresource)
            for resource, _, subresource in (text.partition("/") for text in rule.get("resources") or ())
        )
    )


@dataclass(frozen=True, slots=True)
class RegisteredWebhook:
    """One webhook of a stored configuration, in which Kubernetes' defaults are filled in (`spec`)."""

    key: tuple[str, str, int]
    spec: Mapping[str, Any]
    in_namespace: Matcher
    of_object: Matcher

    @property
    def name(self) -> str:
        """Its name, as refusals tell it."""
        return str(self.spec["name"])

    @property
    def fails_closed(self) -> bool:
        """Whether a request is refused about which it cannot be asked."""
        return self.spec.get("failurePolicy") != "Ignore"

    def asks_for(self, change: WriteRequest, namespace_labels: Mapping[str, str] | None) -> bool:
        """Whether rules and selectors match; `namespace_labels` is None for a cluster-wide object."""
        resource = change.resource
        if resource.plural in CONFIGURATIONS:
            return False
        if namespace_labels is not None and not self.in_namespace(namespace_labels):
            return False
        is_event = resource.plural == "events" and self.spec.get("matchPolicy") != "Exact"
        groups = EVENT_GROUPS if is_event else (resource.group,)
        if not any(_asks(rule, change, group) for rule in self.spec.get("rules") or () for group in groups):
            return False
        states = [state for state in (change.object, change.old_object) if state is not None] or [{}]
        return any(self.of_object((state.get("metadata") or {}).get("labels") or {}) for state in states)


def compile_webhooks(configurations: Iterable[Object]) -> list[RegisteredWebhook]:
    """Every webhook, configurations by name, webhooks in the order they are written."""
    by_name = sorted(configurations, key=lambda configuration: str(configuration["metadata"]["name"]))
    return [
        RegisteredWebhook(
            (configuration["metadata"]["name"], webhook["name"], index),
            webhook,
            _selector(webhook.get("namespaceSelector")),
            _selector(webhook.get("objectSelector")),
        )
        for configuration in by_name
        for index, webhook in enumerate(configuration.get("webhooks") or ())
    ]


def _selector(selector: Mapping[str, Any] | None) -> Matcher:
    return label_matcher(msgspec.convert(selector or {}, LabelSelector))


_compiled = lru_cache(maxsize=256)(compile_bool)


class ConditionError(Exception):
    """A condition that could not be evaluated while no other one was false."""


def conditions_hold(conditions: Iterable[tuple[str, str]], request: Object) -> bool:
    """Whether all conditions (name, expression) hold for an AdmissionRequest.

    One that is false decides; else one that fails raises ConditionError. `authorizer` is not among the variables.
    Size is no obstacle, as for an API server, whose bound is on the steps of an expression.
    """
    asked = {key: value for key, value in request.items() if key not in ("object", "oldObject")}
    objects = {"object": request["object"], "oldObject": request["oldObject"]}
    inputs = Inputs(lambda: {**objects, "request": asked, "namespaceObject": None, "priorityClass": None})
    failures = []
    for name, expression in conditions:
        try:
            if not _compiled(expression).evaluate(inputs):
                return False
        except (CelError, CelRuntimeError) as error:
            failures.append(f"match condition {name!r}: expression {expression!r} resulted in error: {error}")
    if failures:
        raise ConditionError("; ".join(failures))
    return True
