"""CEL's functions at their ends: as the API server's."""

import pytest

from tests.policy.cel.ends import FAIL, HOLD
from tests.processor_time import within
from webhook.policy.cel.program import CelError, CelRuntimeError, Inputs, compile_bool
from webhook.policy.cel.string_functions import renamed


def holds(expression: str) -> bool:
    return compile_bool(expression).holds(Inputs(lambda: {"object": {"a": "abc"}}))


@pytest.mark.parametrize("expression", HOLD)
def test_what_is_true_in_the_api_server_is_true_here(expression):
    """By the specification, and as a real API server answers (tests/e2e/test_cel.py)."""
    assert holds(expression)


@pytest.mark.parametrize("expression", FAIL)
def test_what_fails_in_the_api_server_fails_here(expression):
    """The request is refused in both, and never let in by one."""
    with pytest.raises(CelRuntimeError) as caught:
        holds(expression)
    assert "_ubstring" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("object.a.substring(0, 3) == 'abc'", False),
        ("'x.substring(0)' == ''", True),
        ("object.split == 'a'", True),
        ("object.a . substring\n(0) == ''", False),
        ("true // .substring(0)", True),
        ('r"\\.split(" == ""', True),
    ],
)
def test_only_calls_are_renamed(text, same):
    """Not in literals and comments, and not fields; every place stays where it is."""
    assert (renamed(text) == text) is same
    assert len(renamed(text)) == len(text)


def test_a_mistake_is_told_in_the_words_of_its_author():
    """A function has one name, in messages of compiling as well."""
    with pytest.raises(CelError, match='"substring" does not take string, string'):
        compile_bool("'abc'.substring('a') == ''")
    with pytest.raises(CelError):
        compile_bool("'abc'._substring(0) == ''")


def test_a_search_from_behind_is_no_slower_than_one_from_the_front():
    """Whatever is searched: two texts of an object that take quadratic time would hold up all reviews."""
    part = "a" * 100_000 + "b" + "a" * 100_000
    inputs = Inputs(lambda: {"object": {"a": "a" * 250_000, "b": part}})
    with within(0.5):
        assert compile_bool("object.a.lastIndexOf(object.b) == -1").evaluate(inputs) is True
