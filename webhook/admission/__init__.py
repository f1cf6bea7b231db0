"""AdmissionReview in, verdict and patch, AdmissionReview out."""
