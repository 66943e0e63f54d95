"""The files of attempts: all that a control plane and its drivers tell each other. See docs/internals/attempt-files.md.

Both sides import this package, and it imports neither: no PySpark, no event loop.
"""
