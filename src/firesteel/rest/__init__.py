"""The REST endpoint: the HTTP face of a node."""
