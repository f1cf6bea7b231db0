"""Whether claims can be had on a node, the slow way: every choice of devices is tried, and each is checked afresh.

Nothing of `webhook` is used. Selectors are `(attribute, value)` pairs, which the caller writes as CEL for the other
side. Amounts are whole numbers.
"""

from itertools import combinations, product


def allocations(devices, claims, taken):
    """All allocations of the claims: lists of (claim, request, device) in their order."""
    choices = [
        [(request, alternative) for alternative in (request["alternatives"])]
        for claim in claims
        for request in claim["requests"]
    ]
    places = [(claim["name"], request["name"]) for claim in claims for request in claim["requests"]]
    for picked in product(*choices):
        options = []
        for _, wanted in picked:
            matching = [name for name, device in devices.items() if matches(device, wanted)]
            if wanted["mode"] == "All":
                options.append([tuple(matching)] if matching else [])
            else:
                options.append(list(combinations(matching, wanted["count"])))
        for sets in product(*options):
            found = [
                (claim, request, wanted, name)
                for (claim, request), (_, wanted), names in zip(places, picked, sets, strict=True)
                for name in names
            ]
            if is_allowed(devices, claims, taken, found):
                yield found


def matches(device, wanted):
    """Whether the device is selected and can be had; `All` wants tainted devices, too, and cannot have them."""
    if any(device["attributes"].get(name) != value for name, value in wanted["selects"]):
        return False
    return wanted["mode"] == "All" or tolerated(device, wanted)


def tolerated(device, wanted):
    return all(taint in wanted["tolerates"] for taint in device["taints"])


def is_allowed(devices, claims, taken, found):
    """Whether nobody has two things at once: devices, counters, capacity; and what the claims say of them holds."""
    exclusive, used = set(taken["devices"]), dict(taken["capacity"])
    counters = dict(taken["counters"])
    own = {}
    for claim, _, wanted, name in found:
        device = devices[name]
        if not tolerated(device, wanted):
            return False
        if wanted["admin"]:
            # Whoever has it already may go on; but a claim gets it once, and the pod has it from here on
            if claim in own.get(name, ()):
                return False
            own.setdefault(name, set()).add(claim)
            continue
        if device["shared"]:
            first = used.get(name, 0) == 0
            used[name] = used.get(name, 0) + wanted["capacity"]
            if used[name] > device["capacity"] or wanted["capacity"] == 0:
                return False
            if not first:
                continue
        else:
            if name in exclusive or own.get(name):
                return False
            own.setdefault(name, set()).add(claim)
        counters["c"] = counters.get("c", 0) - device["consumes"]
    if any(amount < 0 for amount in counters.values()):
        return False
    return all(constraint_holds(devices, claim, found) for claim in claims)


def constraint_holds(devices, claim, found):
    for kind, attribute in claim["constraints"]:
        values = [devices[name]["attributes"].get(attribute) for one, _, _, name in found if one == claim["name"]]
        if None in values:
            return False
        if kind == "match" and len(set(values)) > 1:
            return False
        if kind == "distinct" and len(set(values)) < len(values):
            return False
    return True
