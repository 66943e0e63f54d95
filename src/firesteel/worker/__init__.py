"""Runs attempts and engines on one host, and knows nothing else about the node that it serves.

All that must outlive this process is in the attempt directories (`root/<job id>/attempts/<n>`) and those of engines.
For each running attempt this package keeps only a process handle, to learn its exit code. The order of writes makes a
crash harmless at any line: the spec before the driver, the end of all Spark work before a result on behalf of a driver
that died. `attempts.claim` explains why two leaders that both believe that they lead cannot harm each other here.

| | |
|---|---|
| `executor` | the `AttemptExecutor` of this host: everything that waits, on the event loop |
| `launcher` | the intent, and then a driver |
| `settling` | the end of an attempt: its driver, its JVMs, its session, and then its result |
| `processes`, `pool`, `gateway`, `watch` | driver processes, their parent, JVMs of classic drivers, ends of processes |
| `errands` | work at places that callers name, done by processes of their owners |
| `engines` | the `EngineProvider` of this host: engines as its processes |
| `identity`, `offer` | who the worker of this host is, and what it has room for |
| `sandboxing` | which sandbox the configuration asks for |

Only `executor`, `errands` and `engines` know the event loop. The others block, and run in their threads.
"""
