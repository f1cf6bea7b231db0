"""Pods that are tried by dry run once native policies are in force: where, and what is found."""

from typing import Any

import pytest

from tests.cases import cases
from tests.policy.builders import engine, namespace, rules
from webhook.installation.modes import try_pods
from webhook.kube.errors import ApiError
from webhook.kube.objects.cluster_scoped import Namespace

ALLOWED = "{name: allowed, priorityClasses: {allow: [standard]}}"
NEVER = '{name: never, validate: {expression: "false", message: no pods here}}'
SPACES = [namespace(name) for name in ("kube-system", "giveway-system", "team-a", "team-b", "sandbox")]
SPACES.append(namespace("exempt", **{"giveway.dev/exempt": ""}))
FAILS = (
    "pods \"giveway-trial\" is forbidden: ValidatingAdmissionPolicy 'giveway-p-pods-enforce' with binding"
    " 'giveway-p-pods-enforce' denied request: expression 'namespaceObject.metadata' resulted in error: no such key"
)


class Api:
    """The API server: its namespaces, and what it says of pods by namespace; it takes those that it says nothing of."""

    def __init__(self, **said: str) -> None:
        self.said, self.tried = said, list[str]()

    async def list(self, path: str, as_: Any, **_: Any) -> tuple[list[Any], str]:
        return (SPACES if as_ is Namespace else []), "1"

    async def create(self, path: str, body: Any, **query: Any) -> Any:
        if body["kind"] == "SelfSubjectReview":
            return {"status": {"userInfo": {"username": "admin", "groups": ["system:masters"]}}}
        assert query == {"dryRun": "All"}
        name = body["metadata"]["namespace"].replace("-", "_")
        self.tried.append(body["metadata"]["namespace"])
        if name in self.said:
            raise ApiError(403, "Forbidden", self.said[name])
        return body


def policies(*rows: str, **parts: str) -> Any:
    return engine(rules(*rows, **parts)).policies


async def test_a_pod_is_tried_where_policies_match_and_where_they_do_not():
    """Once for each way in which they apply; never where giveway judges nothing."""
    api = Api()
    found = await try_pods(api, policies(ALLOWED, match="{namespaces: [team-*]}", exclude="{namespaces: [team-b]}"))
    assert sorted(api.tried) == ["sandbox", "team-a", "team-b"]
    assert found == (["team-a", "team-b", "sandbox"], {})


@pytest.mark.parametrize(
    ("rule", "said", "problem"),
    cases(
        ("it fails", ALLOWED, FAILS, "a pod is refused, and the policies say nothing against it"),
        ("it never holds", NEVER, None, "a pod is let in, and the policies say: no pods here"),
        ("both refuse", NEVER, FAILS.replace("expression", "no pods here"), ""),
        ("both let it in", ALLOWED, None, ""),
    ),
)
async def test_what_the_api_server_says_is_held_against_the_policies(rule, said, problem):
    """A policy that refuses every pod is found, and one that refuses none."""
    api = Api(**({"team_a": said} if said else {}))
    found = await try_pods(api, policies(rule, match="{namespaces: [team-a]}", exclude="{namespaces: [x]}"), 0.0)
    assert "team-a" in found.tried
    assert problem in found.problems.get("team-a", "")
    assert bool(found.problems) == bool(problem)


async def test_what_others_refuse_tells_nothing():
    """A quota or another webhook."""
    found = await try_pods(
        Api(**dict.fromkeys(("team_a", "team_b", "sandbox"), "exceeded quota: pods")), policies(ALLOWED), 0.0
    )
    assert found == ([], {})
