"""Jobs that verify themselves, and clients that write down what they were told."""

from __future__ import annotations

from firesteel_chaos.workload.load import Workload

__all__ = ["Workload"]
