"""`giveway certs client` and `--client-ca-file`, with an API server that shows the certificate.

It needs one that was started with `--admission-control-config-file`, which the embedded one has not (CONTRIBUTING.md).
"""

import os
import ssl
from pathlib import Path

import aiohttp
import pytest
import yaml

from tests.admission.builders import make_pod, make_review
from tests.e2e.software import FORBIDDEN_IMAGE
from tests.workloads import eventually, pod
from webhook.kube.errors import ApiError

FILES = os.environ.get("GIVEWAY_CLIENT_FILES", "")
"""The directory that `giveway certs client --url https://127.0.0.1:PORT` made, and the API server was started with."""


@pytest.mark.skipif(not FILES, reason="GIVEWAY_CLIENT_FILES names no files that the API server was started with")
async def test_only_the_api_server_gets_in(sandbox, giveway, kubeconfig, tmp_path):
    """Reviews come through with the certificate, policies are enforced; nobody without it gets past the handshake."""
    [user] = yaml.safe_load((Path(FILES) / "webhooks.kubeconfig").read_text())["users"]
    url = f"https://{user['name']}"
    options = [f"--client-ca-file={FILES}/ca.crt", f"--url={url}", f"--secure-port={url.rpartition(':')[2]}"]
    server = await giveway.serve(FORBIDDEN_IMAGE, *options, reached=False)
    await eventually(lambda: giveway.in_force(url), 30)
    await sandbox.client.create(sandbox.pods, pod("good"))
    wrong = pod("wrong")
    wrong["spec"]["containers"][0]["image"] = "forbidden"
    with pytest.raises(ApiError, match="e2e/no-image"):
        await sandbox.client.create(sandbox.pods, wrong)

    trust = ssl.create_default_context(cafile=str(tmp_path / "certs" / "ca.crt"))
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=trust)) as session:
        for _ in range(20):
            with pytest.raises(aiohttp.ClientError):
                await session.post(f"{url}/validate", json=make_review(make_pod()))
    assert not [line for line in server.lines() if line.get("user") == "alice"]
    await sandbox.client.create(sandbox.pods, pod("another"))
