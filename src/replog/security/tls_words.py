"""Why a socket, or TLS on it, could not go on: in words for people, one sentence for each thing that can be put right."""

from __future__ import annotations

from typing import Final

__all__ = ["words_of"]

_REASONS: Final = {
    "CERTIFICATE_VERIFY_FAILED": "its certificate is not accepted",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "it has shown no certificate",
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "it asks for a certificate, and this process has shown none",
    "TLSV1_ALERT_UNKNOWN_CA": "it does not accept the certificate of this process: another authority has signed it",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "it does not accept the certificate of this process: that has expired",
    "SSLV3_ALERT_BAD_CERTIFICATE": "it does not accept the certificate of this process",
    "WRONG_VERSION_NUMBER": "it does not speak TLS",
    "HTTP_REQUEST": "it does not speak TLS",
    "RECORD_LAYER_FAILURE": "it does not speak TLS",
    "UNSUPPORTED_PROTOCOL": "it does not speak TLS 1.3",
    "TLSV1_ALERT_PROTOCOL_VERSION": "it does not speak TLS 1.3",
    "UNEXPECTED_EOF_WHILE_READING": "it has ended the connection (does it speak TLS?)",
    "Closed before TLS handshake with data in recv buffer.": "it has reset the connection before TLS began",
}


def words_of(problem: Exception) -> str:
    """What `strerror` says; of errors of `ssl`, which is not imported for this, what their reason means."""
    reason = getattr(problem, "reason", None)
    library = getattr(problem, "library", None)
    if reason is None and library is None:
        if isinstance(problem, EOFError) or type(problem).__name__ == "SSLEOFError":
            return _REASONS["UNEXPECTED_EOF_WHILE_READING"]
        return getattr(problem, "strerror", None) or type(problem).__name__
    text = _REASONS.get(str(reason), f"TLS: {str(reason).lower().replace('_', ' ')}")
    why = getattr(problem, "verify_message", None)
    return f"{text}: {why}" if why else text
