"""The life of a plan, from the decision to the binding."""
