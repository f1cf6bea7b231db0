"""The typed model of the policy files, as loaded: what a platform team wrote, checked and with defaults filled in.

`webhook.policy.files.loading` makes these from YAML. A field stands in one place: the struct says its type and default,
and its annotation what may stand in it and what it is for; the loader and the JSON schema follow
(`webhook.policy.shapes.object_shape`). Durations are seconds.
"""
