"""Bodies in protobuf, as kubectl's typed commands send them."""

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
        (b"k8s\0\x80", "cut off"),
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
