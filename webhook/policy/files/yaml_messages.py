"""What the YAML parsers, ruamel's and libyaml, say of a text that they cannot read, in words for its author."""

import re

from ruamel.yaml.error import MarkedYAMLError

_PATTERNS = (
    (r".*(?:\\t|found a tab).*", "a tab where YAML wants spaces"),
    (
        r"expected <block end>, but found .*|did not find expected (?:key|'-' indicator).*",
        (
            "this line does not begin in the column that it should: fields of one mapping begin in the same column, and"
            " so do entries of one list"
        ),
    ),
    (
        r"mapping values are not allowed (?:here|in this context).*",
        'a ":" cannot stand here: the line is indented too far, or a text that holds ": " needs quotes',
    ),
    *(
        (
            rf"(?:did not find )?expected ',' or '[}}\]]'{got} \(while parsing a flow {kind}\)",
            f'"," or "{end}" is missing before {where}, for a "{begin}" further up',
        )
        for kind, begin, end in (("mapping", "{", "}"), ("sequence", "[", "]"))
        for got, where in ((", but got '<stream end>'", "the end of the file"), (".*", "this"))
    ),
    (r"expected the node content, but found '<.*end>' .*", "a value is missing before the end of the file"),
    (r"expected the node content, but found '(.+)' .*", r"a value is missing before \1"),
    (r"found unexpected end of stream \(while scanning a quoted scalar\)", "a quote is not closed"),
    (r"found character '(.+)' that cannot start any token.*", r'a text that begins with "\1" needs quotes'),
    (r"could not find expected ':'.*", 'a ":" is missing after the name of a field, here or just above'),
    (r"did not find expected <document start>.*", "a document has ended: `---` is missing before this"),
    (r"found character that cannot start any token.*", "a text that begins with this needs quotes"),
    (
        r"(?:did not find )?expected alphabetic or numeric character.*",
        'a text that begins with "*" or "&" needs quotes',
    ),
)


def problem_of(error: MarkedYAMLError) -> tuple[int, int, str]:
    """Line and column, from 1, where the parser gave up, and why, in words for people."""
    mark = error.problem_mark or error.context_mark
    problem = " ".join(str(error.problem or error.context or "not YAML").split())
    if error.context and error.context != problem:
        problem = f"{problem} ({error.context})"
    return (1, 1, _plain(problem)) if mark is None else (mark.line + 1, mark.column + 1, _plain(problem))


def _plain(message: str) -> str:
    """The parser's message for people; as it is, if it is none of those that are known."""
    for pattern, words in _PATTERNS:
        if match := re.fullmatch(pattern, message):
            return match.expand(words)
    return message
