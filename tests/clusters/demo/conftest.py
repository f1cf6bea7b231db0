"""The same server as in tests/serving."""

from tests.serving.conftest import authority, start  # noqa: F401
