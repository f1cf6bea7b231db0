"""`giveway cluster --page` as a process: the page of a cluster, by somebody who only watches it."""

from __future__ import annotations

import asyncio
import signal
from asyncio.subprocess import PIPE

import aiohttp

from tests.processes import start_giveway
from tests.workloads import eventually, pod, priority_class
from webhook.clusters.demo.scenarios import POLICIES
from webhook.kube.client import Client
from webhook.kube.resources import LEASE, POD, PRIORITY_CLASS


async def test_the_page_of_a_cluster(tmp_path):
    """It shows what is in the cluster, goes live, writes nothing, and keeps nobody from ending the process."""
    (tmp_path / "policies").mkdir()
    (tmp_path / "policies" / "demo.yaml").write_text(POLICIES)
    kubeconfig = tmp_path / "kubeconfig"
    options = ["--nodes=1", "--page=0", f"--policies={tmp_path / 'policies'}", f"--kubeconfig={kubeconfig}"]
    process = await start_giveway("cluster", *options, stderr=PIPE)
    try:
        address = ""
        async with asyncio.timeout(30):
            while not address:
                line = (await process.stderr.readline()).decode()
                address = line.partition("the page is at ")[2].strip()
        async with await Client.connect(str(kubeconfig)) as client, aiohttp.ClientSession() as session:
            await client.create(PRIORITY_CLASS.path(), priority_class("high-priority", 100, preemptionPolicy="Never"))
            await client.create(POD.path("default"), pod("a"))

            async def shown() -> bool:
                async with session.get(address) as answer:
                    text = await answer.text()
                return "high-priority" in text and ">watches<" in text and "giveway, policy demo" in text

            await eventually(shown)
            assert (await session.get(f"{address}changes")).status == 200
            leases, _ = await client.list(LEASE.path())
            assert leases == [], "who only watches contends for no lease"
            process.send_signal(signal.SIGTERM)
            assert await asyncio.wait_for(process.wait(), 8) == 0
    finally:
        process.kill()
        await process.wait()
