"""The giveway command: one file per sub-command."""
