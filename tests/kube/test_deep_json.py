"""JSON that is too deep for a decoder: what is left of it."""

import msgspec
import pytest

from webhook.kube.deep_json import decode_deep

DEEP = "[" * 5000 + "]" * 5000


def test_what_lies_less_deep_stays():
    """Only what nests deeper than any field that is read is gone; brackets in strings are none."""
    read = decode_deep(msgspec.json.decode, rf'["[[\"[",{DEEP},"\\",{{"a":{DEEP}}},"]"]'.encode())
    assert (read[0], read[2], read[4]) == ('[["[', "\\", "]")
    for nested, levels in (read[1], 98), (read[3]["a"], 97):
        assert str(nested) == "[" * levels + "None" + "]" * levels


def test_what_does_not_end_is_no_json():
    """It is refused as any text that is cut off."""
    with pytest.raises(msgspec.DecodeError):
        decode_deep(msgspec.json.decode, DEEP[:5000].encode())
