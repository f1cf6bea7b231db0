"""The admission chain: in-tree plugins and the webhooks that are configured."""
