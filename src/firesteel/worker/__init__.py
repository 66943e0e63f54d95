"""What runs attempts and engines on one host. It knows nothing else of the node that it serves.

All that must outlive this process is in the attempt directories (`root/<job id>/attempts/<n>`) and those of engines; what is
kept here, per running attempt, is a process handle, for the sake of its exit code. The order of writes is what makes a crash
harmless at any line: the spec before the driver, the end of all Spark work before a result in the name of a driver that died.
`attempts.claim` says why two leaders that both believe to lead can do each other no harm here.

| | |
|---|---|
| `executor` | the `AttemptExecutor` of this host: everything that waits, on the event loop |
| `launcher` | the intent, and then a driver |
| `settling` | the end of an attempt: its driver, its JVMs, its session, and then its result |
| `processes`, `pool`, `gateway`, `watch` | driver processes, their parent, JVMs of classic drivers, ends of processes |
| `errands` | work at places that callers name, done by processes of their owners |
| `engines` | the `EngineProvider` of this host: engines as its processes |
| `sandboxing` | which sandbox the configuration asks for |

Only `executor`, `errands` and `engines` know the event loop. The others block, and run in their threads.
"""
