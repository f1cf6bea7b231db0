"""Bodies in protobuf, as kubectl's typed commands send them."""

import base64
import struct

import pytest

from webhook.clusters.embedded.protocol.statuses import StatusError
from webhook.clusters.embedded.rendering.protobuf import decode


def varint(number):
    number &= (1 << 64) - 1
    out = bytearray()
    while True:
        out.append((number & 127) | (128 if number > 127 else 0))
        number >>= 7
        if not number:
            return bytes(out)


def field(number, value):
    """One field: an int, a text or the bytes of a message."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def envelope(version, kind, message):
    return b"k8s\0" + field(1, field(1, version) + field(2, kind)) + field(2, message)


def metadata(name, **labels):
    pairs = b"".join(field(11, field(1, key) + field(2, value)) for key, value in labels.items())
    return field(1, field(1, name) + field(2, "") + pairs)


def test_metadata_and_scalars():
    """Names, labels, numbers and texts arrive; empty texts do not."""
    body = metadata("high", team="a") + field(2, 1000) + field(3, 0) + field(4, "for x") + field(5, "Never")
    assert decode(envelope("scheduling.k8s.io/v1", "PriorityClass", body)) == {
        "kind": "PriorityClass",
        "apiVersion": "scheduling.k8s.io/v1",
        "metadata": {"name": "high", "labels": {"team": "a"}},
        "value": 1000,
        "globalDefault": False,
        "description": "for x",
        "preemptionPolicy": "Never",
    }


@pytest.mark.parametrize(
    ("sent", "value"),
    [(field(1, 0) + field(2, 2), 2), (field(1, 1) + field(2, 0) + field(3, "50%"), "50%")],
    ids=["number", "share"],
)
def test_number_or_share(sent, value):
    """A number or a percentage is what it was."""
    decoded = decode(envelope("policy/v1", "PodDisruptionBudget", metadata("b") + field(2, field(1, sent))))
    assert decoded["spec"] == {"minAvailable": value}


def test_bytes():
    """Secrets are base64."""
    secret = metadata("s") + field(2, field(1, "k") + field(2, b"\x00\xff"))
    assert decode(envelope("v1", "Secret", secret))["data"] == {"k": base64.b64encode(b"\x00\xff").decode()}


def test_delete_options():
    """They come with an eviction, or alone."""
    options = field(1, 5) + field(2, field(1, "uid-1")) + field(5, "All")
    wanted = {"gracePeriodSeconds": 5, "preconditions": {"uid": "uid-1"}, "dryRun": ["All"]}
    evicted = decode(envelope("policy/v1", "Eviction", metadata("p") + field(2, options)))
    assert evicted["deleteOptions"] == wanted
    alone = decode(envelope("v1", "DeleteOptions", options))
    assert alone == {"kind": "DeleteOptions", "apiVersion": "v1", **wanted}


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"{}", "expected prefix k8s"),
        (b"k8s\0\x0a\xff", "cut off"),
        (envelope("v1", "ConfigMap", metadata("p"))[:-3], "cut off"),
        (envelope("coordination.k8s.io/v1", "Lease", metadata("l")), "Lease is not read from protobuf here; send JSON"),
        (envelope("v9", "Thing", b""), 'no kind "Thing" is registered for version "v9"'),
        (b"k8s\0\x0b", "wire type 3"),
        (b"k8s\0" + struct.pack("B", 0x80), "cut off"),
        pytest.param(b"k8s\0" + b"\xff" * 200_000, "more than 64 bits", id="a number without end"),
        (envelope("v1", "ConfigMap", field(1, 7)), "cannot be read"),
        (envelope("v1", "ConfigMap", metadata("p") + field(2, 7)), "cannot be read"),
    ],
)
def test_what_is_no_body(body, why):
    """What cannot be read is a 400."""
    with pytest.raises(StatusError, match=why) as refusal:
        decode(body)
    assert refusal.value.code == 400
