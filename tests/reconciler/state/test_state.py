"""The state: pods by what they have in common, what counts of the watches, and that nothing stays of what is gone."""

from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np
import pytest

from tests.cases import table
from tests.reconciler.builders import START, pod
from webhook.kube.instants import rfc3339
from webhook.kube.objects.meta import key_of
from webhook.preemption.snapshot.kinds import SNAPSHOT_KINDS
from webhook.reconciler.state.pending import CountedOn
from webhook.reconciler.state.state import ServerTime, State


def test_the_first_start_of_a_pod_counts():
    """Who writes another one into the status of a pod on a node changes nothing, also when the pods are listed again.

    A pod of its name that is made again has a start of its own, and so has one that got a node only now.
    """
    state = State(None, frozenset())  # type: ignore[arg-type]  # nothing is asked of a server

    def seen(started: float | None, uid: str = "u") -> float:
        made = pod("v", node="n1", uid=uid)
        made.status.start_time = None if started is None else rfc3339(START + started)
        state.pods.take("default/v", made)
        row = state.snapshot.pods.find("default", "v")
        return float(state.snapshot.pods.start[row]) - START

    waiting = pod("v", uid="u")
    waiting.status.start_time = rfc3339(START - 900)
    state.pods.take("default/v", waiting)
    assert seen(-50) == -50
    assert (seen(50), seen(None), seen(-200)) == (-50, -50, -50)
    assert seen(10, uid="another") == 10


@table(
    "there, version, counts",
    ("a later version", "u", "10", True),
    ("the version that is known", "u", "9", False),
    ("an earlier one", "u", "8", False),
    ("versions without order", "u", "x", False),
    ("another pod of its name is there", "another", "10", False),
    ("it is gone", "", "10", False),
)
def test_what_a_write_was_answered_with(there: str, version: str, counts: bool):
    """It counts at once, unless a watch has shown as much, or that the pod is gone."""
    state = State(None, frozenset())  # type: ignore[arg-type]  # nothing is asked of a server
    shown, answer = pod("v", uid=there), pod("v", uid="u")
    shown.metadata.resource_version, answer.metadata.resource_version = "9", version
    if there:
        state.pods.take("default/v", shown)
    state.pods.written(answer)
    known = state.pods.get("default/v")
    assert known == (answer if counts else shown if there else None)
    assert known is not answer, "who asked may change the answer"


@table(
    "at, known, younger",
    ("made before, and seen late", 9.0, False, False),
    ("the youngest one that was seen", 10.0, True, False),
    ("made in the same second, and not seen yet", 10.0, False, True),
    ("made later", 11.0, False, True),
)
def test_what_is_younger(at: float, known: bool, younger: bool):
    """A pod is younger if it was made in a later second, or in the same one and had not been seen."""
    made = pod("one", created=rfc3339(START + at))
    moment = ServerTime().after(pod("other", created=rfc3339(START + 10.0)))
    if known:
        moment = moment.after(made)
    moment.after(made).after(pod("later", created=rfc3339(START + 60.0)))
    assert moment.is_before(made) is younger


Json = dict[str, Any]


def objects(number: int) -> dict[str, Json]:
    """An object of each kind, by the name of its list; nothing in it is in those of other numbers."""

    def called(name: str, **more: Any) -> Json:
        return {"metadata": {"name": f"{name}{number}", "uid": f"{name}{number}", **more}}

    ns = f"ns{number}"
    group = {"spec": {"minMember": 2, "schedulingPolicy": {"gang": {"minCount": 2}}}}
    ports = [{"containerPort": 80, "hostPort": 1 + number}]
    term = {"topologyKey": f"t{number}", "labelSelector": {"matchLabels": {"a": f"{number}"}}}
    spec = {
        "nodeName": "" if number % 2 else f"n{number}",
        "schedulerName": f"s{number}",
        "priorityClassName": f"c{number}",
        "schedulingGroup": {"podGroupName": f"g{number}"},
        "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}},
        "containers": [{"name": "c", "ports": ports, "resources": {"requests": {f"example.com/r{number}": "1"}}}],
        "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": f"v{number}"}}],
        "resourceClaims": [{"name": "r", "resourceClaimName": f"r{number}"}],
    }
    owner = {"kind": "Job", "name": f"o{number}", "uid": f"o{number}", "controller": True}
    node = {"status": {"allocatable": {"cpu": "1", "pods": "9"}}}
    driver = {"name": f"d{number}", "nodeID": "x", "allocatable": {"count": 2}}
    device = {"driver": f"d{number}", "pool": f"n{number}", "device": "x"}
    allocation = {"devices": {"results": [{"request": "r", **device}]}}
    made = f"2026-01-01T00:00:{number:02}Z"
    user = {"resource": "pods", "name": f"p{number}", "uid": f"p{number}"}
    pool = {"name": f"n{number}", "generation": 1, "resourceSliceCount": 1}
    volume = {"csi": {"driver": f"d{number}", "volumeHandle": f"h{number}"}, "storageClassName": f"sc{number}"}
    return {
        "pods": {
            **called("p", namespace=ns, labels={"app": f"a{number}"}, ownerReferences=[owner], creationTimestamp=made),
            "spec": spec,
            "status": {"phase": "Pending", "nominatedNodeName": f"n{number}"},
        },
        "nodes": {**called("n", labels={f"l{number}": "x"}), **node},
        "podGroups": {**called("g", namespace=ns), **group},
        "priorityClasses": {**called("c"), "value": number},
        "podDisruptionBudgets": {
            **called("b", namespace=ns),
            "spec": {"selector": {"matchLabels": {"app": f"a{number}"}}},
        },
        "namespaces": called("ns"),
        "persistentVolumeClaims": {**called("v", namespace=ns), "spec": {"volumeName": f"pv{number}"}},
        "persistentVolumes": {**called("pv"), "spec": volume},
        "storageClasses": {**called("sc"), "provisioner": f"d{number}"},
        "csiNodes": {**called("n"), "spec": {"drivers": [driver]}},
        "deviceClasses": called("dc"),
        "resourceSlices": {
            **called("rs"),
            "spec": {"driver": f"d{number}", "nodeName": f"n{number}", "pool": pool, "devices": [{"name": "x"}]},
        },
        "resourceClaims": {**called("r", namespace=ns), "status": {"allocation": allocation, "reservedFor": [user]}},
    }


def entries(part: Any, path: str, known: set[int]) -> Iterator[tuple[str, int]]:
    """The mappings and sets in a part of the state, and how many entries each has."""
    if id(part) in known or isinstance(part, (str, bytes, type, np.ndarray)):
        return
    known.add(id(part))
    if isinstance(part, (dict, set)):
        yield path, len(part)
    elif type(part).__module__.startswith("webhook"):
        for name, value in vars(part).items() if hasattr(part, "__dict__") else ():
            yield from entries(value, f"{path}.{name}", known)


@pytest.mark.parametrize("order", [1, -1], ids=["first what pods are judged by", "pods first"])
def test_nothing_stays_of_objects_that_are_gone(order: int):
    """Of pods, groups, claims and the like with names and values of their own, in whatever order they come and go."""
    state = State(None, frozenset())  # type: ignore[arg-type]  # nothing is asked of a server

    def come_and_go(number: int) -> None:
        made = objects(number)
        kinds = [kind for kind in SNAPSHOT_KINDS[::order] if kind.field in made]
        known = [(state.caches[kind.resource], msgspec.convert(made[kind.field], kind.type_)) for kind in kinds]
        before = sum(size for _, size in entries(state, "state", set()))
        for cache, obj in known:
            cache.take(key_of(obj), obj)
        pod = state.pods.get(f"ns{number}/p{number}")
        state.pending.count_on("plan", {key_of(pod): CountedOn(pod.metadata.uid, rfc3339(START), node="n1")})
        state.pending.count_on("another", {key_of(pod): CountedOn(pod.metadata.uid, node="n1", off=True)})
        assert sum(size for _, size in entries(state, "state", set())) > before + len(known)
        for cache, obj in known:
            cache.take(key_of(obj), None)

    come_and_go(0)  # after one pod that is on a node, and one that is not, what is kept ready for others is there
    come_and_go(1)
    first = dict(entries(state, "state", set()))
    for number in range(2, 20):
        come_and_go(number)
    assert {path: size for path, size in entries(state, "state", set()) if size > first[path]} == {}
