"""What a decision says: where the pod fits, what fails elsewhere, and who goes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np

from webhook.preemption.filters.counters import Counter
from webhook.preemption.filters.filtering import Failures, prefilter, run_filters
from webhook.preemption.ranking import Ranking, Score
from webhook.preemption.snapshot.columns import Floats, Rows
from webhook.preemption.snapshot.device_index import DeviceId
from webhook.preemption.snapshot.snapshot import Snapshot
from webhook.preemption.victims.candidates import Candidate
from webhook.preemption.victims.eligible import ExcludedPod, PotentialVictims
from webhook.preemption.victims.rules import VictimReason


class StaleDecisionError(RuntimeError):
    """The snapshot changed since; `selected` and what was read before stay readable."""


class DeviceUse(NamedTuple):
    """How many devices of a driver a node has, how many are held, and by whom.

    So many would be `freed` if all who may go went. `holders` are `namespace/name` of claims.
    """

    driver: str
    published: int
    held: int
    freed: int
    holders: list[str]


class Decision:
    """The outcome for one preemptor.

    `eligible` and `reason` say whether it may preempt. `selected` is the plan, one of
    `candidate_count`. `rejections` are the codes of the caller's filter. The lists over all nodes are
    made when first read, and raise StaleDecisionError if the snapshot changed.
    """

    def __init__(
        self,
        failures: Failures,
        potential: PotentialVictims,
        *,
        reason: str = "",
        ranking: Ranking | None = None,
        rejections: frozenset[int] = frozenset(),
    ) -> None:
        self.eligible = not reason
        self.reason = reason
        self.rejections = rejections
        self._state, self._failures = failures.state, failures
        self._potential, self._ranking = potential, ranking
        self._version = potential.snapshot.version
        best = ranking.candidates.objects(ranking.equally_good[:1]) if ranking else []
        self.selected: Candidate | None = best[0] if best else None
        self.candidate_count = len(ranking.candidates.nodes) if ranking else 0

    @cached_property
    def fits(self) -> list[str]:
        """Nodes where the pod fits without preemption, sorted."""
        return self._names(self._failures.fits)

    @property
    def asks_for_devices(self) -> bool:
        """Whether the pod asks for devices, by claims or a class's resources."""
        return self._state.devices is not None

    def devices(self, node: str) -> list[DeviceUse]:
        """Who holds this node's own devices, by driver; none if the pod asks for none."""
        row = self._fresh.nodes.find(node)
        if row is None or not self.asks_for_devices:
            return []
        claims, pods = self._fresh.device_claims, self._fresh.pods
        may_go = self._potential.may_go
        freed = claims.freed_without({pods.uids[pod] for pod in pods.on_node(row) if may_go[pod]})
        by_driver: dict[str, set[DeviceId]] = {}
        for published in self._fresh.devices.local.get(node, {}).values():
            by_driver.setdefault(published.slice.spec.driver, set()).update(published.ids)
        uses = []
        for driver, devices in sorted(by_driver.items()):
            users = [keys for device in devices if (keys := claims.users(device))]
            freeable = sum(keys <= freed for keys in users)
            uses.append(DeviceUse(driver, len(devices), len(users), freeable, sorted(set().union(*users))))
        return uses

    def fits_without(self, gone: Rows) -> list[str]:
        """Nodes where the pod fits without these pods (rows, on nodes), sorted."""
        state = prefilter(self._fresh, self._state.incoming, gone)
        return self._names(run_filters(state, self._failures.left_out).fits)

    @cached_property
    def unresolvable(self) -> list[str]:
        """Nodes where no preemption could help, sorted."""
        return self._names(np.flatnonzero((self._failures.code > 0) & ~self._failures.resolvable))

    @cached_property
    def candidates(self) -> list[Candidate]:
        """Where preemption makes room, by name; none if the pod fits or may not preempt."""
        return self._ranked.candidates.by_name() if self._ranked else []

    def shortlist(self, count: int) -> list[Candidate]:
        """The first `count` candidates, best first; far cheaper than all."""
        return self._ranked.candidates.objects(self._ranked.first(count)) if self._ranked else []

    def scores(self, count: int) -> list[Score]:
        """What the first `count` candidates are compared by; cheaper still."""
        return self._ranked.scores(self._ranked.first(count)) if self._ranked else []

    @property
    def equally_good(self) -> list[str]:
        """Nodes as good as the selected one, which is their first by name."""
        return self._ranked.candidates.names(self._ranked.equally_good) if self._ranked else []

    @cached_property
    def node_reasons(self) -> dict[str, str]:
        """Why the pod does not fit, in kube-scheduler's words, by node name."""
        names, failures = self._fresh.nodes.names, self._failures
        return {names[row]: failures.reason(row) for row in np.flatnonzero(failures.code > 0).tolist()}

    def excluded(self, node: str) -> list[ExcludedPod]:
        """The pods on a node that may not go, most important first, with the rules."""
        row = self._fresh.nodes.find(node)
        rows = () if row is None else self._fresh.pods.on_node(row)
        return list(filter(None, map(self._potential.excluded, rows)))

    def may_go(self, pod: str) -> bool:
        """Whether the pod `namespace/name` may be a victim."""
        rows = self._fresh.pod_rows([pod])
        return bool(len(rows)) and self._potential.excluded(int(rows[0])) is None

    def may_go_rows(self) -> Rows:
        """The pods (rows) that may be victims where evictions can help."""
        pods, failures = self._fresh.pods, self._failures
        helped = np.append((failures.code > 0) & failures.resolvable, False)  # -1, no node, reads the last one
        return np.flatnonzero(self._potential.may_go & helped[pods.node[: pods.rows]])

    def cheapness(self, rows: Rows) -> Floats:
        """Which pod of a node goes sooner: the one with the larger number."""
        pods = self._fresh.pods
        nodes = np.unique(pods.node[rows]).astype(np.intp)
        slots = self._potential.slots_of(nodes)
        place = np.zeros(pods.rows)
        place[slots] = np.arange(slots.shape[1])
        return place[rows]

    def relief(self, rows: Rows) -> Floats:
        """How much each pod gives of what the preemptor lacks there: 1 for all of a thing."""
        state, nodes = self._state, self._fresh.pods.node[rows].astype(np.intp)
        relief = np.zeros(len(rows))
        for meter in state.meters:
            if not isinstance(meter, Counter):
                if meter.stage == "ports":
                    relief += meter.pairs_at[:, rows].any(axis=0)
            elif meter.again is None:
                lacks = np.maximum(meter.beside - meter.limit, 0)[nodes].astype(np.float64)
                given = np.minimum(meter.share(rows, nodes), lacks)
                relief += np.where(lacks > 0, given / np.maximum(lacks, 1.0), 0.0)
        return relief

    def victim_reason(self, victim: str) -> VictimReason:
        """By which `policy/rule` the victim `namespace/name` may go."""
        return self._potential.reason(int(self._fresh.pod_rows([victim])[0]))

    def groups_of(self, victims: Rows) -> dict[str, str]:
        """By key of these victims (rows) the name of the group each goes with."""
        units, pods = self._potential.units, self._fresh.pods
        going = [] if units is None else zip(victims.tolist(), units.goes_with(victims).tolist(), strict=True)
        return {pods.key(row): str(pods.groups.values[group]) for row, group in going if group}

    def made_room(self, candidate: Candidate) -> str:
        """What victims elsewhere go for, as `to make room in zone z1`, or empty."""
        nodes, pods = self._fresh.nodes, self._fresh.pods
        (node,) = nodes.rows_of([candidate.node])
        rows = self._fresh.pod_rows([victim.key for victim in candidate.victims])
        rows = rows[pods.node[rows] != node]
        if not self._potential.rules.across or not len(rows):
            return ""
        on = pods.node[rows].astype(np.intp)
        reasons: dict[str, None] = {}
        for counter in self._state.counters:
            if counter.reach is None or counter.beside[node] <= counter.limit[node]:
                continue
            key, domains = counter.reach
            if ((domains[on] == domains[node]) & (counter.share(rows, on) > 0)).any():
                where = f"{key.rpartition('/')[2]} {nodes.labels[node].get(key)}"
                reasons[f"make room in {where}" if key else "free its claim"] = None
        return f"to {' and '.join(reasons)}" if reasons else ""

    def _names(self, rows: Sequence[int] | Rows) -> list[str]:
        return sorted(self._fresh.nodes.names[row] for row in rows)

    @property
    def _fresh(self) -> Snapshot:
        """The snapshot. Raises StaleDecisionError if it has changed since."""
        if self._state.snapshot.version != self._version:
            raise StaleDecisionError("the snapshot has changed since this decision was made: decide again")
        return self._state.snapshot

    @property
    def _ranked(self) -> Ranking | None:
        """How candidates compare, if any were looked for; as `_fresh`."""
        return self._ranking if self._fresh else None
