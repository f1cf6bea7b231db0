"""What a scan found, as the reports that viewers of policies show: PolicyReport and its successor, OpenReports' Report.

There is one report a namespace, and one for what lies in none. A report is written by server-side apply, and taken away
when nothing is found in its namespace any more. Which of the two APIs a cluster has says its discovery; without either
nothing is written.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any, NamedTuple

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
_MANAGED_BY = {"app.kubernetes.io/managed-by": "giveway"}
_RESULTS = {"refused": ("fail", "high"), "warned": ("warn", "medium"), "audited": ("warn", "low")}
"""The result and the severity of a verdict. What cannot be judged is skipped."""
_GROUPS = {kind: group for group, kind in KINDS.values()}


class _Api(NamedTuple):
    """One of the two APIs: where reports of a namespace are, and those of what lies in none."""

    of_namespace: Resource
    of_cluster: Resource
    has_source: bool
    """Whether a report says for all its results who found them."""


_APIS = (
    _Api(
        Resource("wgpolicyk8s.io", "v1alpha2", "policyreports", "PolicyReport"),
        Resource("wgpolicyk8s.io", "v1alpha2", "clusterpolicyreports", "ClusterPolicyReport", namespaced=False),
        has_source=False,
    ),
    _Api(
        Resource("openreports.io", "v1alpha1", "reports", "Report"),
        Resource("openreports.io", "v1alpha1", "clusterreports", "ClusterReport", namespaced=False),
        has_source=True,
    ),
)

REPORT_GROUPS = tuple(api.of_namespace.group for api in _APIS)
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
    written = Written()
    reports = policy_reports(report, now)
    for api in _APIS:
        if not await _is_there(client, api):
            continue
        written.groups.append(api.of_namespace.group)
        for namespace, body in reports.items():
            resource = api.of_namespace if namespace else api.of_cluster
            metadata = {"name": NAME, "labels": _MANAGED_BY, **({"namespace": namespace} if namespace else {})}
            head = {"apiVersion": f"{resource.group}/{resource.version}", "kind": resource.kind, "metadata": metadata}
            source = {"source": "giveway"} if api.has_source else {}
            path = resource.path(namespace or None, NAME)
            wanted = {**head, **source, **body}
            applied = client.patch(path, wanted, kind="apply", fieldManager=NAME, force="true")
            written.reports += await unless_absent(applied) is not None  # its namespace may be gone by now
        if not report.problems:
            written.removed += await _take_away(client, api, reports)
    return written


def policy_reports(report: Report, now: float) -> dict[str, Json]:
    """The results and the summary by namespace, empty for what lies in none; `now` is in seconds since the epoch."""
    rows: dict[str, list[Row]] = defaultdict(list)
    for row in report.rows:
        rows[row.namespace].append(row)
    return {namespace: _body(of_namespace, now) for namespace, of_namespace in sorted(rows.items())}


def _body(rows: list[Row], now: float) -> Json:
    summary = dict.fromkeys(("pass", "fail", "warn", "error", "skip"), 0)
    for row in rows:
        summary[_RESULTS.get(row.verdict, ("skip", ""))[0]] += row.objects
    return {"summary": summary, "results": [_result(row, now) for row in rows[:MOST_RESULTS]]}


def _result(row: Row, now: float) -> Json:
    """One rule about the objects of one owner."""
    result, severity = _RESULTS.get(row.verdict, ("skip", "info"))
    policy, _, rule = row.rule.partition("/")
    group = _GROUPS.get(row.kind, "")
    version = f"{group}/v1" if group else "v1"
    where = {"namespace": row.namespace} if row.namespace else {}
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
        "resources": [{"apiVersion": version, "kind": row.kind, "name": name, **where} for name in row.examples],
        "properties": {"verdict": MEANINGS[row.verdict], "owner": row.owner, "objects": str(row.objects)},
    }


async def _is_there(client: Client, api: _Api) -> bool:
    """Whether the API server has the API, and both kinds in it."""
    served = await unless_absent(client.get(f"/apis/{api.of_namespace.group}/{api.of_namespace.version}"))
    plurals = {resource.get("name") for resource in (served or {}).get("resources") or ()}
    return {api.of_namespace.plural, api.of_cluster.plural} <= plurals


async def _take_away(client: Client, api: _Api, namespaces: Iterable[str]) -> int:
    """Delete the reports of scans before this one in whose namespaces nothing is found any more."""
    selector, removed, known = ",".join(f"{key}={value}" for key, value in _MANAGED_BY.items()), 0, set(namespaces)
    for resource in (api.of_namespace, api.of_cluster):
        items, _ = await client.list(resource.path(), labelSelector=selector)
        for item in items:
            metadata = item.get("metadata") or {}
            namespace = metadata.get("namespace") or ""
            if metadata.get("name") != NAME or namespace in known:
                continue
            await unless_absent(client.delete(resource.path(namespace or None, NAME)))
            removed += 1
    return removed
