"""Everything that acts: queue, nominations, executor and the control loop."""
