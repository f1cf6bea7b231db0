"""What commands print: tables, progress on standard error, and texts of a cluster, which anybody may have written."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext

import click
from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table

from webhook.component_base.logs import visible

_LINE_END = re.compile(r"\s*\n\s*")
MOST_ROWS = 15
"""Rows of a table that people see."""
_LONGEST = 1000
_UNCUT = 10_000
"""Columns of a pipe: whoever reads it wraps by itself."""
_PAGE = 160
"""Columns of a table in a pipe: beyond that nobody finds a row again, and programs read JSON."""


def people_console(*, stderr: bool = False) -> Console:
    """A console on standard output, or on standard error.

    It is as wide as the terminal or COLUMNS say; in a pipe it is so wide that no text is cut.
    """
    stream = sys.stderr if stderr else sys.stdout
    wide = None if stream.isatty() or "COLUMNS" in os.environ else _UNCUT
    return Console(highlight=False, width=wide, stderr=stderr)


def print_lines(lines: Iterable[str], indent: int = 0) -> None:
    """Print literal texts, each on a line of its own."""
    console = people_console()
    for line in lines:
        console.print(Padding(literal(line), (0, 0, 0, indent), expand=False))


def print_rows(
    console: Console,
    heads: Sequence[str],
    rows: Sequence[Sequence[str | Sequence[str]]],
    *,
    title: str = "",
    numbers: Collection[int] = (),
    most: int | None = MOST_ROWS,
    indent: int = 0,
    on_one_line: bool = False,
    ruled: bool = False,
) -> None:
    """Print the first rows of literal texts under their heads, and how many more there are.

    A cell may have several lines; `ruled` draws lines around it. In a pipe a table is no wider than a page, and a cell
    that is too long goes on below, unless each row is asked for `on_one_line`.
    """
    table = Table(title=literal(title) if title else None, title_justify="left", show_lines=ruled)
    if not ruled:
        table.box, table.padding, table.header_style = None, (0, 2, 0, 0), "dim"
    for column, head in enumerate(heads):
        table.add_column(literal(head), justify="right" if column in numbers else "left", overflow="fold")
    for row in rows[:most]:
        table.add_row(*("\n".join(map(literal, [cell] if isinstance(cell, str) else cell)) for cell in row))
    width = _PAGE if console.width == _UNCUT and not on_one_line else None
    console.print(Padding(table, (0, 0, 0, indent), expand=False), width=width)
    if most is not None and len(rows) > most:
        console.print(f"{' ' * indent}and {len(rows) - most} more; --format json lists all of them")


def warn(text: str) -> None:
    """Say on standard error what does not stop a command."""
    click.echo(f"Warning: {text}", err=True)


def literal(text: str, most: int = _LONGEST) -> str:
    """A text for a rich console, on one line: nothing in it is markup or moves the cursor, and it is not too long."""
    line = _LINE_END.sub(" ", text.strip())
    cut = line if len(line) <= most else f"{line[:most]}… ({len(line)} characters)"
    return escape(visible(cut))


class UnusableError(click.ClickException):
    """What was given cannot be used: nothing was judged."""

    exit_code = 2


@contextmanager
def shown_progress(what: str, *, in_pipes: bool = False) -> Iterator[Callable[..., None]]:
    """A function that shows what is done, how far, and of how much, if that is known: `show("pods", 500, 2000)`.

    On a terminal in a line that turns and changes, on standard error; elsewhere with `in_pipes` a line for each change.
    """
    last = ""
    with Console(stderr=True).status(what) if sys.stderr.isatty() else nullcontext() as status:

        def show(text: str, done: int = 0, total: int | None = None) -> None:
            nonlocal last
            if status is not None:
                far = f" {done}" + (f" of {total}" if total else "") if done else ""
                status.update(f"{what}: {literal(text)}{far}" if text else what)
            elif in_pipes and text not in ("", last):
                click.echo(f"{what}: {text}", err=True)
                last = text

        yield show
