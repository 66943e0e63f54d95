"""The history server: jobs that have ended, from the archives of many clusters, behind the same API and dashboard."""
