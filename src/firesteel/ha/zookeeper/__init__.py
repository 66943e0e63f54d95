"""High availability of type `zookeeper`: leadership and state in an ensemble, large values in shared files."""
