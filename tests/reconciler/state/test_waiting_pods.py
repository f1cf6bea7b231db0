"""Pods that wait with claims of their own are alike if their claims allow the same."""

import msgspec
import pytest

from tests.cases import table
from tests.reconciler.builders import Setting, only_on, preemptor
from webhook.kube.objects.meta import key_of
from webhook.kube.objects.storage import PersistentVolume, PersistentVolumeClaim
from webhook.kube.resources import PERSISTENT_VOLUME, PERSISTENT_VOLUME_CLAIM


def claim(name: str, size: str = "1Gi", *, meta: dict | None = None, phase: str = "", **spec) -> PersistentVolumeClaim:
    """A claim of a StatefulSet's pod."""
    body = {"accessModes": ["ReadWriteOnce"], "storageClassName": "fast", **spec}
    body["resources"] = {"requests": {"storage": size}}
    made = {
        "metadata": {"name": name, "namespace": "default", **(meta or {})},
        "spec": body,
        "status": {"phase": phase},
    }
    return msgspec.convert(made, PersistentVolumeClaim)


def volume(name: str, zone: str = "a", driver: str = "d", of: str = "") -> PersistentVolume:
    """A volume of a zone; `of` is the claim that it is reserved for."""
    rule = {"key": "zone", "operator": "In", "values": [zone]}
    spec = {
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [rule]}]}},
        "csi": {"driver": driver, "volumeHandle": name},
        "claimRef": {"namespace": "default", "name": of} if of else None,
        "storageClassName": "fast",
        "capacity": {"storage": "1Gi"},
    }
    return msgspec.convert({"metadata": {"name": name}, "spec": spec}, PersistentVolume)


def owned(of: str) -> dict:
    """Metadata of a claim that is made for a pod."""
    return {"ownerReferences": [{"kind": "Pod", "name": of, "uid": f"uid-{of}", "controller": True}]}


SELECTED = {"annotations": {"volume.kubernetes.io/selected-node": "n1"}}
BOUND = {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}}


def both(**fields) -> list[PersistentVolumeClaim]:
    """The claims of both pods, each with this."""
    return [claim(name, **fields) for name in ("one-data", "other-data")]


def other(size: str = "1Gi", **fields) -> list[PersistentVolumeClaim]:
    """The claims of both pods, that of the other one with this."""
    return [claim("one-data"), claim("other-data", size, **fields)]


def bound(zone: str = "a", driver: str = "d") -> list:
    """The claims of both pods, bound to volumes; that of the other one is of this zone and driver."""
    names = (("one-data", "v1"), ("other-data", "v2"))
    claims = [claim(name, meta=BOUND, volumeName=to) for name, to in names]
    return [*claims, volume("v1", of="one-data"), volume("v2", zone, driver, of="other-data")]


def show(setting: Setting, *there: PersistentVolumeClaim | PersistentVolume) -> None:
    """Let the watch show these claims and volumes."""
    for one in there:
        resource = PERSISTENT_VOLUME_CLAIM if isinstance(one, PersistentVolumeClaim) else PERSISTENT_VOLUME
        setting.state.caches[resource].take(key_of(one), one)


@pytest.mark.parametrize("kind", ["named", "made for the pod"])
@table(
    "there, same",
    ("they differ by name only", both(), True),
    ("they are missing", [], False),
    ("another size", other("2Gi"), False),
    ("another class", other(storageClassName="slow"), False),
    ("another mode", other(volumeMode="Block"), False),
    ("selector", other(selector={"matchLabels": {"a": "b"}}), False),
    ("a node is selected for one", other(meta=SELECTED), False),
    ("the same node is selected", both(meta=SELECTED), True),
    ("only one pod may use each", both(accessModes=["ReadWriteOncePod"]), False),
    ("other pods may use them, too", both(accessModes=["ReadWriteMany"]), False),
    ("they are being deleted", both(meta={"deletionTimestamp": "2026-01-01T00:00:00Z"}), False),
    ("their volumes are lost", both(phase="Lost"), True),
    ("the volume of one is lost", other(phase="Lost"), False),
    ("bound to volumes that are missing", bound()[:2], False),
    ("bound to volumes of one zone", bound(), True),
    ("bound to volumes of two zones", bound("b"), False),
    ("bound to volumes of two drivers", bound(driver="e"), False),
    ("a volume is reserved for one", [*both(), volume("v1", of="one-data")], False),
)
@pytest.mark.parametrize("first", ["the pods", "the claims"])
def test_claims_count_by_what_they_allow(first: str, there: list, same: bool, kind: str):
    """Claims whose pods may go to the same nodes tell these apart by nothing, whatever came first."""
    setting = Setting()
    pods = []
    for name in ("one", "other"):
        made = {"persistentVolumeClaim": {"claimName": f"{name}-data"}} if kind == "named" else {"ephemeral": {}}
        pods.append(preemptor(name, spec={"volumes": [{"name": "data", **made}]}))
    if first == "the pods":
        setting.add(*pods)
    show(setting, *there)
    if first == "the claims":
        setting.add(*pods)
    waiting = setting.state.index
    assert (waiting.shape("default/one") == waiting.shape("default/other")) is same


def test_a_claim_that_was_not_made_for_the_pod():
    """Its pod is refused, and so it is not like one whose claim was made for it."""
    setting = Setting()
    for name, of in (("one", owned("one")), ("other", {})):
        show(setting, claim(f"{name}-data", meta=of))
        setting.add(preemptor(name, spec={"volumes": [{"name": "data", "ephemeral": {}}]}))
    waiting = setting.state.index
    assert waiting.shape("default/one") != waiting.shape("default/other")


def test_pods_that_are_made_for_nodes_are_one_group():
    """Those of a DaemonSet differ by their node alone: they are one group, and a verdict on one is none on another."""
    setting = Setting()
    setting.add(preemptor("one", spec=only_on("n1")), preemptor("other", spec=only_on("n2")), preemptor("any"))
    setting.add(preemptor("more", spec=only_on("n3", matchExpressions=[{"key": "zone", "operator": "Exists"}])))
    waiting = setting.state.index
    groups = sorted(sorted(key.partition("/")[2] for key in group.pods) for group in waiting.groups())
    assert groups == [["any"], ["more"], ["one", "other"]]
    assert waiting.shape("default/one") != waiting.shape("default/other")
