"""The devices that are free on some nodes while pods are taken away and put back, where they are searched for."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from webhook.preemption.filters.devices import DeviceFilter

Index = NDArray[np.intp]
Mask = NDArray[np.bool_]


class DeviceRoom:
    """The pods `gone` from each node that may have held devices: rows, one column a node, 0 for none.

    On nodes that `DeviceFilter.states` tells of, the devices that are taken are bits; of the others it is remembered
    which pods are gone. `_known` says on which nodes the preemptor's claims can be had as things stand.
    """

    def __init__(self, devices: DeviceFilter, nodes: Index, gone: Index) -> None:
        self._devices, self._nodes = devices, nodes
        searched = devices.searched[nodes]
        self._known = ~searched
        self._told = searched & devices.states.told[nodes]
        self._taken = devices.states.taken[nodes] & ~self._held_by(gone)
        others = np.flatnonzero(searched & ~self._told)
        self._gone = dict(zip(others.tolist(), (set(rows) - {0} for rows in gone[:, others].T.tolist()), strict=True))

    def fits_beside(self, more: Index, fits: Mask) -> None:
        """Take out of `fits` the nodes on which the devices cannot be had once the pods `more` are back, too.

        `more` has the rows of one pod a node, or of the pods of one unit, one column a node.
        """
        asked = fits & (more.any(axis=0) | ~self._known)
        told = np.flatnonzero(asked & self._told)
        if len(told):
            taken = self._taken[told] | self._held_by(more[:, told])
            fits[told] = self._devices.fit_in_states(self._nodes[told], taken)
        for column in np.flatnonzero(asked & ~self._told).tolist():
            if column in self._gone:
                gone = self._gone[column].difference(more[:, column].tolist())
                fits[column] = self._devices.fits(int(self._nodes[column]), gone)

    def put_back(self, pods: Index, stays: Mask) -> None:
        """The pods in these rows, one column a node, are back where they may stay."""
        self._known |= stays
        self._taken[stays] |= self._held_by(pods[:, stays])
        for column in np.flatnonzero(stays & ~self._told).tolist():
            if column in self._gone:
                self._gone[column].difference_update(pods[:, column].tolist())

    def _held_by(self, rows: Index) -> NDArray[np.uint64]:
        held: NDArray[np.uint64] = np.bitwise_or.reduce(self._devices.states.of_pod[rows], axis=0)
        return held
