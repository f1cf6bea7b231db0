"""Pods whose claims have equal shapes go to the same nodes: random clusters with volumes."""

import copy
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cases import table
from tests.preemption.building import as_pod, bound, snapshot_of
from tests.preemption.clusters import plain
from webhook.preemption.decision import fits
from webhook.preemption.snapshot.pod_info import claims_of, shape_of
from webhook.preemption.snapshot.volume_index import claim_shape

pytestmark = pytest.mark.slow


def with_twin(data):
    """The cluster with a twin of the preemptor: it has claims and volumes of its own, equal but for their names.

    Nobody else uses the preemptor's claims.
    """
    preemptor = data["preemptor"]
    own = {key.partition("/")[2] for keys in claims_of(as_pod(preemptor)) or () for key in keys}
    made = {f"preemptor-{volume['name']}" for volume in preemptor["spec"].get("volumes", ()) if "ephemeral" in volume}

    def renamed(name):
        return f"twin{name.removeprefix('preemptor')}" if name in made else f"{name}-t"

    for pod in data["pods"]:
        volumes = pod["spec"].get("volumes", ())
        pod["spec"]["volumes"] = [one for one in volumes if "claimName" not in str(one) and "ephemeral" not in one]
    twin = copy.deepcopy(preemptor)
    twin["metadata"] |= {"name": "twin", "uid": "uid-twin"}
    for volume in twin["spec"].get("volumes", ()):
        if "persistentVolumeClaim" in volume:
            volume["persistentVolumeClaim"]["claimName"] += "-t"
    volumes = {volume["metadata"]["name"]: volume for volume in data.get("persistentVolumes", ())}
    for claim in [claim for claim in data.get("persistentVolumeClaims", ()) if claim["metadata"]["name"] in own]:
        other = copy.deepcopy(claim)
        other["metadata"]["name"] = renamed(claim["metadata"]["name"])
        for owner in other["metadata"].get("ownerReferences", ()):
            owner["uid"] = owner["uid"].replace(preemptor["metadata"]["uid"], "uid-twin")
        data["persistentVolumeClaims"].append(other)
        if (bound := claim["spec"].get("volumeName")) is not None:
            other["spec"]["volumeName"] = f"{bound}-t"
        if bound in volumes:
            volume = copy.deepcopy(volumes[bound])
            volume["metadata"]["name"] += "-t"
            volume["spec"].get("csi", {})["volumeHandle"] = f"{bound}-t"
            if holder := volume["spec"].get("claimRef"):
                holder |= {"name": other["metadata"]["name"]}
            data["persistentVolumes"].append(volume)
    return twin


@given(seed=st.integers(0, 10**9), odd=st.booleans())
def test_claims_of_equal_shape_lead_to_the_same_nodes(seed, odd):
    """The twin fits where the preemptor fits, unless its shape is another one."""
    data = plain(seed, "volumes", *(["oddities"] if odd else []))
    twin = as_pod(with_twin(data))
    snapshot, preemptor = snapshot_of(data), as_pod(data["preemptor"])
    shape = partial(shape_of, labels=(), claim_shape=partial(claim_shape, snapshot.claims, snapshot.volumes))
    if shape(preemptor) == shape(twin):
        assert fits(snapshot, twin) == fits(snapshot, preemptor)


@table(
    "handles, alike",
    ("one each", "ab", True),
    ("one for both", "aa", False),
)
def test_a_volume_that_is_one_with_another_counts_by_itself(handles, alike):
    """A node attaches two volumes of one handle once, so their claims are like no others."""
    sources = [{"csi": {"driver": "disk.example.com", "volumeHandle": handle}} for handle in handles]
    pairs = [bound(name, **source) for name, source in zip("xy", sources, strict=True)]
    claims, volumes = zip(*pairs, strict=True)
    snapshot = snapshot_of({"persistentVolumeClaims": claims, "persistentVolumes": volumes})
    shapes = [claim_shape(snapshot.claims, snapshot.volumes, f"default/{name}") for name in "xy"]
    assert (shapes[0] == shapes[1]) is alike
