"""The REST endpoint: the HTTP interface of a node."""
