"""docs/security.md says what the token of each service account may: exactly what the shipped roles give it."""

import re

import pytest

from tests.manifests.objects import COMPONENTS, ROOT
from tests.manifests.rendering import rendered

PAGE = (ROOT / "docs" / "security.md").read_text()
SHIPPED = [rendered(), *(rendered(path.parent.name) for path in sorted(COMPONENTS.glob("*/kustomization.yaml")))]


def rules(account):
    """The rules of an account, cluster-wide ones first, each with where it holds, as whoever gives it most has them."""
    of_all = [
        [
            (rule, " in its namespace" if kind == "Role" else "")
            for (_, kind, _, name), obj in sorted(objects.items())
            if kind in ("ClusterRole", "Role") and name == account
            for rule in obj["rules"]
        ]
        for objects in SHIPPED
    ]
    return max(of_all, key=len)


def in_words(rule, where):
    names = rule.get("resourceNames", ())
    named = f" `{'`, `'.join(names)}`" if 0 < len(names) < 3 else f" ({len(names)} by name)" if names else ""
    return f"{', '.join(rule['verbs'])} {', '.join(rule['resources'])}{named}{where}"


@pytest.mark.parametrize(
    "account", sorted({key[3] for objects in SHIPPED for key in objects if key[1] == "ServiceAccount"})
)
def test_the_page_says_what_a_token_may(account):
    """The row of each account lists its rights, no more and no fewer, and what they are worth; none creates Secrets.

    Whoever creates Secrets can have the tokens of other service accounts put into one.
    """
    row = re.search(rf"^\| `{account}` \| (.+?) \| (.+) \|$", PAGE, re.MULTILINE)
    assert row is not None, f"docs/security.md says nothing of {account}"
    assert row[1] == "; ".join(in_words(*each) for each in rules(account))
    assert len(row[2]) > 40
    for rule, _ in rules(account):
        assert not ({"secrets", "*"} & set(rule["resources"]) and {"create", "*"} & set(rule["verbs"]))
