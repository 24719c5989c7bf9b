"""replog: a replicated log as a library. Kafka's in-sync replication, embedded in your process.

>>> import replog
>>> with replog.Cluster(brokers=3) as cluster:
...     _ = cluster.create_topic("orders", partitions=1)
...     receipt = cluster.append("orders", 0, ["first", "second"])
...     [record.text() for record in cluster.read("orders")]
['first', 'second']

The names below are the public API. Each is loaded when it is first used, so that `import replog` costs next to
nothing, starts no thread, and never imports an optional dependency.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from replog import errors
    from replog.client.client import Client
    from replog.client.consumer import Consumer
    from replog.client.explaining import Explanation
    from replog.client.producer import Deliveries, Delivery, Producer
    from replog.client.results import (
        BrokerDescription,
        ClusterDescription,
        ControllerDescription,
        FeatureLevels,
        PartitionDescription,
        Receipt,
        RecordMetadata,
        TopicDescription,
    )
    from replog.config import BrokerConfig, ClientConfig, TopicConfig
    from replog.controller.controller import Controller
    from replog.errors import Rejected, ReplogError, TimedOut, Unavailable, UsageError
    from replog.log.memory import MemoryLog
    from replog.metadata.file import FileStore
    from replog.metadata.memory import MemoryStore
    from replog.metadata.zookeeper import ZooKeeperStore
    from replog.model import TopicPartition
    from replog.partition.partition import Partition
    from replog.partition.replica import Replica
    from replog.ports import Log, MetadataStore, Transport
    from replog.records import Record
    from replog.runtime.child import BrokerProcess
    from replog.runtime.connected import connect
    from replog.runtime.embedded import Cluster
    from replog.runtime.node import Broker, LocalPartition
    from replog.security.quotas import Quotas
    from replog.security.settings import Security, Tls
    from replog.transport.memory import MemoryTransport
    from replog.transport.tcp.transport import TcpTransport

__version__ = "0.1.0"

__all__ = [
    "Broker",
    "BrokerConfig",
    "BrokerDescription",
    "BrokerProcess",
    "Client",
    "ClientConfig",
    "Cluster",
    "ClusterDescription",
    "Consumer",
    "Controller",
    "ControllerDescription",
    "Deliveries",
    "Delivery",
    "Explanation",
    "FeatureLevels",
    "FileStore",
    "LocalPartition",
    "Log",
    "MemoryLog",
    "MemoryStore",
    "MemoryTransport",
    "MetadataStore",
    "Partition",
    "PartitionDescription",
    "Producer",
    "Quotas",
    "Receipt",
    "Record",
    "RecordMetadata",
    "Rejected",
    "Replica",
    "ReplogError",
    "Security",
    "TcpTransport",
    "TimedOut",
    "Tls",
    "TopicConfig",
    "TopicDescription",
    "TopicPartition",
    "Transport",
    "Unavailable",
    "UsageError",
    "ZooKeeperStore",
    "connect",
    "errors",
]

# Public name -> the module that defines it; the imports above say the same to type checkers, and a test compares the two.
_HOME = {
    "Broker": "replog.runtime.node",
    "BrokerConfig": "replog.config",
    "BrokerDescription": "replog.client.results",
    "BrokerProcess": "replog.runtime.child",
    "Client": "replog.client.client",
    "ClientConfig": "replog.config",
    "Cluster": "replog.runtime.embedded",
    "ClusterDescription": "replog.client.results",
    "Consumer": "replog.client.consumer",
    "Controller": "replog.controller.controller",
    "ControllerDescription": "replog.client.results",
    "Deliveries": "replog.client.producer",
    "Delivery": "replog.client.producer",
    "Explanation": "replog.client.explaining",
    "FeatureLevels": "replog.client.results",
    "FileStore": "replog.metadata.file",
    "LocalPartition": "replog.runtime.node",
    "Log": "replog.ports",
    "MemoryLog": "replog.log.memory",
    "MemoryStore": "replog.metadata.memory",
    "MemoryTransport": "replog.transport.memory",
    "MetadataStore": "replog.ports",
    "Partition": "replog.partition.partition",
    "PartitionDescription": "replog.client.results",
    "Producer": "replog.client.producer",
    "Quotas": "replog.security.quotas",
    "Receipt": "replog.client.results",
    "Record": "replog.records",
    "RecordMetadata": "replog.client.results",
    "Rejected": "replog.errors",
    "Replica": "replog.partition.replica",
    "ReplogError": "replog.errors",
    "Security": "replog.security.settings",
    "TcpTransport": "replog.transport.tcp.transport",
    "TimedOut": "replog.errors",
    "Tls": "replog.security.settings",
    "TopicConfig": "replog.config",
    "TopicDescription": "replog.client.results",
    "TopicPartition": "replog.model",
    "Transport": "replog.ports",
    "Unavailable": "replog.errors",
    "UsageError": "replog.errors",
    "ZooKeeperStore": "replog.metadata.zookeeper",
    "connect": "replog.runtime.connected",
    "errors": "replog.errors",
}


if not TYPE_CHECKING:  # a type checker that saw this function would accept every name

    def __getattr__(name: str) -> Any:
        home = _HOME.get(name)
        if home is None:
            raise AttributeError(f"module 'replog' has no attribute {name!r}")
        module = import_module(home)
        value = module if name == "errors" else getattr(module, name)
        globals()[name] = value  # found without this function from now on
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
