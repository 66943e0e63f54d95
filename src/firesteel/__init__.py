"""Firesteel: a highly available job control plane for Apache Spark."""

__version__ = "0.1.0"
