"""The devices that are free on some nodes while pods are taken away and put back, where they are searched for."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from webhook.preemption.filters.devices import DeviceFilter

__all__ = ["DeviceRoom"]

Index = NDArray[np.intp]
Mask = NDArray[np.bool_]


class DeviceRoom:
    """The pods `gone` from each node that may have held devices: rows, one column a node, 0 for none.

    `_known` says on which nodes the preemptor's claims can be had as things stand.
    """

    def __init__(self, devices: DeviceFilter, nodes: Index, gone: Index) -> None:
        self._devices, self._nodes = devices, nodes
        self._known = ~devices.searched[nodes]
        self._gone = [set(rows) - {0} for rows in gone.T.tolist()]

    def fits_beside(self, more: Index, fits: Mask) -> None:
        """Take out of `fits` the nodes on which the devices cannot be had once the pods `more` are back, too.

        `more` has the rows of one pod a node, or of the pods of one unit, one column a node.
        """
        for column in np.flatnonzero(fits & (more.any(axis=0) | ~self._known)).tolist():
            node = int(self._nodes[column])
            if self._devices.searched[node]:
                fits[column] = self._devices.fits(node, self._gone[column].difference(more[:, column].tolist()))

    def put_back(self, pods: Index, stays: Mask) -> None:
        """The pods in these rows, one column a node, are back where they may stay."""
        for column in np.flatnonzero(stays).tolist():
            self._known[column] = True
            self._gone[column].difference_update(pods[:, column].tolist())
