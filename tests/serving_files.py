"""`giveway serve` without a cluster, for benches: PriorityClasses and Namespaces are those of files."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from webhook.admission.objectfiles import read_objects
from webhook.cli.options import PROCESS, SERVER, options
from webhook.cli.output import warn
from webhook.cli.running import runs
from webhook.cli.serve import manager_options_from, webhook_from
from webhook.manager.manager import Manager, run_until_signalled
from webhook.serving.cluster_objects import ObjectSource


@click.command()
@options(*PROCESS, *SERVER, "objects")
@runs()
async def main(*, objects: tuple[Path, ...], **values: Any) -> None:
    """Serve until SIGTERM."""
    manager = Manager(manager_options_from(values), sys.stdout.buffer)
    webhook_from(manager, ObjectSource(read_objects(objects, warn)), values)
    await run_until_signalled(manager)


if __name__ == "__main__":
    main()
