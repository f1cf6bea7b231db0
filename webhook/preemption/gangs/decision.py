"""Where a gang's members go together, and who goes for them (docs/semantics.md D12).

Like that for one pod: no I/O, no clock. Nobody goes for a part of a gang.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from webhook.kube.objects.pod import Pod
from webhook.preemption.filters.filtering import NO_PODS, Failures
from webhook.preemption.gangs.eviction_units import (
    EvictionUnits,
    LikeMembers,
    Price,
    Unit,
    fewer_units,
    nodes_to_use,
    rows_of,
)
from webhook.preemption.gangs.gang import Gang
from webhook.preemption.gangs.placement import MemberShape, Placed, Placer, TrialPlacement, VictimsSoFar, shapes_of
from webhook.preemption.snapshot.columns import Ints, Mask, Rows
from webhook.preemption.snapshot.snapshot import Snapshot
from webhook.preemption.victims.candidates import Victim, victims_in
from webhook.preemption.victims.eligible import Exclusion, PotentialVictims, potential_victims
from webhook.preemption.victims.rules import Rules, VictimReason

_FEW_UNITS = 64
"""Sets of at most so many units are searched; else each member's victims become fewer."""
_FEW_PODS = 1000
_TRIES, _TRIES_ALIKE = 400, 1000
"""How often units are put back on trial; members alike that only use resources cost less."""
_MOST_DOMAINS, _MOST_THAT_FIT = 16, 128
"""Room is made, or looked for, in so many domains of a topology: those with most room."""


class Placement(NamedTuple):
    """A member, and the node that it goes to."""

    pod: Pod
    node: str


class GangDecision(NamedTuple):
    """What becomes of a gang.

    `placements` has the members placed together; if empty, `reason` says why. They have
    room once the `victims`, the most important first, and those `leaving` are gone. `price` is the
    victims' cost. `grounds` says by `namespace/name` which rule lets a victim go. `outside` are the
    nodes outside of a topology's domain.
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
    """Decide for a gang's missing members together; `now` is in seconds since the epoch.

    By pod row, the `exclusions` may not go. The pods in the rows `leaving` count as gone. Nobody is
    placed on the nodes `left_out`. `evicted` is as in `VictimCosts`. With `keeps_budgets` nobody
    goes beyond a budget, whatever the rules say. Raises ClusterError for a member that cannot be
    read.
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
"""Units that make room, and where the members go then."""


@dataclass
class _Decision:
    """One decision, while the members are on trial."""

    trial: TrialPlacement
    gang: Gang
    shapes: list[MemberShape]
    rules: Rules
    now: float
    leaving: Rows
    keeps_budgets: bool

    def decide(self, left_out: Rows, exclusions: Mask | None, evicted: Ints | None) -> GangDecision:
        """The decision if nobody goes to nodes `left_out` (rows)."""
        gang = self.gang
        domains = list(self._domains(left_out))
        # 1. Nobody goes if they fit, or will once those leaving anyway are gone.
        for outside in self._promising(domains, NO_PODS, _MOST_THAT_FIT):
            if (placed := self._placer(outside).place(self.leaving)) is not None:
                return self._answer(((), placed), None, outside)
        # 2. Whether anybody may go for them.
        if reason := self._why_not():
            return GangDecision(gang, reason=reason)
        # 3. The cheapest room in any domain.
        units = EvictionUnits(self._potential(exclusions, evicted), self.keeps_budgets)
        promising = self._promising(domains, units.victims.rows, _MOST_DOMAINS)
        rooms = [(outside, self._room(outside, units)) for outside in promising]
        priced = [(units.price(room[0]), room, outside) for outside, room in rooms if room is not None]
        if not priced:
            together = f"room for {gang.missing} pods of {gang.key} together"
            return GangDecision(gang, reason=f"no nodes where evicting pods that may be evicted makes {together}")
        _, best, where = min(priced, key=itemgetter(0))
        return self._answer(best, units, where)

    def _placer(self, outside: Rows) -> Placer:
        return Placer(self.trial, self.shapes, self.gang.missing, outside)

    def _why_not(self) -> str:
        """Why the gang may not preempt; empty if it may."""
        for pod in self.gang.waiting:
            if self.rules.policy is None and pod.spec.preemption_policy == "Never":
                return "not eligible due to preemptionPolicy=Never."
            if why_not := self.rules.why_not(pod, self.trial.snapshot.classes, self.now):
                return f"not eligible: {why_not}."
        if shared := self._shared_claim():
            return f"not eligible: several of its pods share the claim {shared}, which has no devices yet."
        for shape in self.shapes:
            failures = self._placer(NO_PODS).look(shape, NO_PODS)
            if failures.error:
                return f"error: {failures.error}"
            if beyond := failures.state.incoming.beyond:
                return f"not eligible: {beyond}."
        return ""

    def _shared_claim(self) -> str:
        """A claim without devices yet that several members name: it would bind them."""
        claims, seen = self.trial.snapshot.device_claims.claims, set[str]()
        for pod in self.gang.waiting:
            names = {entry.get("resourceClaimName") for entry in pod.spec.resource_claims or ()}
            keys = {f"{pod.metadata.namespace}/{name}" for name in names if name}
            keys -= {key for key in keys & claims.keys() if claims[key].status.allocation}
            if shared := seen & keys:
                return min(shared)
            seen |= keys
        return ""

    def _potential(self, exclusions: Mask | None, evicted: Ints | None) -> PotentialVictims:
        """The pods that may go for every member; no member may."""
        snapshot, rules = self.trial.snapshot, self.rules
        leaving = np.zeros(snapshot.pods.rows, np.bool_)
        leaving[self.leaving] = True
        shapes = self.shapes if rules.pairs is not None else self.shapes[:1]
        judge = partial(potential_victims, exclusions=exclusions, leaving=leaving, evicted=evicted)
        first, *others = [judge(snapshot, shape.incoming, rules, self.now) for shape in shapes]
        code = first.code
        for other in others:
            code = np.where(code == Exclusion.NONE, other.code, code)
        may_go = code == Exclusion.NONE
        code[may_go & leaving] = Exclusion.EXCLUDED
        if own := snapshot.pods.groups.find(self.gang.key):
            code[may_go & (snapshot.pods.group[: len(code)] == own)] = Exclusion.OWN_GROUP
        potential = first._replace(code=code, leaving=None)
        if self.keeps_budgets and not rules.strict_budgets and len(snapshot.budgets):
            exhausted, _ = snapshot.budgets.refused(potential.rows, strict=True, evicts=rules.evicts)
            potential.exclude_by_budget(exhausted)
        return potential

    def _domains(self, left_out: Rows) -> Iterator[Rows]:
        """The nodes (rows) of each domain that may have all members, bound ones too."""
        nodes, keys = self.trial.snapshot.nodes, self.gang.topology_keys
        known = nodes.known()
        labels = np.stack([nodes.label(key)[known] for key in keys] or [np.zeros(len(known), np.int32)])
        usable = (labels >= 0).all(axis=0)
        for domain in np.unique(labels[:, usable], axis=1).T if usable.any() else ():
            inside = known[(labels == domain[:, None]).all(axis=0)]
            if not keys or np.isin(self.gang.secured, inside).all():
                yield np.setdiff1d(inside, left_out)

    def _promising(self, domains: Sequence[Rows], victims: Rows, most: int) -> Iterator[Rows]:
        """What is outside of each domain to look at: of many those with most room.

        There is most without the victims (rows). If none are given a member must fit.
        """
        nodes = self.trial.snapshot.nodes
        if len(domains) > most:
            room = np.zeros(nodes.rows, np.int64)
            for shape in self.shapes[:1] if len(victims) else self.shapes:
                failures = self._placer(NO_PODS).look(shape, self.leaving)
                on = slice(None) if len(victims) else failures.fits
                room[on] += LikeMembers(failures, self.gang.missing).rooms(victims)[on]
            roomy = [inside for inside in domains if len(victims) or room[inside].any()]
            domains = sorted(roomy, key=lambda inside: int(-room[inside].sum()))[:most]
        for inside in domains:
            yield np.setdiff1d(nodes.known(), inside)

    def _room(self, outside: Rows, units: EvictionUnits) -> _Solution | None:
        """The cheapest room with nobody `outside`: by member, then by fewer units."""
        placer = self._placer(outside)
        need = self.gang.missing
        looks = [placer.look(shape, self.leaving) for shape in self.shapes]
        members = LikeMembers(looks[0], need)
        local = all(failures.state.is_local for failures in looks)
        alike = local and len(looks) == 1

        def placed_without(gone: Rows) -> list[Placed] | None:
            return placer.place(np.union1d(self.leaving, gone))

        def fits(gone: Rows) -> bool:
            return members.rooms(gone).sum() >= need if alike else placed_without(gone) is not None

        # Several of many members find their nodes at a time. The last ones are decided for one by one.
        evictions = VictimsSoFar(units, self.leaving)
        in_turn = placer.in_turn(self.leaving, evictions)
        going = list(evictions.chosen.values())
        chosen = None if in_turn is None else going
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
        if placed is not None:
            return chosen, placed
        # What holds a port beside a victim holds it still, and a member may need a later victim
        return (going, in_turn) if local and in_turn else None

    def _units_that_help(self, looks: Sequence[Failures], units: EvictionUnits) -> list[Unit] | None:
        """The units with a pod where evicting may help; None for many."""
        rows = units.victims.rows
        if all(failures.state.is_local for failures in looks):  # else pods elsewhere may be in the way
            nodes = np.concatenate(list(map(nodes_to_use, looks)))
            rows = rows[np.isin(self.trial.snapshot.pods.node[rows], nodes)]
        if len(rows) > _FEW_PODS:
            return None
        helping = units.among(rows)
        return helping if len(helping) <= _FEW_UNITS else None

    def _answer(self, solution: _Solution, units: EvictionUnits | None, outside: Rows) -> GangDecision:
        snapshot, (chosen, placed) = self.trial.snapshot, solution
        names = snapshot.nodes.names
        ordered = sorted(chosen, key=lambda unit: (-unit.priority, -len(unit.rows), unit.rows))
        group_of: dict[int, int] = {}
        for unit in ordered:
            for row in unit.rows:
                group_of[row] = group_of.get(row) or unit.group
        rows = list(group_of)
        victims = victims_in(snapshot, np.array(rows, np.intp), list(group_of.values()))
        decision = GangDecision(
            gang=self.gang,
            placements=tuple(Placement(pod, names[node]) for pod, node in placed),
            victims=tuple(victims),
            outside=frozenset(names[row] for row in (outside.tolist() if self.gang.topology_keys else ())),
        )
        if units is None:
            return decision
        grounds = {victim.key: units.victims.reason(row) for victim, row in zip(victims, rows, strict=True)}
        return decision._replace(price=units.price(chosen), grounds=grounds)


def _in_order(shapes: Sequence[MemberShape], gang: Gang) -> list[MemberShape]:
    """The shapes in order of placing: if all members are needed the largest first."""
    if len(gang.waiting) > gang.missing:
        return list(shapes)
    return sorted(shapes, key=lambda shape: sorted(shape.incoming.amounts.items()), reverse=True)
