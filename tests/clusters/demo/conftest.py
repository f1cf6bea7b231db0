"""The same server as in tests/serving."""

from tests.serving.conftest import authority, start

__all__ = ["authority", "start"]
