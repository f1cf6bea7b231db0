"""A probe through the API server to the webhook, by whoever looks from outside: does it answer, and if not, why.

It is one dry-run request or two; nothing is stored. giveway's probe entries answer the first with a warning. If no
warning comes, the second fails closed: only a refusal tells why nobody answers.
"""

import random
import re

import msgspec

from webhook.admission.configmaps import PROBE, answered
from webhook.kube.client import Client
from webhook.kube.errors import ApiError, unless_absent
from webhook.kube.resources import CONFIG_MAP, PRIORITY_CLASS
from webhook.registration.entries import PHASES

_VERSION = re.compile(r"giveway (\S+) answers \(")
_TRIAL = {"metadata": {"name": "giveway-doctor-probe"}, "value": -1000, "preemptionPolicy": "Never"}
"""The PriorityClass of the second request; it is below the cutoff of Cluster Autoscaler, and never stored."""
_FAILED = re.compile(r'failed calling webhook "([^"]*\.giveway\.dev)": (.*)', re.DOTALL)


class Probe(msgspec.Struct, frozen=True):
    """What became of the probe.

    `silent` are the phases in which nobody answered, `entry` and `failure` the entry that fails closed and why, as the
    API server says it; both are empty if it does not say. `versions` are those of the replicas that answered.
    """

    silent: tuple[str, ...] = ()
    entry: str = ""
    failure: str = ""
    versions: frozenset[str] = frozenset()


async def hear(api: Client, own: str) -> list[str]:
    """The warnings by which a probe is answered in giveway's namespace. Raises ApiError if it cannot be sent."""
    heard: list[str] = []
    body = {"metadata": {"annotations": {"giveway.dev/probe": f"{random.getrandbits(32):08x}"}}}
    await api.patch(CONFIG_MAP.path(own, PROBE), body, warnings=heard, dryRun="All")
    return heard


def silent_phases(heard: list[str]) -> tuple[str, ...]:
    """The phases in which no webhook has answered a probe."""
    return tuple(phase for phase in PHASES.values() if not answered(phase, heard))


async def send_probe(client: Client, own: str) -> Probe:
    """Ask through the entries of giveway, in its namespace `own`, and find out why nobody answers.

    Raises ApiError for a missing right.
    """
    heard = await unless_absent(hear(client, own)) or []  # without it the fail-closed entry still tells
    silent, failed = silent_phases(heard), None
    versions = frozenset(match[1] for match in map(_VERSION.match, heard) if match)
    if silent:
        try:
            await client.create(PRIORITY_CLASS.path(), _TRIAL, dryRun="All")
        except ApiError as error:
            if error.status == 403 and "cannot create" in error.message:
                raise
            failed = _FAILED.search(error.message)
    entry, failure = (failed[1], failed[2].strip()) if failed else ("", "")
    return Probe(silent, entry, failure, versions)
