"""Faults on purpose: what is done to a cluster, what is seen of it from outside, and what must hold all the same.

The control plane knows nothing of this package, and this package looks at a cluster only as others can: through its REST API,
its processes, its files and its store.
"""
