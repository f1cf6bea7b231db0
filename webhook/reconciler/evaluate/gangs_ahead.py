"""Whether members of a gang in front come to a candidate: they are placed together (docs/semantics.md D11)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from webhook.preemption.gangs.gang import Gang
from webhook.preemption.snapshot.snapshot import Snapshot
from webhook.preemption.victims.candidates import Candidates
from webhook.reconciler.evaluate.candidate_room import free_now, times_in

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]
Rows = NDArray[np.intp]


def come_together(
    snapshot: Snapshot, gang: Gang, candidates: Candidates, *, need: Ints, fits: Rows, here: Ints, alike: Ints
) -> Mask:
    """The candidates to which members of the gang come, because the gang has room for all members that it lacks.

    Members that are alike are looked at: each takes `need`, and they fit on the nodes in the rows `fits` as things are.
    By candidate, there are `alike` of them, and room for as many as `here` says. Nobody knows where the other members
    fit: they count as placed. All have to be in one domain of the gang's topology.
    """
    if gang.incomplete:
        return np.zeros(len(here), np.bool_)
    domains = _domains(snapshot, gang.topology_keys)
    times = np.zeros(snapshot.nodes.rows, np.int64)
    times[fits] = times_in(free_now(snapshot, fits), need)
    in_domain = np.zeros(domains.max(initial=-1) + 2, np.int64)
    np.add.at(in_domain, domains, times)  # the last is that of nodes without a domain
    own = domains[candidates.nodes]
    elsewhere = in_domain[own] - times[candidates.nodes]
    placed = here + np.minimum(alike - here, elsewhere) + len(gang.waiting) - alike
    inside = (own >= 0) & (domains[gang.secured][:, None] == own).all(axis=0)
    come: Mask = inside & (here > 0) & (placed >= gang.missing)
    return come


def _domains(snapshot: Snapshot, keys: tuple[str, ...]) -> NDArray[np.intp]:
    """The number of the domain of each node, by row; -1 for those that lack a label."""
    nodes = snapshot.nodes
    if not keys:
        return np.zeros(nodes.rows, np.intp)
    labels = np.stack([nodes.label(key)[: nodes.rows] for key in keys])
    numbers = np.unique(labels, axis=1, return_inverse=True)[1].reshape(-1).astype(np.intp)
    return np.where((labels >= 0).all(axis=0), numbers, -1)
