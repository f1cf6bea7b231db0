"""What a scan found, as the reports that viewers of policies show: PolicyReport and its successor, OpenReports' Report.

There is one report a namespace, and one for what lies in none. A report is written by server-side apply, and taken away
when nothing is found in its namespace any more. Which of the two APIs a cluster has says its discovery; without either
nothing is written.
"""

from collections import defaultdict
from typing import Any

import msgspec

from webhook.inspection.judge import KINDS, MEANINGS
from webhook.inspection.scan import Report, Row
from webhook.kube.bounded import bounded
from webhook.kube.client import Client
from webhook.kube.errors import unless_absent
from webhook.kube.resources import Resource

Json = dict[str, Any]

NAME = "giveway-scan"
MOST_RESULTS = 500
"""Results in one report; the others are only counted."""
_MESSAGE_LENGTH = 1024
_MANAGER = "app.kubernetes.io/managed-by"
_RESULTS = {"refused": ("fail", "high"), "warned": ("warn", "medium"), "audited": ("warn", "low")}
"""The result and the severity of a verdict. What cannot be judged is skipped."""
_GROUPS = {kind: group for group, kind in KINDS.values()}


_OPEN_REPORTS = "openreports.io"
_APIS = (
    (
        Resource("wgpolicyk8s.io", "v1alpha2", "policyreports", "PolicyReport"),
        Resource("wgpolicyk8s.io", "v1alpha2", "clusterpolicyreports", "ClusterPolicyReport", namespaced=False),
    ),
    (
        Resource(_OPEN_REPORTS, "v1alpha1", "reports", "Report"),
        Resource(_OPEN_REPORTS, "v1alpha1", "clusterreports", "ClusterReport", namespaced=False),
    ),
)
"""Of each API where reports of a namespace are, and those of what lies in none."""
REPORT_GROUPS = tuple(of_namespace.group for of_namespace, _ in _APIS)
"""The API groups of reports."""


class Written(msgspec.Struct):
    """To which APIs, by group, reports were written, how many, and how many were taken away."""

    groups: list[str] = []
    reports: int = 0
    removed: int = 0


async def write_policy_reports(client: Client, report: Report, now: float) -> Written:
    """Write the reports of a scan to each API that the cluster has, and take away those that are over.

    If the scan is not complete, none is taken away. Raises ApiError.
    """
    written, reports = Written(), policy_reports(report, now)
    for of_namespace, of_cluster in _APIS:
        served = await unless_absent(client.get(f"/apis/{of_namespace.api_version}"))
        plurals = {resource.get("name") for resource in (served or {}).get("resources") or ()}
        if not {of_namespace.plural, of_cluster.plural} <= plurals:
            continue
        written.groups.append(of_namespace.group)
        # A report of OpenReports says for all its results who found them
        source = {"source": "giveway"} if of_namespace.group == _OPEN_REPORTS else {}
        for namespace, body in reports.items():
            resource = of_namespace if namespace else of_cluster
            metadata = {"name": NAME, "labels": {_MANAGER: "giveway"}} | _lies_in(namespace)
            head = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata}
            path = resource.path(namespace or None, NAME)
            applied = client.patch(path, {**head, **source, **body}, kind="apply", fieldManager=NAME, force="true")
            written.reports += await unless_absent(applied) is not None  # its namespace may be gone by now
        # Those of scans before this one in whose namespaces nothing is found any more
        for resource in (of_namespace, of_cluster) if not report.problems else ():
            items, _ = await client.list(resource.path(), labelSelector=f"{_MANAGER}=giveway")
            for item in items:
                namespace = item["metadata"].get("namespace") or ""
                if item["metadata"]["name"] == NAME and namespace not in reports:
                    await unless_absent(client.delete(resource.path(namespace or None, NAME)))
                    written.removed += 1
    return written


def policy_reports(report: Report, now: float) -> dict[str, Json]:
    """The results and the summary by namespace, empty for what lies in none; `now` is in seconds since the epoch."""
    rows: dict[str, list[Row]] = defaultdict(list)
    for row in report.rows:
        rows[row.namespace].append(row)
    reports = {}
    for namespace, rows_there in sorted(rows.items()):
        summary = dict.fromkeys(("pass", "fail", "warn", "error", "skip"), 0)
        for row in rows_there:
            summary[_RESULTS.get(row.verdict, ("skip", ""))[0]] += row.objects
        results = [_result(row, now) for row in rows_there[:MOST_RESULTS]]
        reports[namespace] = {"summary": summary, "results": results}
    return reports


def _lies_in(namespace: str) -> Json:
    return {"namespace": namespace} if namespace else {}


def _result(row: Row, now: float) -> Json:
    """One rule about the objects of one owner."""
    result, severity = _RESULTS.get(row.verdict, ("skip", "info"))
    policy, _, rule = row.rule.partition("/")
    group = _GROUPS.get(row.kind, "")
    version = f"{group}/v1" if group else "v1"
    where = {"apiVersion": version, "kind": row.kind} | _lies_in(row.namespace)
    return {
        "source": "giveway",
        "policy": policy,
        "rule": rule,
        "category": "Priority",
        "severity": severity,
        "result": result,
        "scored": row.verdict == "refused",
        "message": bounded(row.message, _MESSAGE_LENGTH),
        "timestamp": {"seconds": int(now), "nanos": 0},
        "resources": [{**where, "name": name} for name in row.examples],
        "properties": {"verdict": MEANINGS[row.verdict], "owner": row.owner, "objects": str(row.objects)},
    }
