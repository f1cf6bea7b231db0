"""docs/security.md says what the token of each service account may: exactly what the shipped roles give it."""

import re

import pytest

from tests.manifests.objects import ROOT, documents

MANIFESTS = ROOT / "manifests"
PAGE = (ROOT / "docs" / "security.md").read_text()


def shipped():
    """Every object of the base and of all components, patches left aside."""
    for path in sorted((MANIFESTS / "base").glob("*.yaml")) + sorted((MANIFESTS / "components").glob("*/*.yaml")):
        if path.name != "kustomization.yaml":
            yield from documents(path)


def accounts():
    return sorted(one["metadata"]["name"] for one in shipped() if one["kind"] == "ServiceAccount")


def stated(account):
    """The rights of an account in words: verbs, resources, names; cluster-wide ones first."""
    objects = list(shipped())
    words = []
    for kind, where in (("ClusterRole", ""), ("Role", " in its namespace")):
        bound = [
            one["roleRef"]["name"]
            for one in objects
            if one["kind"] == f"{kind}Binding"
            and any((row.get("kind"), row["name"]) == ("ServiceAccount", account) for row in one["subjects"])
        ]
        for role in (one for one in objects if one["kind"] == kind and one["metadata"]["name"] in bound):
            for rule in role["rules"]:
                names = rule.get("resourceNames", ())
                named = (
                    f" `{'`, `'.join(names)}`" if 0 < len(names) < 3 else f" ({len(names)} by name)" if names else ""
                )
                words.append(f"{', '.join(rule['verbs'])} {', '.join(rule['resources'])}{named}{where}")
    return "; ".join(words)


@pytest.mark.parametrize("account", accounts())
def test_the_page_says_what_a_token_may(account):
    """The row of each account lists its rights, no more and no fewer, and what they are worth."""
    row = re.search(rf"^\| `{account}` \| (.+?) \| (.+) \|$", PAGE, re.MULTILINE)
    assert row is not None, f"docs/security.md says nothing of {account}"
    assert row[1] == stated(account)
    assert len(row[2]) > 40


def test_no_account_creates_secrets():
    """Whoever creates Secrets can have the tokens of other service accounts put into one."""
    for role in (one for one in shipped() if one["kind"] in ("Role", "ClusterRole")):
        for rule in role["rules"]:
            assert not ({"secrets", "*"} & set(rule["resources"]) and {"create", "*"} & set(rule["verbs"]))
