"""Expressions of policy files as the API server gets them, and those that it cannot get."""

import pytest

from webhook.native.rewriting import InexpressibleError, condition


@pytest.mark.parametrize(
    ("written", "given"),
    [
        pytest.param("'a' in object.metadata.labels", "'a' in object.metadata.?labels.orValue({})", id="labels"),
        pytest.param(
            'object.metadata.annotations[?"a"].orValue("") == "b"',
            'object.metadata.?annotations.orValue({})[?"a"].orValue("") == "b"',
            id="an optional annotation",
        ),
        pytest.param(
            "namespaceObject.metadata.?labels[?'a'].hasValue()",
            "namespaceObject.metadata.?labels[?'a'].hasValue()",
            id="what is optional already",
        ),
        pytest.param("has(object.metadata.labels)", "true", id="labels are always there"),
        pytest.param("has(object.metadata.labels.a)", "has(object.metadata.?labels.orValue({}).a)", id="one label"),
        pytest.param("request.name != ''", "request.?name.orValue(\"\") != ''", id="a name that may be generated"),
        pytest.param("object.spec.hostNetwork", "(object.spec.hostNetwork) == true", id="of unknown type"),
        pytest.param(
            '\'object.metadata.labels\' == r\'priorityClass\' + """cel.bind"""',
            '\'object.metadata.labels\' == r\'priorityClass\' + """cel.bind"""',
            id="literals stay",
        ),
        pytest.param("true // object\n && 1 == 1", "true \n && 1 == 1", id="comments go"),
        pytest.param("oldObject == null", "oldObject == null", id="null"),
        pytest.param(
            "object.spec.containers.all(c, c.name != 'metadata.labels')",
            "object.spec.containers.all(c, c.name != 'metadata.labels')",
            id="loops",
        ),
    ],
)
def test_what_may_be_absent_becomes_optional(written, given):
    """The API server passes no empty fields, and wants to know that an expression is a bool."""
    assert condition(written) == given


@pytest.mark.parametrize(
    ("written", "reason"),
    [
        pytest.param("priorityClass.value > 1", "reads priorityClass", id="the class"),
        pytest.param("cel.bind(a, 1, a == 1)", "uses cel.bind", id="bind"),
        pytest.param("object == oldObject", "uses object as a whole", id="whole object"),
        pytest.param("object['spec'].a == 1", "uses object as a whole", id="by index"),
        pytest.param("object.metadata == oldObject.metadata", "uses object.metadata as a whole", id="whole metadata"),
        pytest.param("object.metadata.?labels.hasValue()", "tests whether object.metadata has labels", id="has labels"),
        pytest.param("object.metadata.managedFields.size() > 0", "reads managedFields", id="managedFields"),
        pytest.param("namespaceObject.?spec.hasValue()", "reads namespaceObject.spec, which giveway", id="more of it"),
        pytest.param(
            "namespaceObject.metadata.?generation.hasValue()",
            "reads namespaceObject.metadata.generation",
            id="more of the metadata of a namespace",
        ),
        pytest.param("request.uid == ''", "reads request.uid", id="uid"),
        pytest.param("'a' in request", "reads request as a whole", id="whole request"),
        pytest.param("[1].all(object, object == 1)", "names a variable of its own object", id="own variable"),
        pytest.param("'ab'.reverse() == 'ba'", "uses reverse()", id="a newer function"),
    ],
)
def test_what_the_api_server_cannot_be_given_is_named(written, reason):
    """Each with the reason, so that it stays with the webhook."""
    with pytest.raises(InexpressibleError, match="^" + reason.replace("(", r"\(").replace(")", r"\)")):
        condition(written)
