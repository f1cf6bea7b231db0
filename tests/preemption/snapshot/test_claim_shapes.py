"""Pods whose claims have equal shapes go to the same nodes: random clusters with volumes."""

import json
import re
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
    claims = [claim for claim in data["persistentVolumeClaims"] if claim["metadata"]["name"] in own]
    held = {claim["spec"]["volumeName"] for claim in claims if "volumeName" in claim["spec"]}
    volumes = [volume for volume in data["persistentVolumes"] if volume["metadata"]["name"] in held]
    handles = {volume["spec"]["csi"]["volumeHandle"] for volume in volumes if "csi" in volume["spec"]}
    names = {*own, *held, *handles, "preemptor", preemptor["metadata"]["uid"]}

    def renamed(match):
        name = match[1]
        return f'"{name.replace("preemptor", "twin") if "preemptor" in name else f"{name}-t"}"'

    def twin(obj):
        return json.loads(re.sub(f'"({"|".join(names)})"', renamed, json.dumps(obj)))

    for pod in data["pods"]:
        used = pod["spec"].get("volumes", ())
        pod["spec"]["volumes"] = [one for one in used if "claimName" not in str(one) and "ephemeral" not in one]
    data["persistentVolumeClaims"] += map(twin, claims)
    data["persistentVolumes"] += map(twin, volumes)
    return twin(preemptor)


@given(seed=st.integers(0, 10**9), odd=st.booleans())
def test_claims_of_equal_shape_lead_to_the_same_nodes(seed, odd):
    """The twin fits where the preemptor fits, unless its shape is another one."""
    data = plain(seed, "volumes", *(["oddities"] if odd else []))
    twin = as_pod(with_twin(data))
    snapshot, preemptor = snapshot_of(data), as_pod(data["preemptor"])
    shape = partial(shape_of, labels=(), claim_shape=partial(claim_shape, snapshot.claims, snapshot.volumes))
    if shape(preemptor) == shape(twin):
        assert fits(snapshot, twin) == fits(snapshot, preemptor)


@table("handles, alike", ("one each", "ab", True), ("one for both", "aa", False))
def test_a_volume_that_is_one_with_another_counts_by_itself(handles, alike):
    """A node attaches two volumes of one handle once, so their claims are like no others."""
    sources = [{"csi": {"driver": "disk.example.com", "volumeHandle": handle}} for handle in handles]
    pairs = [bound(name, **source) for name, source in zip("xy", sources, strict=True)]
    claims, volumes = zip(*pairs, strict=True)
    snapshot = snapshot_of({"persistentVolumeClaims": claims, "persistentVolumes": volumes})
    shapes = [claim_shape(snapshot.claims, snapshot.volumes, f"default/{name}") for name in "xy"]
    assert (shapes[0] == shapes[1]) is alike
