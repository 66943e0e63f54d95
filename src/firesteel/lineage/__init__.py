"""Lineage of jobs as OpenLineage events."""
