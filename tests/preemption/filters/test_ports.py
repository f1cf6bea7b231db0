"""Taken host ports: how many distinct ones there are, on one node or on many, changes no decision."""

import pytest

from tests.preemption import oracle
from tests.preemption.building import answer, cluster, node, pod


def holding(name, *ports, on="", priority=0):
    """A pod that takes these ports: numbers on every address, or pairs of address and number."""
    made = pod(name, on=on, cpu="100m", priority=priority)
    pairs = [port if isinstance(port, tuple) else ("", port) for port in ports]
    made["spec"]["containers"][0]["ports"] = [
        {"containerPort": number, "hostPort": number} | ({"hostIP": address} if address else {})
        for address, number in pairs
    ]
    return made


def own_address(number):
    return f"10.0.{number // 200}.{number % 200}"


@pytest.mark.parametrize("count", [62, 63, 64, 70, 200])
def test_a_port_on_every_nodes_own_address(count):
    """Each node's pod holds port 80 on the node's address; on the last a higher pod holds it on a second one."""
    nodes = [node(f"n{number}") for number in range(count)]
    pods = [holding(f"v{number}", (own_address(number), 80), on=f"n{number}") for number in range(count)]
    pods.append(holding("high", ("192.168.0.1", 80), on=f"n{count - 1}", priority=200))
    data = cluster(nodes, pods, holding("preemptor", 80, priority=100))
    found = answer(data)
    assert [one["node"] for one in found["candidates"]] == sorted(f"n{number}" for number in range(count - 1))
    assert found == oracle.decide(data)


@pytest.mark.parametrize("count", [62, 63, 64, 130])
def test_many_ports_on_one_node(count):
    """A preemptor that wants many ports needs every pod gone that holds one of them, and no other."""
    pods = [holding(f"v{port}", port, on="n1", priority=port % 3) for port in range(1, 2 * count)]
    kept = [holding(f"w{port}", port, on="n2", priority=200 if port == count else 0) for port in range(1, count + 1)]
    nodes = [node("n1", "400", pods="900"), node("n2", "400", pods="900")]
    data = cluster(nodes, pods + kept, holding("preemptor", *range(1, count + 1), priority=100))
    found = answer(data)
    assert [(one["node"], len(one["victims"])) for one in found["candidates"]] == [("n1", count)]
    assert found == oracle.decide(data)


def test_a_nominated_pod_reserves_its_port_beyond_the_first_word_too():
    """A port that a nominated pod of higher priority will take is taken, whatever its number among the others."""
    pods = [holding(f"v{number}", (own_address(number), 80), on=f"n{number}") for number in range(100)]
    waiting = holding("waiting", ("172.16.0.1", 80), priority=300)
    waiting["status"]["nominatedNodeName"] = "n99"
    data = cluster([node(f"n{number}") for number in range(100)], [*pods, waiting], holding("p", 80, priority=100))
    found = answer(data)
    assert "n99" not in [one["node"] for one in found["candidates"]]
    assert len(found["candidates"]) == 99
    assert found == oracle.decide(data)
