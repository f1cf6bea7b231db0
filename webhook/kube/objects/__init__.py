"""The Kubernetes objects this project reads, each with only the fields it uses.

Field names are Kubernetes' own in snake_case; in JSON they are camelCase. Unknown fields are ignored on
decoding, so a newer API version passes. A collection that Kubernetes may leave out *or* send as `null` is
None when empty: read it as `spec.tolerations or ()`. Instants stay RFC 3339 strings (`webhook.kube.instants`
parses them) and quantities stay as sent (`webhook.kube.quantity` parses them): decoding must not fail on a
value that only one rule looks at.
"""
