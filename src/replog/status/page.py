"""The page itself: one file without anything from elsewhere, which a policy holds it to."""

from __future__ import annotations

import re
from base64 import b64encode
from functools import cache
from hashlib import sha256
from importlib.resources import files

from replog.status.http import Answer

__all__ = ["page"]


@cache
def page() -> Answer:
    """The page. Its own script and style may run and nothing else, and it may ask this server and nobody else."""
    text = files("replog.status").joinpath("page.html").read_text(encoding="utf-8")
    allowed = {tag: " ".join(_hash(one) for one in re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)) for tag in ("script", "style")}
    policy = f"default-src 'none'; script-src {allowed['script']}; style-src {allowed['style']}; connect-src 'self'; img-src data:"
    policy += "; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    return Answer(200, text.encode(), "text/html; charset=utf-8", {"Content-Security-Policy": policy})


def _hash(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"
