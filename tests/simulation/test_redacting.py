"""What of an object is written into a file of a cluster, and under which names."""

import msgspec

from webhook.kube.objects import Pod
from webhook.policy.model import POD_CONDITIONS
from webhook.simulation.cluster_file.redacting import redact

SINCE = "2026-01-01T00:00:00Z"


def test_since_when_a_pod_was_told_is_kept():
    """Of giveway's own conditions all but the message stays: a simulation goes on from there."""
    told = [
        {"type": name, "status": "True", "message": "x", "lastTransitionTime": SINCE} for name in (*POD_CONDITIONS, "a")
    ]
    redacted = redact(msgspec.convert({"status": {"conditions": told}}, Pod), ())
    kept = {
        condition.type: (condition.last_transition_time, condition.message) for condition in redacted.status.conditions
    }
    assert kept == {**dict.fromkeys(POD_CONDITIONS, (SINCE, "")), "a": (None, "")}
