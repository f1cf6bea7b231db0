"""What the tests of admission share."""

from __future__ import annotations

import pytest

from tests.clusters.embedded.webhook_server import WebhookServer


@pytest.fixture
async def server(tmp_path):
    async with WebhookServer(tmp_path) as running:
        yield running


@pytest.fixture
async def another(tmp_path_factory):
    """A second webhook server, with an authority of its own."""
    async with WebhookServer(tmp_path_factory.mktemp("another")) as running:
        yield running
