"""Which modules the functions are in that each target executes, `replog.` left out.

Its counts are of their sources (`tests.fuzz.target.version`), and a test executes each target and finds just these.
"""

from __future__ import annotations

from typing import Final

__all__ = ["CODE"]

_MODULES: Final = {
    "frame": """
        codec.decoding codec.encoding codec.frames codec.quick codec.stepwise config messages.control messages.data messages.staging
        messages.transport model slices
    """,
    "payload": "payload payload_check records",
    "produced": "marks payload payload_check records",
    "segment": "log.scan log.segment log.verify marks model payload records",
    "followed": "model partition.following payload records",
    "index": """
        log.checkpoint log.epochs log.producers log.scan log.segment log.shapes log.storage marks model ports.logs records
    """,
    "checkpoint": "log.checkpoint log.loss log.repair.facts log.shapes model",
    "catalogue": "config log.catalogue log.checkpoint log.shapes log.syncing model",
    "producers": "log.checkpoint log.producers log.shapes ports.logs",
    "directory": """
        config log.base log.catalogue log.checkpoint log.directory log.epochs log.files log.lock log.log log.loss log.open_files
        log.producers log.recovery log.rewriting log.scan log.segment log.segmented log.shapes log.staging log.storage log.syncing log.tail
        log.verify marks model payload ports.logs records
    """,
    "repair": """
        config log.catalogue log.checkpoint log.loss log.repair.facts log.repair.planning log.scan log.segment log.shapes log.storage
        log.syncing log.verify model payload records
    """,
    "store": """
        errors features metadata.judgements metadata.layout metadata.loss_reports metadata.values metadata.wishes model ports.logs
        ports.stores
    """,
    "path": "config errors metadata.judgements metadata.layout metadata.paths model",
    "shown": "cli.output cli.stores errors metadata.looking metadata.values",
    "database": "cli.output cli.stores errors metadata.database metadata.looking metadata.place metadata.tree metadata.values",
    "stream": "codec.frames transport.tcp.buffers transport.tcp.incoming",
    "handshake": """
        codec.decoding codec.encoding codec.frames codec.stepwise messages.transport security.identity security.kept
        security.proof security.settings security.watched transport.tcp.fitting transport.tcp.handshake transport.tcp.reception
    """,
    "endpoint": "security.shown transport.tcp.endpoint",
    "http": "status.http status.server status.source transport.tcp.endpoint",
    "plan": "cli.plans client.arguments client.reassigning config errors.texts",
    "history": "testing.history.events testing.history.jsonl testing.history.recorder",
    "rules": "security.rules",
    "positions": "config model spark.offsets",
    "page": "cli.output cli.pages",
}
CODE: Final[dict[str, tuple[str, ...]]] = {name: tuple(said.split()) for name, said in _MODULES.items()}
"""Name of a target -> modules."""
