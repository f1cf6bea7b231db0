"""Fields that an expression reads and no object has."""

from pathlib import Path

from tests.admission.builders import make_pod
from tests.policy.builders import create, table
from tests.policy.cel.object_fields import document
from webhook.policy.cel import fields
from webhook.policy.cel.fields import fields_read, literals, unknown_fields
from webhook.policy.cel.program import VARIABLES, compile_bool
from webhook.policy.evaluation.request import PODS, RequestAttributes

PODS_ONLY, BOTH = ("pods",), ("pods", "priorityclasses")


def found(text, about=PODS_ONLY):
    """What is found, each as `Struct.field` with the part of the text that it points at."""
    rows = unknown_fields(text, compile_bool(text).tree, about)
    assert all(text[offset:].startswith(name) for offset, name, _, _ in rows)
    words = [lacks.split() for _, _, lacks, _ in rows]
    structs = [row[-1] if row[0] == "there" else row[0] for row in words]
    return [f"{struct}.{row[1]}" for struct, row in zip(structs, rows, strict=True)]


@table(
    "text, expected",
    {
        "a field": ("object.spec.priorty > 5", ["PodSpec.priorty"]),
        "what lies below it is told once": ("object.spce.priority > 5", ["Pod.spce"]),
        "has": ("has(object.spec.hostnetwork)", ["PodSpec.hostnetwork"]),
        "optional field": ("object.spec.?priorty.orValue(0) > 1", ["PodSpec.priorty"]),
        "two": ("object.spec.?securityContext.?runAsuser.orValue(0) == 0", ["PodSecurityContext.runAsuser"]),
        "in brackets": ("object['spec']['priorty'] > 1", ["PodSpec.priorty"]),
        "optional brackets": ("object[?'spec'].?priorty.orValue(0) > 1", ["PodSpec.priorty"]),
        "an element of a list": ("object.spec.containers.all(c, c.imag != '')", ["Container.imag"]),
        "the first of a list": ("object.spec.containers[0].imag == ''", ["Container.imag"]),
        "nested": ("object.spec.containers.exists(c, c.ports.exists(p, p.hostport > 0))", ["ContainerPort.hostport"]),
        "a name for a part": ("cel.bind(s, object.spec, s.priorty == 1)", ["PodSpec.priorty"]),
        "the object before": ("oldObject.spec.priorty == 1", ["PodSpec.priorty"]),
        "the request": ("request.userinfo.username == 'a'", ["AdmissionRequest.userinfo"]),
        "who asks": ("request.userInfo.name == 'a'", ["UserInfo.name"]),
        "the namespace has metadata only": ("namespaceObject.spec.x == 1", ["Namespace.spec"]),
        "the class": ("priorityClass.values == 1", ["PriorityClassVariable.values"]),
        "all, in order": ("object.metadata.lables.a == object.spec.prio", ["ObjectMeta.lables", "PodSpec.prio"]),
        "right": ("object.spec.priority > 5 && object.metadata.labels.anything == 'a'", []),
        "keys": ("'a' in object.metadata.annotations && object.metadata.annotations['b/c'] == ''", []),
        "keys of a map in a list": ("object.spec.containers.all(c, c.resources.limits.cpu != '')", []),
        "a loop over keys": ("object.metadata.labels.all(k, k.startsWith('a'))", []),
        "what is not followed": ("object.spec.volumes.filter(v, has(v.hostPath)).all(v, v.foo)", []),
        "what may be anything": ("request.options.anything == 1 && request.kind.kind == 'Pod'", []),
        "dyn": ("dyn(object).whatever == 1", []),
        "a map of the author's": ("[{'a': 1}][0].b == 1", []),
    },
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
    ((offset, _, lacks, _),) = unknown_fields(text, compile_bool(text).tree, PODS_ONLY)
    assert offset == text.rindex("priorty")
    assert lacks.startswith('PodSpec has no field "priorty" in Kubernetes 1.')


@table(
    "text, types, compared",
    {
        "a number": ("object.spec.priority >= -5", {"spec.priority": "integer"}, [-5]),
        "a key": ("object.metadata.labels[?'a'].orValue('') != 'b'", {"metadata.labels.a": "string"}, ["", "b"]),
        "whether a key is there": ("'a' in object.metadata.labels", {"metadata.labels.a": "string"}, []),
        "in a list": ("'a' in object.metadata.finalizers", {"metadata.finalizers.[]": "string"}, ["a"]),
        "any key": ("object.metadata.labels.exists(k, k.startsWith('a'))", {"metadata.labels": "{string}"}, ["a"]),
        "a length": ("object.spec.containers.size() == 1", {"spec.containers": "[Container]"}, [1]),
        "elements": (
            "object.spec.containers.all(c, c.image in ['a', 'b'])",
            {"spec.containers": "[Container]", "spec.containers.[].image": "string"},
            ["a", "b"],
        ),
        "no literal": ("!object.spec.hostNetwork", {"spec.hostNetwork": "boolean"}, []),
        "whether it is there": ("has(object.spec.affinity)", {"spec.affinity": "Affinity"}, []),
        "bind": ("cel.bind(n, object.spec.?nodeName.orValue(''), n == 'x')", {"spec.nodeName": "string"}, ["", "x"]),
        "a variable alone": ("object != null", {}, []),
        "an unknown field": ("object.spec.x == 1", {"spec.x": "*"}, [1]),
    },
)
def test_fields_that_are_read(text, types, compared):
    """Each field with its type, and the values that may be worth trying: all literals but keys."""
    tree = compile_bool(text).tree
    found = fields_read(tree, ("pods",))
    assert {".".join(path[1:]): type_ for path, type_ in found.items() if path[1:]} == types
    assert literals(tree) == compared
