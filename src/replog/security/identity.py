"""Who somebody has proven to be: a role, and a name within it. Written "broker/3", "admin", "client/billing"."""

from __future__ import annotations

import re
from typing import Final, Literal

from attrs import frozen

from replog.messages import BROKER, CLIENT, Role

__all__ = ["ADMIN", "ROLES", "Identity", "Proven", "identity_from"]

ADMIN: Final = "admin"
"""What a client may, and wishes that change the cluster."""
Proven = Role | Literal["admin"]
"""A role that can be proven: an admin connects as a client does."""
ROLES: Final[tuple[Proven, ...]] = (BROKER, ADMIN, CLIENT)

_NAME: Final = re.compile(r"[A-Za-z0-9._@-]{1,128}")
_BROKER_ID: Final = re.compile(r"0|[1-9][0-9]{0,9}")
_BROKER_ID_MAX: Final = 2**31 - 1


@frozen
class Identity:
    """`name`: of a broker its number; of others whatever the secret or the certificate is for, or empty."""

    role: Proven
    name: str = ""

    def __str__(self) -> str:
        return f"{self.role}/{self.name}" if self.name else self.role

    @property
    def is_broker(self) -> bool:
        """Whether it may replicate, command and change an ISR."""
        return self.role == BROKER


def identity_from(text: str) -> Identity | None:
    """The identity that is written so; None if there is none."""
    role, slash, name = text.partition("/")
    known = next((one for one in ROLES if one == role), None)
    if known is None or (slash and not _NAME.fullmatch(name)):
        return None
    if known == BROKER and name and not (_BROKER_ID.fullmatch(name) and int(name) <= _BROKER_ID_MAX):
        return None
    return Identity(known, name)
