"""A control plane in one process, for trying and testing only.

`embedded_cluster` puts it together. An upper package may import a lower one, never back:

    standins                what acts on the cluster, with the users it has, and what follows a deletion
    apiserver               the API server, with or without HTTP
    admission_chain, access the admission chain; who is calling, and what they may do
    rendering, merging      tables, discovery, media types; patches, server-side apply, managedFields
    object_types, storage   fields, defaults, validation; the store and how it is looked into
    protocol                calls, refusals, the table of resources
"""
