"""Ports for servers whose address is told before they listen."""

from __future__ import annotations

import itertools
import os
import socket
from contextlib import suppress

_FIRST, _SHARE = 12_000, 1_000
"""Below the ports that a kernel gives to connections (32768 on Linux), so that none takes one in the meantime."""
_WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
_NUMBERS = itertools.count(os.getpid())


def free_port() -> int:
    """A port nobody listens on, of the share of this process among those that run the tests."""
    for number in itertools.islice(_NUMBERS, _SHARE):
        port = _FIRST + _WORKER % 20 * _SHARE + number % _SHARE
        with suppress(OSError), socket.create_server(("", port)):
            return port
    raise OSError(f"no free port among {_SHARE}")
