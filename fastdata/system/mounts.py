"""Which file system a path lies on, from what the kernel says of its mounts."""

import os
import re
from pathlib import Path

_NETWORK = frozenset(
    {
        *("nfs", "nfs4", "cifs", "smb3", "smbfs", "ncpfs", "afs", "coda"),
        *("lustre", "ceph", "glusterfs", "gpfs", "beegfs", "panfs", "pvfs2", "ocfs2", "gfs2"),
    }
)
# through FUSE the kernel sees no difference; these keep their files elsewhere
_NETWORK_FUSE = re.compile(
    r"fuse\.(sshfs|s3fs|s3ql|goofys|gcsfuse|rclone|glusterfs|ceph|juicefs|blobfuse2?|mount-s3|"
    r"mountpoint-s3|cvmfs2?|moosefs|mfs|seaweedfs|davfs2?|curlftpfs|nfs)"
)
_OCTAL = re.compile(r"\\([0-7]{3})")


def network_file_system(path: Path, mounts: Path = Path("/proc/self/mountinfo")) -> str | None:
    """Type of the network file system that a path lies on, such as ``"nfs4"``.

    Args:
        path: It, and folders above it, need not exist.
        mounts: What the kernel mounted, as proc_pid_mountinfo(5) has it.

    Returns:
        None on a local disk, and where the system does not tell.
    """
    try:
        text = mounts.read_text("utf-8", "surrogateescape")
    except OSError:
        return None
    wanted = os.path.realpath(path)
    found, longest = None, -1
    for line in text.splitlines():
        before, dash, behind = line.partition(" - ")
        fields = before.split(" ")
        if not dash or len(fields) < 6:
            continue
        point = _OCTAL.sub(lambda match: chr(int(match[1], 8)), fields[4])
        within = wanted == point or wanted.startswith(point.rstrip("/") + "/")
        # of mounts at one place, the last one covers the others
        if within and len(point) >= longest:
            found, longest = behind.split(" ")[0], len(point)
    if found is None or not (found in _NETWORK or _NETWORK_FUSE.fullmatch(found)):
        return None
    return found
