"""Policy files to a typed model, to compiled rules, to verdicts with reasons."""
