"""The locked door in front of the REST API: who asks, what they may do, and what never gets in."""
