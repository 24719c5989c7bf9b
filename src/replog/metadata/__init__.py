"""Backends of the metadata store, and the layout of what the cluster keeps in it."""
