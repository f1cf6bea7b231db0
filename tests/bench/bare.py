"""The yardstick: an aiohttp handler over TLS that decodes a review and answers with a fixed patch. Nothing else."""

from __future__ import annotations

import base64
import socket
import ssl
import sys

import msgspec
from aiohttp import web


async def handle(request: web.Request) -> web.Response:
    """Decode, patch, answer."""
    review = msgspec.json.decode(await request.read())
    uid, spec = review["request"]["uid"], review["request"]["object"]["spec"]
    patch = [
        {"op": "add", "path": "/spec/priority", "value": 80},
        {"op": "add", "path": "/spec/preemptionPolicy", "value": "PreemptLowerPriority"},
    ]
    response = {
        "uid": uid,
        "allowed": "containers" in spec,
        "patchType": "JSONPatch",
        "patch": base64.b64encode(msgspec.json.encode(patch)).decode(),
    }
    body = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}
    return web.Response(body=msgspec.json.encode(body), content_type="application/json")


def main() -> None:
    """Serve on a free port of the loopback and say which."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(sys.argv[1], sys.argv[2])
    app = web.Application()
    app.router.add_post("/mutate", handle)
    sock = socket.create_server(("127.0.0.1", 0))
    print(f"port {sock.getsockname()[1]}, probes on port 0", flush=True)
    web.run_app(app, sock=sock, ssl_context=context, access_log=None, print=None)


if __name__ == "__main__":
    main()
