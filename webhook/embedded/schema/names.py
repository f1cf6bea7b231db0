"""What an object may be called (`apimachinery/pkg/util/validation`)."""

from __future__ import annotations

import re

from webhook.embedded.protocol.api_resources import ApiResource
from webhook.embedded.protocol.statuses import Cause

__all__ = ["generate_name_cause", "name_cause"]

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_DNS_1035 = "[a-z]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN_RULE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start "
    rf"and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '{_SUBDOMAIN}')"
)
_LABEL_RULE = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end "
    f"with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '{_LABEL}')"
)
_DNS_1035_RULE = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, "
    "and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is "
    f"'{_DNS_1035}')"
)
_RULES = {
    "Namespace": (_LABEL, _LABEL_RULE, 63),
    "Service": (_DNS_1035, _DNS_1035_RULE, 63),
}
_FREE = ("Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding")
"""Kinds whose names need only be a segment of a path."""


def name_cause(resource: ApiResource, name: str) -> Cause | None:
    """What is wrong with a name, or None."""
    return _cause(resource, name, "metadata.name", name)


def generate_name_cause(resource: ApiResource, prefix: str | None) -> Cause | None:
    """What is wrong with a prefix; a dash at its end is no fault, for a suffix follows."""
    if not prefix:
        return None
    judged = f"{prefix[:-1]}a" if prefix.endswith("-") else prefix
    return _cause(resource, judged, "metadata.generateName", prefix)


def _cause(resource: ApiResource, judged: str, field: str, shown: str) -> Cause | None:
    if resource.kind in _FREE:
        if judged in (".", "..") or re.search("[/%]", judged):
            return Cause(field, "FieldValueInvalid", f"Invalid value: \"{shown}\": may not contain '/' or '%'")
        return None
    pattern, rule, longest = _RULES.get(resource.kind, (_SUBDOMAIN, _SUBDOMAIN_RULE, 253))
    if len(judged) > longest:
        rule = f"must be no more than {longest} bytes"
    elif re.fullmatch(pattern, judged):
        return None
    return Cause(field, "FieldValueInvalid", f'Invalid value: "{shown}": {rule}')
