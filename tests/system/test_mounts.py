"""Which file systems are on the network."""

from pathlib import Path

import pytest

from fastdata.system.mounts import network_file_system

MOUNTS = """\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
30 22 0:30 / /data rw shared:2 - nfs4 server:/data rw
31 30 8:2 / /data/fast rw - xfs /dev/sdb1 rw
32 22 0:32 / /my\\040disk rw - fuse.sshfs host: rw
33 22 0:33 / /local rw - fuse.ntfs-3g /dev/sdc1 rw
34 22 0:34 / /twice rw - ext4 /dev/sdd1 rw
35 22 0:35 / /twice rw master:3 - cifs //server/share rw
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/home/x", None),
        ("/data", "nfs4"),
        ("/data/deep/x.lmdb", "nfs4"),
        ("/database", None),
        ("/data/fast/x", None),
        ("/my disk/x", "fuse.sshfs"),
        ("/local/x", None),
        ("/twice/x", "cifs"),
    ],
)
def test_network_file_systems_are_known(tmp_path: Path, path: str, kind: str | None) -> None:
    """The innermost and latest mount above a path decides."""
    (tmp_path / "mountinfo").write_text(MOUNTS)
    assert network_file_system(Path(path), tmp_path / "mountinfo") == kind


def test_this_machine_says_where_its_files_are(tmp_path: Path) -> None:
    """The kernel's own list is understood, as the one of a system that has none is."""
    assert network_file_system(Path("/proc/self")) is None
    assert network_file_system(tmp_path, tmp_path / "none") is None
