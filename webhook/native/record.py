"""The record `giveway.dev/given` in expressions: what giveway gave a new pod, told from what a client wrote.

Before anybody mutates a new object, the API server notes in `managedFields` every field that the client set; what
admission adds is noted for nobody (`FieldManager.UpdateNoErrors`, called before mutation). A client can claim fields
that it did not set, and never lose one that it did. So a key that no manager owns was put there by admission, and a
record that no manager owns is giveway's. The form of the record is that of `webhook.admission.mutating.Given`.
"""

from collections.abc import Sequence

from webhook.admission.mutating import LONGEST_VALUE
from webhook.native.expressions import listing, quote
from webhook.policy.model.creation import GROUP_ANNOTATIONS, GROUP_LABELS, NAME
from webhook.policy.model.values import GIVEN

RECORD = "variables.given"
"""The record of an earlier call for this pod, empty if there is none; what a client wrote counts for nothing."""


def owned(path: Sequence[str]) -> str:
    """A client set this field, or claims so."""
    steps = "".join(f"[?{quote(f'f:{step}')}]" for step in path)
    return f"object.metadata.?managedFields.orValue([]).exists(m, m.?fieldsV1{steps}.hasValue())"


def sent(path: Sequence[str]) -> str:
    """A client may have set this field; without managedFields nothing tells who wrote it."""
    return f"size(object.metadata.?managedFields.orValue([])) == 0 ||\n{owned(path)}"


GIVEN_VARIABLE = (
    "given",
    f"{sent(['metadata', 'annotations', GIVEN])}\n? ''\n: object.metadata.?annotations[?{quote(GIVEN)}].orValue('')",
)


def recorded(key: str) -> str:
    """The pod's annotation of this key is one that giveway copied; it must be there.

    Of a long value the record has the digest, which CEL cannot
    compute: there it suffices that the key was copied.
    """
    value = f"object.metadata.annotations[{quote(key)}]"
    escaped = (
        f"{value}.replace('\\\\', '\\\\\\\\').replace('\"', '\\\\\"').replace('\\n', '\\\\n').replace('\\t', '\\\\t')"
    )
    begins = quote(f'"{key}":"')
    digest = quote(f'"{key}":"sha256:')
    return f"{RECORD}.contains({value}.size() > {LONGEST_VALUE}\n ? {digest}\n : {begins} + {escaped} + '\"')"


def creation_text(keys: Sequence[str]) -> str:
    """The text that `webhook.policy.model.creation.creation_record` makes of a new pod."""
    labels = "object.metadata.?labels.orValue({})"
    annotations = "object.metadata.?annotations.orValue({})"
    there = f"{listing([*GROUP_LABELS, *keys])}.filter(k, k in {labels})"
    had = f"{there}.map(k, {_pair(labels)})"
    is_name = f"k in {annotations} && {annotations}[k].matches({quote(NAME)})"
    names = f"{listing(GROUP_ANNOTATIONS)}.filter(k, {is_name})"
    named = f"{names}.map(k, {_pair(annotations)})"
    absent = f"{listing(keys)}.filter(k, !(k in {labels})).map(k, '\"' + k + '\"')"
    members = [
        f"'\"labels\":{{' + {had}.join(',')",
        f"'}},\"annotations\":{{' + {named}.join(',')",
    ]
    return f"'{{' +\n{members[0]} +\n{members[1]} +\n'}},\"absent\":[' + {absent}.join(',') + ']}}'"


def _pair(values: str) -> str:
    return f"'\"' + k + '\":\"' + {values}[k] + '\"'"
