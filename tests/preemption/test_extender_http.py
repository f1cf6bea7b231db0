"""The HTTP extender against a real server on loopback."""

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.preemption.building import as_pod, pod
from webhook.preemption.extending import ExtenderError
from webhook.preemption.plan import Candidate, Victim
from webhook.reconciler.extender import HttpExtender

CANDIDATES = [
    Candidate("n1", [Victim("default", name, f"uid-{name}", 1, 0.0, "n1") for name in ("a", "b")], 1),
    Candidate("n2", [Victim("default", "c", "uid-c", 1, 0.0, "n2")], 0),
]
PREEMPTOR = as_pod(pod("preemptor", priority=100))


@pytest.fixture
def serve():
    """Start servers that answer (status, body) and remember what they were sent."""
    servers = []

    def start(status=200, body=None, delay=0.0):
        seen = []

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                seen.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                time.sleep(delay)
                self.send_response(status)
                self.end_headers()
                self.wfile.write(body if isinstance(body, bytes) else json.dumps(body).encode())

            def log_message(self, *args):
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.handle_error = lambda *_: None  # the client may be gone before a late answer
        servers.append(server)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{server.server_port}/preempt", seen

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def test_wire_format(serve):
    """Arguments go out under Go's field names with uids, and the answer's nodes and victims come back."""
    answer = {"NodeNameToMetaVictims": {"n1": {"Pods": [{"UID": "uid-b"}], "NumPDBViolations": 0}}}
    url, seen = serve(body=answer)
    remaining = HttpExtender(url)(PREEMPTOR, CANDIDATES)
    assert [(one.node, [victim.name for victim in one.victims], one.pdb_violations) for one in remaining] == [
        ("n1", ["b"], 0)
    ]
    (sent,) = seen
    assert sent["Pod"]["metadata"]["name"] == "preemptor"
    assert sent["NodeNameToVictims"] is None
    assert sent["NodeNameToMetaVictims"] == {
        "n1": {"Pods": [{"UID": "uid-a"}, {"UID": "uid-b"}], "NumPDBViolations": 1},
        "n2": {"Pods": [{"UID": "uid-c"}], "NumPDBViolations": 0},
    }


def test_whole_pods_for_an_extender_without_a_cache(serve):
    """Where the extender keeps no cache it gets whole pods."""
    url, seen = serve(body={"nodeNameToMetaVictims": {"n2": {"pods": [{"uid": "uid-c"}]}}})
    extender = HttpExtender(url, pod_of=lambda key: {"metadata": {"name": key}, "spec": {"anything": 1}})
    assert [one.node for one in extender(PREEMPTOR, CANDIDATES)] == ["n2"]
    (sent,) = seen
    assert sent["Pod"] == {"metadata": {"name": "default/preemptor"}, "spec": {"anything": 1}}
    assert sent["NodeNameToMetaVictims"] is None
    assert sent["NodeNameToVictims"]["n2"]["Pods"] == [{"metadata": {"name": "default/c"}, "spec": {"anything": 1}}]


def test_null_victims_are_none(serve):
    """A node answered with null has no victims, which the decision treats as an error."""
    url, _ = serve(body={"NodeNameToMetaVictims": {"n1": None}})
    assert HttpExtender(url)(PREEMPTOR, CANDIDATES) == [Candidate("n1", [], 0)]


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        pytest.param(500, {}, "answered 500", id="an error status"),
        pytest.param(200, b"<html>", "not a fitting ExtenderPreemptionResult", id="no JSON"),
        pytest.param(200, [1], "not a fitting ExtenderPreemptionResult", id="no object"),
        pytest.param(
            200, {"NodeNameToMetaVictims": {"n9": {}}}, "'n9' is not one of the candidates", id="a node of its own"
        ),
        pytest.param(
            200,
            {"NodeNameToMetaVictims": {"n1": {"Pods": [{"UID": "x"}]}}},
            "has the uid 'x'",
            id="a victim of its own",
        ),
        pytest.param(200, {"NodeNameToMetaVictims": {"n1": 7}}, "not a fitting", id="wrong types"),
    ],
)
def test_answers_that_make_no_sense(serve, status, body, said):
    """Each is an ExtenderError that names the extender and says what is wrong."""
    url, _ = serve(status, body)
    with pytest.raises(ExtenderError, match=said) as caught:
        HttpExtender(url)(PREEMPTOR, CANDIDATES)
    assert url in str(caught.value)


def test_timeout_and_silence(serve):
    """An extender that does not answer in time, or is not there, is an error soon."""
    url, _ = serve(body={}, delay=1.0)
    started = time.monotonic()
    with pytest.raises(ExtenderError, match="timed out"):
        HttpExtender(url, timeout=0.1)(PREEMPTOR, CANDIDATES)
    assert time.monotonic() - started < 0.9
    with pytest.raises(ExtenderError, match="refused"):
        HttpExtender("http://127.0.0.1:9/preempt")(PREEMPTOR, CANDIDATES)


def test_interest_follows_managed_resources():
    """An extender that manages resources is asked only about pods that request one of them."""
    asks = as_pod(pod("gpu", cpu="1"))
    asks.spec.containers[0].resources.requests["example.com/gpu"] = "1"
    extender = HttpExtender("http://127.0.0.1:9/", managed_resources=frozenset({"example.com/gpu"}))
    assert extender.is_interested(asks)
    assert not extender.is_interested(PREEMPTOR)
    with pytest.raises(ValueError, match="starts with http"):
        HttpExtender("file:///etc/passwd")
