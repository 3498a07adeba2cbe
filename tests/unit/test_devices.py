"""A job leases one free GPU of the machine, waits for it by name, and no two hold the same one."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from blockpilot import devices
from blockpilot.config import compose_config
from blockpilot.devices import count_devices, find_devices, lease_device
from blockpilot.errors import BlockPilotError
from blockpilot.jobs import start_job

ROOT = Path(__file__).resolve().parents[2]
FIRST, SECOND = "GPU-1a2b-first", "GPU-1c3d-second"
HOLD = """
import sys
from blockpilot.devices import lease_device
print(lease_device(), flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def machine(tmp_path, monkeypatch) -> Iterator[Path]:
    """Pretend two devices, 0 and 1, without nvidia-smi; yield the folder of the lock files."""
    folder = tmp_path / "leases"
    folder.mkdir()
    (tmp_path / "bin").mkdir()
    for name in ("SLURM_JOB_ID", "CUDA_DEVICE_ORDER"):
        monkeypatch.setenv(name, "")  # so that it is put back as it was
        monkeypatch.delenv(name)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("BLOCKPILOT_LEASES", str(folder))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    yield folder
    for handle in devices._held.values():
        os.close(handle)
    devices._held.clear()


@pytest.fixture
def nvidia_smi(tmp_path) -> None:
    """Pretend an nvidia-smi that knows device 0 as FIRST and device 1 as SECOND."""
    command = tmp_path / "bin" / "nvidia-smi"
    command.write_text(f"#!/bin/sh\necho '0, {FIRST}'\necho '1, {SECOND}'\n")
    command.chmod(0o755)


@pytest.fixture
def hold() -> Iterator[Callable[[str], subprocess.Popen]]:
    """Return a function that starts another process which leases a device and keeps it."""
    started = []

    def start(expected: str) -> subprocess.Popen:
        process = subprocess.Popen(
            [sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        started.append(process)
        assert process.stdout.readline() == f"{expected}\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def locks(*names: str) -> list[str]:
    os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(names)
    return [device.lock.name for device in find_devices()]


def refusal(call: Callable = find_devices) -> str:
    with pytest.raises(BlockPilotError) as error:
        call()
    return str(error.value)


# Leasing


def test_the_first_free_device_is_the_only_one_that_cuda_shows(monkeypatch, capsys) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1, 0")
    assert lease_device() == "1"
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "1"
    assert os.environ["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
    assert capsys.readouterr().err == "leased GPU 1\n"
    assert lease_device() == "1"  # one device per process, and no waiting for oneself


def test_a_device_that_another_process_holds_is_passed_over(hold) -> None:
    hold("0")
    assert lease_device() == "1"


def test_waiting_names_devices_and_holders_and_ends_when_a_holder_is_killed(hold, capsys) -> None:
    holders = [hold("0"), hold("1")]
    waits = []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 5:
            holders[1].kill()  # SIGKILL: the holder cannot tidy up
            holders[1].wait()

    assert lease_device(poll_s=2.0, remind_s=6.0, sleep=sleep) == "1"
    assert waits == [2.0] * 5
    taken = [f"{i} is taken by process {p.pid} (-c)" for i, p in enumerate(holders)]
    waiting = "waiting for a free GPU: " + "; ".join(taken)
    # At looks 0 and 3 of 5.
    assert capsys.readouterr().err.splitlines() == [waiting, waiting, "leased GPU 1"]


def test_a_new_lock_file_is_open_to_all_users(machine) -> None:
    umask = os.umask(0o077)
    try:
        lease_device()
        assert os.umask(0o077) == 0o077
    finally:
        os.umask(umask)
    mode = (machine / "blockpilot-gpu-0.lock").stat().st_mode
    assert stat.S_IMODE(mode) == 0o666


def test_a_file_of_another_user_that_is_only_readable_can_be_locked(
    machine, monkeypatch, hold, capsys
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    lock = machine / "blockpilot-gpu-0.lock"
    lock.write_text("999999999 long gone")
    really_open = os.open

    def open_as_another_user(path, flags, *mode) -> int:
        if path == lock and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            raise PermissionError(13, "Permission denied")
        return really_open(path, flags, *mode)

    monkeypatch.setattr(os, "open", open_as_another_user)
    assert lease_device() == "0"
    assert lock.read_text() == "999999999 long gone"
    monkeypatch.undo()
    os.environ |= {"BLOCKPILOT_LEASES": str(machine), "CUDA_VISIBLE_DEVICES": "0"}
    blocked = subprocess.Popen([sys.executable, "-c", HOLD], stderr=subprocess.PIPE, text=True)
    try:
        # The name in the file is that of a process before: it is not repeated.
        assert blocked.stderr.readline() == "waiting for a free GPU: 0 is taken\n"
    finally:
        blocked.kill()
        blocked.communicate()


def test_what_a_lock_file_says_cannot_reach_the_terminal_raw(machine, monkeypatch) -> None:
    lock = machine / "text"
    lock.write_bytes(f"{os.getpid()} \x1b[31m\xff\n{'x' * 5000}".encode("latin-1"))
    text = devices._describe_taken(devices.Device(name="0", lock=lock))
    assert text.isprintable()
    assert len(text) < 250


def test_under_slurm_the_assigned_device_is_left_alone(machine, monkeypatch, capsys) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    assert lease_device() is None
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "3"
    assert not list(machine.iterdir())
    assert "Slurm assigns devices, CUDA_VISIBLE_DEVICES=3" in capsys.readouterr().err


def test_several_devices_of_one_slurm_allocation_are_shared_out(monkeypatch, hold) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    hold("0")
    assert lease_device() == "1"


@pytest.mark.parametrize("initialised", [True, False])
def test_a_lease_after_cuda_has_started_is_refused(machine, monkeypatch, initialised) -> None:
    cuda = SimpleNamespace(is_initialized=lambda: initialised)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    if initialised:
        assert "leased too late" in refusal(lease_device)
        assert not list(machine.iterdir())
    else:
        assert lease_device() == "0"


# Names


def test_a_device_has_one_lock_file_however_it_is_named(nvidia_smi) -> None:
    first, second = f"blockpilot-gpu-{FIRST}.lock", f"blockpilot-gpu-{SECOND}.lock"
    assert locks("0", "1") == [first, second]
    assert locks(SECOND, FIRST) == [second, first]
    assert locks("GPU-1c", "0") == [second, first]


def test_without_nvidia_smi_the_given_name_counts(machine) -> None:
    assert locks("1", FIRST) == ["blockpilot-gpu-1.lock", f"blockpilot-gpu-{FIRST}.lock"]


def test_odd_characters_stay_inside_the_folder(machine, monkeypatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-GPU-1/../é /0")
    assert lease_device() == "MIG-GPU-1/../é /0"
    assert [path.parent for path in machine.rglob("*")] == [machine]


def test_without_a_choice_all_devices_of_the_machine_may_be_leased(nvidia_smi, monkeypatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert [device.name for device in find_devices()] == [FIRST, SECOND]
    assert count_devices() == 2


@pytest.mark.parametrize("visible", [None, "", " "])
def test_no_device_is_refused_with_both_remedies(monkeypatch, visible) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    message = refusal()
    assert "no device found" in message
    assert "device.torch=cpu, or CUDA_VISIBLE_DEVICES" in message
    assert count_devices() == 1


@pytest.mark.parametrize("visible", ["-1", "0,,1", "0,", "gpu0", "NoDevFiles", "0,0"])
def test_unusable_names_are_refused(monkeypatch, visible) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert f"CUDA_VISIBLE_DEVICES is {visible!r}; allowed: numbers, GPU-..." in refusal()


@pytest.mark.parametrize("visible", ["2", "GPU-1", "GPU-9", f"0,{FIRST}"])
def test_names_that_nvidia_smi_does_not_confirm_are_refused(
    nvidia_smi, monkeypatch, visible
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert "CUDA_VISIBLE_DEVICES is " in refusal()


def test_numbers_that_cuda_counts_in_another_order_are_refused(nvidia_smi, monkeypatch) -> None:
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "FASTEST_FIRST")
    assert "CUDA_DEVICE_ORDER is 'FASTEST_FIRST'; allowed: PCI_BUS_ID" in refusal()
    assert locks(SECOND) == [f"blockpilot-gpu-{SECOND}.lock"]  # a UUID needs no order


# Lock files that cannot be


def test_a_folder_that_is_not_there_is_refused(machine, monkeypatch) -> None:
    monkeypatch.setenv("BLOCKPILOT_LEASES", str(machine / "none"))
    assert "mkdir -m 1777" in refusal()


@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
def test_a_lock_that_is_no_plain_file_is_refused(machine, kind) -> None:
    lock = machine / "blockpilot-gpu-0.lock"
    {
        "link": lambda: lock.symlink_to(machine / "elsewhere"),
        "pipe": lambda: os.mkfifo(lock),
        "folder": lock.mkdir,
    }[kind]()
    assert "a plain file that every user can read" in refusal(lease_device)
    assert not (machine / "elsewhere").exists()


# Jobs and settings


@pytest.fixture
def start(monkeypatch, tmp_path) -> Iterator[Callable]:
    """Return start_job with a log in the test's folder; streams and hook are put back."""
    logs = []
    for name in ("stdout", "stderr", "excepthook"):
        monkeypatch.setattr(sys, name, getattr(sys, name))

    def call(**options) -> None:
        try:
            start_job(str(tmp_path / "logs" / "job.log"), **options)
        finally:
            logs.append(sys.stderr.streams[-1])

    yield call
    for log in logs:
        log.close()


def test_only_a_job_that_needs_a_gpu_leases_one(machine, start) -> None:
    start()
    assert not list(machine.iterdir())
    start(gpu=1)
    assert [path.name for path in machine.iterdir()] == ["blockpilot-gpu-0.lock"]


def test_more_than_one_device_per_job_is_refused(start) -> None:
    message = refusal(lambda: start(gpu=2))
    assert message.startswith("resources.gpu is 2; allowed: 0 or 1. A job uses one device")


@pytest.mark.parametrize(("output", "shown"), [("log", ""), ("", "leased GPU 0\n")])
def test_a_job_may_keep_its_lines_to_its_log(
    tmp_path, start, monkeypatch, capsys, output, shown
) -> None:
    monkeypatch.setenv("BLOCKPILOT_JOB_OUTPUT", output)
    start(gpu=1)
    assert (tmp_path / "logs" / "job.log").read_text() == "leased GPU 0\n"
    assert capsys.readouterr().err == shown


def test_a_numbered_device_is_refused(monkeypatch) -> None:
    monkeypatch.chdir(ROOT)
    config = compose_config(ROOT / "conf", "pocket", ["device.torch=cuda"])
    assert config["device"]["torch"] == "cuda"
    message = refusal(lambda: compose_config(ROOT / "conf", "pocket", ["device.torch='cuda:1'"]))
    assert "device.torch is 'cuda:1'; allowed: cpu, cuda" in message
    assert "device.torch=cuda, and CUDA_VISIBLE_DEVICES=1" in message
