"""`giveway install`: apply the manifests, wait until the webhook has answered, and say what to do next."""

from __future__ import annotations

import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import click

from webhook.cli.called import as_called
from webhook.cli.installing import kubeconfig_option, run_installation, shown_progress
from webhook.cli.targets import WebhookUrl
from webhook.installation.applier import Applied, Key, ObjectApplier
from webhook.installation.install import (
    POLICIES,
    Status,
    apply,
    look,
    outside_the_cluster,
    stay_until_it_answers,
    with_policies,
)
from webhook.installation.kustomize import parse_image, render
from webhook.installation.manifests import ManifestsError, components, manifests
from webhook.kube.client import Client
from webhook.policy.files.loading import load_or_raise, read_texts
from webhook.policy.shapes.findings import PolicyError

__all__ = ["command"]

Json = dict[str, Any]

_KEY = re.compile(r"[-._a-zA-Z0-9]{1,253}")
"""What Kubernetes takes as a key of a ConfigMap (`IsConfigMapKey`)."""
_NEXT = """\
The API server asks giveway about new pods, PriorityClasses and workloads from now on.

What to do next:
  giveway doctor
      what gets round the policies, or is broken
  giveway scan
      what of the running pods the policies would refuse
  kubectl -n giveway-system get configmap giveway-policies-in-force -o yaml
      the policies; docs/policies.md says how to write your own

To let new pods through in an emergency: kubectl label namespace NAME giveway.dev/exempt=
To take it all out again: giveway uninstall"""

_ELSEWHERE = """\
Now start the webhook where {url} leads, with the rights of the service account giveway-system/giveway-webhook:

  giveway serve --webhook-configuration giveway --url {url} \\
    --policies DIR --kept-policies giveway-system/giveway-policies-in-force \\
    --tls-cert-file FILE --tls-private-key-file FILE --ca-file FILE"""


@click.command("install")
@kubeconfig_option
@click.option("--image", help="Where your nodes pull the image, as in registry.example.com/giveway:0.1.0.")
@click.option(
    "--component", "added", multiple=True, help="Add a shipped component by name, or any by directory. May be repeated."
)
@click.option(
    "--policies",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Your policy files. By default the shipped ones, and on a cluster that has policies already, those.",
)
@click.option(
    "--url", type=WebhookUrl(), help="The webhook runs outside the cluster and is reached at this https://HOST:PORT."
)
@click.option("--dry-run", is_flag=True, help="Print the YAML and apply nothing.")
@click.option(
    "--wait",
    type=click.FloatRange(min=0),
    default=300,
    show_default=True,
    help="Seconds to wait until the webhook has answered; 0 does not wait.",
)
def command(
    *,
    kubeconfig: str | None,
    image: str | None,
    added: tuple[str, ...],
    policies: Path | None,
    url: str | None,
    dry_run: bool,
    wait: float,
) -> None:
    """Install giveway, or bring what is installed to this version and these options.

    Applies what `kubectl apply -k manifests/base` with the same components would, by server-side apply. Nothing that
    it applies refuses a pod: the webhook begins to judge once the API server has reached it. Running it again changes
    nothing; what an earlier run had beside this one is taken away.
    """
    try:
        images = [parse_image(image)] if image else []
        objects = render(manifests() / "base", components(added), images)
        if policies is not None:
            objects = with_policies(objects, _files(policies))
    except (ManifestsError, PolicyError) as error:
        raise click.ClickException(str(error)) from error
    if url is not None:
        objects = outside_the_cluster(objects)
    if dry_run:
        _print_yaml(objects)
        return
    status = run_installation(_install(kubeconfig, objects, () if policies else (POLICIES,), url, wait))
    if status is None:
        click.echo("\nApplied; not waiting. The webhook begins to judge once the API server has reached it.")
    elif status.done:
        click.echo(f"\n{as_called(_NEXT)}")
    else:
        missing = "\n".join(f"  - {text}" for text in status.waiting)
        raise click.ClickException(
            f"not complete after {wait:.0f} s. Nothing is broken, and no pod is refused that was not before;"
            f" still missing:\n{missing}\nRun the same command again to go on waiting."
        )


async def _install(
    kubeconfig: str | None, objects: list[Json], kept: tuple[Key, ...], url: str | None, wait: float
) -> Status | None:
    """Apply the objects, delete what is not wanted any more, and wait until it works."""
    async with await Client.connect(kubeconfig) as client:
        click.echo(f"applying {len(objects)} objects to {client.url}")
        counts: Counter[str] = Counter()

        def told(applied: Applied) -> None:
            counts[applied.how] += 1
            if applied.how != "unchanged":
                click.echo(f"  {applied.key} {applied.how}")

        await apply(ObjectApplier(client), objects, told, kept)
        click.echo(", ".join(f"{count} {how}" for how, count in counts.items()))
        if url is not None and not (await look(client, objects)).answered:
            click.echo(f"\n{_ELSEWHERE.format(url=url)}\n")
        if not wait:
            return None
        with shown_progress("waiting") as show:
            return await stay_until_it_answers(client, objects, wait, lambda status: show("; ".join(status.waiting)))


def _files(policies: Path) -> dict[str, str]:
    """The policy files of a directory as the data of the ConfigMap. Raises PolicyError and ManifestsError."""
    load_or_raise(policies)
    files = {Path(name).name: text for name, text in read_texts(policies)[0]}
    if not files:
        raise ManifestsError(f"{policies} holds no *.yaml file, so no policy; files in directories below do not count")
    for name in files:
        if not _KEY.fullmatch(name):
            raise ManifestsError(
                f"{policies / name}: a ConfigMap cannot hold a file of this name; use letters, digits, -, _ and ."
            )
    return files


def _print_yaml(objects: list[Json]) -> None:
    from ruamel.yaml import YAML  # noqa: PLC0415 - only if it prints

    writer = YAML()
    writer.width = 120
    writer.explicit_start = True
    writer.representer.ignore_aliases = lambda *_: True
    for obj in objects:
        writer.dump(obj, sys.stdout)
