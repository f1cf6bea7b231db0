"""Whether pods fit on nodes is worked out once for each state of the cluster."""

import numpy as np
import pytest

from tests.reconciler.builders import Setting, node, pod, preemptor
from webhook.reconciler.evaluate import room as room_module
from webhook.reconciler.evaluate.room import KnownRoom


def test_an_answer_lasts_until_the_snapshot_changes(monkeypatch: pytest.MonkeyPatch):
    """The same question is worked out once; another one, or any change of the cluster, asks again."""
    setting, asked = Setting(node("n1")), []
    snapshot = setting.state.snapshot
    setting.add(pod("a", "6", node="n1"))
    worked_out = room_module.fits_on
    monkeypatch.setattr(room_module, "fits_on", lambda *args, **given: asked.append(args) or worked_out(*args, **given))
    room, incoming = KnownRoom(snapshot), preemptor("p", "6")
    gone = snapshot.pod_rows(["default/a"])
    assert [room.fits_on(incoming, "n1"), room.fits_on(incoming, "n1")] == [False, False]
    assert [room.fits_on(incoming, "n1", gone), room.fits_on(incoming, "n1", gone)] == [True, True]
    assert len(asked) == 2
    setting.remove("default/a")
    assert room.fits_on(incoming, "n1")
    assert room.fits_on(incoming, "n1", np.zeros(0, np.intp))
    assert len(asked) == 3
