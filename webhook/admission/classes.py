"""Validation of PriorityClasses: what holds without any policy file, and who may define them."""

from webhook.admission.context import CLASSES, SYSTEM_CLASSES, Context
from webhook.admission.resolving import NEVER, policy_of
from webhook.admission.review import Review
from webhook.kube.bounded import bounded
from webhook.kube.objects.cluster_scoped import PriorityClass
from webhook.policy.model.match import GARBAGE_COLLECTORS

_HIGHEST_USER_VALUE = 1_000_000_000
_INT32 = range(-(2**31), 2**31)
_RANGE = f"value {{}} does not fit an int32 ({_INT32.start} to {_INT32.stop - 1})"
_RESERVED = "priority class names with 'system-' prefix are reserved for system use only; {}"
_HIGHEST = (
    f"maximum allowed value of a user defined priority is {_HIGHEST_USER_VALUE}; {{}} asks for {{}}; choose a lower one"
)
_IMMUTABLE = "{} may not be changed in an update (now {}, requested {}); make a new PriorityClass"
_NOT_NEVER = (
    f"PriorityClass {{}} is managed but not {NEVER}: kube-scheduler preempts for its pods, giveway does not. Delete it"
    f' and make it again with "preemptionPolicy: {NEVER}"'
)
_ONE_DEFAULT = "PriorityClass {0} is already marked as default. Only one default can exist"
_INSTEAD = "leave globalDefault out, or take it off {0} first"


def validate_class(context: Context, review: Review) -> None:
    """Judge a PriorityClass as it would be stored, in the API server's words (docs/kubernetes-behaviour.md K4)."""
    answer, engine = review.answer, context.engine
    if review.operation == "DELETE":
        # The garbage collector deletes for an owner; a new owner is judged when the reference to it is added
        owners = review.typed(PriorityClass, old=True).metadata.owner_references
        if not (owners and review.user.username in GARBAGE_COLLECTORS):
            answer.add(engine.judge_going(context.request(review, review.old_object or {})))
        return
    class_, request = review.typed(PriorityClass), context.request(review)
    if class_.metadata.deletion_timestamp and review.has_old:
        # Until it is gone it speaks for its pods
        answer.add(engine.judge_going(request))
        return
    name, value = bounded(class_.metadata.name), class_.value
    if value not in _INT32:
        answer.deny("int32", _RANGE.format(value))
    elif name.startswith("system-"):
        own = SYSTEM_CLASSES.get(name) == value
        if not own or class_.global_default:
            instead = "leave globalDefault out" if own else f"choose another name than {name}"
            answer.deny("system-prefix", _RESERVED.format(instead))
    elif value > _HIGHEST_USER_VALUE:
        answer.deny("highest-value", _HIGHEST.format(name, value))
    policy = policy_of(class_)
    if review.operation == "UPDATE" and review.has_old:
        old = review.typed(PriorityClass, old=True)
        if value != old.value:
            answer.deny("class-immutable", _IMMUTABLE.format("value", old.value, value))
        if policy != policy_of(old):
            text = _IMMUTABLE.format("preemptionPolicy", policy_of(old), policy)
            answer.deny("class-immutable", text)
    elif policy != NEVER and context.managed(name) is not None:
        answer.warnings.append(_NOT_NEVER.format(name))
    defaults = context.lookup.default_priority_classes() if class_.global_default else ()
    others = [item.metadata.name for item in defaults if item.metadata.name != name]
    if others:
        answer.unsure.add((CLASSES, others[0]))
        answer.deny("one-default", f"{_ONE_DEFAULT}; {_INSTEAD}".format(others[0]))
    request.priority_class, request.priority = class_, value
    answer.add(engine.judge(request, context.trace))
