"""Which preemptor is looked at when: event handlers, queueing hints, back-off."""
