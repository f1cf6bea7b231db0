"""Kubernetes' filters over all nodes at once: where the preemptor fits, or what fails.

`checks` are in the order of kube-scheduler's Filter plugins. The first that fails gives the
reason, in its words. The preemptor must fit with nominated pods of equal or higher priority,
and without (D3).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from webhook.preemption.devices.pod_claims import needs_of
from webhook.preemption.devices.requests import ClaimRefusal, DemandError, NotModelledError
from webhook.preemption.filters import counters, topology, volumes
from webhook.preemption.filters.counters import UNBOUNDED, Counter, PlacedPods, ThingsInUse
from webhook.preemption.filters.devices import REASONS, DeviceFilter
from webhook.preemption.filters.placement import WRONG_NAME, declaring_mask, elsewhere, placement_masks
from webhook.preemption.filters.volume_limits import EXCEEDED
from webhook.preemption.snapshot.columns import Ints8, Mask, Rows
from webhook.preemption.snapshot.pod_info import PodInfo
from webhook.preemption.snapshot.snapshot import Snapshot

NO_PODS = np.zeros(0, np.intp)
"""Rows of no pods."""
Usage = Counter | ThingsInUse


class FilterCheck(NamedTuple):
    """A reason not to fit: on fixed nodes, where meters are used up, or for an outcome of devices.

    For resources the reason is empty: `Failures.reason` names those that are short.
    """

    reason: str
    resolvable: bool
    mask: Mask | None = None
    used: Sequence[Usage] = ()
    outcome: int = 0


@dataclass
class PreFilterState:
    """One preemptor on one snapshot: what is used up, and what must hold.

    The `meters` are counters of resources, other counters, and then the rest. It is
    `nominated` if nominated pods are counted, too. An `error` ends the attempt at once.
    """

    snapshot: Snapshot
    incoming: PodInfo
    meters: list[Usage]
    devices: DeviceFilter | None = None
    error: str = ""
    checks: list[FilterCheck] = field(default_factory=list)
    nominated: bool = False

    @property
    def counters(self) -> list[Counter]:
        """The meters that are numbers."""
        return [meter for meter in self.meters if isinstance(meter, Counter)]

    @property
    def is_local(self) -> bool:
        """Whether a pod counts on its own node only, and for as much as it adds there."""
        if self.incoming.grows or self.devices:
            return False
        return all(meter.stage == "resources" for meter in self.meters)


class Failures(NamedTuple):
    """The outcome by node row: the first check that fails, and whether removing pods can cure it.

    `code` is 0 where the preemptor fits, -1 without a known node, else the check's place in
    `state` plus one. `lacking` has for each resource the nodes where it is short. `fits` are
    the nodes (rows, ascending) where the preemptor fits, without those `left_out` by the
    caller. After an `error` nothing is known of any node.
    """

    code: NDArray[np.int16]
    resolvable: Mask
    lacking: list[Mask]
    fits: Rows
    left_out: Rows
    state: PreFilterState
    error: str = ""

    def reason(self, node: int) -> str:
        """Why the preemptor does not fit on the node row, in kube-scheduler's words."""
        check = self.state.checks[int(self.code[node]) - 1]
        if check.reason:
            return check.reason
        pairs = zip(self.state.counters, self.lacking, strict=False)
        short = [counter.name for counter, mask in pairs if mask[node]]
        texts = (f"Insufficient {name}" if name else "Too many pods" for name in short)
        return ", ".join(texts)


def prefilter(snapshot: Snapshot, incoming: PodInfo, without: Rows = NO_PODS) -> PreFilterState:
    """Set up meters and checks for a preemptor, without the pods in the rows `without`."""
    live = PlacedPods(snapshot, without, NO_PODS)
    if incoming.grows:  # only its node's resources matter, as the kubelet counts them
        used: list[Usage] = [*counters.growth_counters(incoming, live)]
        others = elsewhere(snapshot.nodes, (incoming.pod.spec.node_name,))
        checks = [FilterCheck(WRONG_NAME, False, others), FilterCheck("", True, used=used)]
        return PreFilterState(snapshot, incoming, used, checks=checks)
    nominees = reserving(snapshot, incoming, without)
    inside = live._replace(coming=nominees) if snapshot.under_policy else live
    resources = counters.resource_counters(incoming, live)
    storage = volumes.check(incoming.pod, live)
    spread = topology.spread_counters(incoming, inside) if incoming.spread else []
    affinity = topology.affinity_counters(incoming, live, inside)
    devices, refusal, error = None, storage.refusal, ""
    try:
        needs = needs_of(snapshot, incoming)
        if needs:
            devices = DeviceFilter(snapshot, incoming, needs, without)
    except ClaimRefusal as raised:
        refusal = refusal or str(raised)
    except DemandError as raised:
        error = f'running PreFilter plugin "DynamicResources": {raised}'
    except NotModelledError as raised:
        incoming = incoming._replace(beyond=f"it asks for devices, and {raised}")
    if devices:
        for counter in resources:
            served = devices.delegated.get(counter.name)
            if served is not None:  # it counts where it is listed
                counter.limit = np.where(served, UNBOUNDED, counter.limit)
    meters: list[Usage] = [*resources, *storage.counters, *spread, *affinity]
    if incoming.ports:
        meters.append(counters.port_use(incoming, live))
    if storage.limits:
        meters.append(storage.limits)
    if len(nominees):
        nodes = snapshot.pods.nominated[nominees].astype(np.intp)
        counted = topology.STAGES if snapshot.under_policy else ()
        for meter in meters:
            if meter.stage not in counted:
                meter.nominate(nominees, nodes)
    state = PreFilterState(snapshot, incoming, meters, devices, error)
    state.nominated = len(nominees) > 0
    state.checks = _checks(state, storage.masks, refusal)
    return state


def run_filters(state: PreFilterState, left_out: Rows = NO_PODS) -> Failures:
    """Run all checks on all nodes, with the nominated pods, and without them if these may help.

    One may by required affinity to it, or by a volume that both use: but it may go elsewhere.
    On the nodes `left_out` (rows) the preemptor neither fits nor preempts.
    """
    error = state.error
    try:
        if not error:
            columns = _run(state, nominated=True)
            fits = columns[0] == 0
            stages = (meter.stage for meter in state.meters)
            if state.nominated and not {"volumes", "affinity"}.isdisjoint(stages):
                alone = _run(state, nominated=False)
                for column, other in zip(columns, alone, strict=True):
                    column[fits] = other[fits]
                fits = columns[0] == 0
            code, resolvable, *lacking = columns
            fits[left_out] = False
            return Failures(code, resolvable, lacking, np.flatnonzero(fits), left_out, state)
    except DemandError as raised:
        error = f'running "DynamicResources" filter plugin: {raised}'
    code = np.full(state.snapshot.nodes.rows, -1, np.int16)
    return Failures(code, code > 0, [], NO_PODS, left_out, state, error)


def nodes_where_preemption_might_help(failures: Failures) -> Rows:
    """The nodes (rows) that removing pods may cure: nothing else rules them out."""
    resolvable = failures.resolvable.copy()
    for check in failures.state.checks:
        if check.mask is not None:
            resolvable &= ~check.mask
    resolvable[failures.left_out] = False
    return np.flatnonzero(resolvable)


def _checks(state: PreFilterState, of_storage: list[tuple[str, Mask]], refusal: str) -> list[FilterCheck]:
    """A node's possible reasons not to fit, in the order of kube-scheduler's plugins."""
    nodes, incoming, devices = state.snapshot.nodes, state.incoming, state.devices
    checks: list[FilterCheck] = []
    used: dict[str, list[Usage]] = {}
    for meter in state.meters:
        used.setdefault(meter.stage, []).append(meter)

    def fixed(reason: str, mask: Mask) -> None:
        if mask.any():
            checks.append(FilterCheck(reason, False, mask))

    def used_up(stage: str, reason: str, *, resolvable: bool = True) -> None:
        if stage in used:
            checks.append(FilterCheck(reason, resolvable, used=used[stage]))

    for reason, mask in placement_masks(nodes, incoming, refusal):
        fixed(reason, mask)
    used_up("ports", "node(s) didn't have free ports for the requested pod ports")
    used_up("resources", "")
    used_up("claims", volumes.IN_USE)
    used_up("volumes", EXCEEDED)
    for reason, mask in of_storage:
        fixed(reason, mask)
    unspread = "node(s) didn't match pod topology spread constraints"
    for constraint, counter in zip(incoming.spread, used.get("spread", ()), strict=True):
        missing = nodes.label(constraint.topology_key) < 0
        fixed(f"{unspread} (missing required label)", missing)
        checks.append(FilterCheck(unspread, True, used=[counter]))
    unmatched = "node(s) didn't match pod affinity rules"
    for term in incoming.affinity:
        fixed(unmatched, nodes.label(term.topology_key) < 0)
    used_up("affinity", unmatched, resolvable=False)
    used_up("anti-affinity", "node(s) didn't match pod anti-affinity rules")
    repelled = "node(s) didn't satisfy existing pods anti-affinity rules"
    used_up("existing-anti-affinity", repelled)
    if devices and devices.searched.any():
        for outcome, (reason, resolvable) in REASONS.items():
            checks.append(FilterCheck(reason, resolvable, outcome=outcome))
    if incoming.features:
        undeclared = ~declaring_mask(nodes, incoming.features)
        fixed("node(s) didn't match Pod's required features", undeclared)
    return checks


def _run(state: PreFilterState, *, nominated: bool) -> list[NDArray[Any]]:
    """`code`, `resolvable` and `lacking`, with `nominated` pods or without."""
    nodes = state.snapshot.nodes
    code = np.where(nodes.valid[: nodes.rows], 0, -1).astype(np.int16)
    resolvable = np.zeros(nodes.rows, np.bool_)
    lacking: list[Mask] = []
    judged: Ints8 | None = None
    for number, check in enumerate(state.checks, start=1):
        cures: Mask | bool = check.resolvable
        if check.mask is not None:
            fails = check.mask
        elif check.outcome:
            assert state.devices is not None
            if judged is None:
                judged = state.devices.judge(code == 0)
            fails = judged == check.outcome
        else:
            over = [meter.fails(nominated=nominated) for meter in check.used]
            fails = reduce(np.logical_or, over)
            if not check.reason:
                lacking, cures = over, np.ones(nodes.rows, np.bool_)
                for counter, mask in zip(state.counters[1:], over[1:], strict=False):
                    cures &= ~mask | (counter.limit >= 0)
        fails = fails & (code == 0)
        code[fails] = number
        resolvable |= fails & cures
    return [code, resolvable, *lacking]


def reserving(snapshot: Snapshot, incoming: PodInfo, without: Rows) -> Rows:
    """The nominated pods (rows) that keep their place, without those in the rows `without`.

    They are of equal or higher priority, and of the same scheduler.
    """
    pods = snapshot.pods
    rows = pods.nominees()
    if not len(rows):
        return NO_PODS
    scheduler = incoming.pod.spec.scheduler_name
    of_scheduler = snapshot.table(
        ("scheduler", scheduler),
        pods.profiles,
        np.bool_,
        lambda profile: profile.scheduler_name == scheduler,
    )
    reserves: Mask = pods.priority[rows] >= incoming.priority
    reserves &= of_scheduler[pods.profile[rows]]
    reserves &= snapshot.nodes.valid[pods.nominated[rows]]
    reserves &= rows != pods.find(incoming.namespace, incoming.name)
    unplaced = without[pods.node[without] < 0]
    if len(unplaced):  # nobody else is nominated
        reserves &= ~np.isin(rows, unplaced)
    return rows[reserves]
