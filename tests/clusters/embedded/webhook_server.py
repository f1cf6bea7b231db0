"""A real admission webhook over TLS that answers as a test tells it and keeps what it was sent."""

from __future__ import annotations

import asyncio
import base64
import datetime as dt
import json
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from aiohttp import web

from certs.authority import make_authority, make_serving, pem

Json = dict[str, Any]
Answer = Callable[[Json], Json]


def allow(request: Json) -> Json:
    del request
    return {"allowed": True}


def patching(*operations: Json) -> Answer:
    """Allow with a JSON patch."""
    patch = base64.b64encode(json.dumps(operations).encode()).decode()
    return lambda _: {"allowed": True, "patchType": "JSONPatch", "patch": patch}


def set_field(path: str, value: Any) -> Json:
    return {"op": "add", "path": path, "value": value}


class WebhookServer:
    """`reviews` holds every AdmissionReview received; `answer` makes the response, `delay` is in seconds.

    Its certificate is good for a day from `made` on, or from now on.
    """

    def __init__(
        self,
        directory: Path,
        answer: Answer = allow,
        service: str = "hook.default.svc",
        made: dt.datetime | None = None,
    ) -> None:
        now, day = dt.datetime.now(dt.UTC), dt.timedelta(days=1)
        authority = make_authority(now, day)
        serving = make_serving(authority, ["127.0.0.1", service], made or now, day)
        cert, key = directory / "hook.crt", directory / "hook.key"
        cert.write_bytes(pem(serving.certificate))
        key.write_bytes(serving.key_pem())
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._tls.load_cert_chain(cert, key)
        self.ca_bundle = base64.b64encode(pem(authority.certificate)).decode()
        self.answer = answer
        self.delay = 0.0
        self.status = 200
        self.wrong_uid = False
        self.reviews: list[Json] = []
        self.queries: list[str] = []

    async def __aenter__(self) -> Self:
        self._runner = web.ServerRunner(web.Server(self._handle))
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=self._tls)
        await site.start()
        self.address = f"127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self._runner.cleanup()

    @property
    def requests(self) -> list[Json]:
        return [review["request"] for review in self.reviews]

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        review = json.loads(await request.read())
        self.reviews.append(review)
        self.queries.append(request.query_string)
        if self.delay:
            await asyncio.sleep(self.delay)
        if self.status != 200:
            return web.Response(status=self.status, text="broken")
        uid = "another" if self.wrong_uid else review["request"]["uid"]
        response = {"uid": uid, **self.answer(review["request"])}
        body = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}
        return web.json_response(body)

    def hook(self, name: str = "hook.example.com", path: str = "/mutate", **fields: Any) -> Json:
        """One entry of `webhooks`, for the creation of pods unless `fields` say otherwise."""
        rule = {"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}
        return {
            "name": name,
            "clientConfig": {"url": f"https://{self.address}{path}", "caBundle": self.ca_bundle},
            "rules": [rule],
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "timeoutSeconds": 5,
            **fields,
        }


def configuration(kind: str, name: str, *hooks: Json) -> Json:
    """A `Mutating` or `Validating` WebhookConfiguration."""
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": f"{kind}WebhookConfiguration",
        "metadata": {"name": name},
        "webhooks": list(hooks),
    }
