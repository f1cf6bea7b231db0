"""The JSON schema and its page: what is committed is what the model says, and it says the same as the loader."""

import json
import re
from pathlib import Path

import msgspec
import pytest
from ruamel.yaml import YAML

from tests.policy.builders import mappings, table
from webhook.policy.files.schema import DOCUMENTS, json_schema, markdown
from webhook.policy.shapes.yaml_nodes import duration, seconds

POLICIES = Path(__file__).parents[3] / "policies"
FILES = sorted(path for path in POLICIES.rglob("*.yaml") if path.parent.name not in ("tests", "cluster"))
SCHEMA = json_schema()
PAGE = markdown()


MAPPINGS = mappings(*DOCUMENTS.values())


def conforms(value, schema):
    """Whether a value conforms, for the keywords of draft 7 that the schema uses; an unknown keyword fails."""
    known = {"description", "markdownDescription", "default", "examples", "title", "$schema", "$id", "definitions"}
    checks = {
        "$ref": lambda of: conforms(value, SCHEMA["definitions"][of.rpartition("/")[2]]),
        "allOf": lambda of: all(conforms(value, part) for part in of),
        "anyOf": lambda of: any(conforms(value, part) for part in of),
        "oneOf": lambda of: sum(conforms(value, part) for part in of) == 1,
        "if": lambda of: not conforms(value, of) or conforms(value, schema["then"]),
        "then": lambda _of: True,
        "const": lambda of: value == of,
        "enum": lambda of: value in of,
        "type": lambda of: isinstance(
            value, {"object": dict, "array": list, "string": str, "integer": int, "boolean": bool}[of]
        ),
        "required": lambda of: all(name in value for name in of),
        "properties": lambda of: all(conforms(value[name], of[name]) for name in of if name in value),
        "additionalProperties": lambda of: all(
            of is not False and conforms(part, of)
            for name, part in value.items()
            if name not in schema.get("properties", ())
        ),
        "items": lambda of: all(conforms(part, of) for part in value),
        "minItems": lambda of: len(value) >= of,
        "minLength": lambda of: not isinstance(value, str) or len(value) >= of,
        "maxLength": lambda of: len(value) <= of,
        "minimum": lambda of: value >= of,
        "maximum": lambda of: value <= of,
        "pattern": lambda of: not isinstance(value, str) or re.search(of, value) is not None,
    }
    if "type" in schema and not checks["type"](schema["type"]):
        return False
    return all(checks[name](of) for name, of in schema.items() if name not in known)


def read(path):
    """The documents of a file."""
    return list(YAML(typ="safe", pure=True).load_all(path.read_text()))


def test_the_committed_schema_is_current():
    """`giveway schema > policies/schema.json` changes nothing."""
    assert json.loads((POLICIES / "schema.json").read_text()) == SCHEMA


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(POLICIES)))
def test_shipped_policies_conform(path):
    """An editor that checks by the schema finds nothing wrong with what is shipped."""
    assert all(conforms(document, SCHEMA) for document in read(path))


@table(
    "change",
    {
        "kind": lambda doc: doc.update(kind="Other"),
        "unknown field": lambda doc: doc["spec"].update(enforcment="warn"),
        "unknown value": lambda doc: doc["spec"].update(enforcement="Warn"),
        "required field": lambda doc: doc["spec"].pop("rules"),
        "two bodies": lambda doc: doc["spec"]["rules"][0].update(defaultPriorityClass="a"),
        "text for a number": lambda doc: doc["spec"]["rules"][0]["reserve"].update(to="9"),
        "name": lambda doc: doc["metadata"].update(name="A B"),
    },
)
def test_mistakes_do_not_conform(change):
    """What the loader refuses by its fields, the schema refuses as well."""
    (document,) = read(POLICIES / "priorities.yaml")
    assert conforms(document, SCHEMA)
    change(document)
    assert not conforms(document, SCHEMA)


def test_every_field_is_described():
    """Editors have something to show for every field, and no object takes unknown ones."""
    found = SCHEMA["definitions"].values()
    assert len(found) > 20
    for one in found:
        assert one["additionalProperties"] is False
        assert all(field["description"] for field in one["properties"].values())


@pytest.mark.parametrize("shape", MAPPINGS.values(), ids=MAPPINGS)
def test_every_field_of_the_model_stands_in_the_file(shape):
    """No field is forgotten: the place is known, names of policies are metadata, a right is for any operation."""
    left_out = {
        "PriorityPolicy spec": {"name"},
        "PreemptionPolicy spec": {"name"},
        "rule": {"policy"},
        "match": {"names"},
        "right": {"names", "operations"},
    }
    fields = set(shape.model.__struct_fields__) - {"source"} - left_out.get(shape.title, set())
    assert {field.attribute for field in shape.fields} == fields


def test_every_check_is_of_a_mapping():
    """No check between fields is attached to something that is never read from a file."""
    of_the_model = [one for one in msgspec.Struct.__subclasses__() if one.__module__.startswith("webhook.policy.model")]
    assert {one for one in of_the_model if hasattr(one, "check")} <= {one.model for one in MAPPINGS.values()}


@pytest.mark.parametrize("text", ["0s", "500ms", "30s", "1m", "1m30s", "1h", "2h5s", "87600h"])
def test_durations_are_written_as_they_are_read(text):
    """The schema shows a default in seconds as a person would write it, and the loader reads the same of it."""
    assert duration(seconds(text)) == text


def test_the_committed_page_is_current():
    """`make schema` writes the page; whoever changes a field without it hears of it here."""
    assert (Path(__file__).parents[3] / "docs" / "policy-reference.md").read_text() == PAGE
