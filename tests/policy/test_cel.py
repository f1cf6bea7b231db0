"""The CEL adapter: what compiles, what is bounded, and how mistakes are told."""

import contextlib
import time

import pytest

from webhook.policy.cel import CelError, CelRuntimeError, Inputs, compile_bool, compile_text

EMPTY = dict.fromkeys(("object", "oldObject", "request", "namespaceObject", "priorityClass"))


def inputs(**variables):
    """Inputs with these variables, the others null."""
    return Inputs(lambda: EMPTY | variables)


@pytest.mark.parametrize(
    ("expression", "line", "column", "words"),
    [
        pytest.param("1 +", 1, 4, "Syntax error", id="syntax"),
        pytest.param("foo == 1", 1, 1, "undeclared reference to 'foo'", id="unknown variable"),
        pytest.param("1 + 'a' == 2", 1, 3, "no matching overload", id="types"),
        pytest.param("object.a &&\n  nope()", 2, 7, "undeclared reference to 'nope'", id="second line"),
        pytest.param("1 + 2", 1, 1, "gives int; it must give true or false", id="no bool"),
        pytest.param("(" * 200 + "true" + ")" * 200, 1, 1, "recursion", id="nesting"),
        pytest.param("true" + " " * 5000, 1, 1, "5004 characters; at most 4096", id="length"),
        pytest.param(
            "[1]" + ".filter(x, true)" * 9 + " == []", 1, 1, "9 comprehensions; at most 8", id="comprehensions"
        ),
        pytest.param("1" + " + 1" * 17 + " > 0", 1, 1, "17 times; at most 16", id="growth"),
        pytest.param(
            "['a'].map(x, [x, x, x, x]).map(x, [x, x, x, x]).map(x, [x, x, x, x])"
            ".map(x, [x, x, x, x]).map(x, [x, x, x, x]).map(x, [x, x, x, x]) == []",
            1,
            1,
            "adds, joins or collects 18 times",
            id="lists of lists",
        ),
        pytest.param("'aa'.replace('a', 'aa') == ''", 1, 1, "the second not longer than the first", id="longer text"),
        pytest.param("object.s.replace('a', object.s) == ''", 1, 1, "two texts written out", id="replaced by input"),
        pytest.param("object.l.join(object.s) == ''", 1, 1, "a separator written out", id="joined by input"),
        pytest.param(
            "object.l.map(a, object.l.map(b, object.l.map(c, a + b + c + a + b + c))) == []",
            1,
            1,
            "do it in fewer steps",
            id="growth in nested loops",
        ),
    ],
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


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        pytest.param("object.a.b == 1", "Key not found", id="missing key"),
        pytest.param("object.n / 0 == 1", "divide by zero", id="division"),
        pytest.param("object.n", "gave int, not true or false", id="no bool"),
        pytest.param("int(object.s) > 1", "cannot convert", id="conversion"),
        pytest.param("object.l.all(x, object.l.all(y, x + y >= 0))", "budget", id="iterations"),
    ],
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


@pytest.mark.parametrize(
    ("expression", "least", "most"),
    [
        pytest.param("object.s != ''", 3 << 20, 3 << 20, id="plain"),
        pytest.param("object.l.all(x, x.name != '')", 3 << 20, 3 << 20, id="loop"),
        pytest.param("object.l.all(x, x.image.matches('^a'))", 3 << 20, 3 << 20, id="search of an element"),
        pytest.param("object.s + 'a' != ''", 3 << 20, 3 << 20, id="concatenation"),
        pytest.param("object.l.all(x, x in ['a', 'b', 'c'])", 3 << 20, 3 << 20, id="list of texts"),
        pytest.param("object.s.replace('-', '_').lowerAscii() != ''", 3 << 20, 3 << 20, id="replacement"),
        pytest.param("object.l.join(', ') != ''", 3 << 20, 3 << 20, id="join"),
        pytest.param("object.l.all(x, object.s.contains(x))", 40_000, 41_000, id="search for each element"),
        pytest.param("object.l.all(x, (x + object.s).size() > 0)", 28_000, 29_000, id="growth in a loop"),
        pytest.param("object.l.all(x, object.l.all(y, x + y != ''))", 5_000, 6_000, id="growth in nested loops"),
    ],
)
def test_what_an_expression_may_read(expression, least, most):
    """Three megabytes as a rule, and less the more an expression makes of what it reads."""
    assert least <= compile_bool(expression).largest <= most


def test_large_objects_are_refused():
    """An object larger than an expression may read is an error, whatever is in it."""
    with pytest.raises(
        CelRuntimeError, match="the object is 4000015 bytes long; this expression reads at most 3145728"
    ):
        compile_bool("object.s != ''").holds(inputs(object={"s": "a" * 4_000_000}))


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        pytest.param("object.s.matches('(a*)*b')", {"s": "a" * 1_000_000}, id="regular expression"),
        pytest.param("object.l.all(x, object.l.all(y, object.l.all(z, true)))", {"l": list(range(3000))}, id="loops"),
        pytest.param(
            "object.l.all(x, (x + object.s + object.s).size() > 0)", {"l": ["a"] * 9000, "s": "b" * 9000}, id="growth"
        ),
        pytest.param("object.l.all(x, !object.s.contains(x))", {"l": ["aab"] * 3000, "s": "a" * 20_000}, id="search"),
        pytest.param("object.l.map(x, x + object.s).size() > 0", {"l": [""] * 4600, "s": "b" * 13_000}, id="texts"),
        pytest.param("object == object", {"l": [list(range(300))] * 300}, id="comparison"),
    ],
)
def test_no_expression_takes_long(expression, value):
    """Whatever the object, an expression ends within a second, with an answer or with an error."""
    began = time.process_time()
    with contextlib.suppress(CelRuntimeError):
        compile_bool(expression).holds(inputs(object=value))
    assert time.process_time() - began < 1


def test_brackets_in_texts_and_comments_do_not_count():
    """The bound on what grows looks at the expression, not at its texts."""
    text = "// a + b + c\n" + "'" + "+" * 50 + ".map(' != object.s"
    assert compile_bool(text).holds(inputs(object={"s": ""}))


def test_variables_are_made_only_when_asked_for():
    """Nothing is converted for a request that no expression looks at, and once for one that several do."""
    calls = []
    lazy = Inputs(lambda: calls.append(1) or EMPTY | {"object": {"a": 1}})
    assert calls == []
    assert compile_bool("object.a == 1").holds(lazy)
    assert compile_bool("object.a < 2").holds(lazy)
    assert calls == [1]
