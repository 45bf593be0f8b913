# SPDX-License-Identifier: Apache-2.0
"""Training within fewer bytes: Reprise's Rematerializer beside PyTorch's ways, rockmate and JAX.

Runs build/release/bench/remat_bench and the programs of bench/peers in turn, several rounds, each
point in a process of its own in which the plain step is timed as well; takes the minima. Every side
runs with the same threads on the same cores and with the same allocator settings, which keep large
blocks instead of returning them to the kernel. Prints Markdown, and draws an SVG with --svg.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
from typing import NamedTuple

import environments
import rockmate_source
import svg_plot

PROGRAM = environments.BENCH_DIR.parent / "build/release/bench/remat_bench"
PEERS = environments.BENCH_DIR / "peers"
MODELS = {
    "mlp": "MLP: 32 x [Linear 1024, GELU, LayerNorm], batch 2048",
    "transformer": "Transformer: 12 layers, width 512, 8 heads, sequence 256, batch 16",
}
SHARES = ["0.73", "0.5", "0.36", "0.3", "0.23", "0.16"]
TORCH_WAYS = {
    "per-layer": "torch.utils.checkpoint, each layer",
    **{f"segments-{count}": f"checkpoint_sequential, {count} segments" for count in (3, 4, 6, 8)},
    "selective": "selective checkpointing, keeps matrix products",
    **{f"compile-{budget}": f"torch.compile, activation memory budget {budget}"
       for budget in ("0.5", "0.2")},
}
ROCKMATE_WAYS = {f"{kind}-{share}": f"{kind}, budget {share} of plain"
                 for kind in ("rotor", "rockmate") for share in ("0.8",)}
JAX_WAYS = {
    "per-layer": "jax.checkpoint, each layer",
    "plain-scan": "scan over the layers",
    "per-layer-scan": "jax.checkpoint, each layer, scan over them",
}
KEEP_LARGE_BLOCKS = ":".join(
    f"glibc.malloc.{name}" for name in ("mmap_max=0", "trim_threshold=0x1000000000",
                                        "top_pad=0x10000000", "arena_max=1", "hugetlb=1"))


class Run(NamedTuple):
    """A command that prints lines of JSON, one for each point."""
    model: str
    who: str
    way: str  # for messages
    command: list
    variables: dict[str, str]


class Point:
    """One way on one model, over all rounds."""

    def __init__(self, who: str, line: dict) -> None:
        self.who = who
        self.line = line  # the first round's: only times differ
        self.plain_s = self.step_s = float("inf")
        self.are_equal = True
        self.add(line)

    def add(self, line: dict) -> None:
        self.plain_s = min(self.plain_s, line.get("plain_s", float("inf")))
        self.step_s = min(self.step_s, line.get("step_s", float("inf")))
        self.are_equal = self.are_equal and line.get("gradients_equal", False)

    @property
    def fits(self) -> bool:
        return self.step_s < float("inf")

    @property
    def way(self) -> str:
        if self.who == "Reprise":
            return f"budget {self.line['share_asked']:g} of plain"
        return {"PyTorch": TORCH_WAYS, "rockmate": ROCKMATE_WAYS,
                "JAX": JAX_WAYS}[self.who][self.line["way"]]

    @property
    def share(self) -> float:
        """Of the bytes of the plain step's activations."""
        if "share_taken" in self.line:
            return self.line["share_taken"]
        return self.line["peak_bytes"] / self.line["plain_peak_bytes"]

    @property
    def extra_percent(self) -> float:
        return 100 * (self.step_s / self.plain_s - 1)

    @property
    def prepare_s(self) -> float | None:
        return self.line.get("planning_s", self.line.get("prepare_s"))


Points = dict[tuple[str, str, str], Point]  # (model, who, way)


def own_runs(model: str, options: argparse.Namespace, size: list[str]) -> list[Run]:
    shares = SHARES[::3] if options.quick else SHARES
    return [Run(model, "Reprise", share, [options.program, model, "--json", *size, share], {})
            for share in shares]


def peer_runs(model: str, options: argparse.Namespace, size: list[str], folder: str) -> list[Run]:
    flags = ["--model", model, "--repetitions", str(options.repetitions), *size]
    torch = environments.set_up("torch")
    runs = [Run(model, "PyTorch", way, [torch, PEERS / "torch_ways.py", way, *flags], {})
            for way in TORCH_WAYS]
    jax = environments.set_up("jax")
    runs.append(Run(model, "JAX", "all", [jax, PEERS / "jax_ways.py", *flags],
                    {"JAX_PLATFORMS": "cpu"}))
    if options.rockmate:
        python = environments.set_up("rockmate")
        folders = rockmate_source.unpack(options.rockmate, pathlib.Path(folder) / "rockmate")
        variables = {"PYTHONPATH": ":".join(map(str, folders))}
        command = [python, PEERS / "rockmate_ways.py"]
        runs += [Run(model, "rockmate", way, [*command, way, *flags], variables)
                 for way in ROCKMATE_WAYS]
    return runs


def in_turn(ours: list[Run], theirs: list[Run]) -> list[Run]:
    """Ours spread evenly among theirs."""
    places = [((i + 0.5) / len(side), run) for side in (ours, theirs) for i, run in enumerate(side)]
    return [run for _, run in sorted(places, key=lambda place: place[0])]


def lines_of(run: Run, threads: int) -> list[dict]:
    """What the run prints. A peer's that fails is nothing, and its error is shown."""
    # Compilations are timed: none may be there yet.
    with tempfile.TemporaryDirectory() as cache:
        variables = os.environ | run.variables | {
            "OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads),
            "CUDA_VISIBLE_DEVICES": "", "GLIBC_TUNABLES": KEEP_LARGE_BLOCKS,
            "TORCHINDUCTOR_CACHE_DIR": cache}
        output = subprocess.run(run.command, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                text=True, env=variables)
    if output.returncode != 0:
        print(f"compare.py: failed:\n{output.stderr[-2000:]}", file=sys.stderr)
        if run.who == "Reprise":
            raise SystemExit(1)
        return []
    return [json.loads(line) for line in output.stdout.splitlines() if line.startswith("{")]


def measure(runs: list[Run], options: argparse.Namespace) -> tuple[Points, list[str]]:
    """The points, and the peers that failed."""
    points: Points = {}
    failed: list[str] = []
    for number in range(options.rounds):
        for run in runs:
            name = f"{run.who} {run.way} on {run.model}"
            print(f"compare.py: round {number + 1}: {name}", file=sys.stderr)
            lines = lines_of(run, options.threads)
            if not lines and name not in failed:
                failed.append(name)
            for line in lines:
                key = run.model, run.who, str(line.get("way", line.get("share_asked")))
                if key in points:
                    points[key].add(line)
                else:
                    points[key] = Point(run.who, line)
    return points, failed


def pareto(points: list[Point]) -> list[Point]:
    """Those that no other one beats in bytes and in time, by their bytes."""
    best: list[Point] = []
    for point in sorted(points, key=lambda point: (point.share, point.step_s / point.plain_s)):
        if not best or point.extra_percent < best[-1].extra_percent:
            best.append(point)
    return best


def print_table(points: list[Point]) -> None:
    print("| who | way | bytes of plain's activations, % | step longer than plain, % "
          "| recomputed, % of plain's time | no plan below, % | gradients bitwise equal "
          "| planning, solving or compiling, s |\n"
          "| --- | --- | ---: | ---: | ---: | ---: | --- | ---: |")
    for point in points:
        prepare = "" if point.prepare_s is None else f"{point.prepare_s:.1f}"
        if not point.fits:
            print(f"| {point.who} | {point.way} | no solution | | | | | {prepare} |")
            continue
        own = [f"{point.line[name]:.1f}" if name in point.line else ""
               for name in ("replayed_percent", "bound_percent")]
        print(f"| {point.who} | {point.way} | {100 * point.share:.1f} | {point.extra_percent:+.1f} "
              f"| {own[0]} | {own[1]} | {'yes' if point.are_equal else 'no'} | {prepare} |")


def print_pareto(points: list[Point]) -> None:
    """Of Reprise, and of all the others together."""
    print("\nNot beaten in both bytes and time by another of the same side:\n")
    print("| side | way | bytes, % | longer, % |\n| --- | --- | ---: | ---: |")
    for side in ("Reprise", "others"):
        for point in pareto([p for p in points if (p.who == "Reprise") == (side == "Reprise")]):
            name = side if side == "Reprise" else point.who
            print(f"| {name} | {point.way} | {100 * point.share:.1f} "
                  f"| {point.extra_percent:+.1f} |")


def print_conditions(options: argparse.Namespace, failed: list[str]) -> None:
    peers = [environments.versions("torch", ["torch"]), environments.versions("jax", ["jax"])]
    if options.rockmate:
        peers.append(f"rockmate at commit {rockmate_source.COMMIT[:12]}")
    print(f"{options.threads} threads on {options.threads} cores, float32, CPU; "
          f"{', '.join(peers)}; the least times of {options.rounds} {"round" if options.rounds == 1 else "rounds"}. Every program ran with "
          f"`GLIBC_TUNABLES={KEEP_LARGE_BLOCKS}`, so that freed blocks stay in the process.")
    if failed:
        print(f"\nLeft out, because it failed: {', '.join(failed)}.")


def series_of(points: list[Point]) -> list[svg_plot.Series]:
    def family(point: Point) -> str:
        if point.who == "PyTorch":
            return {"per-layer": "PyTorch, each layer", "selective": "PyTorch, selective"}.get(
                point.line["way"], "PyTorch, segments" if "segments" in point.line["way"]
                else "torch.compile, budget")
        if point.who == "rockmate":
            return point.line["way"].split("-")[0]
        return point.who

    families: dict[str, list[tuple[float, float]]] = {}
    for point in points:
        families.setdefault(family(point), []).append((point.share, point.extra_percent))
    return [svg_plot.Series(name, places, name == "Reprise") for name, places in families.items()]


def draw(by_model: dict[str, list[Point]]) -> str:
    panels = [svg_plot.Panel(MODELS[model].split(":")[0], series_of([p for p in points if p.fits]))
              for model, points in by_model.items()]
    return svg_plot.draw(panels, ("share of the plain step's activation bytes",
                                  "step longer than plain, %"))


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=2, help="runs of each program (default: 2)")
    parser.add_argument("--repetitions", type=int, default=3,
                        help="steps of each peer in a run (default: 3)")
    parser.add_argument("--threads", type=int, default=2, help="of every side (default: 2)")
    parser.add_argument("--svg", type=pathlib.Path, help="where to draw the picture")
    parser.add_argument("--rockmate", type=pathlib.Path, metavar="CLONE",
                        help="a clone of topal-team/rockmate; without it rockmate is left out")
    parser.add_argument("--quick", action="store_true",
                        help="small models in one round, to see that everything runs")


def run(options: argparse.Namespace) -> int:
    """Exit code 4 where a gradient of Reprise is not that of the plain step."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:options.threads])
    size = ["--small"] if options.quick else []
    if options.quick:
        options.rounds = options.repetitions = 1
    with tempfile.TemporaryDirectory() as folder:
        runs = [run for model in MODELS
                for run in in_turn(own_runs(model, options, size),
                                   peer_runs(model, options, size, folder))]
        points, failed = measure(runs, options)
    by_model = {model: [point for (name, _, _), point in points.items() if name == model]
                for model in MODELS}
    print_conditions(options, failed)
    for model, of_model in by_model.items():
        of_model.sort(key=lambda point: ["Reprise", "PyTorch", "rockmate", "JAX"].index(point.who))
        print(f"\n### {'A small model in place of ' if options.quick else ''}{MODELS[model]}\n")
        print_table(of_model)
        print_pareto([point for point in of_model if point.fits])
    if options.svg:
        options.svg.write_text(draw(by_model))
    ours = [point for (_, who, _), point in points.items() if who == "Reprise" and point.fits]
    if all(point.are_equal for point in ours):
        return 0
    print("compare.py: a gradient of Reprise is not that of the plain step", file=sys.stderr)
    return 4
