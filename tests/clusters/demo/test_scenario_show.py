"""The demo's control plane, webhook and reconciler come up together; `make demo` plays the scenarios on them."""

import io

import aiohttp

from webhook.clusters.demo.scenario_show import _cluster


async def test_the_demo_comes_up(tmp_path):
    """Its reconciler may act, and the page is there."""
    async with (
        _cluster(tmp_path, io.BytesIO()) as (_, page),
        aiohttp.ClientSession() as session,
        session.get(page) as answer,
    ):
        assert answer.status == 200
