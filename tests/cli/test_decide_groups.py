"""`giveway decide` and `giveway explain` on groups that go whole: who goes together, and from which nodes."""

import json

import pytest
from click.testing import CliRunner

from tests.preemption.building import cluster, node, pod
from tests.reconciler.builders import Setting, policy, preemptor
from tests.reconciler.builders import node as watched_node
from tests.reconciler.builders import pod as watched_pod
from webhook.cli.explain_show import show
from webhook.cli.main import main
from webhook.policy.model.preemption import GroupDisruption, Groups
from webhook.policy.model.values import DECISION
from webhook.reconciler.state.annotations import DecidedVictim, DecisionRecord, encode

POLICY = """\
apiVersion: giveway.dev/v1alpha1
kind: PreemptionPolicy
metadata: {name: gold}
spec:
  preemptors: {priorityClasses: [gold]}
  victims: {mode: opt-out}
  groups: {disruption: Group}
"""
MEMBER = {"schedulingGroup": {"podGroupName": "train"}}
TRAIN = {"jobset.sigs.k8s.io/jobset-name": "train"}


@pytest.fixture(autouse=True)
def _wide(monkeypatch):
    """Nothing is folded."""
    monkeypatch.setenv("COLUMNS", "250")


def two_nodes(*pods):
    """A preemptor that needs most of n1, with these pods."""
    return cluster(
        [node("n1"), node("n2")],
        pods,
        pod("preemptor", priority=100, cpu="3", priorityClassName="gold", preemptionPolicy="Never"),
    )


WHOLE = two_nodes(
    pod("a", on="n1", cpu="3", **MEMBER),
    pod("b", on="n2", cpu="1", **MEMBER),
    pod("kept", on="n2", cpu="3", priority=500),
)
ALONE = two_nodes(pod("a", on="n1", cpu="3"), pod("kept", on="n2", cpu="4", priority=500))


def decided(tmp_path, line, *options):
    """What the command prints about one cluster."""
    (tmp_path / "policy.yaml").write_text(POLICY)
    arguments = ["decide", "--policies", str(tmp_path), *options]
    return CliRunner().invoke(main, arguments, input=json.dumps(line), catch_exceptions=False).stdout


def test_an_answer_names_the_groups_that_go(tmp_path):
    """Each with its pods and their nodes; an answer about pods that go by themselves is as it was."""
    (candidate,) = json.loads(decided(tmp_path, WHOLE))["candidates"]
    assert candidate == {
        "node": "n1",
        "victims": ["default/a", "default/b"],
        "pdbViolations": 0,
        "groups": {"PodGroup default/train": {"default/a": "n1", "default/b": "n2"}},
    }
    (candidate,) = json.loads(decided(tmp_path, ALONE))["candidates"]
    assert candidate.keys() == {"node", "victims", "pdbViolations"}


@pytest.mark.parametrize(
    ("line", "row", "said"),
    [
        pytest.param(
            WHOLE,
            "default/b 0 n2 PodGroup default/train",
            "Plan: evict 2 pods for room on n1, the best of 1 candidate among 2 nodes.",
            id="a group on two nodes",
        ),
        pytest.param(
            two_nodes(pod("a", on="n1", cpu="3", **MEMBER), pod("kept", on="n2", cpu="4", priority=500)),
            "default/a 0 n1 PodGroup default/train",
            "Plan: evict 1 pod for room on n1, the best of 1 candidate among 2 nodes.",
            id="a group on the node",
        ),
        pytest.param(
            ALONE,
            "default/a 0 n1",
            "Plan: evict 1 pod for room on n1, the best of 1 candidate among 2 nodes.",
            id="a pod by itself",
        ),
    ],
)
def test_people_read_who_goes_together(tmp_path, line, row, said):
    """Where each victim is, and with which group it goes."""
    lines = [" ".join(text.replace("│", " ").split()) for text in decided(tmp_path, line, "--explain").splitlines()]
    assert said in lines
    assert any(text.startswith(row) for text in lines)
    in_groups = [text for text in lines if ", with all of PodGroup default/train" in text]
    assert bool(in_groups) is ("PodGroup" in row), "also among those who would have to go, node by node"


def test_what_would_be_done_now_names_the_groups(capsys):
    """And so does what is said of the last decision."""
    setting = Setting(
        watched_node("n1"), watched_node("n2"), under=policy(groups=Groups(disruption=GroupDisruption.GROUP))
    )
    setting.add(watched_pod("a", "6", node="n1", labels=TRAIN), watched_pod("b", "1", node="n2", labels=TRAIN))
    setting.add(watched_pod("kept", "7", node="n2", priority=1000))
    asks = preemptor("p", "5")
    victims = (
        DecidedVictim(pod="default/a", priority=80, group="JobSet default/train"),
        DecidedVictim(pod="default/c", priority=80),
    )
    record = DecisionRecord(plan="x", at="2027-01-15T08:00:00Z", node="n1", policy="test", attempt=1, victims=victims)
    asks.metadata.annotations = {DECISION: encode(record)}
    setting.add(asks)
    show(asks, setting.state, setting.policy_set)
    text = " ".join(capsys.readouterr().out.split())
    assert (
        "default/p to n1 would be nominated, and default/a, default/b evicted, with all of JobSet default/train."
        in text
    )
    assert "to evict default/a, default/c, with all of JobSet default/train (attempt 1)." in text
