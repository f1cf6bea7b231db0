"""The preemption decision the slow way: plain dictionaries, one node and one pod at a time, everything counted afresh.

Nothing of `webhook.preemption` is used, so that the two can be held against each other. Follows kube-scheduler 1.36
step by step, with the places where it remembers instead of counting: taken host ports are a set, spread counts
change by one per pod, and inter-pod affinity is skipped where it had nothing to say before any pod was nominated.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from typing import Any, NamedTuple, Protocol

from tests.preemption import oracle_pods, oracle_volumes
from tests.preemption.oracle_budgets import beyond, refused
from tests.preemption.oracle_pods import end, key, number, ports, priority, requests, selects, tolerated

Json = dict[str, Any]
MayGo = Callable[[Json], bool]
EVICTED = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}


class Failure(Exception):  # noqa: N818  # a filter's answer, not an error of the test
    def __init__(self, text: str, *, resolvable: bool) -> None:
        super().__init__(text)
        self.text, self.resolvable = text, resolvable


class Costs(Protocol):
    """What a policy counts of a pod and of several, key by key: the more the dearer."""

    def of_pod(self, pod: Json) -> list[Any]: ...

    def of_pods(self, pods: list[Json]) -> list[Any]: ...


class Policy(NamedTuple):
    """A PreemptionPolicy in the oracle's words: whether budgets are strict, and victims are evicted."""

    strict: bool = True
    evicts: bool = True
    costs: Costs | None = None


def decide(cluster: Json, may_go: MayGo | None = None, policy: Policy | None = None) -> Json:
    """The decision under plain Kubernetes rules if no policy is given; `may_go` narrows the victims further."""
    return _Cluster(cluster, may_go or (lambda _pod: True), policy).decide()


class State:
    """A copy of one node's pods, and what kube-scheduler remembers beside them."""

    def __init__(self, node: Json, pods: list[Json]) -> None:
        self.node, self.pods = node, list(pods)
        self.ports = {port for pod in pods for port in ports(pod)}
        self.moved: list[tuple[Json, int]] = []

    def copy(self) -> State:
        made = copy.copy(self)
        made.pods, made.ports, made.moved = list(self.pods), set(self.ports), list(self.moved)
        return made

    def remove(self, pod: Json) -> None:
        self.pods = [other for other in self.pods if other is not pod]
        self.ports -= ports(pod)
        self.moved.append((pod, -1))

    def add(self, pod: Json) -> None:
        self.pods.append(pod)
        self.ports |= ports(pod)
        self.moved.append((pod, 1))


class _Cluster:
    def __init__(self, cluster: Json, may_go: MayGo, policy: Policy | None) -> None:
        self.cluster, self.pod, self.may_go, self.policy = cluster, cluster["preemptor"], may_go, policy
        self.budgets = cluster.get("podDisruptionBudgets", [])
        self.nodes = {node["metadata"]["name"]: node for node in cluster["nodes"]}
        self.labels = {n["metadata"]["name"]: n["metadata"]["labels"] for n in cluster.get("namespaces", ())}
        pods = [pod for pod in cluster["pods"] if pod["status"]["phase"] not in ("Succeeded", "Failed")]
        self.on = {name: [pod for pod in pods if pod["spec"].get("nodeName") == name] for name in self.nodes}
        self.waiting = [pod for pod in pods if not pod["spec"].get("nodeName")]
        self.affinity = self.terms(self.pod, "podAffinity")
        self.anti = self.terms(self.pod, "podAntiAffinity")
        everyone = [(pod, self.nodes[name]) for name, there in self.on.items() for pod in there]
        self.asks_affinity = bool(self.affinity or self.anti or self.forbidden_pairs(everyone))

    def decide(self) -> Json:
        failures = {name: self.failure(State(node, self.on[name])) for name, node in self.nodes.items()}
        fits = sorted(name for name, failure in failures.items() if failure is None)
        failed = {name: failure for name, failure in failures.items() if failure is not None}
        reason = self.why_not_eligible(failures)
        candidates = []
        if not reason and not fits:
            tried = [self.candidate(name) for name, failure in sorted(failed.items()) if failure.resolvable]
            candidates = [found for found in tried if found is not None]
        return {
            "name": self.cluster["name"],
            "eligible": not reason,
            "reason": reason,
            "fits": fits,
            "unresolvable": sorted(name for name, failure in failed.items() if not failure.resolvable),
            "candidates": [
                {"node": node, "victims": [key(pod) for pod in victims], "pdbViolations": violations}
                for node, victims, violations in candidates
            ],
            "selected": self.best(candidates),
            "nodeReasons": {name: failure.text for name, failure in failed.items()},
        }

    def why_not_eligible(self, failures: dict[str, Failure | None]) -> str:
        if not any(failures.values()):
            return ""
        if not self.policy and self.pod["spec"].get("preemptionPolicy") == "Never":
            return "not eligible due to preemptionPolicy=Never."
        nominated = self.pod["status"].get("nominatedNodeName")
        failure = failures.get(nominated)
        if nominated not in self.nodes or (failure and not failure.resolvable):
            return ""
        for pod in self.on[nominated]:
            marks = [one for one in pod["status"].get("conditions", ()) if one["type"] == "DisruptionTarget"]
            # A policy's victims are marked by the Eviction API.
            marked = [mark["status"] for mark in marks[:1]] == ["True"] if self.policy else marks[:1] == [EVICTED]
            going = "deletionTimestamp" in pod["metadata"] and marked
            if going and priority(pod) < priority(self.pod):
                return "not eligible due to a terminating pod on the nominated node."
        return ""

    def failure(self, state: State) -> Failure | None:
        """The filters, first with the pods nominated to the node and then without them."""
        crowded = state.copy()
        for pod in self.waiting:
            here = pod["status"].get("nominatedNodeName") == state.node["metadata"]["name"]
            schedulers = {of["spec"].get("schedulerName", "default-scheduler") for of in (pod, self.pod)}
            if "schedulingGates" in pod["spec"] or len(schedulers) > 1:  # a scheduler knows its own nominees only
                continue
            if here and priority(pod) >= priority(self.pod) and key(pod) != key(self.pod):
                crowded.add(pod)
        try:
            self.filters(crowded)
            self.filters(state)
        except Failure as failure:
            return failure
        return None

    def filters(self, state: State) -> None:
        refusal = oracle_volumes.refusal(self.cluster)
        if refusal:
            raise Failure(refusal, resolvable=False)
        self.narrowed(state.node)
        self.node_itself(state.node)
        self.host_ports(state)
        self.resources(state)
        self.exclusive_claims(state)
        if oracle_volumes.exceeds_limits(self.cluster, state.node, state.pods):
            raise Failure(oracle_volumes.EXCEEDED, resolvable=True)
        for reason in oracle_volumes.binding_failures(self.cluster, state.node):
            raise Failure(reason, resolvable=False)
        self.spread(state)
        if self.asks_affinity:
            self.pod_affinity(state)
        if oracle_pods.undeclared(self.pod, state.node):
            raise Failure("node(s) didn't match Pod's required features", resolvable=False)

    def narrowed(self, node: Json) -> None:
        terms = self.node_terms()
        if not terms:
            return
        named = []
        for term in terms:
            rows = [r for r in term.get("matchFields", ()) if r["key"] == "metadata.name" and r["operator"] == "In"]
            if not rows:
                return
            named.append(all(node["metadata"]["name"] in row["values"] for row in rows))
        if not any(named):
            raise Failure("node(s) didn't satisfy plugin(s) [NodeAffinity]", resolvable=False)

    def node_terms(self) -> list[Json] | None:
        affinity = self.pod["spec"].get("affinity", {}).get("nodeAffinity")
        return affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"] if affinity else None

    def selects_node(self, node: Json) -> bool:
        labels, terms = node["metadata"]["labels"], self.node_terms()
        plain = all(labels.get(k) == v for k, v in self.pod["spec"].get("nodeSelector", {}).items())
        return plain and (terms is None or any(oracle_pods.node_term_holds(term, node) for term in terms))

    def untolerated(self, node: Json) -> bool:
        taints = [t for t in node["spec"].get("taints", ()) if t["effect"] in ("NoSchedule", "NoExecute")]
        return not all(tolerated(self.pod, taint) for taint in taints)

    def node_itself(self, node: Json) -> None:
        cordon = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
        if node["spec"].get("unschedulable") and not tolerated(self.pod, cordon):
            raise Failure("node(s) were unschedulable", resolvable=False)
        if self.untolerated(node):
            raise Failure("node(s) had untolerated taint(s)", resolvable=False)
        if not self.selects_node(node):
            raise Failure("node(s) didn't match Pod's node affinity/selector", resolvable=False)

    def host_ports(self, state: State) -> None:
        held = {port for pod in state.pods for port in ports(pod)} if self.policy else state.ports
        for protocol, port, address in ports(self.pod):
            for other, taken, at in held:
                if (protocol, port) == (other, taken) and ("0.0.0.0" in (address, at) or address == at):
                    raise Failure("node(s) didn't have free ports for the requested pod ports", resolvable=True)

    def resources(self, state: State) -> None:
        has = {name: number(amount) for name, amount in state.node["status"]["allocatable"].items()}
        asked = requests(self.pod)
        short, resolvable = [], True
        if len(state.pods) + 1 > has["pods"]:
            short.append("Too many pods")
        first = ["cpu", "memory", "ephemeral-storage"]
        for name in first + sorted(set(asked) - set(first)):
            used = sum((oracle_pods.holds(pod)[name] for pod in state.pods), Decimal(0))
            if asked[name] > 0 and asked[name] > has.get(name, 0) - used:
                short.append(f"Insufficient {name}")
                resolvable = resolvable and asked[name] <= has.get(name, 0)
        if short:
            raise Failure(", ".join(short), resolvable=resolvable)

    def exclusive_claims(self, state: State) -> None:
        mine = oracle_volumes.exclusive_claims(self.cluster)
        taken = mine & {
            claim for pods in self.on.values() for pod in pods for claim in oracle_volumes.named_claims(pod)
        }
        moved = sum(step * len(mine & oracle_volumes.named_claims(pod)) for pod, step in state.moved)
        if taken and len(taken) + moved > 0:
            raise Failure(oracle_volumes.IN_USE, resolvable=True)

    def spread(self, state: State) -> None:
        labels = state.node["metadata"]["labels"]
        constraints = self.pod["spec"].get("topologySpreadConstraints", ())
        constraints = [one for one in constraints if one["whenUnsatisfiable"] == "DoNotSchedule"]
        for constraint in constraints:
            topology, own = constraint["topologyKey"], self.pod["metadata"]["labels"]
            if topology not in labels:
                words = "node(s) didn't match pod topology spread constraints (missing required label)"
                raise Failure(words, resolvable=False)
            selector = constraint["labelSelector"]
            if constraint.get("matchLabelKeys"):
                selector = oracle_pods.merged(selector, own, constraint["matchLabelKeys"])
            counts: dict[str, int] = {}
            for name, node in self.nodes.items():
                if not self.included(node, constraint, constraints):
                    continue
                here = [
                    pod
                    for pod in self.on[name]
                    if self.counts(pod, selector) and "deletionTimestamp" not in pod["metadata"]
                ]
                domain = node["metadata"]["labels"][topology]
                counts[domain] = counts.get(domain, 0) + (len(here) if any(selector.values()) else 0)
            if self.included(state.node, constraint, constraints):
                moved = [(pod, step) for pod, step in state.moved if self.counts(pod, selector)]
                if self.policy:  # a pod that leaves was not counted, and is not taken away twice
                    moved = [row for row in moved if "deletionTimestamp" not in row[0]["metadata"]]
                counts[labels[topology]] += sum(step for _, step in moved)
            fewest = min(counts.values(), default=0) if len(counts) >= constraint.get("minDomains", 1) else 0
            if counts.get(labels[topology], 0) + selects(selector, own) - fewest > constraint["maxSkew"]:
                raise Failure("node(s) didn't match pod topology spread constraints", resolvable=True)

    def counts(self, pod: Json, selector: Json) -> bool:
        same = pod["metadata"]["namespace"] == self.pod["metadata"]["namespace"]
        return same and selects(selector, pod["metadata"]["labels"])

    def included(self, node: Json, constraint: Json, constraints: list[Json]) -> bool:
        if not all(other["topologyKey"] in node["metadata"]["labels"] for other in constraints):
            return False
        if constraint.get("nodeAffinityPolicy", "Honor") == "Honor" and not self.selects_node(node):
            return False
        return constraint.get("nodeTaintsPolicy") != "Honor" or not self.untolerated(node)

    def terms(self, pod: Json, kind: str) -> list[Json]:
        affinity = pod["spec"].get("affinity", {}).get(kind)
        return affinity["requiredDuringSchedulingIgnoredDuringExecution"] if affinity else []

    def term_selects(self, term: Json, owner: Json, pod: Json) -> bool:
        namespace = pod["metadata"]["namespace"]
        scope = set(term.get("namespaces", ()))
        if not scope and "namespaceSelector" not in term:
            scope = {owner["metadata"]["namespace"]}
        spaces = term.get("namespaceSelector")
        mistaken = owner is self.pod and selects(spaces, {})
        if namespace not in scope and not mistaken and not selects(spaces, self.labels.get(namespace, {})):
            return False
        return selects(term["labelSelector"], pod["metadata"]["labels"])

    def forbidden_pairs(self, everyone: list[tuple[Json, Json]]) -> set[tuple[str, str]]:
        """Topology pairs in which an existing pod's anti-affinity does not want the preemptor."""
        return {
            (term["topologyKey"], node["metadata"]["labels"][term["topologyKey"]])
            for pod, node in everyone
            for term in self.terms(pod, "podAntiAffinity")
            if term["topologyKey"] in node["metadata"]["labels"] and self.term_selects(term, pod, self.pod)
        }

    def pod_affinity(self, state: State) -> None:
        labels = state.node["metadata"]["labels"]
        others = [(p, self.nodes[n]) for n, there in self.on.items() for p in there if self.nodes[n] is not state.node]
        everyone = others + [(pod, state.node) for pod in state.pods]
        pairs = set()
        for pod, node in everyone:
            if self.affinity and all(self.term_selects(term, self.pod, pod) for term in self.affinity):
                keys = {term["topologyKey"] for term in self.affinity} & set(node["metadata"]["labels"])
                pairs |= {(k, node["metadata"]["labels"][k]) for k in keys}
        there = all(term["topologyKey"] in labels for term in self.affinity)
        met = there and all((term["topologyKey"], labels[term["topologyKey"]]) in pairs for term in self.affinity)
        first = not pairs and all(self.term_selects(term, self.pod, self.pod) for term in self.affinity)
        if not met and not (there and first):
            raise Failure("node(s) didn't match pod affinity rules", resolvable=False)
        for term in self.anti:
            domain = labels.get(term["topologyKey"])
            for pod, node in everyone:
                near = domain is not None and node["metadata"]["labels"].get(term["topologyKey"]) == domain
                if near and self.term_selects(term, self.pod, pod):
                    raise Failure("node(s) didn't match pod anti-affinity rules", resolvable=True)
        if self.forbidden_pairs(everyone) & set(labels.items()):
            raise Failure("node(s) didn't satisfy existing pods anti-affinity rules", resolvable=True)

    def candidate(self, name: str) -> tuple[str, list[Json], int] | None:
        state = State(self.nodes[name], self.on[name])
        strict, evicts = (self.policy.strict, self.policy.evicts) if self.policy else (False, False)
        potential = [pod for pod in state.pods if priority(pod) < priority(self.pod) and self.may_go(pod)]
        if self.policy:
            potential = [pod for pod in potential if not refused(self.budgets, pod, strict=strict, evicts=evicts)]
        for pod in potential:
            state.remove(pod)
        if not potential or self.failure(state) is not None:
            return None
        potential.sort(key=self.order)
        reading = partial(beyond, self.budgets, api=strict or evicts, evicts=evicts)
        for first in (potential[::-1], potential) if strict else (potential,):  # whom the budget belongs to
            violating = reading(first)
            victims = self.needed(state.copy(), potential, violating)
            broken = sum(pod["metadata"]["uid"] in violating for pod in victims)
            if victims and not strict:
                return name, victims, broken
            if victims and not reading(victims):
                victims.sort(key=lambda pod: (*oracle_pods.importance(pod)[:2], *self.order(pod)))
                return name, victims, 0
        return None

    def needed(self, state: State, potential: list[Json], violating: list[str]) -> list[Json]:
        """Whom the node has no room for when all come back, those beyond a budget first."""
        victims = []
        for pod in sorted(potential, key=lambda pod: pod["metadata"]["uid"] not in violating):
            state.add(pod)
            if self.failure(state) is not None:
                state.remove(pod)
                victims.append(pod)
        return sorted(victims, key=lambda pod: oracle_pods.importance(pod)[:2])

    def order(self, pod: Json) -> tuple[Any, ...]:
        """The more important and the dearer come first."""
        rank, *others = oracle_pods.importance(pod)
        costs = self.policy and self.policy.costs
        dear = [-amount for amount in costs.of_pod(pod)] if costs else []
        return (rank, *dear, *others)

    def best(self, candidates: list[tuple[str, list[Json], int]]) -> list[str]:
        """All nodes that are equally good, sorted."""

        def score(candidate: tuple[str, list[Json], int]) -> tuple[Any, ...]:
            _, victims, violations = candidate
            priorities = [priority(pod) for pod in victims]
            top = [pod["status"].get("startTime", "9999") for pod in victims if priority(pod) == max(priorities)]
            later_first = tuple(-ord(letter) for letter in min(top))
            costs = self.policy and self.policy.costs
            cost = costs.of_pods(victims) if costs else []
            last = max(map(end, victims)) if self.policy else 0
            sums = (sum(p + 2**31 for p in priorities), len(victims))
            return (violations, max(priorities), *sums, cost, later_first, last)

        lowest = min(map(score, candidates), default=None)
        return sorted(candidate[0] for candidate in candidates if score(candidate) == lowest)
