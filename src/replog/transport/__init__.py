"""Backends that carry messages between actors."""
