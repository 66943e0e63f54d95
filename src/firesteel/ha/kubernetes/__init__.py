"""High availability of type `kubernetes`: leadership in a Lease, state in ConfigMaps (docs/decisions/0020)."""
