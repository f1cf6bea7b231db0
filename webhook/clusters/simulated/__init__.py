"""A cluster that acts in virtual time: an API server, kubelets, controllers and budgets, as far as they decide."""
