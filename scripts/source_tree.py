"""The files of the repository, for the scripts that check them."""

import os
import subprocess


def git_files(root, *what):
    """Paths as git knows them, or nothing outside a repository (an unpacked archive)."""
    # safe.directory: in a container the checkout often belongs to another user, and git would refuse to look.
    command = ["git", "-c", "safe.directory=*", "-C", root, "ls-files", "-z", *what]
    try:
        answer = subprocess.run(command, capture_output=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return None
    return [path for path in os.fsdecode(answer).split("\0") if path and os.path.lexists(os.path.join(root, path))]


def walked_files(root):
    files = []
    for folder, folders, names in os.walk(root):
        links = [name for name in folders if os.path.islink(os.path.join(folder, name))]
        folders[:] = [name for name in folders if not name.startswith(".") and name not in ("build", "__pycache__")]
        files += [os.path.relpath(os.path.join(folder, name), root) for name in names + links if not name.startswith(".")]
    return files


def tree_files(root):
    """-> (files to check, files that belong to the repository), each sorted. New files count before `git add`."""
    tracked = git_files(root)
    if not tracked and not git_files(root, "--cached", "--others", "--exclude-standard"):
        # No git, no repository, or an archive that was unpacked in an ignored folder of another repository.
        files = sorted(walked_files(root))
        return files, files
    files = git_files(root, "--cached", "--others", "--exclude-standard")
    return sorted(set(files)), sorted(set(tracked))
