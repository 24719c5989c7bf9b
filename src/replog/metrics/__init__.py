"""What a broker counts and measures: one table of names, snapshots of plain numbers, and Prometheus (docs/metrics.md)."""
