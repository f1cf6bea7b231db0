"""Certificates in a cluster: one Secret, many replicas, and webhook configurations that trust it."""

import asyncio
import base64
import random
from datetime import UTC, datetime, timedelta

import pytest

from certs.bundle import BundleError
from certs.rotation import SETTLE, CertificateSettings
from certs.secret import inject, maintain, read_secret, secret_path
from tests.certs.handshake import server_context, shake_hands
from tests.kube.server import Server, answer
from webhook.kube.client import Client
from webhook.kube.errors import ApiError

SECRET = ("giveway-system", "giveway-tls")
SECRET_PATH = secret_path(*SECRET)
SETTINGS = CertificateSettings(("giveway.giveway-system.svc",))
MUTATING = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/giveway"
VALIDATING = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/giveway"
START = datetime.now(UTC)


@pytest.fixture
async def server():
    async with Server() as started:
        service = {"namespace": "giveway-system", "name": "giveway", "path": "/mutate"}
        for path in (MUTATING, VALIDATING):
            webhooks = [{"name": f"{n}.giveway.dev", "clientConfig": {"service": service}, "future": n} for n in "ab"]
            started.put(path, webhooks=webhooks)
        yield started


@pytest.fixture
async def client(server):
    async with Client.for_server(server.url) as connected:
        yield connected


def trusted(server):
    """The different `caBundle`s of all webhooks."""
    webhooks = [webhook for path in (MUTATING, VALIDATING) for webhook in server.objects[path]["webhooks"]]
    return {base64.b64decode(webhook["clientConfig"].get("caBundle", "")) for webhook in webhooks}


class Clock:
    """Time that passes when told to."""

    def __init__(self, now=START):
        self.now = now

    def __call__(self):
        return self.now


async def test_the_first_call_makes_everything(server, client, tmp_path):
    """Secret and `caBundle` come into being together and fit each other."""
    bundle = await maintain(client, SECRET, ["giveway"], SETTINGS, Clock())
    stored = server.objects[SECRET_PATH]
    assert stored["type"] == "kubernetes.io/tls"
    files = {name: base64.b64decode(text) for name, text in stored["data"].items()}
    assert files == bundle.files()
    [trust] = trusted(server)
    shake_hands(server_context(tmp_path, files), trust)
    assert server.objects[MUTATING]["webhooks"][1]["future"] == "b"


async def test_the_second_call_writes_nothing(server, client):
    """Where all is well, nothing is written."""
    await maintain(client, SECRET, ["giveway"], SETTINGS, Clock())
    server.requests.clear()
    await maintain(client, SECRET, ["giveway"], SETTINGS, Clock())
    assert {method for method, _, _, _ in server.requests} == {"GET"}


async def test_a_lost_ca_bundle_is_put_back(server, client):
    """A `caBundle` that someone overwrote is restored; only that configuration is written."""
    await maintain(client, SECRET, ["giveway"], SETTINGS, Clock())
    configuration = server.objects[VALIDATING]
    configuration["webhooks"][0]["clientConfig"]["caBundle"] = ""
    server.put(VALIDATING, webhooks=configuration["webhooks"])
    server.requests.clear()
    bundle = await maintain(client, SECRET, ["giveway"], SETTINGS, Clock())
    assert trusted(server) == {bundle.trust()}
    assert server.asked("PUT") == [VALIDATING]


async def test_webhooks_with_an_address_of_their_own_are_left_alone(server, client):
    """A webhook that is reached by URL has its own trust."""
    elsewhere = {"name": "c", "clientConfig": {"url": "https://example.com", "caBundle": "eA=="}}
    server.put(MUTATING, webhooks=[elsewhere])
    assert await inject(client, ["giveway"], b"trust") == ["validatingwebhookconfigurations/giveway"]
    assert server.objects[MUTATING]["webhooks"] == [elsewhere]


async def test_configurations_that_do_not_exist_are_passed_over(server, client):
    """Certificates can be made before the webhook configurations are installed."""
    del server.objects[VALIDATING]
    await maintain(client, SECRET, ["giveway", "other"], SETTINGS, Clock())
    assert VALIDATING not in server.objects


async def test_a_conflict_means_reading_again(server, client):
    """A configuration that changed in between is read again, so that nobody's change is lost."""

    async def change_first(request):
        webhooks = server.objects[MUTATING]["webhooks"]
        server.put(MUTATING, webhooks=webhooks, metadata={"labels": {"by": "someone"}})

    server.fault(change_first, method="PUT", contains="mutating")
    bundle = await maintain(client, SECRET, ["giveway"], SETTINGS, Clock())
    assert server.objects[MUTATING]["metadata"]["labels"] == {"by": "someone"}
    assert trusted(server) == {bundle.trust()}


async def test_a_new_authority_is_injected_before_its_certificate_is_served(server, client, tmp_path):
    """At every step of a rotation what the Secret serves is trusted by the configurations, and was before."""
    clock = Clock(START - timedelta(hours=1))
    await maintain(client, SECRET, ["giveway"], SETTINGS, clock)
    [before] = trusted(server)
    clock.now += timedelta(minutes=1)
    second = await maintain(client, SECRET, ["giveway"], SETTINGS, clock, rotate_authority=True)
    [during] = trusted(server)
    assert during == second.trust() != before
    for trust in (before, during):
        shake_hands(server_context(tmp_path / "second", second.files()), trust)
    clock.now += SETTLE
    third = await maintain(client, SECRET, ["giveway"], SETTINGS, clock)
    assert third.serving != second.serving
    assert trusted(server) == {during}
    shake_hands(server_context(tmp_path / "third", third.files()), during)


async def test_without_trust_nothing_new_is_served(server, client):
    """While the configurations cannot be written, the serving certificate of a new authority waits."""
    clock = Clock()
    first = await maintain(client, SECRET, ["giveway"], SETTINGS, clock)
    server.fault(answer(403, "Forbidden"), method="PUT", contains="webhookconfigurations", times=100)
    for _ in range(3):
        clock.now += SETTLE
        with pytest.raises(ApiError, match="403"):
            await maintain(client, SECRET, ["giveway"], SETTINGS, clock, rotate_authority=True)
    found = await read_secret(client, SECRET)
    assert found.serving.certificate == first.serving.certificate
    assert len(found.authorities) == 2


async def test_trust_that_comes_late_spreads_before_it_is_needed(server, client):
    """If trust could not be written for long, a new authority signs at the look after that, not at once."""
    clock = Clock(START - timedelta(hours=1))
    first = await maintain(client, SECRET, ["giveway"], SETTINGS, clock)
    before = {path: server.objects[path]["webhooks"] for path in (MUTATING, VALIDATING)}
    clock.now += timedelta(minutes=1)
    await maintain(client, SECRET, [], SETTINGS, clock, rotate_authority=True)
    assert {path: server.objects[path]["webhooks"] for path in before} == before
    clock.now += SETTLE
    late = await maintain(client, SECRET, ["giveway"], SETTINGS, clock)
    assert trusted(server) == {late.trust()}
    assert late.serving.certificate == first.serving.certificate
    after = await maintain(client, SECRET, ["giveway"], SETTINGS, clock)
    assert after.issuer() == after.authority.certificate != first.authority.certificate


async def test_an_expired_certificate_does_not_wait_for_trust_to_spread(server, client):
    """What nobody can use any more is replaced in the same look: waiting would help nobody."""
    clock = Clock(START - timedelta(days=100))
    await maintain(client, SECRET, [], SETTINGS, clock)
    await maintain(client, SECRET, [], SETTINGS, clock, rotate_authority=True)
    clock.now = START
    bundle = await maintain(client, SECRET, ["giveway"], SETTINGS, clock)
    assert bundle.serving.certificate.not_valid_after_utc > START
    [trust] = trusted(server)
    assert trust.startswith(bundle.trust())


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("due", [False, True], ids=["start", "renew"])
async def test_replicas_at_once_agree(server, client, due, seed):
    """Five that start, or find the certificate due, on a slow server: one authority, certificate and `caBundle`."""
    rng, clock, retired = random.Random(seed), Clock(), ()
    if due:
        retired = ((await maintain(client, SECRET, ["giveway"], SETTINGS, clock)).serving.certificate,)
        clock.now += timedelta(days=70)

    async def slow(_request):
        await asyncio.sleep(rng.uniform(0, 0.02))

    server.fault(slow, times=1000)
    clients = [Client.for_server(server.url) for _ in range(5)]
    bundles = await asyncio.gather(*(maintain(c, SECRET, ["giveway"], SETTINGS, clock) for c in clients))
    for each in clients:
        await each.close()
    assert len({bundle.files()["tls.crt"] for bundle in bundles}) == 1
    assert (trusted(server), bundles[0].retired) == ({bundles[0].trust()}, retired)
    assert base64.b64decode(server.objects[SECRET_PATH]["data"]["tls.crt"]) == bundles[0].files()["tls.crt"]


async def test_a_secret_from_elsewhere_is_left_alone(server, client):
    """A Secret that someone else fills is an error that names it; it is not overwritten."""
    theirs = {"tls.crt": "eA==", "tls.key": "eA=="}
    server.put(SECRET_PATH, type="kubernetes.io/tls", data=theirs)
    with pytest.raises(BundleError, match=r"secret giveway-system/giveway-tls: ca\.key is missing"):
        await maintain(client, SECRET, ["giveway"], SETTINGS, Clock())
    assert server.objects[SECRET_PATH]["data"] == theirs


@pytest.mark.parametrize("data", [{}, {"data": {"tls.crt": "", "tls.key": "", "note": "eA=="}}], ids=["none", "empty"])
async def test_a_secret_that_waits_to_be_filled_is_filled(server, client, data):
    """The manifests have it empty, as its account may create none. Its type, and what others keep in it, stay."""
    server.put(SECRET_PATH, type="Opaque", **data)
    bundle = await maintain(client, SECRET, [], SETTINGS, Clock())
    stored = server.objects[SECRET_PATH]
    assert (stored["type"], base64.b64decode(stored["data"]["tls.key"])) == ("Opaque", bundle.files()["tls.key"])
    assert stored["data"].get("note") == data.get("data", {}).get("note")


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_other_refusals_are_passed_on(server, client, method):
    """A refusal that waiting does not cure is the caller's to hear; who may not make the Secret hears what to do."""
    server.fault(answer(403, "Forbidden"), method=method, contains="secrets")
    text = "403" if method == "GET" else "403.*apply the manifests again"
    with pytest.raises((ApiError, BundleError), match=text):
        await maintain(client, SECRET, ["giveway"], SETTINGS, Clock())
