"""What `giveway demo` shows: recorded reviews and six scenarios. Not in the production image."""
