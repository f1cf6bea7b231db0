"""Who may be evicted, who has to be, and which budgets that costs."""
