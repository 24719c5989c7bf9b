"""Messages between processes over TCP."""

from __future__ import annotations

from replog.transport.tcp.lanes import BULK, CONTROL, DATA, lane_of
from replog.transport.tcp.limits import TcpLimits
from replog.transport.tcp.transport import TcpTransport

__all__ = ["BULK", "CONTROL", "DATA", "TcpLimits", "TcpTransport", "lane_of"]
