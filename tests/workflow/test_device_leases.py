"""Jobs of one workflow, and of two at once, take turns on two pretended devices."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import combinations
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROFILE = ROOT / "workflow" / "profiles" / "workstation"
LIMIT_S = 120
SNAKEFILE = """
rule all:
    input: expand("out/{i}.json", i=range(config["jobs"]))

rule hold:
    output: "out/{i}.json"
    log: "logs/{i}.log"
    resources: gpu=1
    shell: "{config[python]} {config[job]} {output} {log} {resources.gpu} {config[together]}"
"""
# Holds its device until as many jobs as wanted have held one, and a little longer.
JOB = """
import json, os, sys, time
from pathlib import Path
from blockpilot.jobs import start_job

output, log, gpu, together = sys.argv[1:]
start_job(log, gpu=int(gpu))
record = {"device": os.environ["CUDA_VISIBLE_DEVICES"], "start_s": time.monotonic()}
met = Path(os.environ["MEETING_POINT"])
(met / str(os.getpid())).touch()
while len(list(met.iterdir())) < int(together) and time.monotonic() < record["start_s"] + 60:
    time.sleep(0.05)
time.sleep(0.5)
Path(output).write_text(json.dumps(record | {"end_s": time.monotonic()}))
"""


@pytest.fixture(autouse=True)
def two_devices(tmp_path, monkeypatch) -> None:
    for variable, name in (("BLOCKPILOT_LEASES", "leases"), ("MEETING_POINT", "met")):
        (tmp_path / name).mkdir()
        monkeypatch.setenv(variable, str(tmp_path / name))
    # The machine's own devices stay out of it.
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "nvidia-smi").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "bin" / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    monkeypatch.delenv("CUDA_DEVICE_ORDER", raising=False)
    (tmp_path / "Snakefile").write_text(SNAKEFILE)
    (tmp_path / "job.py").write_text(JOB)


@pytest.fixture
def start(tmp_path) -> Callable[..., subprocess.Popen]:
    """Return a function that starts the workflow, with the workstation profile, in a folder."""

    def call(folder: str, *arguments: str, jobs: int, together: int) -> subprocess.Popen:
        settings = {"jobs": jobs, "together": together, "python": sys.executable}
        config = [f"{key}={value}" for key, value in settings.items()]
        command = [sys.executable, "-m", "snakemake", "--snakefile", tmp_path / "Snakefile"]
        command += ["--workflow-profile", PROFILE, "--directory", tmp_path / folder]
        command += ["--cores", "4", *arguments, "--config", f"job={tmp_path / 'job.py'}", *config]
        return subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    return call


def finish(process: subprocess.Popen) -> str:
    output, _ = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0, output[-3000:]
    return output


def read_records(*folders: Path) -> list[dict]:
    return [json.loads(p.read_text()) for folder in folders for p in folder.glob("out/*.json")]


def check_turns(records: list[dict]) -> None:
    """Check that both devices are used, at the same time, and neither by two jobs at once."""
    assert {record["device"] for record in records} == {"0", "1"}
    overlapping = [
        (a, b)
        for a, b in combinations(records, 2)
        if a["start_s"] < b["end_s"] and b["start_s"] < a["end_s"]
    ]
    assert overlapping
    for a, b in overlapping:
        assert a["device"] != b["device"], (a, b)


def test_four_jobs_share_two_devices(tmp_path, start) -> None:
    """The command line allows four GPU jobs at once, against the profile: two of them wait."""
    output = finish(start("one", "--resources", "gpu=4", jobs=4, together=2))
    records = read_records(tmp_path / "one")
    assert len(records) == 4
    check_turns(records)
    assert "waiting for a free GPU: 0 is taken by process" in output
    for path in (tmp_path / "one" / "logs").iterdir():
        assert "leased GPU" in path.read_text()


def test_two_workflows_on_one_machine_do_not_collide(tmp_path, start) -> None:
    for process in [start(name, jobs=2, together=2) for name in ("one", "two")]:
        finish(process)
    records = read_records(tmp_path / "one", tmp_path / "two")
    assert len(records) == 4
    check_turns(records)


def test_the_profile_starts_as_many_gpu_jobs_as_there_are_devices(tmp_path, start) -> None:
    output = finish(start("one", jobs=3, together=1))
    assert re.search(r"Provided resources: .*gpu\D+2\b", output), output[-3000:]
    assert "waiting" not in output


def test_killing_a_holder_frees_its_device_for_a_waiting_job(tmp_path, start, monkeypatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    record, log = tmp_path / "never.json", tmp_path / "holder.log"
    command = [sys.executable, tmp_path / "job.py", record, log, "1", "99"]
    holder = subprocess.Popen(command)
    try:
        wait_for_text(log, "leased GPU 0")
        process = start("one", jobs=1, together=1)
        wait_for_text(tmp_path / "one" / "logs" / "0.log", f"0 is taken by process {holder.pid}")
    finally:
        holder.kill()
        holder.wait()
    finish(process)
    assert [found["device"] for found in read_records(tmp_path / "one")] == ["0"]
    assert not record.exists()


def wait_for_text(path: Path, text: str) -> None:
    until_s = time.monotonic() + LIMIT_S
    while not (path.exists() and text in path.read_text()):
        assert time.monotonic() < until_s, f"{text!r} never appeared in {path}"
        time.sleep(0.1)
