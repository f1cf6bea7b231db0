"""Mappings derived from the structs of the model."""

from typing import Annotated

import msgspec
import pytest

from webhook.policy.files.schema import described
from webhook.policy.shapes.object_shape import FILLED, MAY_BE_ABSENT, REQUIRED, Choice, mapping, shape_of
from webhook.policy.shapes.shapes import BOOLEAN, ListOf, string

TEXT = string()


class Way(Choice, what="a way"):
    """How."""

    ONE = "one", "the first"


@mapping("part")
class Part(msgspec.Struct, frozen=True):
    """A part. More about it."""

    on: Annotated[bool, "Whether it is on."] = False
    way: Annotated[Way, "How."] = Way.ONE


@mapping("whole", alternatives=True)
class Whole(msgspec.Struct, frozen=True, kw_only=True):
    """The whole.

    Of interest to developers only.
    """

    from_: Annotated[str, TEXT, "Where it begins."]
    until: Annotated[str, TEXT, MAY_BE_ABSENT, "Where it ends."]
    some_parts: Annotated[tuple[Part, ...], FILLED, REQUIRED, "Its parts."] = ()
    only_part: Annotated[Part | None, "Its part."] = None
    inside: int = 0


def test_a_struct_says_all():
    """Names, whether a field is required, its default and its shape follow from the struct; the rest stays inside."""
    shape, part = shape_of(Whole), shape_of(Part)
    assert (shape.title, shape.doc, shape.alternatives) == ("whole", "The whole.", ("onlyPart",))
    assert [(one.name, one.attribute, one.required, one.shape) for one in shape.fields] == [
        ("from", "from_", True, TEXT),
        ("until", "until", False, TEXT),
        ("someParts", "some_parts", True, ListOf(part, least=1)),
        ("onlyPart", "only_part", False, part),
    ]
    assert (part.fields[0].shape, part.fields[0].default) == (BOOLEAN, False)
    definitions = {}
    described(part, definitions)
    way = definitions["Part"]["properties"]["way"]
    assert (way["enum"], way["default"]) == (["one"], "one")
    assert way["markdownDescription"] == "How.\n\n- `one`: the first"


@pytest.mark.parametrize("kind", [str, float | None, dict[str, Part], tuple[int, ...]], ids=str)
def test_a_type_that_does_not_say_enough_is_refused(kind):
    """Any text, or seconds as a number, are never meant: the field names a shape, or the model cannot be imported."""
    model = msgspec.defstruct("Model", [("field", Annotated[kind, "A field."])])
    with pytest.raises(TypeError, match="name a shape in its annotation"):
        mapping("model")(model)
