"""Which file system a path lies on, from the mounts that the kernel lists."""

import os
import re
from pathlib import Path

_NETWORK = frozenset(
    {
        *("nfs", "nfs4", "cifs", "smb3", "smbfs", "ncpfs", "afs", "coda"),
        *("lustre", "ceph", "glusterfs", "gpfs", "beegfs", "panfs", "pvfs2", "ocfs2", "gfs2"),
    }
)
# To the kernel all of FUSE is one kind; these keep their files on other machines.
_NETWORK_FUSE = re.compile(
    r"fuse\.(sshfs|s3fs|s3ql|goofys|gcsfuse|rclone|glusterfs|ceph|juicefs|blobfuse2?|mount-s3|"
    r"mountpoint-s3|cvmfs2?|moosefs|mfs|seaweedfs|davfs2?|curlftpfs|nfs)"
)
_OCTAL = re.compile(r"\\([0-7]{3})")


def network_file_system(path: Path, mounts: Path = Path("/proc/self/mountinfo")) -> str | None:
    """Type of the network file system that a path lies on, such as ``"nfs4"``.

    Args:
        path: A path; neither it nor the folders above it need exist.
        mounts: The list of mounts, in the form of proc_pid_mountinfo(5).

    Returns:
        None for a local disk, and where the system does not say.
    """
    try:
        text = mounts.read_text("utf-8", "surrogateescape")
    except OSError:
        return None
    wanted = os.path.realpath(path)
    found, longest = None, -1
    for line in text.splitlines():
        before, dash, after = line.partition(" - ")
        fields = before.split(" ")
        if not dash or len(fields) < 6:
            continue
        point = _OCTAL.sub(lambda match: chr(int(match[1], 8)), fields[4])
        within = wanted == point or wanted.startswith(point.rstrip("/") + "/")
        # Of several mounts on one folder the last one covers the others.
        if within and len(point) >= longest:
            found, longest = after.split(" ")[0], len(point)
    if found is None or not (found in _NETWORK or _NETWORK_FUSE.fullmatch(found)):
        return None
    return found
