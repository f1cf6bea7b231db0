"""Tables of columns: what each declares is made, grows, and is emptied when its row is taken back."""

import numpy as np
import pytest

from tests.preemption.building import apart_from, as_pod, pod, volumes_of
from webhook.preemption.snapshot.columns import Interner, Table
from webhook.preemption.snapshot.kinds import PODS
from webhook.preemption.snapshot.slot_orders import SlotOrder
from webhook.preemption.snapshot.snapshot import Snapshot

TABLES = ["nodes", "pods", "devices"]


def columns(table, *, row):
    """By name, the type of each column (None for a list) and what it holds in a row, as a list."""
    found = {name: getattr(table, name) for name in table.declarations}
    return {
        name: (column.dtype, column[..., row].ravel().tolist())
        if isinstance(column, np.ndarray)
        else (None, column[row])
        for name, column in found.items()
    }


def declared(table):
    """The same as the table declares it."""
    return {
        name: (None, absent) if kind is None else (np.dtype(kind), [absent] * max(1, lines))
        for name, (kind, absent, lines, _) in table.declarations.items()
    }


@pytest.mark.parametrize("name", TABLES)
def test_a_row_that_is_taken_back_is_empty(name):
    """Each column holds there what it is declared with, unless it is kept, also after the table has grown."""
    table = getattr(Snapshot(), name)
    row = [table.new_row() for _ in range(5 * table.capacity)][-1]
    assert columns(table, row=row) == declared(table)
    for column, (kind, absent, _, _) in table.declarations.items():
        getattr(table, column)[(..., row) if kind else row] = 1 if absent == 0 else 0
    table.free(row)
    kept = {column for column, (_, _, _, kept) in table.declarations.items() if kept}
    held = columns(table, row=row)
    assert {column for column, value in held.items() if value != declared(table)[column]} == kept
    assert table.new_row() == row


FULL = pod(
    "a",
    on="n1",
    priority=7,
    cpu="2",
    priorityClassName="low",
    schedulerName="other",
    terminationGracePeriodSeconds=5,
    volumes=volumes_of("data"),
    **apart_from("zone", app="a"),
)
"""A pod that says all that the columns keep."""
FULL["metadata"] |= {
    "namespace": "team",
    "labels": {"app": "a", "jobset.sigs.k8s.io/jobset-name": "train", "jobset.sigs.k8s.io/job-global-index": "3"},
    "ownerReferences": [{"kind": "Job", "name": "j", "uid": "uid-j", "controller": True}],
    "deletionTimestamp": "2027-01-15T08:00:00Z",
}
FULL["spec"]["containers"][0] |= {
    "ports": [{"containerPort": 80, "hostPort": 80}],
    "resources": {"requests": {"cpu": "1", "memory": "1Gi", "ephemeral-storage": "1Gi"}},
}
FULL["status"]["conditions"] = [{"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}]
UNBOUND = {"nominated"}
"""Columns that a pod on a node leaves as they are: only a pod without one has a nomination that counts."""


def test_a_pod_fills_every_column():
    """What `put` forgets would hold what an empty row holds; when the pod is gone, each column is as before."""
    snapshot = Snapshot()
    snapshot.put(PODS, as_pod(pod("first", on="n0")))  # what is counted from 0 begins with another pod
    snapshot.put(PODS, as_pod(FULL))
    waiting = pod("b")
    waiting["status"]["nominatedNodeName"] = "n1"
    snapshot.put(PODS, as_pod(waiting))
    pods = snapshot.pods
    rows = {name: pods.find(namespace, name) for namespace, name in (("team", "a"), ("default", "b"))}

    def as_declared(name):
        held = columns(pods, row=rows[name])
        return {column for column, value in declared(pods).items() if held[column] == value}

    assert as_declared("a") == UNBOUND
    assert not UNBOUND & as_declared("b")
    snapshot.remove(PODS, "team/a")
    snapshot.remove(PODS, "default/b")
    assert as_declared("a") == as_declared("b") == pods.declarations.keys()


def test_an_order_of_pods_is_made_again_for_a_row_that_is_used_again():
    """Another node in the row of one that is gone, after as many changes of its pods, has its own pods in order."""
    snapshot = Snapshot()
    pods, order = snapshot.pods, SlotOrder(snapshot.pods)
    for on, made, expected in (("n1", {"a": 1, "b": 2}, ["a", "b"]), ("n2", {"c": 2, "d": 1}, ["d", "c"])):
        for name, priority in made.items():
            snapshot.put(PODS, as_pod(pod(name, on=on, priority=priority)))
        rows = order.slots_of(np.array([0]), lambda rows: [-pods.priority[rows]])
        assert [pods.names[row] for row in rows[0]] == expected
        for name in reversed(made):
            snapshot.remove(PODS, f"default/{name}")


def test_table_knows_every_id() -> None:
    """A table has the answers for all ids, those that are given out again as well, whenever it is made and asked."""
    interner: Interner[str, str] = Interner()
    early, kept = Table(interner, int, len), interner.take("kept", "kept")
    for number in range(40):
        identity = interner.take(f"change {number}", "c" * number)
        assert number % 3 or early.column()[identity] == number
        interner.drop(identity)
    assert early.column()[kept] == Table(interner, int, len).column()[kept] == 4
