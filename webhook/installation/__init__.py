"""Installing giveway in a cluster and taking it out again: the manifests rendered, applied, waited for, removed."""
