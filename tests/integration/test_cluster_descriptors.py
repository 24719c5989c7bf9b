"""A cluster with more partitions than its process may have files open."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

FEW = """
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
import replog
with replog.Cluster(sys.argv[1], brokers=3) as cluster:
    if "t" not in cluster.topics():
        cluster.create_topic("t", partitions=120, replication_factor=3, min_isr=2)
    with cluster.producer() as producer:
        sent = [producer.send("t", b"x", partition=number) for _ in range(3) for number in range(120)]
        print(len([one.result(60) for one in sent]), len(list(cluster.read("t"))))
"""


def test_appends_reads_and_a_clean_stop_find_room(tmp_path: Path) -> None:
    """Each of 360 copies has a segment: a third more than there are descriptors, and stopping cleanly takes some as well."""
    for life in (1, 2):
        command = [sys.executable, "-c", FEW, str(tmp_path / "c")]
        child = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
        assert (child.returncode, child.stdout.split(), child.stderr) == (0, ["360", str(360 * life)], "")
