"""All partitions on one broker, and its registration with the metadata store."""
