"""Numbers about a node and its jobs: declared once, counted where things happen, and read by reporters.

    from firesteel.metrics.declarations import SUBMISSIONS
    registry.count(SUBMISSIONS, "accepted")

`declarations` is the table, `registry` keeps the values, `exposition` writes them for Prometheus, `reporters` sends them
elsewhere. Nothing in here knows REST or Spark. `counter` and `gauge` are for the code of jobs; see `jobs`.
"""

from firesteel.metrics.jobs import counter, gauge

__all__ = ["counter", "gauge"]
