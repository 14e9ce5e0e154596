"""Real Flower processes on loopback: a simulation by `flwr run`, and a deployment with two sites."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fedcluster_app.config import parse_run_config
from fedcluster_app.results.load import load_model
from simulations.federation import run_locally

pytestmark = [
    pytest.mark.flower,
    pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="finds its processes in /proc"),
]

CHECKOUT = Path(__file__).resolve().parents[2]
PROGRAMS = Path(sys.executable).parent
ReadClusters = Callable[[Path | str], NDArray[np.int64]]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Flower:
    """Flower's programs with a home of their own, by which every process that they start is known."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "flwr"
        self.home.mkdir(parents=True)
        self.started: list[subprocess.Popen[bytes]] = []
        self.environment = {
            **os.environ,
            "PATH": f"{PROGRAMS}{os.pathsep}{os.environ['PATH']}",
            "FLWR_HOME": str(self.home),
            "FEDCLUSTER_HOME": str(folder / "fedcluster"),
            "FLWR_TELEMETRY_ENABLED": "0",
            "RAY_USAGE_STATS_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
            "FLWR_LOCAL_SUPERLINK_HTTP_API_PORT": str(free_port()),
            "FLWR_LOCAL_CONTROL_API_PORT": str(free_port()),
        }

    def start(self, *command: str) -> None:
        """Start a program in the background."""
        with (self.folder / f"{command[0]}-{len(self.started)}.log").open("wb") as log:
            process = subprocess.Popen(
                command, env=self.environment, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )
        self.started.append(process)

    def flwr(self, *command: str) -> str:
        """Run the `flwr` command in the checkout and return what it printed."""
        done = subprocess.run(
            ["flwr", *command],
            cwd=CHECKOUT,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stdout
        return done.stdout

    def last_run(self, *connection: str) -> dict[str, Any]:
        """What Flower says of the newest run, once it is over; the exit code of `flwr run` says nothing."""
        for _ in range(60):
            listed = json.loads(self.flwr("ls", *connection, "--format", "json"))["runs"]
            found: dict[str, Any] = max(listed, key=lambda run: str(run["pending-at"]))
            if found["status"].startswith("finished"):
                break
            time.sleep(1)
        return found

    def processes(self) -> list[int]:
        """Ids of all processes that have this Flower's home, its own and those that they left behind."""
        mark = f"FLWR_HOME={self.home}".encode()
        found = []
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and mark in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
            except OSError:  # over by now, or somebody else's
                continue
        return found

    def end(self) -> None:
        """End all of them, by process id."""
        for how in (signal.SIGTERM, signal.SIGKILL):
            for pid in self.processes():
                try:
                    os.kill(pid, how)
                except ProcessLookupError:
                    continue
            deadline = time.monotonic() + 5
            while self.processes() and time.monotonic() < deadline:
                time.sleep(0.1)
        for process in self.started:
            process.wait(timeout=5)


@pytest.fixture
def flower(tmp_path: Path) -> Iterator[Flower]:
    flower = Flower(tmp_path)
    try:
        yield flower
    finally:
        flower.end()
        assert flower.processes() == []


@pytest.fixture
def deployment(flower: Flower, csv_sites: Any, blobs: Any) -> tuple[Flower, list[dict[str, Any]]]:
    """A SuperLink and two SuperNodes, each with a csv of its own."""
    nodes = csv_sites(
        {"a": blobs(0, 30, 40), "b": blobs(1, 50, 0, 40)}, labels={"a": np.repeat([0, 1], [30, 40])}
    )
    port = free_port()
    flower.start("flower-superlink", "--insecure", "--host", "127.0.0.1", "--port", str(port))
    for node in nodes:
        config = " ".join(f"{key}='{value}'" for key, value in node.items())
        flower.start(
            "flower-supernode",
            *("--insecure", "--superlink", f"127.0.0.1:{port}", "--port", str(free_port())),
            *("--node-config", config),
        )
    connection = f'[superlink.dep]\naddress = "127.0.0.1:{port}"\ninsecure = true\n'
    (flower.home / "config.toml").write_text(connection, encoding="utf-8")
    for _ in range(300):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=1):
                return flower, nodes
        except OSError:
            time.sleep(0.1)
    raise TimeoutError("the SuperLink did not start")


def in_one_process(folder: Path, nodes: Any, **values: Any) -> Path:
    """The same run in this process; returns the folder with its model file."""
    settings = {key.replace("_", "-"): value for key, value in values.items()}
    run = run_locally(parse_run_config(settings), nodes, run_folder=str(folder))
    assert run.outcome.model is not None
    folder.mkdir(exist_ok=True)
    run.outcome.model.save(folder / "model.npz")
    return folder


def test_a_simulation_by_flwr_run_equals_the_run_in_one_process(flower: Flower, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    printed = flower.flwr(
        *("run", ".", "--stream"),
        *("--federation-config", "num-supernodes=3 client-resources-num-cpus=1"),
        *("--run-config", f"output-dir='{folder}' refine-rounds=2"),
    )
    assert flower.last_run()["status"] == "finished:completed", printed
    lines = [line.strip() for line in printed.splitlines() if line.strip()]
    last = lines.index(str(folder))
    # Whatever Flower has to say after our last line is in colour.
    assert all(line.startswith("\x1b[") for line in lines[last + 1 :])

    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    assert summary["status"] == "finished"
    assert [site["name"] for site in summary["sites"]] == ["site-00", "site-01", "site-02"]
    assert f"K̂ = {summary['k_hat']} global clusters" in printed

    here = in_one_process(tmp_path / "here", 3, refine_rounds=2)
    for name in ("model.npz", *(f"labels/site-{number:02d}.csv" for number in range(3))):
        assert (folder / name).read_bytes() == (here / name).read_bytes(), name


def test_a_deployment_of_two_sites(
    deployment: tuple[Flower, list[dict[str, Any]]], clusters_in: ReadClusters, blobs: Any, tmp_path: Path
) -> None:
    flower, nodes = deployment
    folder = tmp_path / "run"
    settings = "method='fedgem' pca=0 min-sites=2 fedgem-max-rounds=1"
    printed = flower.flwr(
        *("run", ".", "dep", "--stream"), "--run-config", f"{settings} output-dir='{folder}'"
    )
    assert flower.last_run("dep")["status"] == "finished:completed", printed
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    assert summary["status"] == "finished"
    assert [(site["name"], site["rows"], site["status"]) for site in summary["sites"]] == [
        ("a", 70, "ok"),
        ("b", 90, "ok"),
    ]
    model = load_model(folder / "model.npz")
    for node, X in zip(nodes, (blobs(0, 30, 40), blobs(1, 50, 0, 40)), strict=True):
        np.testing.assert_array_equal(clusters_in(node["labels-path"]), model.predict(X))
        ledger = Path(node["ledger-path"]).read_text(encoding="utf-8").splitlines()
        assert [json.loads(line)["message"] for line in ledger] == [
            *("hello", "fedgem.start", "fedgem.balls", "fedgem.end", "labelled")
        ]
    for node in nodes:
        del node["labels-path"], node["ledger-path"]
    here = in_one_process(tmp_path / "here", nodes, method="fedgem", pca=0, min_sites=2, fedgem_max_rounds=1)
    assert (folder / "model.npz").read_bytes() == (here / "model.npz").read_bytes()

    # `flwr run` exits 0 all the same; Flower's list of runs has the truth.
    printed = flower.flwr("run", ".", "dep", "--stream", "--run-config", "pca=2.5")
    failed = flower.last_run("dep")
    assert failed["status"] == "finished:failed"
    reason = "run config: pca expected a whole number, got 2.5"
    assert reason in printed
    assert reason in failed["status-details"]
