"""The CEL adapter: what compiles, what is bounded, how mistakes are told, and functions on strings at their ends."""

import weakref

import pytest

from tests.policy.builders import table
from tests.policy.cel.ends import DIFFER, FAIL, HOLD
from tests.processor_time import within
from webhook.policy.cel.program import CelError, CelRuntimeError, Inputs, compile_bool, compile_text
from webhook.policy.cel.string_functions import renamed

EMPTY = dict.fromkeys(("object", "oldObject", "request", "namespaceObject", "priorityClass"))


def inputs(**variables):
    """Inputs with these variables, the others null."""
    return Inputs(lambda: EMPTY | variables)


@table(
    "expression, line, column, words",
    {
        "syntax": ("1 +", 1, 4, "ends too early"),
        "unknown variable": ("foo == 1", 1, 1, 'no variable or function "foo"'),
        "types": ("1 + 'a' == 2", 1, 3, '"+" does not take int, string'),
        "second line": ("object.a &&\n  nope()", 2, 7, 'no variable or function "nope"'),
        "one ampersand": ("a & b", 1, 3, 'a single "&" is no operator; write "&&"'),
        "one bar": ("object.a | true", 1, 10, 'write "||"'),
        "one equals sign": ("object.a = 1", 1, 10, 'write "==" to compare'),
        "and": ("true and false", 1, 6, 'there is no operator "and"; write "&&"'),
        "open quote": ("'abc", 1, 1, "has no quote at its end"),
        "open bracket": ("(true", 1, 6, '")" is missing here'),
        "no operator": ("true false", 1, 6, '"false" cannot stand here'),
        "semicolon": ("object.a ; true", 1, 10, '";" means nothing'),
        "two dots": ("object..a", 1, 8, '".." cannot stand here'),
        "misspelt variable": ("objct.a == 1", 1, 6, 'did you mean "object"?'),
        "no bool": ("1 + 2", 1, 1, "gives int; it must give true or false"),
        "nesting": ("(" * 200 + "true" + ")" * 200, 1, 1, "recursion"),
        "length": ("true" + " " * 5000, 1, 1, "5004 characters; at most 4096"),
        "growing text": ("object.s.replace('a', object.s) == ''", 1, 1, "at most 20 ms are allowed"),
        "pattern of the object's": ("object.s.matches(object.t)", 1, 1, "the pattern of matches is no text that is"),
        "growth in nested loops": (
            "object.l.map(a, object.l.map(b, object.l.map(c, a + b + c + a + b + c))) == []",
            1,
            1,
            "use fewer loops inside loops",
        ),
        "list of the characters of every element": (
            "object.l.all(x, x.split('a').map(z, z + 'b').join(',') != 'q')",
            1,
            1,
            "use fewer loops inside loops",
        ),
    },
)
def test_refused_at_load(expression, line, column, words):
    """An expression that cannot work is refused with the place of the mistake in it."""
    with pytest.raises(CelError) as caught:
        compile_bool(expression)
    problem = caught.value.problems[0]
    assert (problem.line, problem.column) == (line, column)
    assert words in problem.message
    assert "INVALID_ARGUMENT" not in problem.message


def test_every_mistake_is_told():
    """Not only the first one."""
    with pytest.raises(CelError) as caught:
        compile_bool("foo == bar")
    assert [problem.column for problem in caught.value.problems] == [1, 8]


def test_message_expressions_give_text():
    """A messageExpression must give a string, at load as far as that is known, and when it runs."""
    with pytest.raises(CelError, match="must give a string"):
        compile_text("1 + 1")
    assert compile_text("'a' + object").words(inputs(object="b")) == "ab"
    with pytest.raises(CelRuntimeError, match="not a string"):
        compile_text("object").words(inputs(object=1))


@table(
    "expression, words",
    {
        "missing key": ("object.a.b == 1", "Key not found"),
        "division": ("object.n / 0 == 1", "divide by zero"),
        "no bool": ("object.n", "gave int, not true or false"),
        "conversion": ("int(object.s) > 1", "cannot convert"),
        "iterations": ("object.l.all(x, object.l.all(y, true))", "budget"),
    },
)
def test_errors_at_run_time(expression, words):
    """An expression that fails on a request raises with the library's reason."""
    values = {"a": {}, "n": 1, "s": "x", "l": list(range(1000))}
    with pytest.raises(CelRuntimeError, match=words):
        compile_bool(expression).holds(inputs(object=values))


def test_numbers_beyond_int64_are_an_error():
    """CEL has 64 bits for a number; an object with more fails, and does not wrap around."""
    with pytest.raises(CelRuntimeError, match="out of range"):
        compile_bool("object.n == 1").holds(inputs(object={"n": 2**64 + 1}))


def test_only_what_is_read_counts():
    """An expression over the user does not care how large the object is."""
    big = inputs(object={"s": "a" * 600_000}, request={"userInfo": {"username": "alice"}})
    assert compile_bool("request.userInfo.username == 'alice'").holds(big)


def test_variables_are_made_only_when_asked_for():
    """Nothing is converted for a request that no expression looks at, and once for one that several do."""
    calls = []
    lazy = Inputs(lambda: calls.append(1) or EMPTY | {"object": {"a": 1}})
    assert calls == []
    assert compile_bool("object.a == 1").holds(lazy)
    assert compile_bool("object.a < 2").holds(lazy)
    assert calls == [1]


def test_what_makes_the_variables_is_let_go_once_they_are_made():
    """It holds the request, and the request holds these: else each review would wait for the garbage collector."""

    class Request:
        def variables(self):
            return EMPTY

    request = Request()
    read, gone = Inputs(request.variables), weakref.ref(request)
    del request
    assert gone() is not None
    assert compile_bool("object == null").holds(read)
    assert gone() is None


@pytest.mark.parametrize("expression", [*HOLD, *(here for here, _ in DIFFER)])
def test_what_is_true_here(expression):
    """By the specification, and as a real API server answers but where they differ (tests/e2e/test_cel.py)."""
    assert compile_bool(expression).holds(inputs(object={"a": "abc"}))


@pytest.mark.parametrize("expression", FAIL)
def test_what_fails_in_the_api_server_fails_here(expression):
    """The request is refused in both, and never let in by one."""
    with pytest.raises(CelRuntimeError) as caught:
        compile_bool(expression).holds(inputs(object={"a": "abc"}))
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
    read = inputs(object={"a": "a" * 250_000, "b": part})
    with within(0.5):
        assert compile_bool("object.a.lastIndexOf(object.b) == -1").evaluate(read) is True
