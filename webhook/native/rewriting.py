"""Expressions of policy files as the API server must be given them.

giveway fills in labels and annotations, so that `'a' in object.metadata.labels` needs no guard, and leaves out what
nobody's policy is; the API server passes objects and requests as they are, without empty fields. So paths to what may
be absent become optionals. What giveway's CEL has and the API server's has not is named.
"""

import re
from collections.abc import Mapping
from types import MappingProxyType

from webhook.native.expressions import TRUE
from webhook.policy.cel.program import compile_bool, is_certain
from webhook.policy.cel.string_functions import TOKEN


class InexpressibleError(Exception):
    """Why the API server cannot be given a rule, or a part of one."""


_PATH = r"(?<![\w.])(?<!\.\?)"
"""What a path begins after."""
_OBJECT = "(object|oldObject|namespaceObject)"
_WHOLE = "uses {} as a whole, in which giveway fills in labels and annotations"
_REFUSED = {
    r"\.\??(reverse)\b": "uses {}(), which the API server's CEL does not have",
    rf"{_PATH}(cel\.bind)\b": "uses {}, which the API server's CEL does not have",
    rf"{_PATH}(priorityClass)\b": "reads {}: the API server gives an expression no object but the one it is about",
    rf"\(\s*({_OBJECT[1:-1]}|request)\s*,": "names a variable of its own {}",
    rf"{_PATH}(namespaceObject\.\??(?!metadata\b)\w+)": "reads {}, which giveway does not have",
    rf"{_PATH}(namespaceObject\.metadata\.\??(?!(?:name|labels|annotations)\b)\w+)": (
        "reads {}, which giveway does not have"
    ),
    rf"{_PATH}{_OBJECT}\.\??metadata\.\??managedFields\b": "reads managedFields, which giveway leaves out",
    rf"{_PATH}{_OBJECT}\.metadata\.\?(labels|annotations)\b(?!\[\?|\.\?)": (
        "tests whether {}.metadata has {}, which giveway fills in"
    ),
    rf"{_PATH}{_OBJECT}\b(?!\s*[=!]=\s*null\b|\.\??\w)": _WHOLE,
    rf"{_PATH}{_OBJECT}(?:\.\?metadata\b|\.metadata\b(?!\.\??\w))": _WHOLE.format("{}.metadata"),
    (
        rf"{_PATH}(request\.(?!(?:kind|resource|requestKind|requestResource|requestSubResource|operation|userInfo|options"
        r"|name|namespace|dryRun|subResource)\b)\w+)"
    ): "reads {}, which the API server does not give to an expression",
    rf"{_PATH}(request)\b(?!\.\w)": "reads {} as a whole, which the API server does not give to an expression",
}
"""Why the API server cannot be given what matches. Of a namespace giveway knows less than it does."""
_INSTEAD = {
    # What is there in a policy file, if its object is
    rf"\bhas\(\s*{_OBJECT}\.metadata\.(labels|annotations)\s*\)": r"has(\1.metadata)",
    r"\bhas\(\s*request\.(name|namespace|subResource|dryRun|userInfo\.(username|uid|groups))\s*\)": TRUE,
    rf"{_PATH}{_OBJECT}\.metadata\.(labels|annotations)\b": r"\1.metadata.?\2.orValue({})",
    rf"{_PATH}request\.(name|namespace|subResource)\b": r'request.?\1.orValue("")',
    rf"{_PATH}request\.userInfo\.(username|uid)\b": r'request.userInfo.?\1.orValue("")',
    rf"{_PATH}request\.userInfo\.groups\b": "request.userInfo.?groups.orValue([])",
    rf"{_PATH}request\.dryRun\b": "request.?dryRun.orValue(false)",
}
"""What giveway fills in, and the API server leaves out if it is empty."""


def condition(expression: str, instead: Mapping[str, str] = MappingProxyType({})) -> str:
    """A bool of a policy, with `instead` of the objects of these names. Raises InexpressibleError."""
    rewritten = text(expression, instead)
    # The API server takes an expression only if it is known to be a
    # bool; here a value of unknown type is enough.
    if is_certain(compile_bool(expression)):
        return rewritten
    return f"({rewritten}) == {TRUE}"


def text(expression: str, instead: Mapping[str, str] = MappingProxyType({})) -> str:
    """A messageExpression. Raises InexpressibleError."""
    literals, bare = list[str](), ""
    for token in TOKEN.finditer(expression.strip()):
        if token[0][-1] in "\"'":
            bare += f"\0{len(literals)}\0"
            literals.append(token[0])
        elif not token[0].startswith("//"):  # comments are for readers of the policy file
            bare += token[0]
    bare = re.sub(r"\s*(\.\??)\s*", r"\1", bare)
    for pattern, reason in _REFUSED.items():
        if refused := re.search(pattern, bare):
            raise InexpressibleError(
                reason.format(*(group.replace(".?", ".") for group in refused.groups())),
            )
    for pattern, written in _INSTEAD.items():
        bare = re.sub(pattern, written, bare)
    for name, other in instead.items():
        bare = re.sub(rf"{_PATH}{name}\b", other, bare)
    return re.sub("\0(\\d+)\0", lambda place: literals[int(place[1])], bare).strip()
