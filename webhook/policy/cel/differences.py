"""What an expression may give otherwise in the API server than in the webhook (docs/policies.md, "CEL")."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from webhook.policy.cel.string_functions import TOKEN

_WRITTEN = re.compile(r"%(?:\.\d+)?e")


class Difference(NamedTuple):
    """A word of an expression, where it stands in it (in characters), and what it gives here and in the API server."""

    word: str
    offset: int
    what: str


def differences(text: str) -> Iterator[Difference]:
    """The words of an expression with which the two libraries differ, as far as the words tell."""
    tokens = [token for token in TOKEN.finditer(text) if not token[0].isspace() and not token[0].startswith("//")]
    words = [token[0] for token in tokens]
    for place, token in enumerate(tokens):
        match words[place : place + 3]:
            case ["getMilliseconds", "(", *_]:
                what = "of a duration gives what is beyond the second here, and all of it in the API server"
            case ["string", "(", "duration" | "timestamp"]:
                what = "of an instant or duration is written otherwise by the API server: '1.5s' and not '1.500s'"
            case _ if "format" in words and _WRITTEN.search(token[0]):
                what = "writes the exponent as e+00, the API server as a power of ten"
            case _:
                continue
        yield Difference(token[0], token.start(), what)
