"""Shipped test tools: contract suites for backends, simulated disks and clocks, and waiting without guessing."""
