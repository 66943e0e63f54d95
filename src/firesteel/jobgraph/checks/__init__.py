"""The rules of a job graph, one module per subject.

Each check reports into a Context and never stops at the first finding.
"""
