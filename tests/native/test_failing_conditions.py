"""A condition that fails refuses what its policy speaks of, and nothing else, by the webhook and natively."""

import json
from typing import Any

import pytest

from tests.native.comparing import Both, pod_request
from tests.native.test_random import KEPT
from webhook.policy.files.loading import load_texts
from webhook.policy.model.values import CAN_BE_PREEMPTED

FAILS = {"conditions": [{"name": "of-a-namespace", "expression": "namespaceObject.metadata.name == 'x'"}]}
"""It fails for a PriorityClass, which lies in no namespace."""


def shield(kind: str, user: str) -> dict[str, Any]:
    """Rules by which this user may change the annotation on objects of this kind."""
    allow = [{"subjects": [{"kind": "User", "name": user}]}]
    body = {"keys": [CAN_BE_PREEMPTED], "operations": ["UPDATE"], "resources": [kind], "allow": allow}
    return {"rules": [{"name": "keep", "protectAnnotations": body}]}


@pytest.mark.parametrize("going", [False, True], ids=["stays", "goes"])
@pytest.mark.parametrize(
    ("failing", "beside", "refused"),
    [
        pytest.param(shield("priorityclasses", "alice"), {}, True, id="it gives the right"),
        pytest.param(shield("priorityclasses", "bob"), shield("priorityclasses", "alice"), True, id="another one does"),
        pytest.param(shield("pods", "bob"), shield("priorityclasses", "alice"), False, id="it is about pods"),
    ],
)
def test_a_change_of_a_class(failing: Any, beside: Any, refused: bool, going: bool):
    """Whoever changes a protected annotation is refused if a rule about it stands behind a condition that fails."""
    head = {"apiVersion": "giveway.dev/v1alpha1", "kind": "PriorityPolicy"}
    specs = {"fails": FAILS | failing, **({"beside": beside} if beside else {})}
    rows = ({**head, "metadata": {"name": name}, "spec": spec} for name, spec in specs.items())
    loaded = load_texts([(f"{row['metadata']['name']}.yaml", json.dumps(row)) for row in rows])
    assert not loaded.errors
    meta = {"name": "low"} | ({"deletionTimestamp": "2026-01-01T00:00:00Z"} if going else {})
    old = {"kind": "PriorityClass", "metadata": meta, "value": 10}
    new = json.loads(json.dumps(old))
    new["metadata"]["annotations"] = {CAN_BE_PREEMPTED: "true"}
    asked = pod_request(new, user="alice", groups=(), operation="UPDATE", oldObject=old)
    webhook, native = Both(loaded.policies, [old], settings=KEPT).validate(asked)
    assert (webhook.failed, native.failed) == (refused, refused)
    assert webhook.denied == native.denied == set()
