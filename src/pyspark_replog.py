"""Found by Spark: it looks for modules named `pyspark_...` and takes their `DefaultSource`, so `.format("replog")` needs no registering."""

from __future__ import annotations

import contextlib

__all__: list[str] = []

with contextlib.suppress(Exception):  # without pyspark there is nobody to find it; whatever fails here would stop every other data source
    from replog.spark.datasource import ReplogDataSource as DefaultSource

    __all__ += ["DefaultSource"]
