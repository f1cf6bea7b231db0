"""Admission webhooks that deny, fail or cannot be reached: who is told what, and what goes on."""

from __future__ import annotations

import asyncio
import time

import pytest

from tests.clusters.embedded.admission_chain.asking import PATHS, PODS, denying, refused, register
from tests.clusters.embedded.webhook_server import patching
from tests.workloads import pod
from webhook.kube.errors import ApiError
from webhook.kube.resources import NODE

CLUSTER = {"nodes": 0, "without": ("scheduler", "kubelet")}


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        pytest.param({"message": "no pods today"}, (400, "denied the request: no pods today"), id="message"),
        pytest.param({"code": 403, "reason": "Forbidden", "message": "no"}, (403, "denied the request: no"), id="code"),
        pytest.param({"code": 200, "reason": "Odd"}, (400, "denied the request: Odd"), id="reason-and-odd-code"),
        pytest.param(None, (400, "denied the request without explanation"), id="silent"),
    ],
)
@pytest.mark.parametrize("kind", ["Mutating", "Validating"])
async def test_denial_reads_as_kubernetes_writes_it(admin, server, kind, status, expected):
    """The refusal names the webhook and carries its message and code."""
    server.answer = denying(status)
    await register(admin, kind, server.hook())
    error = await refused(admin.create(PODS, pod("p")))
    code, text = expected
    assert (error.status, error.message) == (code, f'admission webhook "hook.example.com" {text}')
    with pytest.raises(ApiError, match="not found"):
        await admin.get(f"{PODS}/p")


FAILURES = [
    pytest.param({"delay": 3.0}, {"timeoutSeconds": 1}, "context deadline exceeded", id="timeout"),
    pytest.param({"status": 500}, {}, 'an error on the server ("broken") has prevented', id="http-500"),
    pytest.param({"status": 404}, {}, "the server could not find the requested resource", id="http-404"),
    pytest.param({"wrong_uid": True}, {}, "received invalid webhook response: expected response.uid=", id="wrong-uid"),
    pytest.param({}, {"clientConfig": {"url": "https://127.0.0.1:9/"}}, "connection refused", id="nobody-there"),
]


@pytest.mark.parametrize(("server_fields", "hook_fields", "text"), FAILURES)
async def test_a_webhook_that_cannot_be_asked(admin, server, server_fields, hook_fields, text):
    """With failurePolicy Fail it is a 500 that says why; with Ignore the pod gets in, and no answer is applied."""
    for field, value in server_fields.items():
        setattr(server, field, value)
    await register(admin, "Validating", server.hook(**hook_fields))
    error = await refused(admin.create(PODS, pod("p")))
    assert (error.status, error.reason) == (500, "InternalError")
    assert error.message.startswith('Internal error occurred: failed calling webhook "hook.example.com": ')
    assert text in error.message
    await admin.delete(f"{PATHS['Validating']}/test")
    await register(admin, "Mutating", server.hook(failurePolicy="Ignore", **hook_fields))
    made = await admin.create(PODS, pod("p"))
    assert made["metadata"]["labels"] == {"app": "p"}


async def test_certificate_must_chain_to_the_ca_bundle(admin, server, another):
    """A webhook whose certificate another CA signed is not trusted."""
    config = {"url": f"https://{server.address}/", "caBundle": another.ca_bundle}
    await register(admin, "Validating", server.hook(clientConfig=config))
    error = await refused(admin.create(PODS, pod("p")))
    assert "failed to verify certificate: x509" in error.message
    assert server.requests == []


async def test_service_reference_is_resolved_and_its_name_verified(cluster, admin, server):
    """A `service` is looked up as namespace/name:port; the certificate must be for NAME.NAMESPACE.svc."""
    service = {"namespace": "default", "name": "hook", "path": "/validate", "port": 8443}
    hook = server.hook(clientConfig={"service": service, "caBundle": server.ca_bundle})
    await register(admin, "Validating", hook)
    error = await refused(admin.create(PODS, pod("p")))
    assert 'Post "https://hook.default.svc:8443/validate?timeout=5s": service "hook" not found' in error.message
    cluster.services["default/hook:8443"] = server.address
    await admin.create(PODS, pod("p"))
    assert len(server.requests) == 1
    await admin.delete(f"{PATHS['Validating']}/test")
    wrong = {**service, "name": "misnamed"}
    cluster.services["default/misnamed:8443"] = server.address
    await register(admin, "Validating", server.hook(clientConfig={"service": wrong, "caBundle": server.ca_bundle}))
    error = await refused(admin.create(PODS, pod("q")))
    assert "x509" in error.message


async def test_patch_that_does_not_fit_is_the_webhooks_error(admin, server):
    """A JSON patch that cannot be applied is an internal error naming the webhook."""
    server.answer = patching({"op": "replace", "path": "/spec/nothing/here", "value": 1})
    await register(admin, "Mutating", server.hook())
    error = await refused(admin.create(PODS, pod("p")))
    assert (error.status, 'failed calling webhook "hook.example.com"' in error.message) == (500, True)


@pytest.mark.skipped_waits
async def test_slow_webhook_does_not_hold_up_others(admin, server):
    """While one request waits for its webhook, requests without one go on."""
    server.delay = 0.5
    await register(admin, "Validating", server.hook())
    waiting = asyncio.create_task(admin.create(PODS, pod("p")))
    await asyncio.sleep(0.05)
    started = time.monotonic()
    await admin.list(NODE.path(), dict)
    assert time.monotonic() - started < 0.3
    await waiting
