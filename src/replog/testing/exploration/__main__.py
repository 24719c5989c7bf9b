"""The command line of the explorations.

python -m replog.testing.exploration model [--records 2 --epochs 4 ...]    the published rules
python -m replog.testing.exploration real [--records 2 --epochs 3 ...]     the real code
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from replog.errors import UsageError

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line. Returns 0 if what should hold holds, and 2 if it was not understood."""
    name, *rest = [*(sys.argv[1:] if arguments is None else arguments), ""]
    rest = rest[:-1]
    if name == "model":
        from replog.testing.exploration.model_command import prepare
    elif name == "real":
        from replog.testing.exploration.real_command import prepare
    else:
        print(__doc__.strip())
        return 0 if name in ("-h", "--help") else 2
    try:
        search = prepare(rest, print)
    except UsageError as refused:
        print(refused, file=sys.stderr)
        return 2
    return search()  # what is raised in there is something that was found


if __name__ == "__main__":
    sys.exit(main())
