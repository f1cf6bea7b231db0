"""A short run of the mutated reviews that `make fuzz` sends in numbers."""

import pytest

from tests.bench.mutated import send_all
from tests.serving.conftest import trusting
from webhook.clusters.demo.recorded_reviews import POLICIES, recorded_objects

pytestmark = pytest.mark.slow


async def test_mutated_reviews_get_well_formed_answers(start, authority, caplog):
    """Whatever a review holds and however it is sent, the answer is well formed and no exception is logged."""
    async with start(policies=POLICIES, objects=recorded_objects()) as running:
        found = await send_all(running.server.secure_port, trusting(authority), 1500, seed=7)
        assert found.total() == 1500
        assert {"patched", "allowed", "denied", "400", "415"} <= set(found)
        assert running.server.handler._bodies.bytes == 0
    assert not [record for record in caplog.records if record.exc_info]
