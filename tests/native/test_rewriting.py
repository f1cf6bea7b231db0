"""Expressions of policy files as the API server gets them, and those that it cannot get."""

import pytest

from tests.policy.builders import table
from webhook.native.rewriting import InexpressibleError, condition


@table(
    "written, given",
    {
        "labels": ("'a' in object.metadata.labels", "'a' in object.metadata.?labels.orValue({})"),
        "an optional annotation": (
            'object.metadata.annotations[?"a"].orValue("") == "b"',
            'object.metadata.?annotations.orValue({})[?"a"].orValue("") == "b"',
        ),
        "what is optional already": (
            "namespaceObject.metadata.?labels[?'a'].hasValue()",
            "namespaceObject.metadata.?labels[?'a'].hasValue()",
        ),
        "labels are there if their object is": ("has(oldObject.metadata.labels)", "has(oldObject.metadata)"),
        "what is always there": ("has(request.dryRun) && has( request.userInfo.uid )", "true && true"),
        "a user without a uid": ("request.userInfo.uid == ''", "request.userInfo.?uid.orValue(\"\") == ''"),
        "one label": ("has(object.metadata.labels.a)", "has(object.metadata.?labels.orValue({}).a)"),
        "a name that may be generated": ("request.name != ''", "request.?name.orValue(\"\") != ''"),
        "of unknown type": ("object.spec.hostNetwork", "(object.spec.hostNetwork) == true"),
        "literals stay": (
            '\'object.metadata.labels\' == r\'priorityClass\' + """cel.bind"""',
            '\'object.metadata.labels\' == r\'priorityClass\' + """cel.bind"""',
        ),
        "comments go": ("true // object\n && 1 == 1", "true \n && 1 == 1"),
        "null": ("oldObject == null", "oldObject == null"),
        "loops": (
            "object.spec.containers.all(c, c.name != 'metadata.labels')",
            "object.spec.containers.all(c, c.name != 'metadata.labels')",
        ),
    },
)
def test_what_may_be_absent_becomes_optional(written, given):
    """The API server passes no empty fields, and wants to know that an expression is a bool."""
    assert condition(written) == given


@table(
    "written, reason",
    {
        "the class": ("priorityClass.value > 1", "reads priorityClass"),
        "bind": ("cel.bind(a, 1, a == 1)", "uses cel.bind"),
        "whole object": ("object == oldObject", "uses object as a whole"),
        "by index": ("object['spec'].a == 1", "uses object as a whole"),
        "whole metadata": ("object.metadata == oldObject.metadata", "uses object.metadata as a whole"),
        "has labels": ("object.metadata.?labels.hasValue()", "tests whether object.metadata has labels"),
        "managedFields": ("object.metadata.managedFields.size() > 0", "reads managedFields"),
        "more of it": ("namespaceObject.?spec.hasValue()", "reads namespaceObject.spec, which giveway"),
        "more of the metadata of a namespace": (
            "namespaceObject.metadata.?generation.hasValue()",
            "reads namespaceObject.metadata.generation",
        ),
        "uid": ("request.uid == ''", "reads request.uid"),
        "whole request": ("'a' in request", "reads request as a whole"),
        "own variable": ("[1].all(object, object == 1)", "names a variable of its own object"),
        "a newer function": ("'ab'.reverse() == 'ba'", "uses reverse()"),
    },
)
def test_what_the_api_server_cannot_be_given_is_named(written, reason):
    """Each with the reason, so that it stays with the webhook."""
    with pytest.raises(InexpressibleError, match="^" + reason.replace("(", r"\(").replace(")", r"\)")):
        condition(written)


def test_only_the_object_itself_is_another_one_for_a_binding():
    """A field of the same name, below anything else, stays."""
    given = condition("object.metadata.name == 'a' && object.spec.object.x == 'b'", {"object": "variables.pod"})
    assert given == "variables.pod.metadata.name == 'a' && variables.pod.spec.object.x == 'b'"
