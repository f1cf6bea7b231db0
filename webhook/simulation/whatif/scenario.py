"""From what people write to steps: options of the command, and scenario files."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

import msgspec
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from webhook.admission.objectfiles import ObjectsError, read_documents, readable
from webhook.clusters.simulated.objects import kind_of
from webhook.policy.files.loading import load_texts
from webhook.policy.model.policies import Policies
from webhook.policy.shapes.findings import PolicyError
from webhook.policy.shapes.yaml_nodes import seconds as duration_of
from webhook.simulation.simulation import Step
from webhook.simulation.whatif.steps import AddNodes, Apply, Drain, RemoveNode, Scale, WhatIfError

_COUNT = re.compile(r"(\d{1,5})\s*[x×*]\s*(\S+)")  # noqa: RUF001 - people write the multiplication sign, too
_SCALE = re.compile(r"([a-z0-9][-a-z0-9.]*/[a-z0-9][-a-z0-9.]*)=(\d{1,6})")
_POLICIES = ("PriorityPolicy", "PreemptionPolicy")
_API = "giveway.dev/v1alpha1"


class _Strict(msgspec.Struct, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """Part of a scenario: a field that nobody reads is a mistake of its author."""


class _Scale(_Strict):
    """Another number of replicas for NAMESPACE/NAME."""

    workload: str
    replicas: int


class _AddNodes(_Strict):
    """So many nodes like one of the cluster file: of that instance type, or of that name."""

    count: int
    like: str


class _Step(_Strict):
    """One change; exactly one of them is named. `at` is a duration such as 90s, 10m or 1h30m."""

    at: str = "0s"
    apply: list[str] | None = None
    scale: _Scale | None = None
    remove_node: str | None = None
    drain: str | None = None
    add_nodes: _AddNodes | None = None


class _Spec(_Strict):
    steps: list[_Step]
    until: str | None = None


class _Metadata(_Strict):
    name: str


class Scenario(_Strict):
    """A scenario file: changes of a cluster, each at its time. Files to apply are relative to it."""

    api_version: Literal["giveway.dev/v1alpha1"]
    kind: Literal["Scenario"]
    metadata: _Metadata
    spec: _Spec


def scenario_schema() -> dict[str, Any]:
    """The JSON schema of scenario files."""
    return msgspec.json.schema(Scenario)


def duration(text: str) -> float:
    """Seconds of `90s`, `10m`, `1h30m`. Raises WhatIfError."""
    seconds = duration_of(text)
    if seconds is None or seconds < 0:
        raise WhatIfError(f"{text!r} is no duration: expected something like 90s, 10m or 1h30m")
    return seconds


def timed(text: str) -> Step:
    """A step of `TIME:VERB ARGUMENT`, such as `10m:scale web/api=20`. Raises WhatIfError."""
    at, colon, rest = text.partition(":")
    verb, _, argument = rest.strip().partition(" ")
    if not colon or not argument.strip():
        raise WhatIfError(f"--at {text!r}: expected TIME:CHANGE, such as '10m:scale web/api=20' or '1h:drain zone-a'")
    return step_of(verb, argument.strip(), duration(at.strip()))


def step_of(verb: str, argument: str, at: float = 0.0) -> Step:
    """A step by the name of its option. Raises WhatIfError."""
    match verb:
        case "apply":
            return applied([Path(argument)], at)
        case "scale":
            return _scaled(argument, at)
        case "without-node":
            return RemoveNode(at, argument)
        case "drain":
            return Drain(at, argument)
        case "add-nodes":
            if (match := _COUNT.fullmatch(argument)) is None:
                raise WhatIfError(f"--add-nodes {argument!r}: expected COUNTxTYPE, such as 20xm5.large")
            return AddNodes(at, int(match[1]), match[2])
    raise WhatIfError(f"{verb!r} is no change: there are apply, scale, without-node, drain and add-nodes")


def read_scenario(path: Path) -> tuple[list[Step], float | None]:
    """The steps of a file, and until when it goes if it says so. Raises WhatIfError with the place of a mistake."""
    documents = [document for document in _yaml(path, _text(path)) if document is not None]
    if len(documents) != 1:
        raise WhatIfError(f"{path}: expected one document, found {len(documents)}")
    try:
        scenario = msgspec.convert(documents[0], Scenario)
    except msgspec.ValidationError as error:
        raise WhatIfError(f"{path}: {str(error).replace('`$.', '`')}") from error
    steps: list[Step] = []
    for number, step in enumerate(scenario.spec.steps):
        place = f"spec.steps[{number}]"
        at = _at(path, f"{place}.at", step.at)
        made: list[Step] = [applied([path.parent / name for name in step.apply], at)] if step.apply is not None else []
        scale, add = step.scale, step.add_nodes
        try:
            made += [_scaled(f"{scale.workload}={scale.replicas}", at)] if scale is not None else []
        except WhatIfError as error:
            raise WhatIfError(f"{path}: {place}: {error}") from error
        made += [RemoveNode(at, step.remove_node)] if step.remove_node is not None else []
        made += [Drain(at, step.drain)] if step.drain is not None else []
        made += [AddNodes(at, add.count, add.like)] if add is not None else []
        if len(made) != 1:
            one_of = "exactly one of apply, scale, removeNode, drain and addNodes"
            raise WhatIfError(f"{path}: {place}: expected {one_of}, found {len(made)}")
        steps += made
    until = scenario.spec.until
    return steps, _at(path, "spec.until", until) if until is not None else None


def applied(paths: Iterable[Path], at: float = 0.0) -> Step:
    """Objects and policies from YAML or JSON files, as kubectl reads them. Raises WhatIfError.

    Kinds that decide nothing here are passed over; the step's `remarks` say so, and what stands twice in a file.
    """
    files = list(paths)
    remarks: list[str] = []
    objects: list[dict[str, Any]] = []
    texts: list[tuple[str, str]] = []
    passed_over: dict[str, int] = {}
    try:
        documents = readable(read_documents(files), remarks.append)
    except ObjectsError as error:
        raise WhatIfError(str(error)) from error
    for where, group in groupby(documents, key=lambda document: document.where):
        of_file = list(group)
        policies = [document for document in of_file if document.kind in _POLICIES]
        if policies and len(policies) < len(of_file):
            raise WhatIfError(f"{where}: policies and other objects in one file: put them into two")
        if policies:
            texts.append((where, _text(Path(where))))
            continue
        for document in of_file:
            if kind_of(str(document.content.get("apiVersion") or ""), document.kind) is None:
                passed_over[document.kind] = passed_over.get(document.kind, 0) + 1
            elif not document.metadata.get("name"):
                raise WhatIfError(f"{document.place}: a {document.kind} has no metadata.name")
            else:
                objects.append(document.content)
    names = ", ".join(map(str, files))
    if passed_over:
        counts = ", ".join(f"{count} {kind}" for kind, count in passed_over.items())
        remarks.append(f"{names}: passed over, for it decides nothing here: {counts}")
    return Apply(at, names, tuple(objects), parsed(texts), tuple(remarks))


def parsed(texts: list[tuple[str, str]]) -> Policies:
    """Policies of texts. Raises WhatIfError."""
    if not texts:
        return Policies()
    loaded = load_texts(texts)
    if loaded.errors:
        raise WhatIfError(str(PolicyError(loaded.findings)))
    return loaded.policies


def _scaled(argument: str, at: float) -> Step:
    if (match := _SCALE.fullmatch(argument)) is None:
        raise WhatIfError(f"--scale {argument!r}: expected NAMESPACE/NAME=REPLICAS, such as web/api=20")
    return Scale(at, match[1], int(match[2]))


def _at(path: Path, place: str, text: str) -> float:
    try:
        return duration(text)
    except WhatIfError as error:
        raise WhatIfError(f"{path}: {place}: {error}") from error


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise WhatIfError(f"{path}: {error.strerror if isinstance(error, OSError) else error}") from error


def _yaml(path: Path, text: str) -> list[Any]:
    try:
        return list(YAML(typ="safe", pure=True).load_all(text))
    except (YAMLError, RecursionError, ValueError) as error:
        raise WhatIfError(f"{path}: {' '.join(str(error).split())}") from error
