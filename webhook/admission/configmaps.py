"""ConfigMaps of giveway's own namespace: the probe, and the policy files.

The probe is a dry-run UPDATE of a ConfigMap by which the server learns that the API server reaches it. The policy files
are judged when they are applied: a typo or a lost rule is told to whoever applies it. The servers check again when they
load the files, so nothing depends on this answer (`failurePolicy: Ignore`).
"""

import re
from collections.abc import Collection, Iterable, Sequence
from importlib.metadata import version

from webhook.admission.context import Context
from webhook.admission.review import Review
from webhook.policy.cel.program import AllowanceError
from webhook.policy.evaluation.request import part
from webhook.policy.files.loading import load_texts, texts_of
from webhook.policy.model.globs import name_matcher
from webhook.policy.model.policies import Policies
from webhook.policy.reports import Removal, removals
from webhook.policy.shapes.findings import Severity

PROBE = "giveway-probe"
"""The ConfigMap's name. What it holds means nothing; nothing is ever written to it."""
POLICIES = "giveway-policies"
"""The ConfigMap's name, in giveway's own namespace."""
ALLOW_REMOVAL = "giveway.dev/allow-removal"
"""Its annotation that says what may be given up: ids of policies or `policy/rule`, or globs, in a list."""
_SHOWN = 5
_LONGEST_LIST = 32 * 1024
"""Characters of that list that are read: as globs they take 0.3 s to compile."""
_LONGEST = 8.0
"""Seconds of a thread after which no further file is read: the API server waits no longer, and a thread has no end."""


def mutate_config_map(context: Context, review: Review) -> None:
    """Answer the probe."""
    if (review.namespace, review.name) == (context.namespace, PROBE):
        review.answer.warnings.append(answers("mutate"))


def validate_config_map(context: Context, review: Review) -> None:
    """Answer the probe, and judge the policies, in giveway's own namespace only.

    Files with errors are refused, and files that give up rules in force unless the ConfigMap says that they may.
    Raises AllowanceError if the review has no time for that: reading and compiling takes long.
    """
    answer = review.answer
    if review.namespace != context.namespace:
        return
    if review.name == PROBE:
        answer.warnings.append(answers("validate"))
    if review.name != POLICIES:
        return
    if context.allowance is not None:
        raise AllowanceError
    kept = (part(review.object, field) for field in ("data", "binaryData"))
    loaded = load_texts(*texts_of(POLICIES, *kept), uses=context.uses, seconds=_LONGEST)
    if loaded.errors:
        answer.deny("policies", "the policies have errors:\n" + _few(loaded.errors, "\n"))
        return
    for finding in loaded.findings:
        if finding.severity is Severity.WARNING:
            answer.warnings.append(f"{finding.place}: {finding.message}")
    annotations = part(part(review.object, "metadata"), "annotations")
    listed = annotations.get(ALLOW_REMOVAL)
    text = listed[:_LONGEST_LIST] if isinstance(listed, str) else ""
    allowed = text.replace(",", " ").split()
    held = held_back(removals(context.engine.policies, loaded.policies), allowed)
    if held:
        answer.deny("policy-removal", mend(held, allowed, loaded.policies))


def answers(phase: str) -> str:
    """The warning that says that a replica of this version answered in this phase."""
    return f"giveway {version('giveway')} answers ({phase})"


def answered(phase: str, warnings: Iterable[str]) -> bool:
    """Whether a warning says that a replica, of whatever version, answered in this phase."""
    said = re.compile(rf"giveway \S+ answers \({phase}\)")
    return any(said.fullmatch(text) for text in warnings)


def held_back(removals: Iterable[Removal], allowed: Iterable[str]) -> list[Removal]:
    """The removals that nobody allowed; `allowed` are ids, as names or globs."""
    names = name_matcher(tuple(allowed))
    return [removal for removal in removals if not names(removal.id)]


def mend(held: list[Removal], allowed: Collection[str], new: Policies) -> str:
    """What `new` gives up, and how to allow it beside what is `allowed` already."""
    ids = " ".join(dict.fromkeys(removal.id for removal in held))
    say = f"annotate the ConfigMap {POLICIES} with {ALLOW_REMOVAL}"
    if allowed:
        say = f"add to {ALLOW_REMOVAL} of the ConfigMap {POLICIES}"
    if new == Policies():
        say = f"leave at least one policy, because a set without any is not taken into use, and {say}"
    text = f"these policies give up what is in force: {_few(held, '; ')}"
    return f'{text}. Put it back, or, if that is meant, {say}: "{ids}"'


def _few(items: Sequence[object], between: str) -> str:
    more = [f"and {len(items) - _SHOWN} more"] if len(items) > _SHOWN else []
    return between.join([*map(str, items[:_SHOWN]), *more])
