"""`giveway demo`: the recorded reviews, then the six scenarios on a control plane in this process."""

from __future__ import annotations

import asyncio
import sys

import click
from rich.console import Console

from webhook.clusters.demo.recorded_reviews import POLICIES, show_reviews
from webhook.clusters.demo.scenario_show import show_scenarios


@click.command()
@click.option("--keep", is_flag=True, help="Leave it all running afterwards, to play with, until Ctrl-C.")
def command(*, keep: bool) -> None:
    """Show what giveway does: reviews answered, then six scenarios on a control plane in this process.

    Ends in less than a minute; the exit code is 0 if everything went as documented.
    """
    console = Console()
    well = True
    if POLICIES.is_dir():
        console.rule("What the webhook answers to reviews a real API server sent", align="left")
        well = show_reviews(console)
        console.print()
    well &= asyncio.run(show_scenarios(console, keep=keep))
    sys.exit(0 if well else 1)
