"""High availability of type `sql`: leadership and state in one database."""
