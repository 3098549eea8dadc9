"""Notifications: what happened to a run or a cluster, sent to a webhook, to Slack or by e-mail."""
