"""Mappings derived from the structs of the model."""

from typing import Annotated

import msgspec
import pytest

from webhook.policy.shapes.object_shape import Field, mapping, shape_of
from webhook.policy.shapes.shapes import Flag, ListOf, Text


@mapping("part")
class Part(msgspec.Struct, frozen=True):
    """A part. More about it."""

    on: Annotated[bool, Field("Whether it is on.")] = False


@mapping("whole")
class Whole(msgspec.Struct, frozen=True, kw_only=True):
    """The whole.

    Of interest to developers only.
    """

    from_: Annotated[str, Field("Where it begins.", Text())]
    grace_period: Annotated[str, Field("How long.", Text(), name="graceSeconds")] = "1"
    some_parts: Annotated[tuple[Part, ...] | None, Field("Its parts.", required=True)] = None
    only_part: Annotated[Part | None, Field("Its part.", alternative=True)] = None
    inside: int = 0


def test_a_struct_says_all():
    """Names, whether a field is required, its default and its shape follow from the struct; the rest stays inside."""
    shape = shape_of(Whole)
    assert (shape.title, shape.doc, shape.one_of) == ("whole", "The whole.", ["onlyPart"])
    assert [(one.name, one.attribute, one.required, one.shape) for one in shape.fields] == [
        ("from", "from_", True, Text()),
        ("graceSeconds", "grace_period", False, Text()),
        ("someParts", "some_parts", True, ListOf(shape_of(Part))),
        ("onlyPart", "only_part", False, shape_of(Part)),
    ]
    assert [(one.shape, one.default) for one in shape_of(Part).fields] == [(Flag(), False)]


@pytest.mark.parametrize("kind", [str, float | None, dict[str, Part], tuple[int, ...]], ids=str)
def test_a_type_that_does_not_say_enough_is_refused(kind):
    """Any text, or seconds as a number, are never meant: the field names a shape, or the model cannot be imported."""
    model = msgspec.defstruct("Model", [("field", Annotated[kind, Field("A field.")])])
    with pytest.raises(TypeError, match="name a shape in its Field"):
        mapping("model")(model)
