"""Random clusters with one pending pod each, as JSON data: for comparing the decision with the oracle.

`plain(seed, *features)` makes small crowded clusters whose nodes and pods have the named features.
"""

import random

from tests.preemption.parts import (
    APPS,
    HOST,
    ZONE,
    Json,
    instant,
    make_budget,
    make_namespace,
    make_pod,
    report_resize,
)
from tests.preemption.storage import csi_nodes, ephemeral, storage, storage_classes

DECLARED = ("UserNamespacesHostNetworkSupport", "RestartAllContainersOnContainerExits")
FEATURES = (
    "budgets",
    "placement",
    "ports",
    "anti",
    "affinity",
    "spread",
    "nominated",
    "terminating",
    "extended",
    "containers",
    "resized",
    "declared",
    "volumes",
    "oddities",
)


def plain(seed: int, *features: str) -> Json:
    """A small cluster. Sizes, shapes and who asks for what depend on the seed alone."""
    return _Maker(seed, features).cluster()


class _Maker:
    """One cluster in the making."""

    def __init__(self, seed: int, features: tuple[str, ...]) -> None:
        self.rng = random.Random(f"{seed}/{features}")
        self.name = f"{'+'.join(features) or 'resources'}-{seed}"
        self.on = frozenset(features)
        self.claims: list[Json] = []
        self.volumes: list[Json] = []
        self.nodes: list[Json] = []

    def has(self, feature: str, chance: float) -> bool:
        return feature in self.on and self.rng.random() < chance

    def cluster(self) -> Json:
        roomy = bool(self.on & {"ports", "anti", "affinity", "spread", "volumes"}) and self.rng.random() < 0.7
        nodes = self.nodes = [self.node(number, roomy) for number in range(self.rng.randint(2, 9))]
        if "volumes" in self.on:
            self.claims, self.volumes = storage(self.rng, nodes)
        pods = [pod for node in nodes for pod in self.pods_on(node["metadata"]["name"])]
        preemptor = self.preemptor(nodes)
        pods += self.nominated(nodes) + self.stray()
        return {
            "name": self.name,
            "nodes": nodes,
            "pods": pods,
            "podDisruptionBudgets": self.budgets(pods),
            "namespaces": [make_namespace("team-a", env="prod"), make_namespace("team-b", env="test")],
            "persistentVolumes": self.volumes,
            "persistentVolumeClaims": self.claims,
            "storageClasses": storage_classes() if "volumes" in self.on else [],
            "csiNodes": csi_nodes(self.rng, nodes) if "volumes" in self.on and self.rng.random() < 0.7 else [],
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
        if self.has("declared", 0.8):
            node["status"]["declaredFeatures"] = list(DECLARED)[: rng.randint(0, 2)]
        return node

    def pods_on(self, node: str) -> list[Json]:
        return [self.pod(f"{node}-p{place}", node) for place in range(self.rng.randint(2, 9))]

    def pod(self, name: str, node: str) -> Json:
        rng = self.rng
        pod = make_pod(
            name,
            rng.choice(("team-a", "team-b")),
            rng.choice((-10, 0, 0, 10, 100, 500, 2000)),
            self.labels(),
            self.requests(),
        )
        pod["spec"]["nodeName"] = node
        pod["status"] = {"phase": "Running", "startTime": instant(rng.randrange(40) * 100)}
        self.bind(pod, preemptor=False)
        if self.rng.random() < 0.8:
            pod["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
        if self.has("oddities", 0.1):
            pod["status"]["phase"] = "Pending"
        if self.has("terminating", 0.2):
            pod["metadata"]["deletionTimestamp"] = instant(9000)
            if rng.random() < 0.6:
                condition = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
                withdrawn = [{**condition, "status": "False"}] if self.has("oddities", 0.3) else []
                pod["status"].setdefault("conditions", []).extend([*withdrawn, condition])
        if self.has("resized", 0.4):
            report_resize(rng, pod)
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
        if self.has("volumes", 0.8 if preemptor else 0.4) and self.claims:
            claims = [claim for claim in self.claims if claim["metadata"]["namespace"] == pod["metadata"]["namespace"]]
            names = [
                claim["metadata"]["name"] for claim in self.rng.sample(claims, min(len(claims), self.rng.randint(1, 2)))
            ]
            if preemptor and self.rng.random() < 0.05:
                names.append("missing")
            pod["spec"]["volumes"] += [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in names]
            if self.rng.random() < 0.3:
                pod["spec"]["volumes"].append(ephemeral(self.rng, pod, self.claims, self.volumes, self.nodes))

    def more_containers(self, pod: Json) -> None:
        rng, spec = self.rng, pod["spec"]
        if self.has("containers", 0.3):
            one = {"name": "init", "resources": {"requests": {"cpu": rng.choice(("2", "300m")), "memory": "64Mi"}}}
            sidecar = {
                "name": "side",
                "restartPolicy": "Always",
                "resources": {"requests": {"cpu": "200m", "memory": "1Gi"}},
            }
            spec["initContainers"] = rng.sample((one, sidecar, {**one, "name": "last"}), rng.randint(1, 3))
        if self.has("containers", 0.2):
            spec["overhead"] = {"cpu": "150m", "memory": "32Mi"}
        if self.has("containers", 0.2):
            spec["resources"] = {"requests": {"cpu": rng.choice(("50m", "2500m")), "hugepages-2Mi": "64Mi"}}

    def take_ports(self, pod: Json, chance: float) -> None:
        rng = self.rng
        if not self.has("ports", chance):
            return
        port = {
            "containerPort": 80,
            "hostPort": rng.choice((8080, 9090)),
            "protocol": rng.choice(("TCP", "TCP", "UDP")),
        }
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
            scope = rng.choice(
                (
                    {"namespaceSelector": {}},
                    {"namespaces": ["team-b"]},
                    {"namespaceSelector": {"matchLabels": {"env": "prod"}}},
                    {
                        "namespaceSelector": {
                            "matchExpressions": [{"key": "env", "operator": "NotIn", "values": ["prod"]}]
                        }
                    },
                )
            )
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
                {
                    "matchExpressions": [
                        {"key": "app", "operator": "NotIn", "values": ["web"]},
                        {"key": "tier", "operator": "Exists"},
                    ]
                },
            )
        )

    def preemptor(self, nodes: list[Json]) -> Json:
        rng = self.rng
        pod = make_pod(
            "preemptor",
            rng.choice(("team-a", "team-b")),
            rng.choice((100, 500, 1000, 5000, 5000)),
            self.labels(),
            self.requests(large=True),
        )
        self.bind(pod, preemptor=True)
        spec = pod["spec"]
        if self.has("placement", 0.4):
            spec["nodeSelector"] = {"pool": rng.choice(("general", "batch"))}
        if self.has("placement", 0.5):
            toleration = rng.choice(
                (
                    {"key": "dedicated", "operator": "Exists"},
                    {"key": "dedicated", "value": "db"},
                    {"operator": "Exists"},
                )
            )
            spec["tolerations"] = [toleration]
        if self.has("placement", 0.5):
            spec.setdefault("affinity", {})["nodeAffinity"] = _required_terms(self.node_terms(nodes))
        if self.has("declared", 0.4):
            spec |= {"hostNetwork": True, "hostUsers": False}
        if self.has("declared", 0.4):
            spec["containers"][0]["restartPolicyRules"] = [{"action": "RestartAllContainers"}]
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
            {
                "matchExpressions": [
                    {"key": "pool", "operator": "NotIn", "values": ["batch"]},
                    {"key": ZONE, "operator": "Exists"},
                ]
            },
            {"matchExpressions": [{"key": "pool", "operator": "DoesNotExist"}]},
            {
                "matchFields": [
                    {"key": "metadata.name", "operator": rng.choice(("In", "NotIn")), "values": [rng.choice(names)]}
                ]
            },
            {},
        ]
        return rng.sample(choices, rng.choice((1, 1, 2)))

    def constraint(self, pod: Json) -> Json:
        rng = self.rng
        constraint: Json = {
            "maxSkew": rng.choice((1, 1, 2)),
            "topologyKey": rng.choice((HOST, ZONE)),
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": rng.choice(
                ({"matchLabels": {"tier": "be"}}, self.selector(), {"matchLabels": pod["metadata"]["labels"]})
            ),
        }
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
        pods = [self.pod(f"nominated-{number}", "") for number in range(rng.randint(0, 4))]
        for pod in pods:
            del pod["spec"]["nodeName"]
            pod["spec"]["priority"] = rng.choice((50, 1000, 5000, 9000))
            pod["status"] = {"phase": "Pending", "nominatedNodeName": rng.choice(nodes)["metadata"]["name"]}
            if self.has("oddities", 0.2):
                pod["spec"]["schedulingGates"] = [{"name": "example.com/wait"}]
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
            budget = make_budget(rng.choice(("team-a", "team-b")), f"budget-{number}", {}, rng.choice((0, 0, 1, 2)))
            budget["spec"]["selector"] = rng.choice((self.selector(), {"matchLabels": {"tier": "be"}}, {}))
            if rng.random() < 0.3 and pods:
                budget["status"]["disruptedPods"] = {rng.choice(pods)["metadata"]["name"]: instant(8000)}
            if rng.random() < 0.3:
                budget["spec"]["unhealthyPodEvictionPolicy"] = rng.choice(("AlwaysAllow", "IfHealthyBudget"))
            budget["status"]["currentHealthy"] = rng.choice((0, 1, 9))
            if rng.random() < 0.2:
                budget["metadata"]["generation"], budget["status"]["observedGeneration"] = 2, 1
            budgets.append(budget)
        return budgets


def _required(terms: list[Json]) -> Json:
    return {"requiredDuringSchedulingIgnoredDuringExecution": terms}


def _required_terms(terms: list[Json]) -> Json:
    return {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
