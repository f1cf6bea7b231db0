"""The `giveway` command as a process of its own."""

from __future__ import annotations

import asyncio
import os
from asyncio.subprocess import PIPE
from typing import Any, NamedTuple

from tests.processes import start_giveway


class Result(NamedTuple):
    """How a command ended."""

    exit_code: int
    stdout: str
    stderr: str


async def giveway(*arguments: Any, seconds: float = 60, **environment: str) -> Result:
    """Run it to its end."""
    env = {**os.environ, "COLUMNS": "120", **environment}
    process = await start_giveway(*arguments, stdout=PIPE, stderr=PIPE, env=env)
    output, errors = await asyncio.wait_for(process.communicate(), seconds)
    assert process.returncode is not None
    return Result(process.returncode, output.decode(), errors.decode())
