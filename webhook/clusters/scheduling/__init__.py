"""kube-scheduler as far as placement goes: its queue, filters, scores and preemption, for whoever plays it."""
