"""Attempts as driver processes on this host.

All that must outlive the control plane is in the attempt directories (`root/<job id>/attempts/<n>`); what is kept here, per
running attempt, is a process handle, for the sake of its exit code. The order of writes is what makes a crash harmless at any
line: the spec before the driver, the end of all Spark work before a result in the name of a driver that died. See
`driver.claim` for why two leaders that both believe to lead can do each other no harm here.

| | |
|---|---|
| `executor` | the `AttemptExecutor`: everything that waits, on the event loop |
| `launcher` | the intent, and then a driver |
| `settling` | the end of an attempt: its driver, its JVMs, its session, and then its result |
| `processes` | the handles that the others share |

Only `executor` knows the event loop. The others block, and run in its threads.
"""
