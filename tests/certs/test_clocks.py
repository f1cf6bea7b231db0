"""Rotations in simulated time: replicas, API servers and their clocks lag behind each other."""

import base64
import random
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from cryptography import x509
from cryptography.x509.verification import PolicyBuilder, Store

from certs.rotation import CertificateSettings
from certs.secret import maintain

NAME = "giveway.giveway-system.svc"
SECRET = ("giveway-system", "giveway-tls")
CONFIGURATION = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/giveway"
START = datetime(2027, 1, 1, tzinfo=UTC)
APART, LOOK, LAG = timedelta(seconds=60), 60, timedelta(minutes=5)
"""How far the clocks are apart, seconds between two looks of a replica, and how old an API server's trust may be."""


class NotFoundError(Exception):
    status = 404


class Cluster:
    """The objects of a cluster, by path."""

    def __init__(self) -> None:
        self.objects: dict[str, Any] = {CONFIGURATION: {"webhooks": [{"clientConfig": {"service": {}}}]}}

    async def get(self, path: str) -> Any:
        if path not in self.objects:
            raise NotFoundError
        return self.objects[path]

    async def create(self, path: str, body: Any) -> Any:
        self.objects[f"{path}/{body['metadata']['name']}"] = body
        return body

    async def replace(self, path: str, body: Any) -> Any:
        self.objects[path] = body
        return body

    def trust(self) -> bytes:
        """The `caBundle` as it is stored now."""
        return base64.b64decode(self.objects[CONFIGURATION]["webhooks"][0]["clientConfig"].get("caBundle", ""))


@dataclass
class Replica:
    """A webhook pod: its clock, and the certificate it serves."""

    apart: timedelta
    offset: int
    served: x509.Certificate | None = None


def verify(served: x509.Certificate, trust: bytes, now: datetime) -> None:
    """Verify as a client with this trust and clock does. Raises VerificationError."""
    store = Store(x509.load_pem_x509_certificates(trust))
    PolicyBuilder().store(store).time(now).build_server_verifier(x509.DNSName(NAME)).verify(served, [])


@pytest.mark.parametrize("apart", [APART, -APART], ids=["one ahead", "one behind"])
async def test_hours_with_clocks_apart(apart):
    """No API server, whatever its clock and however old its trust, ever meets a certificate that it does not trust."""
    settings = CertificateSettings((NAME,), timedelta(hours=1), timedelta(hours=3))
    api, dice = Cluster(), random.Random(7)
    replicas = [Replica(timedelta(0), 0), Replica(apart, 23)]
    past: list[tuple[datetime, bytes]] = []
    leaves, authorities, checks = set(), set(), 0
    for second in range(9 * 3600):
        due = [replica for replica in replicas if second % LOOK == replica.offset]
        if not due:
            continue
        now = START + timedelta(seconds=second)
        for replica in due:
            bundle = await maintain(api, SECRET, ["giveway"], settings, lambda at=now + replica.apart: at)
            replica.served = bundle.serving.certificate
            leaves.add(bundle.serving.certificate.serial_number)
            authorities.add(bundle.authority.certificate.serial_number)
        past = [(at, trust) for at, trust in past if at >= now - LAG] + [(now, api.trust())]
        for replica in replicas:
            if replica.served is None:
                continue
            trusts = {past[0][1], past[-1][1], dice.choice(past)[1]}
            for trust in trusts:
                for clock in (now - APART, now, now + APART):
                    verify(replica.served, trust, clock)
                    checks += 1
    assert len(leaves) > 10
    assert len(authorities) > 4
    assert checks > 4000
