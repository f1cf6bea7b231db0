"""The table of what checks say, against the checks that say it."""

import ast
import fnmatch
import re
import tomllib
from pathlib import Path
from string import Formatter

from webhook.inspection import checks


def calls_of_finding():
    """Every call of `finding` in the checks: its keys, with `*` for what is chosen, and what it gives for the texts."""
    for path in sorted(Path(checks.__file__).parent.parent.rglob("*.py")):
        for call in ast.walk(ast.parse(path.read_text())):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "finding":
                key, given = call.args[0], {keyword.arg for keyword in call.keywords}
                parts = key.values if isinstance(key, ast.JoinedStr) else [key]
                text = "".join(part.value if isinstance(part, ast.Constant) else "*" for part in parts)
                yield f"{path.name}:{call.lineno}", text, given


def test_texts_and_checks_fit():
    """Each text of the table is said by a check, which gives what the text names; each check says texts that exist."""
    table = tomllib.loads((Path(checks.__file__).parent / "findings.toml").read_text())
    shared = table.pop("sentences").keys()
    texts = {f"{check}.{name}": row for check, rows in table.items() for name, row in rows.items()}
    said = set()
    for where, pattern, given in calls_of_finding():
        keys = fnmatch.filter(texts, pattern)
        assert keys, f"{where}: no text is called {pattern}"
        said |= set(keys)
        for key in keys:
            named = {
                field
                for part in ("what", "why", "fix")
                for _, field, *_ in Formatter().parse(texts[key][part])
                if field
            }
            named = {re.split(r"[.\[]", field)[0] for field in named} - shared
            assert None in given or named <= given, f"{where}: {key} names {named - given}"
            assert "severity" in texts[key] or {"severity", None} & given, f"{where}: {key} has no severity"
    assert said == texts.keys()
