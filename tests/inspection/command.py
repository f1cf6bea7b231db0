"""The `giveway` command as a process of its own."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any, NamedTuple


class Result(NamedTuple):
    """How a command ended."""

    exit_code: int
    stdout: str
    stderr: str


async def giveway(*arguments: Any, seconds: float = 60, **environment: str) -> Result:
    """Run it to its end."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "webhook.cli", *map(str, arguments)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "COLUMNS": "120", **environment},
    )
    output, errors = await asyncio.wait_for(process.communicate(), seconds)
    assert process.returncode is not None
    return Result(process.returncode, output.decode(), errors.decode())
