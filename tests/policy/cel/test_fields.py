"""Fields that an expression reads and no object has."""

from pathlib import Path

import pytest

from tests.admission.builders import make_pod
from tests.policy.builders import create
from tests.policy.cel.object_fields import document
from webhook.policy.cel import fields
from webhook.policy.cel.fields import fields_read, literals, unknown_fields
from webhook.policy.cel.program import VARIABLES, compile_bool
from webhook.policy.evaluation.request import PODS, RequestAttributes

PODS_ONLY, BOTH = ("pods",), ("pods", "priorityclasses")


def found(text, about=PODS_ONLY):
    """What is found, each as `Struct.field` with the part of the text that it points at."""
    rows = unknown_fields(text, compile_bool(text).tree, about)
    assert all(text[row.offset :].startswith(row.name) for row in rows)
    return [f"{row.struct}.{row.name}" for row in rows]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("object.spec.priorty > 5", ["PodSpec.priorty"], id="a field"),
        pytest.param("object.spce.priority > 5", ["Pod.spce"], id="what lies below it is told once"),
        pytest.param("has(object.spec.hostnetwork)", ["PodSpec.hostnetwork"], id="has"),
        pytest.param("object.spec.?priorty.orValue(0) > 1", ["PodSpec.priorty"], id="optional field"),
        pytest.param(
            "object.spec.?securityContext.?runAsuser.orValue(0) == 0", ["PodSecurityContext.runAsuser"], id="two"
        ),
        pytest.param("object['spec']['priorty'] > 1", ["PodSpec.priorty"], id="in brackets"),
        pytest.param("object[?'spec'].?priorty.orValue(0) > 1", ["PodSpec.priorty"], id="optional brackets"),
        pytest.param("object.spec.containers.all(c, c.imag != '')", ["Container.imag"], id="an element of a list"),
        pytest.param("object.spec.containers[0].imag == ''", ["Container.imag"], id="the first of a list"),
        pytest.param(
            "object.spec.containers.exists(c, c.ports.exists(p, p.hostport > 0))",
            ["ContainerPort.hostport"],
            id="nested",
        ),
        pytest.param("cel.bind(s, object.spec, s.priorty == 1)", ["PodSpec.priorty"], id="a name for a part"),
        pytest.param("oldObject.spec.priorty == 1", ["PodSpec.priorty"], id="the object before"),
        pytest.param("request.userinfo.username == 'a'", ["AdmissionRequest.userinfo"], id="the request"),
        pytest.param("request.userInfo.name == 'a'", ["UserInfo.name"], id="who asks"),
        pytest.param("namespaceObject.spec.x == 1", ["Namespace.spec"], id="the namespace has metadata only"),
        pytest.param("priorityClass.values == 1", ["PriorityClassVariable.values"], id="the class"),
        pytest.param(
            "object.metadata.lables.a == object.spec.prio", ["ObjectMeta.lables", "PodSpec.prio"], id="all, in order"
        ),
        pytest.param("object.spec.priority > 5 && object.metadata.labels.anything == 'a'", [], id="right"),
        pytest.param("'a' in object.metadata.annotations && object.metadata.annotations['b/c'] == ''", [], id="keys"),
        pytest.param("object.spec.containers.all(c, c.resources.limits.cpu != '')", [], id="keys of a map in a list"),
        pytest.param("object.metadata.labels.all(k, k.startsWith('a'))", [], id="a loop over keys"),
        pytest.param("object.spec.volumes.filter(v, has(v.hostPath)).all(v, v.foo)", [], id="what is not followed"),
        pytest.param("request.options.anything == 1 && request.kind.kind == 'Pod'", [], id="what may be anything"),
        pytest.param("dyn(object).whatever == 1", [], id="dyn"),
        pytest.param("[{'a': 1}][0].b == 1", [], id="a map of the author's"),
    ],
)
def test_fields(text, expected):
    """A field is told if it is sure that no object of the kind has it, at its place in the text."""
    assert found(text) == expected


def test_what_kind_it_is_about():
    """A field of PriorityClasses is none of pods; an expression about both may read either."""
    assert found("object.globalDefault") == ["Pod.globalDefault"]
    assert found("object.globalDefault", ("priorityclasses",)) == []
    assert found("object.globalDefault && has(object.spec.priority)", BOTH) == []
    assert found("object.globlDefault", BOTH) == ["Pod.globlDefault"]


def test_the_variables_are_those_that_rules_get():
    """The tables of what the variables hold agree with what is made of a request."""
    made = RequestAttributes(create(make_pod()), PODS, make_pod(), None).inputs._values()
    assert made.keys() == VARIABLES.keys()
    assert made["request"].keys() <= fields._OWN["AdmissionRequest"].keys()
    assert made["request"]["userInfo"].keys() <= fields._OWN["UserInfo"].keys()


def test_the_committed_fields_are_current():
    """`make schema` writes what the client's models say."""
    committed = Path(fields.__file__).with_name("object_fields.json").read_text()
    assert committed == document(), "run `make schema`"


def test_a_text_that_occurs_before_the_field():
    """The place is that of the field, not of a value that reads the same."""
    text = "request.name == 'priorty' || object.spec.priorty == 1"
    (row,) = unknown_fields(text, compile_bool(text).tree, PODS_ONLY)
    assert row.offset == text.rindex("priorty")
    assert str(row).startswith('PodSpec has no field "priorty" in Kubernetes 1.')


@pytest.mark.parametrize(
    ("text", "types", "compared"),
    [
        pytest.param("object.spec.priority >= -5", {"spec.priority": "integer"}, [-5], id="a number"),
        pytest.param(
            "object.metadata.labels[?'a'].orValue('') != 'b'", {"metadata.labels.a": "string"}, ["", "b"], id="a key"
        ),
        pytest.param("'a' in object.metadata.labels", {"metadata.labels.a": "string"}, [], id="whether a key is there"),
        pytest.param("'a' in object.metadata.finalizers", {"metadata.finalizers.[]": "string"}, ["a"], id="in a list"),
        pytest.param(
            "object.metadata.labels.exists(k, k.startsWith('a'))",
            {"metadata.labels": "{string}"},
            ["a"],
            id="any key",
        ),
        pytest.param("object.spec.containers.size() == 1", {"spec.containers": "[Container]"}, [1], id="a length"),
        pytest.param(
            "object.spec.containers.all(c, c.image in ['a', 'b'])",
            {"spec.containers": "[Container]", "spec.containers.[].image": "string"},
            ["a", "b"],
            id="elements",
        ),
        pytest.param("!object.spec.hostNetwork", {"spec.hostNetwork": "boolean"}, [], id="no literal"),
        pytest.param("has(object.spec.affinity)", {"spec.affinity": "Affinity"}, [], id="whether it is there"),
        pytest.param(
            "cel.bind(n, object.spec.?nodeName.orValue(''), n == 'x')",
            {"spec.nodeName": "string"},
            ["", "x"],
            id="bind",
        ),
        pytest.param("object != null", {}, [], id="a variable alone"),
        pytest.param("object.spec.x == 1", {"spec.x": "*"}, [1], id="an unknown field"),
    ],
)
def test_fields_that_are_read(text, types, compared):
    """Each field with its type, and the values that may be worth trying: all literals but keys."""
    tree = compile_bool(text).tree
    assert {".".join(path[1:]): type_ for path, type_ in fields_read(tree, ("pods",)).items()} == types
    assert literals(tree) == compared
