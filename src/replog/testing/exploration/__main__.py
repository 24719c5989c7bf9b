"""The command line of the explorations.

python -m replog.testing.exploration model [--records 2 --epochs 4 ...]    the published rules
python -m replog.testing.exploration real [--records 2 --epochs 3 ...]     the real code
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line. Returns 0 if what should hold holds, and 2 if it was not understood."""
    name, *rest = [*(sys.argv[1:] if arguments is None else arguments), ""]
    rest = rest[:-1]
    if name == "model":
        from replog.testing.exploration.model_command import main as explore_model

        return explore_model(rest, print)
    if name == "real":
        from replog.testing.exploration.real_command import main as explore_real

        return explore_real(rest)
    print(__doc__.strip())
    return 0 if name in ("-h", "--help") else 2


if __name__ == "__main__":
    sys.exit(main())
