"""The metadata store on ZooKeeper: `ZooKeeperStore`. The only package that imports kazoo (extra `zookeeper`)."""

from __future__ import annotations

from replog.metadata.zookeeper.store import ZooKeeperStore

__all__ = ["ZooKeeperStore"]
