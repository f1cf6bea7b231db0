"""The decision, pure: snapshot, filters, victims, extenders, ranking, gangs."""
