"""What the leader and its workers say to each other.

A worker talks to the leader through the REST port of a node, and nothing listens on the worker. It registers, keeps one
response open on which commands come, a line of JSON each, and posts reports. `messages` is the vocabulary, `calls` how the
arguments and results of commands are written.
"""
