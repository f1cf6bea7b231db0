"""The table of kinds that a snapshot is made of, and who goes by it."""

import pytest

from webhook.clusters.embedded.protocol.api_resources import RESOURCES
from webhook.clusters.simulated.objects import KINDS
from webhook.kube import resources
from webhook.preemption.snapshot.kinds import SNAPSHOT_KINDS, SnapshotKind
from webhook.preemption.snapshot.pods import _COLUMNS
from webhook.preemption.snapshot.snapshot import Snapshot


def test_the_simulation_goes_by_the_table():
    """A file of a cluster holds every kind that a decision reads, by the same types."""
    files = {kind.name: kind.type for kind in KINDS}
    assert {kind.resource.kind: files.get(kind.resource.kind) for kind in SNAPSHOT_KINDS} == {
        kind.resource.kind: kind.type_ for kind in SNAPSHOT_KINDS
    }


def test_the_embedded_server_serves_every_kind_that_is_not_optional():
    """Without such a kind a reconciler would never lead there."""
    served = {row.kind for row in RESOURCES}
    assert {kind.resource.kind for kind in SNAPSHOT_KINDS if not kind.optional} - served == set()


@pytest.mark.parametrize(
    ("resource", "field"),
    [
        (resources.POD, "pods"),
        (resources.CSI_NODE, "csiNodes"),
        (resources.PRIORITY_CLASS, "priorityClasses"),
        (resources.POD_DISRUPTION_BUDGET, "podDisruptionBudgets"),
        (resources.PERSISTENT_VOLUME_CLAIM, "persistentVolumeClaims"),
    ],
)
def test_a_kind_has_a_name_in_json(resource, field):
    """A list of a kind is called as Kubernetes' own fields are."""
    assert SnapshotKind(resource, object, lambda *_: None, lambda *_: None).field == field


def test_every_column_of_the_pods_grows():
    """The 65th pod has a place in each column, and rows without a pod hold what they are declared with."""
    snapshot = Snapshot()
    before = {name: getattr(snapshot.pods, name).dtype for name in _COLUMNS}
    for _ in range(200):
        snapshot.pods._new_row()
    for name, (kind, absent) in _COLUMNS.items():
        column = getattr(snapshot.pods, name)
        assert (column.dtype, column.dtype, len(column) >= 200, column[-1]) == (before[name], kind, True, absent), name
