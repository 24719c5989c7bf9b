"""The status page: how a cluster is, over HTTP, for people and for monitoring (docs/operations.md)."""
