from tests.cli.reviewing import review  # noqa: F401
