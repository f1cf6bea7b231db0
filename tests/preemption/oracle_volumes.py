"""The oracle's volumes: claims judged for one node and one set of pods at a time, each rule where it is asked."""

from typing import Any

from tests.preemption.oracle_pods import key, number, requirement_holds, selects

Json = dict[str, Any]
IN_USE = (
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod"
)
EXCEEDED = "node(s) exceed max volume count"
ZONE = "topology.kubernetes.io/zone"
ZONED = {ZONE, "topology.kubernetes.io/region"}
"""A node with one of these labels has to match each that a volume has."""
BETA_CLASS = "volume.beta.kubernetes.io/storage-class"
SELECTED = "volume.kubernetes.io/selected-node"


def named_claims(pod: Json) -> set[str]:
    """The claims that the pod names, without those made for it."""
    return {_key(pod, volume) for volume in _volumes(pod) if "persistentVolumeClaim" in volume}


def exclusive_claims(cluster: Json) -> set[str]:
    mine = named_claims(cluster["preemptor"])
    return {name for name in mine if "ReadWriteOncePod" in _claim(cluster, name)["spec"]["accessModes"]}


def refusal(cluster: Json) -> str:
    """Why no node at all will do."""
    pod = cluster["preemptor"]
    for volume in _volumes(pod):
        name = _key(pod, volume).split("/")[1]
        claim = _claim(cluster, _key(pod, volume))
        if not claim and "ephemeral" in volume:
            return f'waiting for ephemeral volume controller to create the persistentvolumeclaim "{name}"'
        if not claim:
            return f'persistentvolumeclaim "{name}" not found'
        owners = [owner["uid"] for owner in claim["metadata"].get("ownerReferences", ()) if owner["controller"]]
        if "ephemeral" in volume and pod["metadata"]["uid"] not in owners:
            whole = f"{pod['metadata']['namespace']}/{name}"
            return f"PVC {whole} was not created for pod {pod['metadata']['namespace']}/preemptor (pod is not owner)"
    for claim in _claims(cluster, pod):
        waits = _class(cluster, claim).get("volumeBindingMode") == "WaitForFirstConsumer"
        if not _bound(claim) and ("volumeName" in claim["spec"] or not waits):
            return "pod has unbound immediate PersistentVolumeClaims"
    for volume in _volumes(pod):
        claim = _claim(cluster, _key(pod, volume))
        missing = _bound(claim) and not _volume(cluster, claim["spec"]["volumeName"])
        if "persistentVolumeClaim" in volume and missing:
            return f'persistentvolume "{claim["spec"]["volumeName"]}" not found'
    return ""


def exceeds_limits(cluster: Json, node: Json, pods: list[Json]) -> bool:
    """Whether a driver cannot attach the preemptor's volumes to the node beside those of these pods."""
    attached = {volume for pod in pods for volume in _attached(cluster, pod)}
    new = _attached(cluster, cluster["preemptor"]) - attached
    for csi_node in cluster.get("csiNodes", ()):
        if csi_node["metadata"]["name"] != node["metadata"]["name"]:
            continue
        for driver in csi_node["spec"]["drivers"]:
            there, coming = (sum(one[0] == driver["name"] for one in some) for some in (attached, new))
            if coming and "allocatable" in driver and there + coming > driver["allocatable"]["count"]:
                return True
    return False


def binding_failures(cluster: Json, node: Json) -> list[str]:
    """What fails on a node: the binder's reasons together, then the zone."""
    pod, labels = cluster["preemptor"], node["metadata"]["labels"]
    mine = _claims(cluster, pod)
    reasons = []
    for claim in mine:
        volume = _volume(cluster, claim["spec"]["volumeName"]) if _bound(claim) else None
        if volume == {}:
            reasons.append("node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)")
            break
        if volume and not _reaches(volume, labels):
            reasons.append("node(s) didn't match PersistentVolume's node affinity")
            break
    if not _bindable(cluster, [claim for claim in mine if not _bound(claim)], node):
        reasons.append("node(s) didn't find available persistent volumes to bind")
    if reasons:
        return [", ".join(reasons)]
    for name in named_claims(pod):
        claim = _claim(cluster, name)
        zones = _volume(cluster, claim["spec"]["volumeName"])["metadata"]["labels"].get(ZONE) if _bound(claim) else None
        named = [zone.strip() for zone in zones.split("__")] if zones is not None else [""]
        if "" not in named and labels.keys() & ZONED and labels.get(ZONE) not in named:
            return ["node(s) had no available volume zone"]
    return []


def _bindable(cluster: Json, waiting: list[Json], node: Json) -> bool:
    taken: list[str] = []
    for claim in sorted(waiting, key=_size):
        chosen = None
        if SELECTED not in claim["metadata"].get("annotations", {}):
            chosen = _chosen(cluster, claim, node, taken)
        if chosen is not None:
            taken.append(chosen["metadata"]["name"])
        elif not _provisionable(cluster, claim, node):
            return False
    return True


def _chosen(cluster: Json, claim: Json, node: Json, taken: list[str]) -> Json | None:
    """The volume that the claim would be bound to on the node."""
    best = None
    for volume in sorted(cluster["persistentVolumes"], key=lambda one: one["metadata"]["name"]):
        spec, holder = volume["spec"], volume["spec"].get("claimRef")
        unlike = [
            volume["metadata"]["name"] in taken,
            _class_name(volume) != _class_name(claim),
            _size(volume) < _size(claim),
            spec.get("volumeAttributesClassName") != claim["spec"].get("volumeAttributesClassName"),
            holder and (holder["namespace"], holder["name"]) != (claim["metadata"]["namespace"], _name(claim)),
            holder and holder.get("uid", claim["metadata"]["uid"]) != claim["metadata"]["uid"],
        ]
        if any(unlike):
            continue
        reached = _reaches(volume, node["metadata"]["labels"])
        if holder:
            return volume if reached else None
        suits = volume["status"]["phase"] == "Available" and set(claim["spec"]["accessModes"]) <= set(
            spec["accessModes"]
        )
        if "selector" in claim["spec"]:
            suits = suits and selects(claim["spec"]["selector"], volume["metadata"]["labels"])
        if suits and reached and (best is None or _size(volume) < _size(best)):
            best = volume
    return best


def _provisionable(cluster: Json, claim: Json, node: Json) -> bool:
    storage_class = _class(cluster, claim)
    selected = claim["metadata"].get("annotations", {}).get(SELECTED, node["metadata"]["name"])
    if storage_class["provisioner"] == "kubernetes.io/no-provisioner" or selected != node["metadata"]["name"]:
        return False
    labels, terms = node["metadata"]["labels"], storage_class.get("allowedTopologies", ())
    return not terms or any(
        all(labels.get(row["key"]) in row["values"] for row in term["matchLabelExpressions"]) for term in terms
    )


def _attached(cluster: Json, pod: Json) -> set[tuple[str, str]]:
    """(driver, handle) of the pod's volumes that a CSI driver attaches."""
    found = set()
    for volume in _volumes(pod):
        claim = _claim(cluster, _key(pod, volume))
        bound_to = _volume(cluster, claim["spec"].get("volumeName", "")) if claim else {}
        if "csi" in bound_to.get("spec", {}):
            found.add((bound_to["spec"]["csi"]["driver"], bound_to["spec"]["csi"]["volumeHandle"]))
        elif "awsElasticBlockStore" in bound_to.get("spec", {}):
            found.add(("ebs.csi.aws.com", bound_to["spec"]["awsElasticBlockStore"]["volumeID"].split("/")[-1]))
        elif claim and not bound_to and _class(cluster, claim):
            found.add((_class(cluster, claim)["provisioner"], f"to be made for {_key(pod, volume)}"))
    return found


def _volumes(pod: Json) -> list[Json]:
    return [one for one in pod["spec"].get("volumes", ()) if "persistentVolumeClaim" in one or "ephemeral" in one]


def _key(pod: Json, volume: Json) -> str:
    made = f"{_name(pod)}-{volume['name']}"
    return f"{pod['metadata']['namespace']}/{volume.get('persistentVolumeClaim', {}).get('claimName', made)}"


def _claims(cluster: Json, pod: Json) -> list[Json]:
    return [_claim(cluster, _key(pod, volume)) for volume in _volumes(pod)]


def _name(obj: Json) -> str:
    name: str = obj["metadata"]["name"]
    return name


def _class_name(obj: Json) -> str:
    of_old = obj["metadata"].get("annotations", {}).get(BETA_CLASS)
    return of_old or obj["spec"].get("storageClassName", "")


def _size(obj: Json) -> Any:
    spec = obj["spec"]
    return number(spec["capacity"]["storage"] if "capacity" in spec else spec["resources"]["requests"]["storage"])


def _reaches(volume: Json, labels: Json) -> bool:
    affinity = volume["spec"].get("nodeAffinity")
    terms = affinity["required"]["nodeSelectorTerms"] if affinity else [{"matchFields": "anything"}]
    return any(
        term and all(requirement_holds(row, labels) for row in term.get("matchExpressions", ())) for term in terms
    )


def _bound(claim: Json) -> bool:
    is_complete = "pv.kubernetes.io/bind-completed" in claim["metadata"].get("annotations", {})
    return is_complete and "volumeName" in claim["spec"]


def _claim(cluster: Json, name: str) -> Json:
    return next((claim for claim in cluster.get("persistentVolumeClaims", ()) if key(claim) == name), {})


def _volume(cluster: Json, name: str) -> Json:
    return next((volume for volume in cluster["persistentVolumes"] if _name(volume) == name), {})


def _class(cluster: Json, claim: Json) -> Json:
    return next((one for one in cluster["storageClasses"] if _name(one) == _class_name(claim)), {})
