"""Sending messages to the outside: retries, dead letters and an outbox that outlives leaders."""
