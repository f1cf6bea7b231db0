"""A TLS client that does what Python's `ssl` cannot: OpenSSL's own library, by its public functions."""

from __future__ import annotations

import ctypes
import ctypes.util
import socket
from functools import cache
from typing import Any

_POINTERS = {"TLS_client_method": 0, "SSL_CTX_new": 1, "SSL_new": 1}
_CALLS = {"SSL_set_fd": 1, "SSL_connect": 0, "SSL_do_handshake": 0, "SSL_key_update": 1}


@cache
def openssl() -> Any:
    """The library, or None if there is none."""
    name = ctypes.util.find_library("ssl")
    if name is None:
        return None
    library = ctypes.CDLL(name)
    for function, pointers in _POINTERS.items():
        getattr(library, function).restype = ctypes.c_void_p
        getattr(library, function).argtypes = [ctypes.c_void_p] * pointers
    for function, numbers in _CALLS.items():
        getattr(library, function).argtypes = [ctypes.c_void_p, *[ctypes.c_int] * numbers]
    return library


class OpenSslClient:
    """A connection that trusts any server and blocks: for a thread. It lasts as long as the process."""

    def __init__(self, port: int, address: str = "127.0.0.1") -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), source_address=(address, 0))
        self._socket.settimeout(None)
        library = openssl()
        self._ssl = library.SSL_new(library.SSL_CTX_new(library.TLS_client_method()))
        library.SSL_set_fd(self._ssl, self._socket.fileno())
        if library.SSL_connect(self._ssl) != 1:
            raise ConnectionError("no handshake")

    def update_keys(self, *, answered: bool) -> None:
        """Send a KeyUpdate of TLS 1.3, with or without asking for one in return. Raises ConnectionError."""
        openssl().SSL_key_update(self._ssl, int(answered))
        if openssl().SSL_do_handshake(self._ssl) != 1:
            raise ConnectionError("the connection has ended")

    def close(self) -> None:
        """End the connection."""
        self._socket.close()
