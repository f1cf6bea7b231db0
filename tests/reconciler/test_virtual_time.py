"""The loop of simulated clusters: time passes at once, and who does not wait is found."""

import asyncio

import pytest

from tests.reconciler.harness.virtual_time import run


def test_minutes_pass_at_once():
    """A wait is over when nothing else is to be done."""
    times = []

    async def wait() -> None:
        await asyncio.sleep(3600)
        times.append(asyncio.get_running_loop().time())

    run(wait())
    assert 3600 <= times[0] < 3601


def test_whoever_does_not_wait_is_found():
    """What asks again and again ends the run with an error instead of going on for hours."""

    async def spin() -> None:
        def again() -> None:
            asyncio.get_running_loop().call_soon(again)

        again()
        await asyncio.sleep(1)

    with pytest.raises(RuntimeError, match=r"at 0\.0\d s somebody asks again and again"):
        run(spin())
