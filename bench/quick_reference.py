#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints the tables of docs/gradient-checkpointing-quick-reference.md: what `reprise profile` measures on TFT-225.

    bench/quick_reference.py PROGRAM [--batch-size 128]     bytes and times of layers and tiers
    bench/quick_reference.py PROGRAM --devices              the largest batches for devices

A table with the layout of TFT-225 is made, and a training step on it profiled in each tier, or planned. Times are wall
times on one thread, each the least of three steps.
"""
import argparse
import json
import pathlib
import subprocess
import tempfile

SELECTION_NETWORKS = ("static_vsn", "historical_vsn", "future_vsn")
TIERS = ("off", "minimal", "aggressive")
MODEL = ["--encoder", "50", "--horizon", "10", "--hidden", "128", "--encoder-grn"]


def measured(program, command, table, *flags):
    line = [program, command, "--parquet-file", table, *MODEL, *flags, "--threads", "1", "--json"]
    return json.loads(subprocess.run(line, check=True, stdout=subprocess.PIPE, text=True).stdout)


def profile(program, table, tier, batch_size):
    return measured(program, "profile", table, "--batch-size", str(batch_size), "--checkpointing", tier)


def kept(layer):
    return layer["kept_bytes" if layer["recomputed"] else "plain_bytes"]


def outside_selection(layers):
    return [layer for layer in layers if layer["name"] not in SELECTION_NETWORKS]


def layer_table(aggressive):
    print("| layer | activations, MB | aggressive recomputes it | then kept, MB | forward, ms | recomputing costs, ms "
          "| MB saved per 1% of the step |\n| --- | ---: | --- | ---: | ---: | ---: | ---: |")
    for layer in aggressive["layers"]:
        gain = f"{layer['megabytes_per_percent']:.0f}" if layer["recomputed"] and layer["recompute_ms"] > 0 else ""
        print(f"| {layer['name']} | {layer['plain_bytes'] / 1e6:.1f} | {'yes' if layer['recomputed'] else 'no'} "
              f"| {kept(layer) / 1e6:.1f} | {layer['forward_ms']:.1f} | {layer['recompute_ms']:.1f} | {gain} |")


def tier_table(profiles):
    print("| tier | activations, MB | outside the selection networks, MB | saved of those | step, ms "
          "| against off in the same run | most memory of all tensors, MB | MB saved per 1% of time |\n"
          "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    for tier, step in profiles.items():
        layers = step["layers"]
        plain = sum(layer["plain_bytes"] for layer in outside_selection(layers))
        saved = plain - sum(kept(layer) for layer in outside_selection(layers))
        longer = 100 * (step["step_ms"] / step["plain_step_ms"] - 1)
        # What is recomputed, measured layer by layer: a difference of two steps would be mostly noise.
        recomputing = sum(layer["recompute_ms"] for layer in layers if layer["recomputed"])
        percent = 100 * recomputing / step["plain_step_ms"]
        gain = f"{saved / 1e6 / percent:.0f}" if percent > 0 else ""
        print(f"| {tier} | {sum(map(kept, layers)) / 1e6:.0f} | {(plain - saved) / 1e6:.1f} "
              f"| {saved / 1e6:.1f} MB, {100 * saved / plain:.0f}% | {step['step_ms']:.0f} | {longer:+.1f}% "
              f"| {step['peak_bytes'] / 1e6:.0f} | {gain} |")


def device_table(program, table):
    plan = measured(program, "plan", table)
    residual = max(tier["residual_bytes"] for tier in plan["tiers"])
    print(f"TFT-225, float32, one thread. Largest difference between a foretold and a measured peak: {residual} bytes.\n")
    print("| device | usable, MB | tier | largest batch | total, MB | headroom, MB | recommended for batches of "
          f"{plan['wanted_batch']} |\n| --- | ---: | --- | ---: | ---: | ---: | --- |")
    for device in plan["devices"]:
        if device["device"] == "this machine":
            continue
        for choice in device["choices"]:
            print(f"| {device['device']} | {device['usable_bytes'] / 1e6:.0f} | {choice['tier']} "
                  f"| {choice['largest_batch']} | {choice['total_bytes'] / 1e6:.0f} "
                  f"| {choice['headroom_bytes'] / 1e6:.0f} | {choice['reason'] if choice['recommended'] else ''} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--devices", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        table = str(pathlib.Path(folder, "table.parquet"))
        subprocess.run([arguments.program, "synthesize", "--preset", "tft-225", "--series", "6", "--steps", "260",
                        "--out", table], check=True, stdout=subprocess.DEVNULL)
        if arguments.devices:
            device_table(arguments.program, table)
            return
        profiles = {tier: profile(arguments.program, table, tier, arguments.batch_size) for tier in TIERS}
    print(f"TFT-225, batch {arguments.batch_size}, float32, one thread; times are the least of three steps.\n")
    layer_table(profiles["aggressive"])
    print()
    tier_table(profiles)


if __name__ == "__main__":
    main()
