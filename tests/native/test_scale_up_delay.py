"""How long cluster-autoscaler waits for marked pods: written on new pods by the webhook and by native policies."""

import copy
from typing import Any

from tests.admission.builders import make_pod
from tests.native.comparing import Both, make_class, make_namespace, pod_request
from tests.policy.builders import engine, rules, table
from webhook.policy.model.values import GIVEN, MARK, POD_SCALE_UP_DELAY

Json = dict[str, Any]
NONE = rules("{name: x, validate: {expression: 'true'}}")
COPY = rules(f"{{name: copy, copyAnnotations: [{POD_SCALE_UP_DELAY}]}}")


OBJECTS = [
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
    return Both(engine(spec, preemption=named).policies, OBJECTS)


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

    for result in both().create_twice(pod_request(sent("giveway-a")), meddle):
        assert POD_SCALE_UP_DELAY not in result.object["metadata"].get("annotations", {})
