"""Devices that are published, and claims on them."""

import msgspec

from webhook.kube.objects.devices import DeviceClass, ResourceClaim, ResourceSlice

DRIVER = "d.example.com"


def device_class(name, *expressions):
    """The class of the devices that these select."""
    selectors = [{"cel": {"expression": expression}} for expression in expressions]
    return msgspec.convert({"metadata": {"name": name}, "spec": {"selectors": selectors}}, DeviceClass)


def resource_slice(name, host, devices=(), *, pool="", generation=1, slices=1, **spec):
    """What a node has; its pool is called like the node if nothing else is said, and has so many slices."""
    pool = {"name": pool or host, "generation": generation, "resourceSliceCount": slices}
    spec |= {"driver": DRIVER, "nodeName": host, "pool": pool, "devices": list(devices)}
    return msgspec.convert({"metadata": {"name": name}, "spec": spec}, ResourceSlice)


def texts(**attributes):
    """Attributes of a device that are texts."""
    return {name: {"string": value} for name, value in attributes.items()}


def count_of(kind, count):
    """A request for so many devices of a class, called like it."""
    return {"name": kind, "exactly": {"deviceClassName": kind, "count": count}}


def claim(name, requests=(), *, constraints=(), pool="", held=(), users=(), finalizer=True):
    """A claim that wants this, or holds devices of a pool, for pods that use it."""
    meta = {"name": name, "namespace": "default", "uid": f"uid-{name}"}
    meta |= {"finalizers": ["resource.kubernetes.io/delete-protection"]} if finalizer else {}
    results = [{"request": "r", "driver": DRIVER, "pool": pool, "device": device} for device in held]
    reserved = [{"resource": "pods", "name": user, "uid": f"uid-{user}"} for user in users]
    status = {"allocation": {"devices": {"results": results}}, "reservedFor": reserved} if held else {}
    spec = {"devices": {"requests": list(requests), "constraints": list(constraints)}}
    return msgspec.convert({"metadata": meta, "spec": spec, "status": status}, ResourceClaim)


def device(**more):
    """A device as the oracle has it: nothing is special about it but what is told."""
    return {"attributes": {}, "taints": [], "shared": False, "capacity": 0, "consumes": 0} | more


def wanted(**more):
    """What one alternative of a request wants, as the oracle has it: one device of any kind if nothing is told."""
    plain = {"mode": "ExactCount", "count": 1, "selects": [], "tolerates": [], "admin": False, "capacity": 0}
    return plain | more


def published(name, known):
    """The oracle's device as a slice has it."""
    made = {"name": name, "attributes": texts(**known["attributes"])}
    made |= {"taints": known["taints"]} if known["taints"] else {}
    if known["shared"]:
        made |= {"allowMultipleAllocations": True, "capacity": {"memory": {"value": str(known["capacity"])}}}
    if known["consumes"]:
        made["consumesCounters"] = [{"counterSet": "set", "counters": {"c": {"value": str(known["consumes"])}}}]
    return made


def demanded(demand, kind, *, shared=False):
    """The requests and constraints of the oracle's claim, for devices of a class; of shared ones it takes capacity."""

    def written(one):
        made = {"deviceClassName": kind, "allocationMode": one["mode"], "adminAccess": one["admin"]}
        made |= {"count": one["count"]} if one["mode"] == "ExactCount" else {}
        chosen = [f'device.attributes["{DRIVER}"].{name} == "{value}"' for name, value in one["selects"]]
        made["selectors"] = [{"cel": {"expression": expression}} for expression in chosen]
        made["tolerations"] = [{"operator": "Equal", **taint} for taint in one["tolerates"]]
        return made | ({"capacity": {"requests": {"memory": str(one["capacity"])}}} if shared else {})

    requests = []
    for request in demand["requests"]:
        made = [written(one) for one in request["alternatives"]]
        several = [{"name": f"s{number}", **one} for number, one in enumerate(made)]
        requests.append({"name": request["name"]} | ({"firstAvailable": several} if made[1:] else {"exactly": made[0]}))
    constraints = [{f"{kind}Attribute": f"{DRIVER}/{attribute}"} for kind, attribute in demand["constraints"]]
    return {"requests": requests, "constraints": constraints}
