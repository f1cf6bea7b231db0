"""Whether pods fit on nodes, worked out once for each state of the cluster: several looks at one plan ask the same."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from webhook.kube.objects.pod import Pod
from webhook.preemption.decision import fits_on
from webhook.preemption.filters.filtering import NO_PODS
from webhook.preemption.snapshot.snapshot import Snapshot


class KnownRoom:
    """Answers about a snapshot, kept until it changes."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._version = -1
        self._answers: dict[tuple[int, str, bytes], tuple[Pod, bool]] = {}
        """Pod (its `id`), node and rows of pods that count as gone, to the pod and the answer. The pod is kept: so no
        other one gets its id."""

    def fits_on(self, pod: Pod, node: str, without: NDArray[np.intp] = NO_PODS) -> bool:
        """Whether the pod fits on the node, as if the pods in the rows `without` were gone."""
        if self._version != self._snapshot.version:
            self._version = self._snapshot.version
            self._answers.clear()
        question = id(pod), node, without.tobytes()
        known = self._answers.get(question)
        if known is None:
            known = self._answers[question] = pod, fits_on(self._snapshot, pod, node, without=without)
        return known[1]
