"""JSON patches: what the embedded server, kustomizations and answers of the webhook have in common."""

import copy

import jsonpatch
import pytest
from hypothesis import given
from hypothesis import strategies as st

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


values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text("ab~/", max_size=2),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab~/", max_size=2), inner, max_size=3),
    max_leaves=8,
)
documents = st.dictionaries(st.sampled_from(["a", "b", "~/"]), values, max_size=3)


@given(documents, documents)
def test_json_patch_leads_where_another_implementation_leads(before, after):
    """A patch that another implementation made between two documents leads from one to the other."""
    operations = jsonpatch.make_patch(before, after).patch
    kept = copy.deepcopy(before)
    assert apply_json_patch(before, operations) == after
    assert before == kept


paths = st.sampled_from(["", "/a", "/b", "/a/0", "/a/1", "/a/-", "/a/b", "/b/a", "/~0~1", "/x/y", "/a/01"])
operations = st.lists(
    st.fixed_dictionaries({"op": st.sampled_from(["add", "replace"]), "path": paths, "value": values})
    | st.fixed_dictionaries({"op": st.sampled_from(["remove"]), "path": paths.filter(bool)}),
    max_size=3,
)


@given(documents, operations)
def test_json_patch_refuses_what_another_implementation_refuses(document, operations):
    """Operations that do not fit are refused, all others have the same effect."""
    try:
        expected = jsonpatch.apply_patch(document, operations)
    except (jsonpatch.JsonPatchException, jsonpatch.JsonPointerException, TypeError):
        with pytest.raises(JsonPatchError):
            apply_json_patch(document, operations)
        return
    assert apply_json_patch(document, operations) == expected
