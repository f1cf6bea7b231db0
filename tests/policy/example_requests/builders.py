"""Builders: policies of one or two rules, and what example requests show of them."""

from tests.policy.builders import document, policies
from webhook.policy.example_requests.findings import example_findings
from webhook.policy.shapes.findings import Severity

KEY = "godel.bytedance.com/can-be-preempted"
RESERVE = "reserve: {from: 100, to: 200, define: {subjects: [{kind: Group, name: platform}]}, use: {namespaces: [a]}}"
ALLOW = "priorityClasses: {allow: [a, system-node-critical]}"
NOT_T = "{namespaceSelector: {matchExpressions: [{key: t, operator: DoesNotExist}]}}"
SHIELD = "protectAnnotations: {keys: [example.com/k]}"
DEFAULT = "defaultPriorityClass: x"
COPY = f"copyAnnotations: [{KEY}]"


def policy(*bodies, name="p", **parts):
    """A policy of these rules r, r1 …, with parts in flow style."""
    rules = "\n".join(f"- {{name: r{number or ''}, {body}}}" for number, body in enumerate(bodies))
    return document("\n".join([*(f"{part}: {text}" for part, text in parts.items()), "rules:", rules]), name=name)


def condition(expression):
    """One condition c."""
    return {"conditions": f"[{{name: c, expression: '{expression}'}}]"}


def excepted(match):
    """One exception from r."""
    return {"exceptions": f"[{{match: {match}, rules: [r], reason: it moves, owner: o, until: 2029-12-31}}]"}


def validate(expression, more=""):
    """A rule with an expression."""
    return f"validate: {{expression: '{expression}', message: m{more}}}"


def told(*texts, severity=Severity.WARNING):
    """What is found in these policies, which must be free of errors."""
    found = example_findings(policies(*texts), 1_700_000_000, "policies")
    return [finding.message for finding in found if finding.severity is severity]


SYSTEM = policy(
    'reserve: {from: 1000000001, to: 2147483647, define: {names: ["system-*"]}, use: {namespaces: [kube-system]}}'
)
"""The range of Kubernetes' own classes."""
