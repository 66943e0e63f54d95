"""The workers of a cluster, as its leader sees them."""
