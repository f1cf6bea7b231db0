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
