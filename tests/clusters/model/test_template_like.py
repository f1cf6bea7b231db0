"""What pods in others' places are made of, if nothing but those is known."""

from tests.preemption import building
from webhook.clusters.model.new_pods import template_like
from webhook.policy.model.values import MANAGED, MARK, POD_ANNOTATIONS


def test_a_pod_in_the_place_of_another_has_nothing_of_what_giveway_says_of_that():
    """Neither its plan and its notice nor its answer are copied, nor the mark; other annotations and labels are."""
    said = {row.key: "x" for row in POD_ANNOTATIONS}
    sample = building.as_pod(building.pod("web-1"))
    sample.metadata.annotations, sample.metadata.labels = {**said, "note": "x"}, {MARK: MANAGED, "app": "web"}
    made = template_like(sample)["metadata"]
    assert (made["annotations"], made["labels"]) == ({"note": "x"}, {"app": "web"})
