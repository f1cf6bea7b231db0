"""`giveway install`: apply the manifests, wait until the webhook has answered, and say what to do next."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import click

from webhook.admission.kubectl_yaml import write_yaml
from webhook.cli.options import options, policies_option
from webhook.cli.output import shown_progress
from webhook.cli.running import refusal, runs
from webhook.component_base.own_names import RECONCILER, SYSTEM_NAMESPACE
from webhook.component_base.own_names import WEBHOOK as SERVER
from webhook.installation.applier import Key, ObjectApplier, UnfitClusterError, key_of, ordered
from webhook.installation.install import (
    apply,
    are_in_force,
    in_namespace,
    outside_the_cluster,
    policies_in,
    policy_files,
    stay_until_it_answers,
    take_away,
    with_policies,
)
from webhook.installation.kustomize import ManifestsError, components, manifests, parse_image, render
from webhook.installation.modes import BACKSTOP, COMPONENTS, NATIVE, STATIC, WEBHOOK, try_pods, with_native_policies
from webhook.kube.client import Client
from webhook.kube.errors import ApiError
from webhook.policy.model.policies import Policies

F = TypeVar("F", bound=Callable[..., Any])

_NEXT = """\
The API server {enforces} from now on.

What to do next:
  giveway doctor
      what gets round the policies, or is broken
  giveway scan
      what of the running pods the policies would refuse
  giveway install --policies DIR
      with the same options: other policies (docs/policies.md)

To let new pods through in an emergency: kubectl label namespace NAME giveway.dev/exempt=
To take it all out again: giveway uninstall"""

_TAKEN = 10.0
"""Seconds in which a webhook outside the cluster takes other files of its directory into use."""
_STARTS = 5.0
"""Seconds in which a webhook that was started a moment ago is ready."""


def _said(error: Exception) -> str:
    again = ". Run the same command again once that is mended" if isinstance(error, ApiError) else ""
    return f"{refusal(error)}{again}"


installs = runs(
    *(ManifestsError, UnfitClusterError),
    says=_said,
    stopped="\nstopped; run the same command again to go on",
)
"""Makes a command of a coroutine function that changes what is installed."""


async def _try_policies(client: Client, policies: Policies, own: str) -> None:
    """Try pods by dry run. Raises ClickException if the API server does not say what the policies say."""
    trials = await try_pods(client, policies, own=own)
    if trials.problems:
        text = "\n".join(f"  - namespace {namespace}: {problem}" for namespace, problem in trials.problems.items())
        raise click.ClickException(
            f"the API server does not enforce what the policies say; what enforced them before stays:\n{text}\n"
            "Go back with the --mode that was there before, and report this with the policies."
        )
    tried = f"a pod was tried by dry run in {', '.join(trials.tried)}: the API server says what the policies say"
    click.echo(tried if trials.tried else "no pod could be tried: something other than giveway refuses it")


@click.command("install")
@options("kubeconfig", "system-namespace", system_namespace={"help": "The namespace to install in."})
@click.option(
    "--mode",
    type=click.Choice(list(COMPONENTS)),
    default=WEBHOOK,
    help="Who enforces the policies: the webhook; the webhook, with the API server's own admission policies as a"
    " backstop while it is away; or these native policies alone.",
)
@click.option("--image", help="Where your nodes pull the image, as in registry.example.com/giveway:0.1.0.")
@click.option(
    "--component", "added", multiple=True, help="Add a shipped component by name, or any by directory. May be repeated."
)
@policies_option("Your policy files. By default the shipped ones, and on a cluster that has policies already, those.")
@options("url", url={"help": "The webhook runs outside the cluster and is reached there."})
@click.option("--dry-run", is_flag=True, help="Print the YAML and apply nothing.")
@options("wait")
@installs
async def command(
    *,
    kubeconfig: str | None,
    system_namespace: str,
    mode: str,
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
    nothing; what an earlier run had beside this one is taken away, and after a change of --mode only once what this one
    has enforces the policies. Native policies are compiled of the policies for the cluster's PriorityClasses.
    """
    objects = _rendered(mode, image, added, policies, url, namespace=system_namespace)
    if dry_run and mode == WEBHOOK:
        write_yaml(objects, sys.stdout)
        return
    async with await Client.connect(kubeconfig) as client:
        cluster = ObjectApplier(client, system_namespace)
        natively: Policies | None = None
        if mode != WEBHOOK:
            objects, inexpressible, natively = await with_native_policies(
                cluster, objects, own=policies is not None, alone=mode == NATIVE, keeper=STATIC not in added
            )
            for reason in inexpressible:
                click.echo(reason.told, err=True)
        if dry_run:
            write_yaml(objects, sys.stdout)
            return
        left = await _apply(cluster, objects, mode, keep_policies=policies is None)
        stay = partial(stay_until_it_answers, cluster, objects, backstop=mode == BACKSTOP)
        if url is not None and not (await stay(min(wait, _STARTS), lambda _: None)).started:
            click.echo(_how_to_start(url, mode, system_namespace, reconciler=image is None))
        if not wait:
            stays = " What enforced the policies before stays until a run that waits." if left else ""
            click.echo(f"\nApplied; not waiting.{stays}")
            return
        with shown_progress("waiting", in_pipes=True) as show:
            status = await stay(wait, lambda status: show("; ".join(status.waiting)))
        if status.done and natively is not None:
            await _try_policies(client, natively, system_namespace)
        if status.done and left:
            await take_away(cluster, map(key_of, objects), left, _tell)
        if status.done and mode != NATIVE:
            await _tell_policies(client, policies, namespace=system_namespace, outside=url is not None)
    if not status.done:
        missing = "\n".join(f"  - {text}" for text in status.waiting)
        raise click.ClickException(
            f"not complete after {wait:.0f} s. Nothing is broken, and no pod is refused that was not before;"
            f" still missing:\n{missing}\nRun the same command again to go on waiting."
        )
    enforces = "enforces the policies by itself" if mode == NATIVE else "asks giveway about pods, classes and workloads"
    click.echo(f"\n{_NEXT.format(enforces=enforces)}")


def _tell(key: Key, how: str) -> None:
    """Say what became of an object."""
    if how != "unchanged":
        click.echo(f"  {key} {how}")


async def _apply(cluster: ObjectApplier, objects: list[dict[str, Any]], mode: str, *, keep_policies: bool) -> list[Key]:
    """Apply the objects, and say so; what enforced the policies so far and is to be taken away later."""
    click.echo(f"applying {len(objects)} objects to {cluster.client.url}")
    counts: Counter[str] = Counter()

    def told(key: Key, how: str) -> None:
        counts[how] += 1
        _tell(key, how)

    kept = (policies_in(cluster.namespace),) if keep_policies else ()
    # Without a webhook, one that kubectl applied goes as well
    unwanted = [key_of(obj) for obj in reversed(ordered(rendered_base(cluster.namespace)))] if mode == NATIVE else []
    left = await apply(cluster, objects, told, kept, unwanted)
    click.echo(", ".join(f"{count} {how}" for how, count in counts.items()))
    return left


def rendered_base(
    namespace: str, components: Iterable[Path] = (), images: Iterable[dict[str, Any]] = ()
) -> list[dict[str, Any]]:
    """The manifests for this namespace."""
    return in_namespace(render(manifests() / "base", components, images), namespace)


def _rendered(
    mode: str, image: str | None, added: tuple[str, ...], policies: Path | None, url: str | None, *, namespace: str
) -> list[dict[str, Any]]:
    """The objects to apply, without native policies. Raises UsageError for options that exclude each other."""
    if mode != WEBHOOK and "priority-plugin-off" in added:
        raise click.UsageError(f"--mode {mode}: without the plugin Priority native policies refuse every pod")
    if mode == NATIVE and url is not None:
        raise click.UsageError("--url is where a webhook is reached; --mode native has none")
    # Without a webhook there is nothing that it patches
    chosen = [component for component in added if component != STATIC or mode != NATIVE]
    directories = components(tuple(dict.fromkeys((*COMPONENTS[mode], *chosen))))
    objects = rendered_base(namespace, directories, [parse_image(image)] if image else [])
    if policies is not None:
        objects = with_policies(objects, policy_files(policies))
    return objects if url is None else outside_the_cluster(objects, reconciler=image is not None)


def _how_to_start(url: str, mode: str, namespace: str, *, reconciler: bool) -> str:
    """The command that starts the webhook outside the cluster, with the reconciler if none runs in the cluster."""
    command, accounts = ("run", f"{SERVER} and {RECONCILER}") if reconciler else ("serve", SERVER)
    more = "" if namespace == SYSTEM_NAMESPACE else f" --system-namespace {namespace}"
    more += " --failure-policy=Ignore" if mode == BACKSTOP else ""
    return (
        f"\nNow start it where {url} leads, with the rights of {accounts} in namespace {namespace}:\n\n"
        f"  giveway {command} --entries keep --url {url} --policies DIR --ca-file FILE --tls-cert-file FILE"
        f" --tls-private-key-file FILE{more}\n"
    )


async def _tell_policies(
    client: Client, given: Path | None, *, namespace: str = SYSTEM_NAMESPACE, outside: bool
) -> None:
    """Say so if other policies are in force than were applied. Raises ClickException if these never come into force.

    A webhook `outside` the cluster reads a directory of its own, and nobody here can change that.
    """
    if await are_in_force(client, namespace, _TAKEN if outside and given else 0.0):
        return
    if outside and given:
        raise click.ClickException(
            f"the policies of {given} are not in force: the webhook outside the cluster goes on with those of the"
            " directory that it was started with. Put the files there; its log says what keeps it from them"
        )
    where = "In force are the policies of the directory that the webhook was started with."
    click.echo(f"\n{where if outside else 'The policies reach the webhook within about a minute.'}")
