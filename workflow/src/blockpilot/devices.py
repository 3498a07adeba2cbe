"""Leases one free GPU of this machine to a process, for as long as the process lives.

A lease is a lock on a file that all users and workflows of the machine share, one file per
device. The kernel frees it when its holder ends, however that happens.
"""

from __future__ import annotations

import fcntl
import os
import re
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from urllib.parse import quote

from blockpilot.errors import BlockPilotError, bad_input

VISIBLE = "CUDA_VISIBLE_DEVICES"
FOLDER = "BLOCKPILOT_LEASES"
# Not tempfile.gettempdir(): TMPDIR may differ between users, and then they would not meet.
DEFAULT_FOLDER = Path("/", "tmp")
NAME = re.compile(r"\d+|(GPU|MIG)-.+")
ALLOWED = "numbers, GPU-... or MIG-... with commas between them, each once"
OPENING = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
HOLDER_BYTES = 160

_held: dict[str, int] = {}  # what this process has leased, and the descriptor that holds the lock


@dataclass(frozen=True, kw_only=True, slots=True)
class Device:
    """A device as CUDA_VISIBLE_DEVICES names it, and its lock file, the same for every name."""

    name: str
    lock: Path


def lease_device(
    poll_s: float = 1.0, remind_s: float = 60.0, sleep: Callable[[float], None] = time.sleep
) -> str | None:
    """Wait for a free device and make it the only one that CUDA shows to this process.

    Args:
        poll_s: Seconds between two looks at the devices.
        remind_s: Seconds between two messages while waiting.
        sleep: Called with `poll_s` between two looks.

    Returns:
        The device, as CUDA_VISIBLE_DEVICES now names it; None where Slurm has assigned it.

    Raises:
        BlockPilotError: If there is no device, a name or lock file is unusable, or CUDA was
            initialised in this process before.
    """
    if _held:
        return next(iter(_held))
    visible = os.environ.get(VISIBLE)
    # An allocation of several devices is shared out like any other machine.
    if os.environ.get("SLURM_JOB_ID") and "," not in (visible or ""):
        _say(f"no lease: Slurm assigns devices, {VISIBLE}={visible or ''}")
        return None
    _check_cuda_unused()
    devices = find_devices()
    reminder = max(1, round(remind_s / poll_s))
    for look in count():
        leased = next(filter(None, map(_try_lease, devices)), None)
        if leased is not None:
            return leased
        if look % reminder == 0:
            _say("waiting for a free GPU: " + "; ".join(map(_describe_taken, devices)))
        sleep(poll_s)


def count_devices() -> int:
    """Return how many jobs can hold a device at once; 1 where none is found."""
    try:
        return len(find_devices())
    except BlockPilotError:
        return 1


def find_devices() -> list[Device]:
    """Return the devices that this process may lease.

    Raises:
        BlockPilotError: If there is none, or CUDA_VISIBLE_DEVICES names one that cannot be.
    """
    machine = query_machine()
    visible = os.environ.get(VISIBLE)
    names = list(machine.values()) if visible is None else _split_names(visible)
    if not names:
        remedy = f"Set device.torch=cpu, or {VISIBLE} to the devices that jobs may use."
        raise bad_input(f"no device found: {VISIBLE}", visible, ALLOWED, remedy)
    order = os.environ.get("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    if machine and order != "PCI_BUS_ID" and any(map(str.isdecimal, names)):
        remedy = f"Unset it, or give GPU-... names in {VISIBLE}."
        raise bad_input("CUDA_DEVICE_ORDER", order, "PCI_BUS_ID, nvidia-smi's numbers", remedy)
    ids = [_identify(name, machine) for name in names]
    if len(set(ids)) < len(ids):
        raise bad_input(VISIBLE, visible, ALLOWED, "Name every device once.")
    folder = _lease_folder()
    return [
        Device(name=name, lock=folder / f"blockpilot-gpu-{quote(own, safe='')}.lock")
        for name, own in zip(names, ids, strict=True)
    ]


def query_machine() -> dict[str, str]:
    """Return the UUID of every device by its number, as nvidia-smi knows them; else nothing."""
    command = ["nvidia-smi", "--query-gpu=index,uuid", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    except (OSError, subprocess.SubprocessError):
        return {}
    return dict(re.findall(r"^\s*(\d+)\s*,\s*(GPU-\S+)\s*$", done.stdout, re.MULTILINE))


def _split_names(visible: str) -> list[str]:
    """Return the entries of CUDA_VISIBLE_DEVICES; CUDA itself hides what follows a bad one."""
    names = [name.strip() for name in visible.split(",")] if visible.strip() else []
    for name in names:
        if not NAME.fullmatch(name):
            raise bad_input(VISIBLE, visible, ALLOWED, f"Remove or correct {name!r}.")
    return names


def _identify(name: str, machine: dict[str, str]) -> str:
    """Return the full UUID where nvidia-smi knows it, else the name as given."""
    if not machine or name.startswith("MIG-"):
        return name
    # CUDA accepts the beginning of a UUID.
    known = [uuid for index, uuid in machine.items() if uuid.startswith(name) or index == name]
    if len(known) != 1:
        devices = ", ".join(f"{index} ({uuid})" for index, uuid in machine.items())
        raise bad_input(f"an entry of {VISIBLE}", name, devices, "Name one of them.")
    return known[0]


def _lease_folder() -> Path:
    folder = Path(os.environ.get(FOLDER) or DEFAULT_FOLDER)
    if not folder.is_dir():
        remedy = "Make one that all users of the machine can write to: mkdir -m 1777."
        raise bad_input(FOLDER, str(folder), "an existing folder", remedy)
    return folder


def _check_cuda_unused() -> None:
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        raise BlockPilotError(
            "a GPU is leased too late: CUDA is already initialised in this process and keeps the "
            "devices it saw. Call start_job before anything that uses CUDA."
        )


def _try_lock(lock: Path) -> int | None:
    """Return the descriptor that now holds the lock, or None if another process holds it."""
    try:
        handle = _open_lock(lock)
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(0, "not a plain file")
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            return None
    except OSError as error:
        remedy = f"Delete it if it is yours, or set {FOLDER} to another folder for all users."
        allowed = "a plain file that every user can read"
        raise bad_input(str(lock), error.strerror, allowed, remedy) from error
    return handle


def _open_lock(lock: Path) -> int:
    """Open a lock file that any user may have made, or make it.

    A file of another user is opened without O_CREAT, which Linux refuses in folders like /tmp;
    where it cannot be written, reading is enough for a lock.
    """
    try:
        try:
            return os.open(lock, os.O_RDWR | OPENING)
        except PermissionError:
            return os.open(lock, os.O_RDONLY | OPENING)
    except FileNotFoundError:
        umask = os.umask(0)
        try:
            return os.open(lock, os.O_RDWR | os.O_CREAT | os.O_EXCL | OPENING, 0o666)
        except FileExistsError:
            return _open_lock(lock)
        finally:
            os.umask(umask)


def _try_lease(device: Device) -> str | None:
    """Keep the lock of a free device, sign it, and hide all other devices from CUDA."""
    handle = _try_lock(device.lock)
    if handle is None:
        return None
    _held[device.name] = handle
    # Another user's file may be closed to writing; then waiting jobs cannot name the holder.
    with suppress(OSError):
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{os.getpid()} {' '.join(sys.argv)}".encode(), 0)
    os.environ[VISIBLE] = device.name
    os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    _say(f"leased GPU {device.name}")
    return device.name


def _describe_taken(device: Device) -> str:
    """Return the name of a taken device and, if its lock file tells, the process that holds it."""
    with suppress(OSError, ValueError):
        with open(device.lock, "rb") as file:
            text = file.read(HOLDER_BYTES).decode(errors="replace")
        pid, _, command = text.partition(" ")
        # A file that its holder could not write still names the holder before.
        if Path("/proc", str(int(pid))).exists():
            shown = "".join(c if c.isprintable() else "?" for c in command)
            return f"{device.name} is taken by process {pid} ({shown})"
    return f"{device.name} is taken"


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
