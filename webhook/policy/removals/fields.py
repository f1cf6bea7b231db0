"""How two versions of a mapping are compared: field by field, each by the function that is registered for it.

    @compares(Rate, "evictions")
    def _evictions(old: Rate, new: Rate) -> Iterator[str]:
        if new.evictions > old.evictions:
            yield "it allows more evictions"

A field that nobody registered errs on the safe side: its mapping is compared field by field, and of anything else every
change is told. So a new field is held back until somebody says what a change of it gives up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import msgspec

from webhook.policy.shapes.object_shape import is_mapping, shape_of

__all__ = ["Comparison", "any_change", "compares", "gives_nothing_up", "registered", "weaker"]

Comparison = Callable[[Any, Any], Iterator[str]]
"""What the new version of a mapping gives up of the old one, in sentences; nothing if it is at least as strict."""

Function = TypeVar("Function", bound=Comparison)

_COMPARISONS: dict[tuple[type, str], Comparison] = {}


def compares(model: type[msgspec.Struct], *attributes: str) -> Callable[[Function], Function]:
    """Register a function that compares these fields of two `model`s."""

    def register(function: Function) -> Function:
        _register(model, attributes, function)
        return function

    return register


def gives_nothing_up(model: type[msgspec.Struct], *attributes: str) -> None:
    """Say of these fields of `model` that no change of them gives up anything, or that it is told elsewhere."""
    _register(model, attributes, _nothing)


def registered(model: type, attribute: str) -> bool:
    """Whether somebody said what a change of this field gives up."""
    return (model, attribute) in _COMPARISONS


def weaker(old: Any, new: Any, path: str = "") -> Iterator[str]:
    """What `new` gives up of `old`, a mapping of the same kind. `path` stands before the names of fields."""
    done: set[Comparison] = set()
    for field in shape_of(type(old)).fields:
        comparison = _COMPARISONS.get((type(old), field.attribute))
        before, now = getattr(old, field.attribute), getattr(new, field.attribute)
        if comparison is not None:
            if comparison not in done:
                yield from comparison(old, new)
                done.add(comparison)
        else:
            yield from any_change(before, now, f"{path}{field.name}")


def any_change(old: Any, new: Any, path: str) -> Iterator[str]:
    """The changes of a value that nobody registered: a mapping's by its fields, else that it is another one."""
    if is_mapping(type(old)) and type(new) is type(old):
        yield from weaker(old, new, f"{path}.")
    elif old != new:
        yield f"{path} says something else"


def _register(model: type[msgspec.Struct], attributes: tuple[str, ...], comparison: Comparison) -> None:
    """Raises ValueError for what is no field of the model, or is registered already."""
    fields = {field.attribute for field in shape_of(model).fields}
    for attribute in attributes:
        if attribute not in fields or (model, attribute) in _COMPARISONS:
            raise ValueError(f"{model.__name__}.{attribute} is no field, or is compared already")
        _COMPARISONS[model, attribute] = comparison


def _nothing(old: Any, new: Any) -> Iterator[str]:
    del old, new
    yield from ()
