"""The policies as the API server's own: ValidatingAdmissionPolicies, MutatingAdmissionPolicies and their bindings."""
