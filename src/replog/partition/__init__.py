"""One partition on one broker: what a copy may do, and what it may believe about the others. Pure: no clock, no I/O but its log."""
