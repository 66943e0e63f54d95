"""Savepoints of streaming queries: copies of their checkpoints at a batch boundary, from which another job can start.

`selection` and `sinklog` know what a query needs to continue after a batch, `take` copies it while the query runs,
`manifest` is what makes the copy a savepoint, `retained` makes one of the checkpoint of a stream that has ended,
`restore` turns it into the checkpoint of a new job, `dispose` removes it.
"""
