#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the cost of a checkpointed region in Reprise and in torch.utils.checkpoint.

Runs build/release/bench/checkpoint_bench and bench/checkpoint_overhead.py in turn, takes the minima
and prints a Markdown table in microseconds; checkpoint_overhead.py says how each quantity is
defined. Exits 1 when Reprise exceeds what is asked. Build first: scripts/build release.
PyTorch lives in an environment of its own in the cache folder, made at the first run.
"""
import argparse
import hashlib
import json
import os
import pathlib
import platform
import subprocess
import sys
import venv
from typing import NamedTuple

BENCH_DIR = pathlib.Path(__file__).resolve().parent
PROGRAM = BENCH_DIR.parent / "build/release/bench/checkpoint_bench"
CACHE_HOME = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")

# The wheel is linked with CUDA's libraries (2 GB more) though it calls none without a GPU. Empty
# ones serve, because functions are looked up lazily, at their first call.
EMPTY_LIBRARIES = [
    "libcublas.so.13", "libcublasLt.so.13", "libcudnn.so.9", "libcufft.so.12", "libcufile.so.0",
    "libcusparse.so.12", "libcusparseLt.so.0", "libnccl.so.2", "libnvrtc.so.13",
]
LOOK_UP_LAZILY = "import os, sys; sys.setdlopenflags(os.RTLD_LAZY)\n"

Series = dict[tuple[str, str], dict[int, float]]  # (operator, mode) -> operators -> seconds


class Quantity(NamedTuple):
    name: str
    asked: float | None  # at most, in microseconds
    reprise: float
    torch: float | None


class Line(NamedTuple):
    intercept: float
    slope: float


def python_of(environment: pathlib.Path) -> pathlib.Path:
    return environment / "bin/python"


def add_empty_libraries(environment: pathlib.Path) -> None:
    """libtorch_global_deps.so, which has no code, stands in for each library that is not there."""
    site_packages = next(environment.glob("lib/python*/site-packages"))
    for name in EMPTY_LIBRARIES:
        link = site_packages / "nvidia/cu13/lib" / name
        link.symlink_to("../../../torch/lib/libtorch_global_deps.so")
    (site_packages / "look_up_lazily.pth").write_text(LOOK_UP_LAZILY)


def set_up_environment() -> pathlib.Path:
    """Makes the environment unless there is one with the same content; returns its Python."""
    requirements = BENCH_DIR / "requirements.txt"
    content = [requirements.read_text(), LOOK_UP_LAZILY, *EMPTY_LIBRARIES, sys.version]
    content_hash = hashlib.sha256("\n".join(content).encode()).hexdigest()
    environment = CACHE_HOME / "reprise/bench-venv"
    hash_file = environment / "content-hash"
    if not hash_file.exists() or hash_file.read_text() != content_hash:
        print(f"compare.py: installing PyTorch into {environment}", file=sys.stderr)
        venv.create(environment, clear=True, with_pip=True)
        install = [python_of(environment), "-m", "pip", "--disable-pip-version-check", "install"]
        what = ["--quiet", "--no-deps", "--only-binary=:all:", "-r", requirements]
        subprocess.run(install + what, check=True, stdout=sys.stderr)
        add_empty_libraries(environment)
        hash_file.write_text(content_hash)
    return python_of(environment)


def run_program(command: list, fastest: Series) -> None:
    """Runs one program and lowers the times in `fastest` to those that it prints."""
    variables = os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=variables)
    for line in map(json.loads, output.stdout.splitlines()):
        times = fastest.setdefault((line["operator"], line["mode"]), {})
        for count, seconds in zip(line["operators_per_region"], line["seconds_per_region"]):
            times[count] = min(times.get(count, seconds), seconds)


def fit(times: dict[int, float]) -> Line:
    """The line with the least squares, each point weighed by 1/(1 + operators): the longer a step,
    the larger its error."""
    weights = {count: 1 / (1 + count) for count in times}
    total = sum(weights.values())
    mean_count = sum(weights[count] * count for count in times) / total
    mean_time = sum(weights[count] * times[count] for count in times) / total
    slope = (sum(weights[count] * (count - mean_count) * times[count] for count in times)
             / sum(weights[count] * (count - mean_count) ** 2 for count in times))
    return Line(mean_time - slope * mean_count, slope)


def derive(series: Series) -> dict[str, float]:
    """The quantities in microseconds."""
    def difference(operator: str, mode: str, base: str) -> Line:
        times, base_times = series[operator, mode], series[operator, base]
        return fit({count: times[count] - base_times[count] for count in times})

    def per_operator(operator: str) -> float:
        return (difference(operator, "checkpoint", "plain").slope
                - fit(series[operator, "forward"]).slope)

    seconds = {
        "per region": difference("sin", "checkpoint", "plain").intercept,
        "per operator that saves nothing": per_operator("neg"),
        "per saved tensor": per_operator("sin") - per_operator("neg"),
        "per operator with one saved tensor": per_operator("sin"),
        "save policy, per other operator": difference("neg", "selective", "checkpoint").slope,
        "save policy, per kept operator": difference("mm", "selective", "plain").slope,
    }
    return {name: value * 1e6 for name, value in seconds.items()}


def empty_hooks(series: Series) -> float:
    """What LibTorch's own hooks cost for each saved tensor, in microseconds: once with their use in
    backward, and once more for the second run."""
    def per_operator(operator: str, mode: str, base: str) -> float:
        times, base_times = series[operator, mode], series[operator, base]
        return fit({count: times[count] - base_times[count] for count in times}).slope

    return 1e6 * sum(per_operator("sin", mode, base) - per_operator("neg", mode, base)
                     for mode, base in (("hooks", "plain"), ("hooks, forward", "forward")))


def quantities(reprise: Series, torch: Series) -> list[Quantity]:
    asked = {
        "per region": 10.0,
        "per operator that saves nothing": 1.5,
        "per saved tensor": 0.5,
    }
    torch_values = derive(torch)
    rows = [Quantity(name, asked.get(name), value, torch_values[name])
            for name, value in derive(reprise).items()]
    after = [row.name for row in rows].index("per saved tensor") + 1
    rows.insert(after, Quantity("of it: LibTorch's hooks, empty ones", None, empty_hooks(reprise),
                                None))
    return rows


def print_table(rows: list[Quantity]) -> None:
    print("| quantity | asked at most, µs | Reprise, µs | torch.utils.checkpoint, µs | ratio |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for row in rows:
        asked = "" if row.asked is None else f"{row.asked:g}"
        other = "" if row.torch is None else f"{row.torch:.2f}"
        ratio = f"{row.torch / row.reprise:.1f}" if row.torch and row.reprise > 0 else ""
        print(f"| {row.name} | {asked} | {row.reprise:.2f} | {other} | {ratio} |")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", type=pathlib.Path, default=PROGRAM,
                        help="the C++ program (default: build/release/bench/checkpoint_bench)")
    parser.add_argument("--rounds", type=int, default=5, help="runs of each program (default: 5)")
    options = parser.parse_args()
    if platform.machine() != "x86_64":
        parser.error("the pinned packages are for Linux on x86_64")
    if not options.program.exists():
        parser.error(f"{options.program} is missing: run scripts/build release or give --program")
    python = set_up_environment()
    reprise: Series = {}
    torch: Series = {}
    for _ in range(options.rounds):
        run_program([options.program], reprise)
        run_program([python, BENCH_DIR / "checkpoint_overhead.py"], torch)
    rows = quantities(reprise, torch)
    print_table(rows)
    missed = [row.name for row in rows if row.asked is not None and row.reprise > row.asked]
    if missed:
        print(f"compare.py: more than asked: {', '.join(missed)}", file=sys.stderr)
    return 3 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
