"""The command as it was called: `giveway`, or `kubectl giveway` if kubectl ran it as its plugin `kubectl-giveway`."""

from __future__ import annotations

import re
from pathlib import PurePath

import click

_PLUGIN = "kubectl-giveway"


def called_as(program: str) -> str:
    """What people typed, by the path of the program that runs."""
    name = PurePath(program).name
    return "kubectl giveway" if name.removesuffix(".exe") == _PLUGIN else "giveway"


def as_called(text: str) -> str:
    """A text for people, with the commands in it as this one was called: only that name may be on their PATH."""
    context = click.get_current_context(silent=True)
    root = context.find_root() if context else None
    if root is None or not isinstance(root.command, click.Group) or root.info_name in {None, "giveway"}:
        return text
    names = "|".join(root.command.list_commands(root))
    return re.sub(rf"(?<![\w./-])(?<!kubectl )giveway(?=\s+(?:{names})\b)", str(root.info_name), text)


class CalledFormatter(click.HelpFormatter):
    """Writes help texts with the commands in them as this one was called."""

    def getvalue(self) -> str:
        """The help text."""
        return as_called(super().getvalue())
