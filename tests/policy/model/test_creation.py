"""The record of what a pod said when it was made: which keys it tells of, and what is made of it."""

import pytest

from webhook.kube.objects.meta import ObjectMeta
from webhook.kube.objects.pod import Pod, PodSpec
from webhook.policy.model.creation import (
    GROUP_ANNOTATIONS,
    GROUP_LABELS,
    at_creation,
    creation_record,
    not_recorded,
    renamed,
)
from webhook.policy.model.values import CREATION
from webhook.preemption.snapshot.pod_groups import group_of, index_of, minimum_said_by


class Watched(dict):
    """Labels or annotations that note what is asked of them."""

    def __init__(self):
        super().__init__({"a": "b"})
        self.asked = set()

    def get(self, key, default=None):
        self.asked.add(key)
        return super().get(key, default)

    def __contains__(self, key):
        self.asked.add(key)
        return super().__contains__(key)


def test_every_key_by_which_pods_name_groups_is_recorded():
    """A source of groups with another key would be read of running pods as they are now."""
    meta = ObjectMeta(name="p", namespace="ns", labels=Watched(), annotations=Watched())
    pod = Pod(metadata=meta, spec=PodSpec(scheduling_group={}))
    assert (str(group_of(pod)), index_of(pod), minimum_said_by(pod)) == ("", 0, 0)
    labels, annotations = meta.labels.asked, meta.annotations.asked - {CREATION}
    assert labels <= set(GROUP_LABELS)
    assert annotations == set(GROUP_ANNOTATIONS)
    assert set(GROUP_LABELS) - labels <= {"leaderworkerset.sigs.k8s.io/group-index", "batch.kubernetes.io/job-name"}


@pytest.mark.parametrize("text", ["", "{", "[]", '{"labels":1}', '{"labels":{"a":null}}', '{"x":' + "[" * 5000])
def test_a_record_that_cannot_be_read_tells_nothing(text):
    """The pod counts as one without a record."""
    meta = ObjectMeta(labels={"tier": "now"}, annotations={CREATION: text, GROUP_ANNOTATIONS[0]: "g"})
    assert (at_creation(meta).labels, at_creation(meta).annotations) == (meta.labels, meta.annotations)
    assert not_recorded(meta.annotations, ["tier"]) == {"tier"}
    assert renamed(text, str.upper, str.upper) == ""


def test_what_a_record_does_not_tell_of_is_as_it_is_now():
    """Only the labels of groups and those that it names are as they were."""
    record = creation_record({"tier": "a", "other": "b"}, {"note": "x"}, ["gone", "tier"])
    assert record == '{"labels":{"tier":"a"},"annotations":{},"absent":["gone"]}'
    labels = {"tier": "now", "gone": "now", "other": "now", GROUP_LABELS[0]: "now"}
    meta = ObjectMeta(labels=labels, annotations={CREATION: record, "note": "now", GROUP_ANNOTATIONS[0]: "now"})
    assert at_creation(meta).labels == {"tier": "a", "other": "now"}
    assert at_creation(meta).annotations == {CREATION: record, "note": "now"}
    assert not_recorded(meta.annotations, ["tier", "gone", "other", GROUP_LABELS[0]]) == {"other"}
