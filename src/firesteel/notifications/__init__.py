"""Notifications of what happens to jobs: webhooks, Slack-compatible hooks and e-mail."""
