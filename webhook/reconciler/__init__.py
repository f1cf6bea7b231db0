"""The half that acts: queue, plans, executor and the control loop that preempts for the pods the webhook marked."""
