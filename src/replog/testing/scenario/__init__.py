"""Readable scenarios: what is commanded, and what is then seen."""
