"""What the tests of several modules here ask for."""

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture
def no_errors(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Fails a test in which the reconciler logs an error: a decision that fails is no decision."""
    caplog.set_level(logging.ERROR)
    yield
    said = caplog.get_records("call")  # caplog.records are those of the teardown by now: none
    assert [record.getMessage() for record in said] == []
