"""An object whose review is too large to be read is refused by a verdict, and not by an error."""

from tests.workloads import until_refused
from webhook.kube.resources import PRIORITY_CLASS

TOO_LARGE = "rule builtin/size: the review of this request is larger than 8388608 bytes"
POLICIES = """
apiVersion: giveway.dev/v1alpha1
kind: PriorityPolicy
metadata: {name: bands}
spec:
  rules:
  - name: urgent
    reserve: {from: 876544000, to: 876544000, use: [{namespaces: [nobody]}]}
"""


async def test_a_padded_object_is_refused_by_a_verdict(sandbox, giveway):
    """A review spends six bytes on each `<`, so that an object which an API server takes can be too large for it."""
    padded = {"metadata": {"name": f"{sandbox.id}-padded"}, "value": 7, "description": "<" * 1_430_000}
    await giveway.serve(POLICIES)
    await until_refused(lambda: sandbox.client.create(PRIORITY_CLASS.path(), padded, dryRun="All"), TOO_LARGE, 20)
