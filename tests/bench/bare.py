"""The yardstick: an aiohttp handler over TLS that decodes a review and answers with a fixed patch. Nothing else."""

import base64
import ssl
import sys
from functools import partial

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


if __name__ == "__main__":
    certificate, key, port = sys.argv[1:]
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    app = web.Application()
    app.router.add_post("/mutate", handle)
    begun = partial(print, flush=True)
    web.run_app(app, host="127.0.0.1", port=int(port), ssl_context=context, access_log=None, print=begun)
