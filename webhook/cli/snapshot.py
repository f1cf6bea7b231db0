"""`giveway snapshot FILE`: a live cluster to a file, everything that decides and nothing that is secret."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import click

from webhook.cli.inspecting import inspects
from webhook.cli.options import options, policies_option
from webhook.cli.output import shown_progress
from webhook.kube.client import Client
from webhook.policy.files.loading import load_or_raise
from webhook.policy.shapes.findings import PolicyError
from webhook.simulation.cluster_file.format import ClusterFileError, collect
from webhook.simulation.cluster_file.redacting import ALWAYS_KEPT, Anonymizer
from webhook.simulation.judgeable import annotations_read, words_of


@click.command("snapshot")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@options("kubeconfig")
@policies_option(
    "Policies that the snapshot is for: annotations that they read are kept. May be repeated.", multiple=True
)
@click.option(
    "--anonymize",
    is_flag=True,
    help="Replace names and the values of labels and annotations, but for the words that the policies name.",
)
@inspects
async def command(file: Path, kubeconfig: str | None, policies: tuple[Path, ...], *, anonymize: bool) -> None:
    """Write a live cluster to FILE, for `simulate` and `decide`. It only lists.

    No environment, commands, arguments, images or messages, and of the annotations only those that policies read. What
    may not be listed is left out and named, unless nothing can be said without it.
    """
    try:
        loaded = [load_or_raise(directory) for directory in policies]
        keys = annotations_read(loaded) | ALWAYS_KEPT
        anonymizer = Anonymizer(set().union(*map(words_of, loaded))) if anonymize else None
        async with await Client.connect(kubeconfig) as client:
            with shown_progress("reading") as progress, _whole(file) as stream:
                count, absent = await collect(client, stream, keys, anonymizer, progress)
                size = stream.tell()
    except (PolicyError, ClusterFileError) as error:
        raise click.ClickException(str(error)) from error
    click.echo(f"{file}: {count} objects, {size / 1e6:.1f} MB")
    for kind, why in absent.items():
        click.echo(f"without {kind}: {why}")


@contextmanager
def _whole(file: Path) -> Iterator[IO[bytes]]:
    """A file that comes to be when all of it is written, and only its owner may read."""
    stream: Any = tempfile.NamedTemporaryFile(dir=file.parent, prefix=f".{file.name}-", delete=False)  # noqa: SIM115
    try:
        with stream:
            yield stream
        Path(stream.name).replace(file)
    except BaseException:
        Path(stream.name).unlink(missing_ok=True)
        raise
