"""What everything else speaks of: calls and replies, `Status` bodies, the table of resources."""
