"""What `giveway serve` is told."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from webhook.admission.lookup import RECONCILER

__all__ = ["LogFormat", "Options"]

LogFormat = Literal["json", "text"]


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """The server's options; a port of 0 takes a free one. Durations are seconds; `reconciler` is a user name."""

    tls_cert_file: Path
    tls_private_key_file: Path
    client_ca_file: Path | None = None
    policies: Path | None = None
    allow_removal: bool = False
    reconciler: str = RECONCILER
    bind_address: str = "::"
    secure_port: int = 9443
    health_port: int = 8081
    shutdown_delay_duration: float = 0.0
    shutdown_timeout: float = 25.0
    poll_interval: float = 0.5
