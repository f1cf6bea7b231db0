"""What is made of a policy set outside `webhook.policy`: the rest of its first use (`webhook.policy.files.loading`).

It is all used in every process, so that no set comes into force of which another process can make nothing.
"""

from webhook.kube.objects.cluster_scoped import PriorityClass
from webhook.kube.objects.meta import ObjectMeta
from webhook.native.compiler import compile_policies
from webhook.native.objects import Settings
from webhook.policy.files.loading import Use
from webhook.policy.model.policies import Policies
from webhook.preemption.snapshot.pod_view import Profile
from webhook.preemption.victims.rules import compile_rules
from webhook.registration.entries import WebhookTarget, entries

_CLASS = PriorityClass(metadata=ObjectMeta(name="example", annotations={}), value=1)
_POD = Profile(_CLASS.metadata.name, _CLASS.value, "default-scheduler", ())
_TARGET = WebhookTarget()
_SETTINGS = Settings(namespace=_TARGET.namespace, reconciler=_TARGET.reconciler)


def use_everywhere(policies: Policies, now: float) -> None:
    """Compile the decision's rules and ask them about a pod, compile the native form, and make the entries.

    `now` is in seconds since the epoch. Raises whatever one of these raises.
    """
    classes = {_CLASS.metadata.name: _CLASS}
    for policy in policies.preemption:
        rules = compile_rules(policy)
        rules.reason(_POD, classes)
        rules.protection(_POD)
        rules.toleration(_POD, classes)
        rules.outside(now)
        rules.protects_until(now)
    compile_policies(policies, [_CLASS], _SETTINGS, now)
    entries(policies, _TARGET)


USES: tuple[Use, ...] = (use_everywhere,)
