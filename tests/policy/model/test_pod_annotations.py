"""The table of what giveway writes on pods is whole."""

import ast
import re

from tests.manifests.objects import ROOT
from webhook.policy.model.values import MARK, POD_ANNOTATIONS, POD_CONDITIONS
from webhook.registration.entries import EXEMPT

KEY = re.compile(r"giveway\.dev/[A-Za-z-]+")
ELSEWHERE = {
    MARK: "the label of pods that giveway preempts for; stays",
    EXEMPT: "a label of namespaces",
    "giveway.dev/entries": "on webhook configurations",
    "giveway.dev/probe": "on the ConfigMap by which webhooks are tried",
    "giveway.dev/canary": "a label of what the doctor makes and deletes",
    "giveway.dev/given-up": "on the ConfigMap of the policies in force",
    "giveway.dev/written-by": "on the ConfigMap of the policies in force",
    "giveway.dev/allow-removal": "on ConfigMaps of policies",
    "giveway.dev/evictions": "on the Lease",
    "giveway.dev/policy": "a label of native policies",
    "giveway.dev/rules": "on native policies",
    "giveway.dev/reconciler": "the name of a controller in Events",
    "giveway.dev/snapshot": "the format of a file",
}
"""Names of giveway that are on no pod, or stay there for a reason."""


def test_every_key_of_giveway_is_in_the_table_or_is_elsewhere():
    """An annotation or a condition that the table does not know would stay after uninstalling, and be told others."""
    used = set()
    for path in sorted((ROOT / "webhook").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and KEY.fullmatch(node.value):
                used.add(node.value)
    apis = {key for key in used if re.fullmatch(r"giveway\.dev/v\d\w*", key)}
    assert used - apis == {row.key for row in POD_ANNOTATIONS} | set(POD_CONDITIONS) | ELSEWHERE.keys()
