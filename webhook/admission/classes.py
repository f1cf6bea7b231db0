"""Validation of PriorityClasses: what holds without any policy file, and who may define them."""

from webhook.admission.context import CLASSES, SYSTEM_CLASSES, Context
from webhook.admission.resolving import NEVER, policy_of
from webhook.admission.review import Answer, Review
from webhook.kube.bounded import bounded
from webhook.kube.objects.cluster_scoped import PriorityClass
from webhook.policy.model.match import GARBAGE_COLLECTORS

_HIGHEST_USER_VALUE = 1_000_000_000
_INT32 = range(-(2**31), 2**31)


def validate_class(context: Context, review: Review, answer: Answer) -> None:
    """Judge a PriorityClass as it would be stored, in the API server's words (docs/kubernetes-behaviour.md K4)."""
    if review.operation == "DELETE":
        # The garbage collector deletes for an owner; a new owner is judged when the reference to it is added
        owners = review.typed(PriorityClass, old=True).metadata.owner_references
        if not (owners and review.user.username in GARBAGE_COLLECTORS):
            answer.add(context.engine.judge_going(context.request(review, review.old_object or {})))
        return
    priority_class = review.typed(PriorityClass)
    if priority_class.metadata.deletion_timestamp and review.has_old:
        # Until it is gone it speaks for its pods
        answer.add(context.engine.judge_going(context.request(review)))
        return
    name, value = bounded(priority_class.metadata.name), priority_class.value
    policy = policy_of(priority_class)
    if value not in _INT32:
        answer.deny("int32", f"value {value} does not fit an int32 ({_INT32.start} to {_INT32.stop - 1})")
    elif name.startswith("system-"):
        own = SYSTEM_CLASSES.get(name) == value
        if not own or priority_class.global_default:
            instead = "leave globalDefault out" if own else f"choose another name than {name}"
            text = "priority class names with 'system-' prefix are reserved for system use only"
            answer.deny("system-prefix", f"{text}; {instead}")
    elif value > _HIGHEST_USER_VALUE:
        text = f"maximum allowed value of a user defined priority is {_HIGHEST_USER_VALUE}"
        answer.deny("highest-value", f"{text}; {name} asks for {value}; choose a lower one")
    if review.operation == "UPDATE" and review.has_old:
        old = review.typed(PriorityClass, old=True)
        changes = {"value": (old.value, value), "preemptionPolicy": (policy_of(old), policy)}
        for field, (was, new) in changes.items():
            if new != was:
                text = f"{field} may not be changed in an update (now {was}, requested {new})"
                answer.deny("class-immutable", f"{text}; make a new PriorityClass")
    elif policy != NEVER and context.managed(name) is not None:
        answer.warnings.append(
            f"PriorityClass {name} is managed but not {NEVER}: kube-scheduler preempts for its pods,"
            f' giveway does not. Delete it and make it again with "preemptionPolicy: {NEVER}"'
        )
    defaults = context.lookup.default_priority_classes() if priority_class.global_default else ()
    others = [item.metadata.name for item in defaults if item.metadata.name != name]
    if others:
        answer.unsure.add((CLASSES, others[0]))
        text = f"PriorityClass {others[0]} is already marked as default. Only one default can exist"
        answer.deny("one-default", f"{text}; leave globalDefault out, or take it off {others[0]} first")
    request = context.request(review)
    request.priority_class, request.priority = priority_class, value
    answer.add(context.engine.judge(request, context.trace))
