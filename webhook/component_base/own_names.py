"""What giveway's own objects are called: all lie in one namespace, under the names that `manifests/base` gives them."""

SYSTEM_NAMESPACE = "giveway-system"
"""The namespace, unless whoever installs giveway chose another one."""
WEBHOOK = "giveway-webhook"
"""The webhook's Deployment, Service and service account."""
RECONCILER = "giveway-reconciler"
"""The reconciler's Deployment, Lease and service account."""
CONFIGURATION = "giveway"
"""Both webhook configurations."""
APPLIED = "giveway-policies"
"""The ConfigMap with the policies that were applied."""
IN_FORCE = "giveway-policies-in-force"
"""The ConfigMap in which the webhook keeps the policies in force."""


def reconciler_user(namespace: str) -> str:
    """The user name of the reconciler's service account."""
    return f"system:serviceaccount:{namespace}:{RECONCILER}"
