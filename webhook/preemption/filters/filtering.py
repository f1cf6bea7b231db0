"""Kubernetes' filters over all nodes at once: where the preemptor fits, and what fails elsewhere.

The order of `checks` is that of kube-scheduler's Filter plugins; the first one that fails gives the reason, in its
words. If pods of equal or higher priority are nominated to a node, it must fit with them and without (D3).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from webhook.preemption.devices.requests import ClaimRefusal, DemandError, NotModelledError
from webhook.preemption.filters import counters, topology, volumes
from webhook.preemption.filters.counters import UNBOUNDED, Counter, FilterCheck, PlacedPods, PortUsage
from webhook.preemption.filters.devices import DeviceFilter, device_filter
from webhook.preemption.filters.placement import declaring_mask, placement_checks
from webhook.preemption.filters.volume_limits import EXCEEDED, AttachLimits
from webhook.preemption.snapshot.columns import Ints, Mask, Rows
from webhook.preemption.snapshot.pod_info import PodInfo, claims_of
from webhook.preemption.snapshot.snapshot import Snapshot

NO_PODS = np.zeros(0, np.intp)
"""Rows of no pods."""


@dataclass
class PreFilterState:
    """One preemptor on one snapshot: what uses what up, and what must hold.

    `meters` are those that are no counters, by the kind of their check. There are `nominated` pods if these are counted
    besides. `error` ends the attempt before any node is looked at.
    """

    snapshot: Snapshot
    incoming: PodInfo
    counters: list[Counter]
    meters: dict[str, PortUsage | AttachLimits] = field(default_factory=dict)
    devices: DeviceFilter | None = None
    error: str = ""
    checks: list[FilterCheck] = field(default_factory=list)
    nominated: bool = False

    def shares(self, rows: Rows, nodes: Rows) -> Ints:
        """What pods (by row) on nodes (by row) add to each counter: one row a counter, one column a pod."""
        return np.stack([counter.share(rows, nodes) for counter in self.counters])

    @property
    def width(self) -> int:
        """How many rows nodes have."""
        return len(self.counters[0].base)

    @property
    def is_local(self) -> bool:
        """Whether a pod counts on its own node only, and for as much as it adds there."""
        return not (self.incoming.grows or self.meters or self.devices) and all(
            counter.stage == "resources" for counter in self.counters
        )


class Failures(NamedTuple):
    """The outcome per node row: the number of the failing check, and whether pods can cure it.

    `code` is 0 where the preemptor fits, -1 for a row without a known node, else the check's place in `checks` plus
    one. `lacking` has a row a resource counter: which of them are short if the resources check failed. `fits` are the
    nodes (rows, ascending) on which the preemptor fits but for those in `left_out`, which the caller rules out. After
    an `error` the attempt is over, and nothing is known of any node.
    """

    code: NDArray[np.int16]
    resolvable: Mask
    lacking: Mask
    fits: Rows
    left_out: Rows
    checks: list[FilterCheck]
    counters: list[Counter]
    error: str = ""

    def reason(self, node: int) -> str:
        """Why the preemptor does not fit on the node row, in kube-scheduler's words."""
        check: FilterCheck = self.checks[int(self.code[node]) - 1]
        if check.kind != "resources":
            return check.reason
        short = [self.counters[row].name for row in np.flatnonzero(self.lacking[:, node])]
        return ", ".join(f"Insufficient {name}" if name else "Too many pods" for name in short)


def prefilter(snapshot: Snapshot, incoming: PodInfo, without: Rows = NO_PODS) -> PreFilterState:
    """Set up the counters and checks for a preemptor, as if the pods in the rows `without` were gone."""
    snapshot.nodes.drop_unused_labels()
    if incoming.grows:
        return _growth(snapshot, incoming, without)
    nominees = _reserving(snapshot, incoming, without)
    live = PlacedPods(snapshot, without, NO_PODS)
    inside = PlacedPods(snapshot, without, nominees) if snapshot.under_policy and len(nominees) else live
    resources = counters.resource_counters(snapshot, incoming, without[snapshot.pods.node[without] >= 0])
    ports = counters.port_bits(snapshot, incoming, live) if incoming.ports else None
    storage = volumes.check(snapshot, incoming, live) if claims_of(incoming.pod) else volumes.NO_STORAGE
    spread = topology.spread_counters(snapshot, incoming, inside) if incoming.spread else []
    affinity = topology.affinity_counters(snapshot, incoming, live, inside)
    devices, refusal, error = None, storage.refusal, ""
    try:
        devices = device_filter(snapshot, incoming, without)
    except ClaimRefusal as raised:
        refusal = refusal or str(raised)
    except DemandError as raised:
        error = f'running PreFilter plugin "DynamicResources": {raised}'
    except NotModelledError as raised:
        incoming = incoming._replace(beyond=f"it asks for devices, and {raised}")
    if devices:
        for counter in resources:
            if (served := devices.delegated.get(counter.name)) is not None:
                counter.limit = np.where(served, UNBOUNDED, counter.limit)  # it counts where it is listed
    used = [*resources, *storage.counters, *spread, *affinity]
    meters = {kind: meter for kind, meter in (("ports", ports), ("volumes", storage.limits)) if meter is not None}
    state = PreFilterState(snapshot, incoming, used, meters, devices, error)
    checks = _checks(state, storage, refusal)
    state.checks = [check for check in checks if check.mask is None or check.mask.any()]
    if len(nominees):
        _nominate(state, nominees)
    return state


def _growth(snapshot: Snapshot, incoming: PodInfo, without: Rows) -> PreFilterState:
    """A pod that wants to grow where it is: its node's resources beside the pods there, as the kubelet counts."""
    used = counters.growth_counters(snapshot, incoming, without)
    elsewhere = np.ones(snapshot.nodes.rows, np.bool_)
    if (node := snapshot.nodes.find(incoming.pod.spec.node_name)) is not None:
        elsewhere[node] = False
    checks = [
        FilterCheck("node(s) didn't match the requested node name", False, "mask", elsewhere),
        FilterCheck("", True, "resources", None, 0, len(used)),
    ]
    return PreFilterState(snapshot, incoming, used, checks=checks)


def without_pods(state: PreFilterState, gone: Rows) -> PreFilterState:
    """The same preemptor as if the pods in the rows `gone`, which are on nodes, were not there."""
    if not state.is_local:
        return prefilter(state.snapshot, state.incoming, gone)
    nodes = state.snapshot.pods.node[gone].astype(np.intp)
    return replace(state, counters=[counter.without(gone, nodes) for counter in state.counters])


def run_filters(state: PreFilterState, left_out: Rows = NO_PODS) -> Failures:
    """Run all checks on all nodes: with the nominated pods, and without them if their absence could do harm.

    Nominated pods use things up, so what fits beside them mostly fits without them. There are two exceptions, because
    a nominated pod may still go elsewhere: required affinity to it, and a volume that both use. On the nodes
    `left_out` (rows) the preemptor neither fits nor preempts, whatever the checks say.
    """
    try:
        return _failures(state, left_out)
    except DemandError as error:
        return _ended(state, left_out, f'running "DynamicResources" filter plugin: {error}')


def _failures(state: PreFilterState, left_out: Rows) -> Failures:
    """What `run_filters` says. Raises DemandError."""
    if state.error:
        return _ended(state, left_out, state.error)
    code, resolvable, lacking = _run(state, nominated=True)
    fits = code == 0
    if state.nominated and ("volumes" in state.meters or any(counter.again is not None for counter in state.counters)):
        codes, curable, short = _run(state, nominated=False)
        code[fits], resolvable[fits], lacking[:, fits] = codes[fits], curable[fits], short[:, fits]
        fits = code == 0
    fits[left_out] = False
    return Failures(code, resolvable, lacking, np.flatnonzero(fits), left_out, state.checks, state.counters)


def _ended(state: PreFilterState, left_out: Rows, error: str) -> Failures:
    count = state.width
    nothing = np.zeros(count, np.bool_)
    code = np.full(count, -1, np.int16)
    return Failures(code, nothing, nothing[:0, np.newaxis], NO_PODS, left_out, state.checks, state.counters, error)


def nodes_where_preemption_might_help(failures: Failures) -> Rows:
    """The nodes (rows) whose first failure removing pods can cure, and which nothing else rules out."""
    resolvable = failures.resolvable.copy()
    for check in failures.checks:
        if check.mask is not None:
            resolvable &= ~check.mask
    resolvable[failures.left_out] = False
    return np.flatnonzero(resolvable)


def _checks(state: PreFilterState, storage: volumes.Storage, refusal: str) -> list[FilterCheck]:
    """All reasons not to fit, in the order of kube-scheduler's plugins."""
    nodes, incoming = state.snapshot.nodes, state.incoming
    rows_of: dict[str, tuple[int, int]] = {}  # the first and one past the last counter of every stage
    for row, counter in enumerate(state.counters):
        rows_of[counter.stage] = (rows_of.get(counter.stage, (row, 0))[0], row + 1)
    checks = placement_checks(nodes, incoming, refusal)
    if "ports" in state.meters:
        checks.append(FilterCheck("node(s) didn't have free ports for the requested pod ports", True, "ports"))
    checks.append(FilterCheck("", True, "resources", None, *rows_of["resources"]))
    if "claims" in rows_of:
        checks.append(FilterCheck(volumes.IN_USE, True, "counters", None, *rows_of["claims"]))
    if "volumes" in state.meters:
        checks.append(FilterCheck(EXCEEDED, True, "volumes"))
    checks += [FilterCheck(reason, False, "mask", mask) for reason, mask in storage.masks]
    unspread = "node(s) didn't match pod topology spread constraints"
    for number, constraint in enumerate(incoming.spread):
        missing = nodes.label(constraint.topology_key) < 0
        checks.append(FilterCheck(f"{unspread} (missing required label)", False, "mask", missing))
        first = rows_of["spread"][0] + number
        checks.append(FilterCheck(unspread, True, "counters", None, first, first + 1))
    if "affinity" in rows_of:
        outside = np.zeros(nodes.rows, np.bool_)
        for term in incoming.affinity:
            outside |= nodes.label(term.topology_key) < 0
        checks.append(FilterCheck("node(s) didn't match pod affinity rules", False, "mask", outside))
        unmatched = "node(s) didn't match pod affinity rules"
        checks.append(FilterCheck(unmatched, False, "counters", None, *rows_of["affinity"]))
    for stage, reason in (
        ("anti-affinity", "node(s) didn't match pod anti-affinity rules"),
        ("existing-anti-affinity", "node(s) didn't satisfy existing pods anti-affinity rules"),
    ):
        if stage in rows_of:
            checks.append(FilterCheck(reason, True, "counters", None, *rows_of[stage]))
    if state.devices:
        checks += state.devices.checks
    if incoming.features:
        lacking = ~declaring_mask(nodes, incoming.features)
        checks.append(FilterCheck("node(s) didn't match Pod's required features", False, "mask", lacking))
    return checks


def _run(state: PreFilterState, *, nominated: bool) -> tuple[NDArray[np.int16], Mask, Mask]:
    """`code`, `resolvable` and `lacking` of `Failures`: the first failing check on every known node.

    The `nominated` pods count, or they do not.
    """
    count = state.width
    code = np.where(state.snapshot.nodes.valid[:count], 0, -1).astype(np.int16)
    resolvable = np.zeros(count, np.bool_)
    lacking = np.zeros((0, count), np.bool_)
    judged: NDArray[np.int8] | None = None
    for number, check in enumerate(state.checks, start=1):
        cures: Mask | bool = check.resolvable
        used = state.counters[check.first : check.last]
        if check.mask is not None:
            fails = check.mask
        elif check.kind == "devices":
            assert state.devices is not None
            judged = state.devices.judge(code == 0) if judged is None else judged
            fails = judged == check.first
        elif check.kind in state.meters:
            fails = state.meters[check.kind].fails(nominated=nominated)
        else:
            over = np.stack([counter.fails(nominated=nominated) for counter in used])
            fails = np.logical_or.reduce(over)
        if check.kind == "resources":
            lacking, hopeless = over, np.stack([counter.limit < 0 for counter in used])
            cures = np.logical_not((lacking[1:] & hopeless[1:]).any(axis=0))
        fails = fails & (code == 0)
        code[fails] = number
        resolvable |= fails & cures
    return code, resolvable, lacking.copy()


def _reserving(snapshot: Snapshot, incoming: PodInfo, without: Rows) -> Rows:
    """The nominated pods (rows) that keep their place against the preemptor, those `without` left out.

    These are those of equal or higher priority, and of the same scheduler.
    """
    pods = snapshot.pods
    rows = pods.nominees()
    if not len(rows):
        return NO_PODS
    scheduler = incoming.pod.spec.scheduler_name
    of_scheduler = snapshot.table(
        ("scheduler", scheduler), pods.profiles, np.bool_, lambda profile: profile.scheduler_name == scheduler
    )
    reserves = (pods.priority[rows] >= incoming.priority) & of_scheduler[pods.profile[rows]]
    reserves &= snapshot.nodes.valid[pods.nominated[rows]] & (rows != pods.find(incoming.namespace, incoming.name))
    unplaced = without[pods.node[without] < 0]  # nobody else is nominated
    if len(unplaced):
        reserves &= ~np.isin(rows, unplaced)
    reserving: Rows = rows[reserves]
    return reserving


def _nominate(state: PreFilterState, rows: Rows) -> None:
    """Count the pods in these rows on the nodes they are nominated to.

    What counts by topology has them already under a policy.
    """
    snapshot, nodes = state.snapshot, state.snapshot.pods.nominated[rows].astype(np.intp)
    for counter in state.counters:
        if not (snapshot.under_policy and counter.stage in topology.STAGES):
            counter.nominate(rows, nodes)
    for meter in state.meters.values():
        meter.nominate(rows, nodes)
    state.nominated = True
