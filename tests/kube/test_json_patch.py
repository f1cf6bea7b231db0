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
    "operation",
    [
        {"op": "remove", "path": "/b"},
        {"op": "replace", "path": "/b", "value": 1},
        {"op": "add", "path": "/b/c", "value": 1},
        {"op": "add", "path": "/a/c", "value": 1},
        {"op": "test", "path": "/a", "value": 2},
        {"op": "test", "path": "/a", "value": True},
        {"op": "swap", "path": "/a"},
        {"op": "add", "path": "a", "value": 1},
        {"op": "add", "path": "/a"},
        {"op": "move", "path": "/b"},
        {"path": 1},
        "text",
        None,
    ],
    ids=str,
)
def test_a_patch_that_does_not_fit_is_an_error(operation):
    """Whatever is wrong with it, and whoever wrote it."""
    with pytest.raises(JsonPatchError, match=r"\w"):
        apply_json_patch({"a": 1}, [operation])
