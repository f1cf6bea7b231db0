"""`giveway uninstall` as a process: what it takes out, what it leaves, and what stops it."""

import asyncio
import json
import os
import signal
import sys
from contextlib import AsyncExitStack

import pytest

from tests.installation.test_install import POLICY_MAP, done, everything, install, run
from tests.installation.test_modes import ROLE
from tests.manifests.objects import NAMESPACE
from tests.workloads import pod, priority_class
from webhook.kube import resources
from webhook.kube.errors import ApiError
from webhook.policy.model.values import DECISION, GIVEN, NOTICE_CONDITION, PLAN, POD_ANNOTATIONS, READY


async def test_uninstalling_takes_plans_and_notices_off_pods(bare):
    """What nobody would ever clear goes with its plan; a pod that was told to leave stays, and nothing says otherwise.

    Records stay, as do nominations by others, and an answer to nobody, which is the pod's own.
    """
    await install(bare)
    told = {row.key: "{}" for row in POD_ANNOTATIONS} | {"other": "stays"}
    by_name = {"planned": {PLAN: "{}"}, "other": {}, "told": told, "ready": {READY: "true"}}
    for name, annotations in by_name.items():
        made = pod(name, cpu="1000")
        made["metadata"]["annotations"] = annotations
        await bare.admin.create(resources.POD.path("team-a"), made)
    for name in ("planned", "other"):
        nominated = {"status": {"nominatedNodeName": "node-1"}}
        await bare.admin.patch(resources.POD.path("team-a", name, "status"), nominated)
    asked = {"type": NOTICE_CONDITION, "status": "True", "reason": "Preempting", "message": "asked to leave by noon"}
    path = resources.POD.path("team-a", "told", "status")
    await bare.admin.patch(path, {"status": {"conditions": [asked]}}, kind="strategic")
    text = await done(bare, "uninstall", "--yes")
    assert "took the plan off 2 pods" in text
    assert "took the notice off 1 pods" in text
    left = {name: await bare.admin.get(resources.POD.path("team-a", name)) for name in by_name}
    assert {name: each["metadata"].get("annotations") or {} for name, each in left.items()} == {
        "planned": {},
        "other": {},
        "told": {DECISION: "{}", GIVEN: "{}", "other": "stays"},
        "ready": {READY: "true"},
    }
    assert [left[name]["status"].get("nominatedNodeName") for name in ("planned", "other")] == [None, "node-1"]
    condition = {each["type"]: each for each in left["told"]["status"]["conditions"]}[NOTICE_CONDITION]
    assert (condition["status"], condition["reason"]) == ("False", "Withdrawn")
    assert condition["message"] == "giveway does not ask the pod to leave after all"


BAND = """
apiVersion: giveway.dev/v1alpha1
kind: PriorityPolicy
metadata: {name: bands}
spec:
  rules:
  - {name: platform, reserve: {from: 500, to: 900, define: [{subjects: [{kind: Group, name: platform}]}]}}
"""


@pytest.mark.parametrize("serves", [True, False], ids=["the webhook serves", "its pods are gone"])
async def test_classes_that_nobody_may_delete_do_not_hold_it_up(bare, serves):
    """What refuses a deletion goes first, with a server and without one; no class goes, and then any may."""
    await install(bare)
    (bare.policies / "bands.yaml").write_text(BAND)
    await bare.admin.create(resources.PRIORITY_CLASS.path(), priority_class("banded", 700))
    path = resources.PRIORITY_CLASS.path(name="banded")
    async with AsyncExitStack() as serving:
        await serving.enter_async_context(bare.serving())
        if not serves:
            await serving.aclose()
        with pytest.raises(ApiError, match="reserves: classes there" if serves else "failed calling webhook"):
            await bare.admin.delete(path)
        lines = (await done(bare, "uninstall", "--yes")).splitlines()
        gone = [line.partition(" ")[0] for line in lines if line.endswith(" deleted")]
        assert set(gone[:2]) == {"MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"}
        assert "PriorityClass" not in gone
        await bare.admin.delete(path)


async def test_a_namespace_with_pods_of_others_is_kept(bare):
    """What giveway made there goes one by one, and the pods stay."""
    await install(bare)
    async with bare.serving():
        await bare.admin.create(resources.POD.path(NAMESPACE), pod("somebodys", labels={"app": "x"}))
        for name in ("giveway-reconciler", "giveway-reconciler-evictions"):
            await bare.admin.create(resources.LEASE.path(NAMESPACE), {"metadata": {"name": name}})
        await done(bare, "uninstall", "--yes")
    await bare.admin.get(resources.POD.path(NAMESPACE, "somebodys"))
    left = {one[0] for one in await everything(bare.admin) if one[1] == NAMESPACE}
    assert left <= {"Pod", "ServiceAccount", "ConfigMap"}  # the ServiceAccount and ConfigMap of every namespace
    for path in (resources.SECRET.path(NAMESPACE, "giveway-tls"), POLICY_MAP):
        with pytest.raises(ApiError, match="not found"):
            await bare.admin.get(path)


@pytest.mark.usefixtures("as_found")
async def test_one_that_was_killed_can_be_run_again_and_removed(bare):
    """In the middle of applying: the inventory knows what may be there."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "webhook.cli", "install", "--component=scan", "--wait=0"),
        *("--kubeconfig", str(bare.cluster.kubeconfig)),
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    while b"ClusterRole giveway-scan created" not in (await process.stdout.readline()):
        pass
    process.send_signal(signal.SIGKILL)
    await process.wait()
    await bare.admin.get(ROLE.path(name="giveway-scan"))
    await install(bare)
    with pytest.raises(ApiError, match="not found"):
        await bare.admin.get(ROLE.path(name="giveway-scan"))
    await done(bare, "uninstall", "--yes")


async def test_nothing_goes_without_an_answer(bare):
    """Ctrl-C ends it at once, as any question on a terminal; without a terminal a script has to say --yes."""
    await install(bare)
    there = await everything(bare.admin)
    result = await run(bare, "uninstall")
    assert result.exit_code == 2
    assert "there is no terminal to ask on; --yes deletes" in result.stderr
    terminal, end = os.openpty()
    command = (sys.executable, "-m", "webhook.cli", "uninstall", "--kubeconfig", str(bare.cluster.kubeconfig))
    process = await asyncio.create_subprocess_exec(*command, stdin=end, stdout=end, stderr=end, start_new_session=True)
    try:
        asked = b""
        while not asked.endswith(b"[y/N]: "):
            asked += await asyncio.to_thread(os.read, terminal, 1024)
        # A person takes longer to answer than the process from its question to waiting for the answer
        await asyncio.sleep(0.3)
        process.send_signal(signal.SIGINT)
        assert await asyncio.wait_for(process.wait(), 10) == 1
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        os.close(terminal)
        os.close(end)
    assert await everything(bare.admin) == there


async def test_a_forged_inventory_deletes_nothing(bare):
    """Whoever may write ConfigMaps in giveway's namespace cannot have an administrator delete what is not giveway's."""
    await install(bare)
    forged = [["v1", "Namespace", "", "team-a"], ["v1", "Namespace", "", "kube-system"], ["v1", "Pod", "", "x"]]
    path = resources.CONFIG_MAP.path(NAMESPACE, "giveway-install")
    await bare.admin.patch(path, {"data": {"objects": json.dumps(forged)}})
    await install(bare)
    await bare.admin.patch(path, {"data": {"objects": json.dumps(forged)}})
    assert "Namespace team-a" not in await done(bare, "uninstall", "--yes")
    for name in ("team-a", "kube-system"):
        assert "deletionTimestamp" not in (await bare.admin.get(resources.NAMESPACE.path(name=name)))["metadata"]
