"""The oracle's reading of single pods and nodes: amounts, selectors, tolerations, ports."""

from collections import Counter
from decimal import Decimal
from typing import Any

Json = dict[str, Any]
RULES = "restartPolicyRules"
SUFFIXES = {"m": Decimal("0.001"), "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "k": 10**3, "M": 10**6, "G": 10**9}


def number(text: Any) -> Decimal:
    text = str(text)
    for suffix, factor in SUFFIXES.items():
        if text.endswith(suffix):
            return Decimal(text[: -len(suffix)]) * factor
    return Decimal(text)


def requests(pod: Json) -> Counter[str]:
    """Sum of the containers and sidecars, or an init container with the sidecars before it if that is more."""
    spec = pod["spec"]

    def of(container: Json) -> Counter[str]:
        listed = container.get("resources", {}).get("requests", {})
        return Counter({name: number(amount) for name, amount in listed.items()})

    total: Counter[str] = Counter()
    for container in spec["containers"]:
        total.update(of(container))
    sidecars: Counter[str] = Counter()
    peaks = []
    for container in spec.get("initContainers", ()):
        if container.get("restartPolicy") == "Always":
            sidecars.update(of(container))
            peaks.append(sidecars.copy())
        else:
            peaks.append(of(container) + sidecars)
    total.update(sidecars)
    for peak in peaks:
        total |= peak
    for name, amount in spec.get("resources", {}).get("requests", {}).items():
        total[name] = number(amount)
    for name, amount in spec.get("overhead", {}).items():
        total[name] += number(amount)
    return total


def holds(pod: Json) -> Counter[str]:
    """What the pod takes from its node: like `requests`, with each container at the most it asks for or has."""
    status, spec = pod["status"], pod["spec"]
    pending = [one for one in status.get("conditions", ()) if one["type"] == "PodResizePending"]
    hopeless = bool(pending) and pending[0]["reason"] == "Infeasible"
    told = {
        one["name"]: one for one in [*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())]
    }

    def now(part: Json, report: Json | None) -> Json:
        if report is None or "resources" not in report:
            return part
        sides = [report["resources"].get("requests", {}), report.get("allocatedResources", {})]
        sides += [] if hopeless else [part.get("resources", {}).get("requests", {})]
        names = {name for side in sides for name in side}
        most = {name: str(max(number(side.get(name, 0)) for side in sides)) for name in names}
        return {**part, "resources": {"requests": most}}

    changed: Json = {**spec, "containers": [now(one, told.get(one["name"])) for one in spec["containers"]]}
    changed["initContainers"] = [
        now(one, told.get(one["name"])) if one.get("restartPolicy") == "Always" else one
        for one in spec.get("initContainers", ())
    ]
    if "resources" in spec:
        asked = spec["resources"]["requests"]
        most = now({"resources": spec["resources"]}, status)["resources"]["requests"]
        changed["resources"] = {"requests": {name: most.get(name, "0") for name in asked}}
    return requests({**pod, "spec": changed})


def undeclared(pod: Json, node: Json) -> list[str]:
    """The features that the pod needs and the node does not declare."""
    spec, needs = pod["spec"], []
    rules = [rule for one in [*spec["containers"], *spec.get("initContainers", ())] for rule in one.get(RULES, ())]
    if any(rule["action"] == "RestartAllContainers" for rule in rules):
        needs.append("RestartAllContainersOnContainerExits")
    if spec.get("hostNetwork") and spec.get("hostUsers") is False:
        needs.append("UserNamespacesHostNetworkSupport")
    declared = node["status"].get("declaredFeatures", [])
    return needs if any(one not in declared for one in needs) else []


def priority(pod: Json) -> int:
    return pod["spec"].get("priority", 0)


def grace(pod: Json) -> int:
    seconds: int = pod["spec"].get("terminationGracePeriodSeconds", 30)
    return seconds


def end(pod: Json) -> int:
    """In how many seconds the pod is gone if it is asked now; whoever was asked before should be gone."""
    return 0 if "deletionTimestamp" in pod["metadata"] else grace(pod)


def key(pod: Json) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"


def importance(pod: Json) -> tuple[Any, ...]:
    meta = pod["metadata"]
    return (-priority(pod), pod["status"].get("startTime", "9999"), meta["name"], meta["namespace"])


def requirement_holds(row: Json, labels: Json) -> bool:
    value, values = labels.get(row["key"]), row.get("values", [])
    return {
        "In": lambda: value in values,
        "NotIn": lambda: value not in values,
        "Exists": lambda: value is not None,
        "DoesNotExist": lambda: value is None,
        "Gt": lambda: value is not None and int(value) > int(values[0]),
        "Lt": lambda: value is not None and int(value) < int(values[0]),
    }[row["operator"]]()


def selects(selector: Json | None, labels: Json) -> bool:
    if selector is None:
        return False
    pairs = selector.get("matchLabels", {}).items()
    return all(labels.get(k) == v for k, v in pairs) and all(
        requirement_holds(row, labels) for row in selector.get("matchExpressions", ())
    )


def node_term_holds(term: Json, node: Json) -> bool:
    rows, fields = term.get("matchExpressions", ()), term.get("matchFields", ())
    if not rows and not fields:
        return False
    meta = node["metadata"]
    by_field = all(requirement_holds(row, {"metadata.name": meta["name"]}) for row in fields)
    return by_field and all(requirement_holds(row, meta["labels"]) for row in rows)


def tolerated(pod: Json, taint: Json) -> bool:
    for toleration in pod["spec"].get("tolerations", ()):
        same_key = not toleration.get("key") or toleration["key"] == taint["key"]
        same_effect = not toleration.get("effect") or toleration["effect"] == taint["effect"]
        same_value = toleration.get("operator") == "Exists" or toleration.get("value", "") == taint.get("value", "")
        if same_key and same_effect and same_value:
            return True
    return False


def ports(pod: Json) -> set[tuple[str, int, str]]:
    always = [c for c in pod["spec"].get("initContainers", ()) if c.get("restartPolicy") == "Always"]
    return {
        (port.get("protocol", "TCP"), port["hostPort"], port.get("hostIP") or "0.0.0.0")
        for container in [*pod["spec"]["containers"], *always]
        for port in container.get("ports", ())
        if port.get("hostPort")
    }


def merged(selector: Json, own: Json, keys: list[str]) -> Json:
    rows = list(selector.get("matchExpressions", ()))
    rows += [{"key": k, "operator": "In", "values": [own[k]]} for k in keys if k in own]
    return {**selector, "matchExpressions": rows}
