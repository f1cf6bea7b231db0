"""JSON patches: what the embedded server, kustomizations and answers of the webhook have in common."""

import pytest

from webhook.kube.json_patch import JsonPatchError, apply_json_patch, escape


def test_the_document_itself_stays_as_it_is():
    """A patched copy is made; neither the document nor the patch's own value is shared with it."""
    document, value = {"a": {"b": 1}}, {"c": []}
    patched = apply_json_patch(document, [{"op": "add", "path": "/a/d", "value": value}])
    patched["a"]["d"]["c"].append(1)
    assert (document, value) == ({"a": {"b": 1}}, {"c": []})


def test_a_key_with_a_slash_is_one_part_of_a_pointer():
    """An annotation key is found again by its escaped form."""
    key = "example.com/~a"
    assert apply_json_patch({}, [{"op": "add", "path": f"/{escape(key)}", "value": 1}]) == {key: 1}


@pytest.mark.parametrize(
    ("operation", "why"),
    [
        ({"op": "remove", "path": "/b"}, "/b is missing"),
        ({"op": "replace", "path": "/b", "value": 1}, "/b is missing"),
        ({"op": "add", "path": "/b/c", "value": 1}, "/b is missing"),
        ({"op": "test", "path": "/a", "value": 2}, "testing value /a failed"),
        ({"op": "swap", "path": "/a"}, "unexpected op 'swap'"),
        ({"op": "add", "path": "a", "value": 1}, "no JSON pointer: it must begin with '/'"),
        ({"op": "test", "path": "/a", "value": True}, "testing value /a failed"),
        ({"op": "add", "path": "/a"}, "needs a value"),
        ({"op": "move", "path": "/b"}, "needs from"),
        ({"path": 1}, "needs op and path"),
    ],
)
def test_a_patch_that_does_not_fit_says_why(operation, why):
    """The error names the place that is missing or the operation that is not known."""
    with pytest.raises(JsonPatchError, match=why):
        apply_json_patch({"a": 1}, [operation])
