"""The decision for a gang: where its members go together, and who has to go for them (docs/semantics.md D12).

Pure, like the decision for one pod: no I/O, no clock of its own. Nobody goes for a part of a gang.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from webhook.kube.objects.pod import Pod
from webhook.preemption.filters.filtering import NO_PODS, Failures, PreFilterState, nodes_where_preemption_might_help
from webhook.preemption.gangs.eviction_units import EvictionUnits, LikeMembers, Price, Unit, fewer_units, rows_of
from webhook.preemption.gangs.gang import Gang
from webhook.preemption.gangs.placement import MemberShape, Placed, Placer, TrialPlacement, VictimsSoFar, shapes_of
from webhook.preemption.snapshot.columns import Ints, Mask, Rows
from webhook.preemption.snapshot.snapshot import Snapshot
from webhook.preemption.victims.candidates import Victim, victims_in
from webhook.preemption.victims.eligible import Exclusion, PotentialVictims, potential_victims
from webhook.preemption.victims.rules import Rules, VictimReason

_FEW_UNITS = 64
"""With at most so many units all sets are searched. With more, what is found member by member is made smaller."""
_FEW_PODS = 1000
_TRIES, _TRIES_ALIKE = 400, 1000
"""How often units are put back on trial; members that are alike and only use up resources take no placement for it."""
_MOST_DOMAINS = 16
"""At most so many domains of a topology are searched for room: the most promising ones."""


class Placement(NamedTuple):
    """A member, and the node that it goes to."""

    pod: Pod
    node: str


class GangDecision(NamedTuple):
    """What becomes of a gang.

    `placements` has the members that are placed together. If that cannot be, it is empty and `reason` says why. The
    members have room once the `victims` are gone, and the pods that were `leaving` anyway. Those of the most important
    unit come first. `price` is what they cost. `grounds` says for each victim, by `namespace/name`, which rule lets it
    go. `outside` are the nodes that are not in the domain of a topology.
    """

    gang: Gang
    placements: tuple[Placement, ...] = ()
    victims: tuple[Victim, ...] = ()
    price: Price = Price()
    reason: str = ""
    grounds: Mapping[str, VictimReason] = MappingProxyType({})
    outside: frozenset[str] = frozenset()

    @property
    def fits(self) -> bool:
        """Whether nobody has to go."""
        return bool(self.placements) and not self.victims


def decide_gang(
    snapshot: Snapshot,
    gang: Gang,
    rules: Rules,
    now: float,
    *,
    exclusions: Mask | None = None,
    leaving: Rows = NO_PODS,
    left_out: Collection[str] = (),
    evicted: Ints | None = None,
    keeps_budgets: bool = False,
) -> GangDecision:
    """Decide for the missing members of a gang together; `now` is in seconds since the epoch.

    `exclusions` are pods that may not go whatever the rules say, by pod row. The pods in the rows `leaving` count as
    gone. On the nodes `left_out` nobody is placed. `evicted` is by pod row how often the pod's workload was evicted
    recently. With `keeps_budgets` nobody goes beyond a budget, whatever the rules say. Raises ClusterError for a member
    that cannot be read.
    """
    if gang.incomplete:
        return GangDecision(gang, reason=gang.incomplete)
    out, version = snapshot.nodes.rows_of(left_out), snapshot.version
    with TrialPlacement(snapshot, gang.waiting) as trial:
        shapes = _in_order(shapes_of(gang, snapshot, by_labels=rules.pairs is not None), gang)
        made = _Decision(trial, gang, shapes, rules, now, leaving, keeps_budgets or rules.strict_budgets)
        decision = made.decide(out, trial.padded(exclusions), trial.padded(evicted))
    snapshot.version = version  # it is as before
    return decision


_Solution = tuple[Sequence[Unit], Sequence[Placed]]
"""Units whose removal makes room, and where the members go then."""


@dataclass
class _Decision:
    """One decision, while the members are on trial."""

    _trial: TrialPlacement
    _gang: Gang
    _shapes: list[MemberShape]
    _rules: Rules
    _now: float
    _leaving: Rows
    _keeps_budgets: bool

    def decide(self, left_out: Rows, exclusions: Mask | None, evicted: Ints | None) -> GangDecision:
        """The decision without nodes `left_out` (rows), if none of the `exclusions` may go."""
        gang = self._gang
        domains = list(self._domains(left_out))
        # 1. Nobody goes if they fit, or will once those are gone that leave anyway.
        for outside in domains:
            placer = Placer(self._trial, outside)
            if (placed := placer.place(self._shapes, gang.missing, self._leaving)) is not None:
                return self._answer(((), placed), None, outside)
        # 2. Whether somebody may go for them at all.
        if reason := self._why_not():
            return GangDecision(gang, reason=reason)
        # 3. The cheapest room in any domain.
        potential = self._potential(exclusions, evicted)
        units = EvictionUnits(potential, self._keeps_budgets)
        best, where = None, left_out
        for outside in self._promising(domains, units):
            solution = self._room(outside, units)
            if solution is not None and (best is None or units.price(solution[0]) < units.price(best[0])):
                best, where = solution, outside
        if best is None:
            why = f"no nodes where evicting pods that may be evicted makes room for {gang.missing} pods of {gang.key}"
            return GangDecision(gang, reason=f"{why} together")
        return self._answer(best, units, where)

    def _why_not(self) -> str:
        """Why the gang may not preempt; empty if it may."""
        if self._rules.policy is None and any(pod.spec.preemption_policy == "Never" for pod in self._gang.waiting):
            return "not eligible due to preemptionPolicy=Never."
        classes = self._trial.snapshot.classes
        silent = (why for pod in self._gang.waiting if (why := self._rules.why_not(pod, classes, self._now)))
        if why_not := next(silent, ""):
            return f"not eligible: {why_not}."
        if shared := self._shared_claim():
            return f"not eligible: several of its pods share the claim {shared}, which has no devices yet."
        for shape in self._shapes:
            state, failures = Placer(self._trial, NO_PODS).look(shape, NO_PODS)
            if failures.error:
                return f"error: {failures.error}"
            if state.incoming.beyond:
                return f"not eligible: {state.incoming.beyond}."
        return ""

    def _shared_claim(self) -> str:
        """A claim that several members name and has no devices yet: it would bind them together."""
        claims, seen = self._trial.snapshot.device_claims.claims, set[str]()
        for pod in self._gang.waiting:
            for entry in pod.spec.resource_claims or ():
                key = f"{pod.metadata.namespace}/{entry.get('resourceClaimName')}"
                known = claims.get(key)
                if entry.get("resourceClaimName") and (known is None or known.status.allocation is None):
                    if key in seen:
                        return key
                    seen.add(key)
        return ""

    def _potential(self, exclusions: Mask | None, evicted: Ints | None) -> PotentialVictims:
        """The pods that may go, whichever member they go for. No member of the gang may go."""
        snapshot = self._trial.snapshot
        leaving = np.zeros(snapshot.pods.rows, np.bool_)
        leaving[self._leaving] = True
        shapes = self._shapes if self._rules.pairs is not None else self._shapes[:1]
        by_shape = [
            potential_victims(
                snapshot,
                shape.incoming,
                self._rules,
                self._now,
                exclusions=exclusions,
                leaving=leaving,
                evicted=evicted,
            )
            for shape in shapes
        ]
        code = by_shape[0].code
        for other in by_shape[1:]:
            code = np.where(code == Exclusion.NONE, other.code, code)
        own = snapshot.pods.groups.find(self._gang.key) or 0
        code[(snapshot.pods.group[: len(code)] == own) & (code == Exclusion.NONE) & (own > 0)] = Exclusion.OWN_GROUP
        code[leaving & (code == Exclusion.NONE)] = Exclusion.EXCLUDED
        potential = by_shape[0]._replace(code=code, leaving=None)
        if self._keeps_budgets and not self._rules.strict_budgets and len(snapshot.budgets):
            exhausted, _ = snapshot.budgets.refused(potential.rows, strict=True, evicts=self._rules.evicts)
            potential.exclude_by_budget(exhausted)
        return potential

    def _domains(self, left_out: Rows) -> Iterator[Rows]:
        """For each domain that may have all members, bound ones too, the nodes outside (rows)."""
        nodes = self._trial.snapshot.nodes
        if not self._gang.topology_keys:
            yield left_out
            return
        known = nodes.known()
        labels = np.stack([nodes.label(key)[known] for key in self._gang.topology_keys])
        usable = (labels >= 0).all(axis=0)
        for domain in np.unique(labels[:, usable], axis=1).T if usable.any() else ():
            inside = known[usable & (labels == domain[:, None]).all(axis=0)]
            if np.isin(self._gang.secured, inside).all():
                yield np.union1d(left_out, np.setdiff1d(known, inside)).astype(np.intp)

    def _promising(self, domains: list[Rows], units: EvictionUnits) -> list[Rows]:
        """The domains to look at. If there are many, those with the most room once all pods are gone that may go."""
        if len(domains) <= _MOST_DOMAINS:
            return domains

        def room(outside: Rows) -> int:
            members = self._like_members(*Placer(self._trial, outside).look(self._shapes[0], NO_PODS))
            return members.room_without(units.victims.rows)

        return sorted(domains, key=room, reverse=True)[:_MOST_DOMAINS]

    def _room(self, outside: Rows, units: EvictionUnits) -> _Solution | None:
        """The cheapest room that is found if nobody is placed `outside`: member by member, then with fewer units."""
        placer, need = Placer(self._trial, outside), self._gang.missing
        looks = [placer.look(shape, self._leaving) for shape in self._shapes]
        members, local = self._like_members(*looks[0]), all(state.is_local for state, _ in looks)
        alike = local and len(looks) == 1

        def placed_without(gone: Rows) -> list[Placed] | None:
            return placer.place(self._shapes, need, np.union1d(self._leaving, gone).astype(np.intp))

        def fits(gone: Rows) -> bool:
            return members.room_without(gone) >= need if alike else placed_without(gone) is not None

        # Several of many members find their nodes at a time. The last ones are decided for one by one.
        evictions = VictimsSoFar(units, self._leaving)
        in_turn = placer.in_turn(self._shapes, need, self._leaving, evictions)
        chosen = None if in_turn is None else list(evictions.chosen.values())
        usable = self._units_that_help(looks, units)
        if usable is not None:
            fewer = fewer_units(usable, units, fits, _TRIES_ALIKE if alike else _TRIES)
            if fewer is not None and (chosen is None or units.price(fewer) <= units.price(chosen)):
                chosen = fewer
        elif chosen is not None and alike:
            chosen = members.spared(units.by_importance(chosen))
        if chosen is None:
            return None
        placed = placed_without(rows_of(chosen))
        if placed is None:  # what holds a port beside a victim holds it still, and a member may need a later victim
            return ([*evictions.chosen.values()], in_turn) if local and in_turn else None
        return chosen, placed

    def _like_members(self, state: PreFilterState, failures: Failures) -> LikeMembers:
        """The members of a shape, on the nodes where they fit or evicting may help them."""
        return LikeMembers(state, _nodes_to_use(failures), self._gang.missing)

    def _units_that_help(
        self, looks: Sequence[tuple[PreFilterState, Failures]], units: EvictionUnits
    ) -> list[Unit] | None:
        """The units with a pod on a node where evicting may help a member; None if there are many of them."""
        rows = units.victims.rows
        if all(state.is_local for state, _ in looks):  # else pods elsewhere may be in the way
            nodes = np.concatenate([_nodes_to_use(failures) for _, failures in looks])
            rows = rows[np.isin(self._trial.snapshot.pods.node[rows], nodes)]
        helping = units.among(rows) if len(rows) <= _FEW_PODS else None
        return helping if helping is not None and len(helping) <= _FEW_UNITS else None

    def _answer(self, solution: _Solution, units: EvictionUnits | None, outside: Rows) -> GangDecision:
        snapshot, (chosen, placed) = self._trial.snapshot, solution
        names = snapshot.nodes.names
        ordered = sorted(chosen, key=lambda unit: (-unit.priority, -len(unit.rows), unit.rows))
        group_of = {row: unit.group for unit in ordered if unit.group for row in unit.rows}
        rows = list(dict.fromkeys(chain.from_iterable(unit.rows for unit in ordered)))
        victims = victims_in(snapshot, np.array(rows, np.intp), [group_of.get(row, 0) for row in rows])
        reasons = map(units.victims.reason, rows) if units is not None else ()
        return GangDecision(
            gang=self._gang,
            placements=tuple(Placement(pod, names[node]) for pod, node in placed),
            victims=tuple(victims),
            price=units.price(chosen) if units is not None else Price(),
            grounds=dict(zip((victim.key for victim in victims), reasons, strict=True)),
            outside=frozenset(names[row] for row in outside.tolist()) if self._gang.topology_keys else frozenset(),
        )


def _nodes_to_use(failures: Failures) -> Rows:
    """The nodes (rows) on which a member fits, or evicting may help it."""
    return np.union1d(failures.fits, nodes_where_preemption_might_help(failures)).astype(np.intp)


def _in_order(shapes: Sequence[MemberShape], gang: Gang) -> list[MemberShape]:
    """The shapes in the order in which they are placed: if all are needed, the one that asks for most comes first."""
    if len(gang.waiting) > gang.missing:
        return list(shapes)
    return sorted(shapes, key=lambda shape: sorted(shape.incoming.amounts.items()), reverse=True)
