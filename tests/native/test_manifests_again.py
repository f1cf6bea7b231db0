"""The manifest of a pod is sent again, by apply or replace: nothing changes, whatever giveway gave the pod.

And how long cluster-autoscaler waits for marked pods, which both forms write on new pods and put back.
"""

import copy
import json
from typing import Any

import pytest

from tests.admission.builders import make_pod
from tests.native.comparing import Both, make_class, make_namespace, pod_request
from tests.policy.builders import engine, rules, table
from webhook.policy.model.values import CAN_BE_PREEMPTED, GIVEN, MARK, PLAN, POD_SCALE_UP_DELAY, PROTECTION_DURATION

Json = dict[str, Any]
NEVER, PREEMPT = "Never", "PreemptLowerPriority"
SPEC = rules(f"{{name: copy, copyAnnotations: [{CAN_BE_PREEMPTED}, {PROTECTION_DURATION}]}}")
DEFAULT = rules("{name: default, defaultPriorityClass: batch}", match="{namespaces: [given]}")
PREEMPTION = (
    "preemptors: {priorityClasses: ['giveway-*'], twins: {frontend: giveway-frontend, std: giveway-std}}\n"
    "groups: {disruption: Never}"
)
"""What pods say of groups is recorded on each of them, those of plain classes too."""


OBJECTS = [
    make_class("frontend", 1000),
    make_class("giveway-frontend", 1000, NEVER, **{CAN_BE_PREEMPTED: "true", PROTECTION_DURATION: "9" * 70}),
    make_class("std", 7, globalDefault=True),
    make_class("giveway-std", 7, NEVER),
    make_class("giveway-batch", 5, NEVER),
    make_class("batch", 3, **{CAN_BE_PREEMPTED: "true"}),
    make_class("plain", 2),
    *map(make_namespace, ("team-a", "given")),
]
BOTH = Both(engine(SPEC, DEFAULT, preemption=PREEMPTION).policies, OBJECTS)


def manifest(namespace: str = "team-a", annotations: Json | None = None, **spec: Any) -> Json:
    meta: Json = {"name": "tp", "namespace": namespace, "labels": {"app": "tp"}}
    if annotations:
        meta["annotations"] = annotations
    return {"kind": "Pod", "metadata": meta, "spec": {"containers": [], **spec}}


def stored(sent: Json) -> tuple[Json, Json]:
    """The pod that the webhook and the native policies make of a manifest, with a plan that the reconciler wrote."""
    results = BOTH.create(pod_request(sent))
    for result in results:
        assert not result.denied
        assert not result.refused_in_tree
        if MARK in result.object["metadata"]["labels"]:
            result.object["metadata"].setdefault("annotations", {})[PLAN] = '{"id":"x"}'
    return results[0].object, results[1].object


def recorded(pod: Json) -> Json:
    """The pod as the API server keeps it: the record is text."""
    annotations = pod["metadata"].get("annotations", {})
    if GIVEN in annotations and not isinstance(annotations[GIVEN], str):
        pod = copy.deepcopy(pod)
        pod["metadata"]["annotations"][GIVEN] = json.dumps(annotations[GIVEN], separators=(",", ":"))
    return pod


def applied(old: Json, sent: Json) -> Json:
    """The stored pod with every field of the manifest: a patch by kubectl apply, by the client or the server."""
    new = copy.deepcopy(old)
    new["spec"] |= sent["spec"]
    for part in ("labels", "annotations"):
        new["metadata"][part] = {**new["metadata"].get(part, {}), **sent["metadata"].get(part, {})}
    return new


def replaced(old: Json, sent: Json) -> Json:
    """The manifest with what the API server and its Priority plugin put back by themselves."""
    new = copy.deepcopy(sent)
    new["spec"] = {"priority": old["spec"]["priority"], "preemptionPolicy": old["spec"]["preemptionPolicy"]} | new[
        "spec"
    ]
    new["metadata"] |= {key: old["metadata"][key] for key in old["metadata"].keys() - {"labels", "annotations"}}
    return new


WAYS = {"apply": applied, "replace": replaced}
MANIFESTS = {
    "a class with a twin": manifest(priorityClassName="frontend"),
    "its policy is spelled out": manifest(priorityClassName="frontend", preemptionPolicy=PREEMPT, priority=1000),
    "the twin itself": manifest(priorityClassName="giveway-frontend"),
    "the default class has a twin": manifest(),
    "a managed class without a twin": manifest(priorityClassName="giveway-batch"),
    "a class by policy": manifest("given"),
    "a class by policy, its policy spelled out": manifest("given", preemptionPolicy=PREEMPT),
    "copied annotations": manifest(priorityClassName="batch"),
    "one of the author's own": manifest(priorityClassName="frontend", annotations={CAN_BE_PREEMPTED: "false"}),
    "a plain class": manifest(priorityClassName="plain"),
}


def update(new: Json, old: Json, both: Both = BOTH) -> Any:
    return both.create(pod_request(new, operation="UPDATE", oldObject=old))


LATER = {
    "the policies stay": None,
    "no class has a twin": PREEMPTION.replace("twins: {frontend: giveway-frontend, std: giveway-std}", "twins: {}"),
    "the classes have other twins": PREEMPTION.replace("frontend: giveway-frontend", "frontend: giveway-other").replace(
        "std: giveway-std", "std: giveway-batch"
    ),
    "another class has the twin": PREEMPTION.replace("frontend: giveway-frontend", "plain: giveway-frontend"),
    "no class is managed": "preemptors: {priorityClasses: [other]}",
    "nothing is said of classes any more": "",
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("later", LATER.values(), ids=LATER)
@pytest.mark.parametrize("sent", MANIFESTS.values(), ids=MANIFESTS)
def test_the_same_manifest_changes_nothing(sent, later, way):
    """Both forms put back the class, the mark, the record and what was copied, also if the policies changed since."""
    specs = (DEFAULT,) if later else ()
    both = BOTH if later is None else Both(engine(*specs, preemption=later).policies, OBJECTS)
    for side, old in enumerate(stored(sent)):
        was = recorded(old)
        result = update(WAYS[way](was, sent), was, both)[side]
        assert not result.denied
        assert result.object == old


BARE = manifest(priorityClassName="frontend")
OTHERS = {
    "another class": lambda old: applied(old, manifest(priorityClassName="plain")),
    "a class with another twin": lambda old: applied(old, manifest(priorityClassName="std")),
    "another priority": lambda old: applied(old, manifest(priorityClassName="frontend", priority=7)),
    "the class is taken away": lambda old: {**old, "spec": {"containers": []}},
    "the mark is taken away": lambda old: without(old, "labels", MARK),
    "the record is taken away": lambda old: without(old, "annotations", GIVEN),
    "another mark": lambda old: {**old, "metadata": {"name": "tp", "namespace": "team-a", "labels": {MARK: "x"}}},
    "another value of what was copied": lambda old: replaced(
        old, manifest(priorityClassName="frontend", annotations={CAN_BE_PREEMPTED: "false"})
    ),
}


def without(pod: Json, part: str, key: str) -> Json:
    found = copy.deepcopy(pod)
    del found["metadata"][part][key]
    return found


@pytest.mark.parametrize("change", OTHERS.values(), ids=OTHERS)
def test_what_somebody_changes_is_left_for_validation(change):
    """No other class, no other value and no key that a patch takes away is put back, in either form."""
    for side, old in enumerate(stored(BARE)):
        was = recorded(old)
        result = update(change(was), was)[side]
        spec = result.object.get("spec", {})
        same = all(spec.get(name) == old["spec"][name] for name in ("priorityClassName", "priority"))
        assert result.denied or result.refused_in_tree or not same


NONE = rules("{name: x, validate: {expression: 'true'}}")
COPY = rules(f"{{name: copy, copyAnnotations: [{POD_SCALE_UP_DELAY}]}}")


WAITING = [
    make_class("giveway-a", 5, "Never"),
    make_class("giveway-says", 5, "Never", **{POD_SCALE_UP_DELAY: "1m"}),
    make_class("old", 5),
    make_class("giveway-old", 5, "Never"),
    make_class("plain", 5, "Never"),
    make_class("giveway-by-itself", 5),
    make_namespace("team-a"),
]


def both(spec: str = NONE, more: str = "") -> Both:
    named = f"preemptors: {{priorityClasses: ['giveway-*'], twins: {{old: giveway-old}}{more}}}"
    return Both(engine(spec, preemption=named).policies, WAITING)


def sent(name: str, own: str | None = None) -> Json:
    said = {} if own is None else {POD_SCALE_UP_DELAY: own}
    return make_pod(meta={"annotations": said}, priorityClassName=name)


@table(
    "given, pod, expected",
    {
        "by default": (both(), sent("giveway-a"), "5s"),
        "moved to a twin": (both(), sent("old"), "5s"),
        "a shorter delay": (both(more=", delay: 4s"), sent("giveway-a"), "5s"),
        "a delay that gives nodes time": (both(more=", delay: 5s"), sent("giveway-a"), None),
        "said beside a delay": (both(more=", delay: 3m, scaleUpDelay: 10s"), sent("giveway-a"), "10s"),
        "long": (both(more=", scaleUpDelay: 1h30m"), sent("giveway-a"), "5400s"),
        "parts of a second": (both(more=", scaleUpDelay: 500ms"), sent("giveway-a"), "500ms"),
        "off": (both(more=", scaleUpDelay: 0s"), sent("giveway-a"), None),
        "the author's own": (both(), sent("giveway-a", own="2s"), "2s"),
        "the author's own, empty": (both(), sent("giveway-a", own=""), ""),
        "the class says it, and nothing copies it": (both(), sent("giveway-says"), None),
        "copied from the class": (both(COPY), sent("giveway-says"), "1m"),
        "nothing to copy": (both(COPY), sent("giveway-a"), "5s"),
        "a class that nobody manages": (both(), sent("plain"), None),
        "kube-scheduler preempts for it": (both(), sent("giveway-by-itself"), None),
    },
)
def test_marked_pods_say_how_long_nodes_wait(given, pod, expected):
    """On pods with the mark, if neither the pod nor its class says it; still there if the manifest is sent again."""
    for side, result in enumerate(given.create(pod_request(pod))):
        annotations = result.object["metadata"].get("annotations", {})
        assert annotations.get(POD_SCALE_UP_DELAY) == expected
        assert not result.denied
        if expected and not pod["metadata"]["annotations"]:
            assert annotations[GIVEN]["copied"] == {POD_SCALE_UP_DELAY: expected}
            old = copy.deepcopy(result.object)
            old["metadata"]["annotations"][GIVEN] = f'{{"copied":{{"{POD_SCALE_UP_DELAY}":"{expected}"}}}}'
            bare = copy.deepcopy(old)
            del bare["metadata"]["annotations"], bare["metadata"]["labels"]
            again = given.create(pod_request(bare, operation="UPDATE", oldObject=old))[side]
            assert again.object["metadata"]["annotations"][POD_SCALE_UP_DELAY] == expected
            assert again.object["metadata"]["labels"] == {MARK: "managed"}


def test_it_goes_with_the_mark():
    """Another webhook changes the class to one that nobody manages: nodes need not wait any more."""

    def meddle(obj: Json) -> Json:
        found = copy.deepcopy(obj)
        for field in ("priority", "preemptionPolicy"):
            found["spec"].pop(field, None)
        return found | {"spec": {**found["spec"], "priorityClassName": "plain"}}

    for result in both().create(pod_request(sent("giveway-a")), meddle):
        assert POD_SCALE_UP_DELAY not in result.object["metadata"].get("annotations", {})
