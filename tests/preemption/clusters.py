"""Random clusters with one pending pod each, as JSON data: for comparing the decision with the oracle, and for timing.

`plain(seed, *features)` makes small crowded clusters whose nodes and pods have the named features; `dense` makes the
large one that figures are taken on.
"""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import Any

__all__ = ["FEATURES", "dense", "plain"]

Json = dict[str, Any]

FEATURES = (
    "budgets", "placement", "ports", "anti", "affinity", "spread", "nominated", "terminating", "extended",
    "containers", "volumes", "oddities",
)  # fmt: skip
ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
APPS = ("web", "batch", "db", "cache")
_START = datetime(2026, 1, 1, tzinfo=UTC)


def instant(seconds: int) -> str:
    return (_START + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def plain(seed: int, *features: str) -> Json:
    """A small cluster. Sizes, shapes and who asks for what depend on the seed alone."""
    return _Maker(seed, features).cluster()


def dense(nodes: int, per_node: int = 30, seed: int = 1) -> Json:
    """Every node full (32 CPUs) with pods of five priorities, two fifths of them behind budgets; nothing is free."""
    rng = random.Random(seed)
    return {
        "name": f"dense-{nodes}x{per_node}",
        "nodes": [_dense_node(number) for number in range(nodes)],
        "pods": [pod for number in range(nodes) for pod in _dense_pods(rng, number, per_node)],
        "podDisruptionBudgets": [_budget("team-a", "db", {"app": "db"}, 0), _budget("team-a", "cache", {"app": "cache"}, 2)],
        "namespaces": [_namespace("team-a")],
        "preemptor": _pod("preemptor", "team-a", 500, {"app": "web"}, {"cpu": "4", "memory": "4Gi"}),
    }


def _dense_node(number: int) -> Json:
    size = {"cpu": "32", "memory": "128Gi", "pods": "110", "ephemeral-storage": "100Gi"}
    labels = {HOST: f"node-{number:05d}", ZONE: f"z{number % 3 + 1}"}
    return {
        "metadata": {"name": f"node-{number:05d}", "labels": labels},
        "spec": {},
        "status": {"capacity": size, "allocatable": size, "conditions": [{"type": "Ready", "status": "True"}]},
    }


def _dense_pods(rng: random.Random, node: int, per_node: int) -> list[Json]:
    left, pods = 32000, []
    for place in range(per_node):
        share = int(32000 / per_node * rng.uniform(0.7, 1.3))
        cpu = left if place == per_node - 1 else max(50, min(left, share))
        if cpu <= 0:
            break
        left -= cpu
        memory = f"{rng.choice((256, 512, 1024))}Mi"
        labels = {"app": rng.choice((*APPS, "etl")), "tier": "be"}
        pod = _pod(
            f"p{node * per_node + place:06d}", "team-a", rng.choice((0, 10, 100, 200, 1000)), labels,
            {"cpu": f"{cpu}m", "memory": memory},
        )  # fmt: skip
        pod["spec"]["nodeName"] = f"node-{node:05d}"
        pod["status"] = {"phase": "Running", "startTime": instant(3000 + rng.randrange(100000))}
        pods.append(pod)
    return pods


def _pod(name: str, namespace: str, priority: int, labels: Json, requests: Json) -> Json:
    return {
        "metadata": {"name": name, "namespace": namespace, "uid": f"uid-{namespace}-{name}", "labels": labels},
        "spec": {
            "priority": priority,
            "schedulerName": "default-scheduler",
            "containers": [{"name": "main", "image": "registry.example/app:1", "resources": {"requests": requests}}],
        },
        "status": {"phase": "Pending"},
    }


def _budget(namespace: str, name: str, labels: Json, allowed: int) -> Json:
    return {
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"selector": {"matchLabels": labels}, "minAvailable": 1},
        "status": {"disruptionsAllowed": allowed, "currentHealthy": 9, "desiredHealthy": 1, "expectedPods": 9},
    }


def _namespace(name: str, **labels: str) -> Json:
    return {"metadata": {"name": name, "labels": {"kubernetes.io/metadata.name": name, **labels}}}


class _Maker:
    """One cluster in the making."""

    def __init__(self, seed: int, features: tuple[str, ...]) -> None:
        self.rng = random.Random(f"{seed}/{features}")
        self.name = f"{'+'.join(features) or 'resources'}-{seed}"
        self.on = frozenset(features)
        self.claims: list[Json] = []
        self.volumes: list[Json] = []

    def has(self, feature: str, chance: float) -> bool:
        return feature in self.on and self.rng.random() < chance

    def cluster(self) -> Json:
        roomy = bool(self.on & {"ports", "anti", "affinity", "spread", "volumes"}) and self.rng.random() < 0.7
        nodes = [self.node(number, roomy) for number in range(self.rng.randint(2, 9))]
        if "volumes" in self.on:
            self.storage(nodes)
        pods = [pod for node in nodes for pod in self.pods_on(node["metadata"]["name"])]
        preemptor = self.preemptor(nodes)
        pods += self.nominated(nodes) + self.stray()
        return {
            "name": self.name,
            "nodes": nodes,
            "pods": pods,
            "podDisruptionBudgets": self.budgets(pods),
            "namespaces": [_namespace("team-a", env="prod"), _namespace("team-b", env="test")],
            "persistentVolumes": self.volumes,
            "persistentVolumeClaims": self.claims,
            "storageClasses": self.classes(),
            "preemptor": preemptor,
        }

    def node(self, number: int, roomy: bool) -> Json:
        rng = self.rng
        size = {
            "cpu": str(rng.choice((32, 64) if roomy else (3, 4, 5))),
            "memory": "128Gi" if roomy else rng.choice(("4Gi", "8Gi", "16Gi")),
            "pods": str(rng.choice((4, 8, 110))),
            "ephemeral-storage": "20Gi",
        }
        if self.has("extended", 0.5):
            size |= {"example.com/gpu": str(rng.choice((1, 2, 4))), "hugepages-2Mi": "1Gi"}
        labels = {HOST: f"n{number}", ZONE: f"z{number % 3}", "gen": str(rng.randint(1, 5))}
        labels["pool"] = rng.choice(("general", "batch"))
        if self.has("oddities", 0.2):
            labels.pop(rng.choice((ZONE, "gen", "pool")))
        node: Json = {"metadata": {"name": f"n{number}", "labels": labels}, "spec": {}, "status": {"allocatable": size}}
        if self.has("placement", 0.3):
            effect = rng.choice(("NoSchedule", "NoExecute", "PreferNoSchedule"))
            node["spec"]["taints"] = [{"key": "dedicated", "value": rng.choice(("batch", "db")), "effect": effect}]
        if self.has("placement", 0.12):
            node["spec"]["unschedulable"] = True
        return node

    def pods_on(self, node: str) -> list[Json]:
        return [self.pod(f"{node}-p{place}", node) for place in range(self.rng.randint(2, 9))]

    def pod(self, name: str, node: str) -> Json:
        rng = self.rng
        pod = _pod(name, rng.choice(("team-a", "team-b")), rng.choice((-10, 0, 0, 10, 100, 500, 2000)), self.labels(), self.requests())
        pod["spec"]["nodeName"] = node
        pod["status"] = {"phase": "Running", "startTime": instant(rng.randrange(40) * 100)}
        self.bind(pod, preemptor=False)
        if self.has("terminating", 0.2):
            pod["metadata"]["deletionTimestamp"] = instant(9000)
            if rng.random() < 0.6:
                condition = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
                pod["status"]["conditions"] = [condition]
        if self.has("oddities", 0.1):
            del pod["status"]["startTime"]
        if self.has("oddities", 0.05):
            pod["status"]["phase"] = rng.choice(("Succeeded", "Failed"))
        return pod

    def labels(self) -> Json:
        labels = {"app": self.rng.choice(APPS), "tier": self.rng.choice(("fe", "be"))}
        if self.has("oddities", 0.3):
            labels["version"] = self.rng.choice(("1", "2"))
        return {} if self.has("oddities", 0.05) else labels

    def requests(self, *, large: bool = False) -> Json:
        rng = self.rng
        if self.has("containers", 0.1):
            return {}
        cpu = rng.choice((1500, 2000, 3000) if large else (100, 250, 500, 1000, 1500))
        requests = {"cpu": rng.choice((f"{cpu}m", str(cpu / 1000))), "memory": f"{rng.choice((128, 512, 2048))}Mi"}
        if self.has("extended", 0.4):
            requests["example.com/gpu"] = str(rng.choice((0, 1, 2)))
        if self.has("extended", 0.2):
            requests |= {"hugepages-2Mi": "256Mi", "ephemeral-storage": "8Gi"}
        return requests

    def bind(self, pod: Json, *, preemptor: bool) -> None:
        """Give the pod what binds it to other pods and to nodes."""
        self.more_containers(pod)
        self.take_ports(pod, 0.8 if preemptor else 0.4)
        self.be_affine(pod, preemptor=preemptor)
        if self.has("volumes", 0.8 if preemptor else 0.2) and self.claims:
            claims = [claim for claim in self.claims if claim["metadata"]["namespace"] == pod["metadata"]["namespace"]]
            names = [claim["metadata"]["name"] for claim in self.rng.sample(claims, min(len(claims), self.rng.randint(1, 2)))]
            if preemptor and self.rng.random() < 0.05:
                names.append("missing")
            pod["spec"]["volumes"] = [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in names]

    def more_containers(self, pod: Json) -> None:
        rng, spec = self.rng, pod["spec"]
        if self.has("containers", 0.3):
            one = {"name": "init", "resources": {"requests": {"cpu": rng.choice(("2", "300m")), "memory": "64Mi"}}}
            sidecar = {"name": "side", "restartPolicy": "Always", "resources": {"requests": {"cpu": "200m", "memory": "1Gi"}}}
            spec["initContainers"] = rng.sample((one, sidecar, {**one, "name": "last"}), rng.randint(1, 3))
        if self.has("containers", 0.2):
            spec["overhead"] = {"cpu": "150m", "memory": "32Mi"}
        if self.has("containers", 0.2):
            spec["resources"] = {"requests": {"cpu": rng.choice(("50m", "2500m")), "hugepages-2Mi": "64Mi"}}

    def take_ports(self, pod: Json, chance: float) -> None:
        rng = self.rng
        if not self.has("ports", chance):
            return
        port = {"containerPort": 80, "hostPort": rng.choice((8080, 9090)), "protocol": rng.choice(("TCP", "TCP", "UDP"))}
        if rng.random() < 0.3:
            port["hostIP"] = rng.choice(("127.0.0.1", "10.1.1.1", "0.0.0.0"))
        pod["spec"]["containers"][0]["ports"] = [port]

    def be_affine(self, pod: Json, *, preemptor: bool) -> None:
        affinity: Json = {}
        if self.has("anti", 0.6 if preemptor else 0.25):
            affinity["podAntiAffinity"] = _required([self.term() for _ in range(self.rng.randint(1, 2))])
        if preemptor and self.has("affinity", 0.8):
            affinity["podAffinity"] = _required([self.term() for _ in range(self.rng.choice((1, 1, 2)))])
        if affinity:
            pod["spec"].setdefault("affinity", {}).update(affinity)

    def term(self) -> Json:
        rng = self.rng
        term: Json = {"topologyKey": rng.choice((HOST, ZONE)), "labelSelector": self.selector()}
        if rng.random() < 0.4:
            scope = rng.choice(({"namespaceSelector": {}}, {"namespaces": ["team-b"]}, {"namespaceSelector": {"matchLabels": {"env": "prod"}}}))
            term |= scope
        if self.has("oddities", 0.3):
            term[rng.choice(("matchLabelKeys", "mismatchLabelKeys"))] = ["version"]
        return term

    def selector(self) -> Json:
        rng = self.rng
        return rng.choice(
            (
                {"matchLabels": {"app": rng.choice(APPS)}},
                {"matchExpressions": [{"key": "app", "operator": "In", "values": rng.sample(APPS, 2)}]},
                {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["web"]}, {"key": "tier", "operator": "Exists"}]},
            )
        )  # fmt: skip

    def preemptor(self, nodes: list[Json]) -> Json:
        rng = self.rng
        pod = _pod("preemptor", rng.choice(("team-a", "team-b")), rng.choice((100, 500, 1000, 5000, 5000)), self.labels(), self.requests(large=True))
        self.bind(pod, preemptor=True)
        spec = pod["spec"]
        if self.has("placement", 0.4):
            spec["nodeSelector"] = {"pool": rng.choice(("general", "batch"))}
        if self.has("placement", 0.5):
            toleration = rng.choice(({"key": "dedicated", "operator": "Exists"}, {"key": "dedicated", "value": "db"}, {"operator": "Exists"}))
            spec["tolerations"] = [toleration]
        if self.has("placement", 0.5):
            spec.setdefault("affinity", {})["nodeAffinity"] = _required_terms(self.node_terms(nodes))
        if self.has("spread", 0.9):
            spec["topologySpreadConstraints"] = [self.constraint(pod) for _ in range(rng.choice((1, 1, 2)))]
        if self.has("terminating", 0.7):
            pod["status"]["nominatedNodeName"] = rng.choice(nodes)["metadata"]["name"]
        if self.has("oddities", 0.05):
            spec["preemptionPolicy"] = "Never"
        return pod

    def node_terms(self, nodes: list[Json]) -> list[Json]:
        rng = self.rng
        names = [node["metadata"]["name"] for node in nodes]
        choices = [
            {"matchExpressions": [{"key": "gen", "operator": rng.choice(("Gt", "Lt")), "values": ["3"]}]},
            {"matchExpressions": [{"key": "pool", "operator": "NotIn", "values": ["batch"]}, {"key": ZONE, "operator": "Exists"}]},
            {"matchExpressions": [{"key": "pool", "operator": "DoesNotExist"}]},
            {"matchFields": [{"key": "metadata.name", "operator": rng.choice(("In", "NotIn")), "values": [rng.choice(names)]}]},
            {},
        ]  # fmt: skip
        return rng.sample(choices, rng.choice((1, 1, 2)))

    def constraint(self, pod: Json) -> Json:
        rng = self.rng
        constraint: Json = {
            "maxSkew": rng.choice((1, 1, 2)),
            "topologyKey": rng.choice((HOST, ZONE)),
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": rng.choice(({"matchLabels": {"tier": "be"}}, self.selector(), {"matchLabels": pod["metadata"]["labels"]})),
        }  # fmt: skip
        if rng.random() < 0.3:
            constraint["minDomains"] = rng.choice((2, 4))
        if rng.random() < 0.4:
            constraint["nodeTaintsPolicy"] = rng.choice(("Honor", "Ignore"))
        if rng.random() < 0.4:
            constraint["nodeAffinityPolicy"] = rng.choice(("Honor", "Ignore"))
        if self.has("oddities", 0.3):
            constraint["matchLabelKeys"] = ["version"]
        if self.has("oddities", 0.1):
            constraint["labelSelector"] = {}
        return constraint

    def nominated(self, nodes: list[Json]) -> list[Json]:
        rng = self.rng
        if "nominated" not in self.on:
            return []
        pods = []
        for number in range(rng.randint(0, 4)):
            pod = self.pod(f"nominated-{number}", "")
            del pod["spec"]["nodeName"]
            pod["spec"]["priority"] = rng.choice((50, 1000, 5000, 9000))
            pod["status"] = {"phase": "Pending", "nominatedNodeName": rng.choice(nodes)["metadata"]["name"]}
            pods.append(pod)
        return pods

    def stray(self) -> list[Json]:
        """A pod on a node that nobody knows."""
        return [self.pod("stray", "gone")] if self.has("oddities", 0.4) else []

    def budgets(self, pods: list[Json]) -> list[Json]:
        rng = self.rng
        if "budgets" not in self.on:
            return []
        budgets = []
        for number in range(rng.randint(1, 4)):
            budget = _budget(rng.choice(("team-a", "team-b")), f"budget-{number}", {}, rng.choice((0, 0, 1, 2)))
            budget["spec"]["selector"] = rng.choice((self.selector(), {"matchLabels": {"tier": "be"}}, {}))
            if rng.random() < 0.3 and pods:
                budget["status"]["disruptedPods"] = {rng.choice(pods)["metadata"]["name"]: instant(8000)}
            budgets.append(budget)
        return budgets

    def storage(self, nodes: list[Json]) -> None:
        rng = self.rng
        for number in range(rng.randint(2, 6)):
            namespace, name = rng.choice(("team-a", "team-b")), f"claim-{number}"
            claim: Json = {
                "metadata": {"name": name, "namespace": namespace, "uid": f"uid-{name}"},
                "spec": {"accessModes": [rng.choice(("ReadWriteOnce", "ReadWriteOncePod"))], "resources": {"requests": {"storage": "5Gi"}}},
                "status": {"phase": "Bound"},
            }  # fmt: skip
            if rng.random() < 0.65:
                claim["metadata"]["annotations"] = {"pv.kubernetes.io/bind-completed": "yes"}
                claim["spec"]["volumeName"] = f"volume-{number}"
            else:
                claim["spec"]["storageClassName"] = rng.choice(("late", "late", "static", "zonal", "now"))
                claim["status"]["phase"] = "Pending"
            self.claims.append(claim)
            if rng.random() < 0.95:
                self.volumes.append(self.volume(number, claim, nodes))

    def volume(self, number: int, claim: Json, nodes: list[Json]) -> Json:
        rng = self.rng
        bound = "volumeName" in claim["spec"]
        volume: Json = {
            "metadata": {"name": f"volume-{number}", "labels": {}},
            "spec": {"capacity": {"storage": rng.choice(("5Gi", "10Gi"))}, "accessModes": ["ReadWriteOnce", "ReadWriteOncePod"]},
            "status": {"phase": "Bound" if bound else "Available"},
        }  # fmt: skip
        if not bound:
            volume["spec"]["storageClassName"] = "static"
        if rng.random() < 0.5:
            row = {"key": ZONE, "operator": "In", "values": rng.sample(("z0", "z1", "z2"), 2)}
            volume["spec"]["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": [row]}]}}
        elif rng.random() < 0.5:
            host = rng.choice(nodes)["metadata"]["name"]
            row = {"key": HOST, "operator": "In", "values": [host]}
            volume["spec"]["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": [row]}]}}
        if rng.random() < 0.3:
            volume["metadata"]["labels"][ZONE] = rng.choice(("z0", "z1__z2"))
        return volume

    def classes(self) -> list[Json]:
        if "volumes" not in self.on:
            return []
        zones = [{"matchLabelExpressions": [{"key": ZONE, "values": ["z0", "z1"]}]}]
        late = "WaitForFirstConsumer"
        return [
            {"metadata": {"name": "late"}, "provisioner": "example.com/disk", "volumeBindingMode": late},
            {"metadata": {"name": "zonal"}, "provisioner": "example.com/disk", "volumeBindingMode": late, "allowedTopologies": zones},
            {"metadata": {"name": "static"}, "provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": late},
            {"metadata": {"name": "now"}, "provisioner": "example.com/disk", "volumeBindingMode": "Immediate"},
        ]  # fmt: skip


def _required(terms: list[Json]) -> Json:
    return {"requiredDuringSchedulingIgnoredDuringExecution": terms}


def _required_terms(terms: list[Json]) -> Json:
    return {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
