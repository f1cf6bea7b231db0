"""Victims on several nodes beside a stock kube-scheduler: exactly those go who stand in the way."""

from __future__ import annotations

import asyncio
import signal
from typing import Any

import pytest

from tests.e2e.conftest import MAY_GO
from tests.e2e.software import policies
from webhook.kube.resources import NODE, PERSISTENT_VOLUME, PERSISTENT_VOLUME_CLAIM

ZONE = "e2e.example.com/zone"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
X = {"labelSelector": {"matchLabels": {"app": "x"}}, "topologyKey": ZONE}
APART = {"affinity": {"podAntiAffinity": {REQUIRED: [X]}}}
FROM_P = {"affinity": {"podAntiAffinity": {REQUIRED: [X | {"labelSelector": {"matchLabels": {"app": "p"}}}]}}}
SPREAD = {"topologySpreadConstraints": [{**X, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}]}
CLAIM = {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]}
ACROSS = {"mode": "opt-in", "acrossNodes": True}

CASES = {
    "anti-affinity of the preemptor": ("p", APART, {"a2": {}}, ["a2"], {}),
    "anti-affinity of the victim": ("p", {}, {"a2": FROM_P}, ["a2"], {}),
    "spread": ("x", SPREAD, {"a2": {}}, ["a2"], {}),
    "a claim of one pod": ("p", CLAIM, {"b1": CLAIM}, ["b1"], {}),
    "a strict budget": ("p", APART, {"a1": {}, "a2": {}, "c1": {"class": "middle"}}, ["c1"], {"minAvailable": 2}),
    "killed after the first victim": ("p", APART, {"a1": {}, "a2": {}}, ["a1", "a2"], {}),
}


async def claim(sandbox: Any) -> None:
    """A volume that only one pod may use, and the claim that is bound to it."""
    spec = {"accessModes": ["ReadWriteOncePod"], "storageClassName": "", "volumeMode": "Filesystem"}
    size, source = {"storage": "1Gi"}, {"driver": "e2e.example.com", "volumeHandle": sandbox.id}
    volume = {"metadata": {"name": sandbox.id}, "spec": {**spec, "capacity": size, "csi": source}}
    await sandbox.client.create(PERSISTENT_VOLUME.path(), {"apiVersion": "v1", "kind": "PersistentVolume", **volume})
    sandbox.cleans_up(PERSISTENT_VOLUME.path(None, sandbox.id))
    metadata = {"name": "data", "annotations": {"pv.kubernetes.io/bind-completed": "yes"}}
    spec |= {"volumeName": sandbox.id, "resources": {"requests": size}}
    body = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec}
    await sandbox.client.create(PERSISTENT_VOLUME_CLAIM.path(sandbox.id), body)


@pytest.mark.parametrize("case", CASES)
async def test_exactly_the_victims_go(sandbox, giveway, case):
    """The pod has room on a1 or c2 only, and pods on other nodes of the zone, or of any, keep it off."""
    app, wants, victims, expected, budget = CASES[case]
    classes = {name: await sandbox.priority_class(name, value) for name, value in (("low", 80), ("middle", 90))}
    high = await sandbox.priority_class("high", 100, preemptionPolicy="Never")
    stays = {"a2": 1, "b1": 1 if "b1" in victims else 2, "c1": 1, "c2": 0 if "c1" in victims else 2}
    if wants is CLAIM:
        await claim(sandbox)
    for name in ("a1", "a2", "b1", *(("c1", "c2") if "c1" in victims else ())):
        host = await sandbox.node(name)
        await sandbox.client.patch(NODE.path(None, host), {"metadata": {"labels": {ZONE: name[0]}}})
        at: dict[str, Any] = {"node": host, "priorityClassName": classes["low"]}
        for number in range(stays.get(name, 0)):
            await sandbox.run(f"stays-{name}-{number}", annotations={}, **at)
        if name in victims:
            at |= {"priorityClassName": classes[victims[name].get("class", "low")]}
            more = {key: value for key, value in victims[name].items() if key != "class"}
            await sandbox.run(f"v-{name}", labels={"app": "x"}, annotations=MAY_GO, **at, **more)
    if budget:
        await sandbox.budget("x", {"app": "x"}, **budget)
    kills = case.startswith("killed")
    process = await giveway.reconcile(policies(high, victims=ACROSS), kill_at="first-victim" if kills else "")
    await sandbox.preemptor(high, app=app, **wants)
    if kills:
        assert await process.ended() == -signal.SIGKILL
        process = await giveway.reconcile(policies(high, victims=ACROSS))
    host = await sandbox.bound("p", 40)
    await asyncio.sleep(2)
    assert host.endswith("c2" if "c1" in victims else "a1")
    here = await sandbox.here()
    assert [name for name in victims if f"v-{name}" not in here] == expected
    assert {"stays-a2-0", "stays-b1-0"} <= here

    if not kills:  # another leader does not know what victims go for
        await sandbox.told("to free its claim" if wants is CLAIM else "to make room in zone")
