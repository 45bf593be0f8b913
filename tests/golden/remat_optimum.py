# SPDX-License-Identifier: Apache-2.0
"""The least replayed time of small graphs within a budget, as mixed integer linear programs.

The model is that of `simulate` in include/reprise/remat_plan.h. As in Checkmate (Jain et al. 2020), the backward pass
is cut into stages in which operations run again in the order of forward: here `PASSES` before each event. What that
can lose, and why the rest loses nothing, is in README.md.

    remat_optimum.py [--passes N] [--only NAME]   writes remat_optimum.json, or with --only prints
"""

import argparse
import json
import math
import pathlib
import time

import highspy

import remat_graphs

PASSES = 2
FRACTIONS = (0.1, 0.4, 0.7)  # of the way from the smallest possible budget to that of keeping everything


class Step:
    """What the program asks of a graph."""

    def __init__(self, graph):
        self.graph = graph
        self.operations = graph["operations"]
        self.values = graph["values"]
        self.events = graph["events"]

    def is_permanent(self, value):
        return self.values[value][2] == len(self.operations) and self.values[value][3]

    def overwritten_bytes(self):
        """Of what forward holds to the end, but no plan can read."""
        return sum(size for size, _, until, can_be_kept in self.values
                   if until == len(self.operations) and not can_be_kept)

    def gap_bytes(self, event):
        return self.graph["first_bytes"] if event == 0 else self.events[event - 1][2]

    def has_actions(self, event):
        """What is done before a release that leaves no more in use can as well be done after it."""
        is_need, _, other_bytes = self.events[event]
        return event == 0 or is_need or other_bytes > self.gap_bytes(event)

    def in_use_after(self):
        """Per event: values that backward holds after it."""
        counts = [0] * len(self.values)
        result = []
        for is_need, value, _ in self.events:
            counts[value] += 1 if is_need else -1
            result.append([v for v, count in enumerate(counts) if count > 0])
        return result

    def forward_bytes(self, operation, kept):
        """(constant, values that count if `kept`) while forward runs an operation."""
        held = [v for v, (_, made, until, _) in enumerate(self.values) if made <= operation <= until]
        extra = [v for v, (_, _, until, _) in enumerate(self.values) if until < operation and v in kept]
        return sum(self.values[v][0] for v in held) + self.operations[operation][1], extra


def plain_peak_bytes(step):
    """Of keeping what backward needs until its last release, as if everything could be kept."""
    last = {value: e for e, (is_need, value, _) in enumerate(step.events) if not is_need}
    last |= {v: len(step.events) for v, value in enumerate(step.values) if value[2] == len(step.operations)}
    peak = 0
    for i in range(len(step.operations)):
        constant, extra = step.forward_bytes(i, last)
        peak = max(peak, constant + sum(step.values[v][0] for v in extra))
    for e in range(-1, len(step.events)):
        other_bytes = step.gap_bytes(e + 1)
        peak = max(peak, other_bytes + sum(step.values[v][0] for v, end in last.items() if end > e))
    return step.graph["base_bytes"] + peak


class Program:
    """Variables are 1 where an operation runs, and where a value is there."""

    def __init__(self, step, budget_bytes, passes):
        self.step = step
        self.room_bytes = budget_bytes - step.graph["base_bytes"]
        self.solver = highspy.Highs()
        self.solver.setOptionValue("output_flag", False)
        self.solver.setOptionValue("threads", 1)
        # Times are integers: what is within less than 1 of the optimum is the optimum.
        self.solver.setOptionValue("mip_rel_gap", 0.0)
        self.solver.setOptionValue("mip_abs_gap", 0.9)
        self.in_use = []
        self.there = [self.is_there(v, can_be_kept) for v, (*_, can_be_kept) in enumerate(step.values)]
        self.add_forward()
        in_use = step.in_use_after()
        for event in range(len(step.events)):
            for _ in range(passes if step.has_actions(event) else 0):
                self.add_pass(event)
            self.add_event(event, in_use[event])

    def is_there(self, value, most=1.0):
        """What backward holds is there: dropping it frees nothing before its release."""
        least = 1.0 if value in self.in_use or self.step.is_permanent(value) else 0.0
        return self.solver.addVariable(lb=least, ub=most)

    def limit(self, constant, there, more=0.0):
        """`constant` and the bytes of the values that are there are within the budget."""
        level = self.solver.qsum(self.step.values[v][0] * variable for v, variable in there.items())
        self.solver.addConstr(level + more <= self.room_bytes - constant)

    def limit_backward(self, other_bytes, more=0.0):
        self.limit(self.step.overwritten_bytes() + other_bytes, dict(enumerate(self.there)), more)

    def add_forward(self):
        kept = dict(enumerate(self.there))
        for i in range(len(self.step.operations)):
            constant, extra = self.step.forward_bytes(i, kept)
            self.limit(constant, {v: kept[v] for v in extra})
        self.limit_backward(self.step.graph["first_bytes"])

    def add_pass(self, event):
        for time_ms, temporary_bytes, inputs, outputs, can_run_again in self.step.operations:
            if not can_run_again:
                continue
            run = self.solver.addVariable(ub=1.0, obj=time_ms, type=highspy.HighsVarType.kInteger)
            for value in inputs:
                self.solver.addConstr(run <= self.there[value])
            # Outputs that are there already are made a second time.
            made_bytes = sum(self.step.values[v][0] for v in outputs) + temporary_bytes
            self.limit_backward(self.step.gap_bytes(event), made_bytes * run)
            # Drops come right after a use: a later one frees nothing more.
            for value in inputs:
                self.change(value, self.there[value])
            for value in outputs:
                self.change(value, self.there[value] + run)

    def change(self, value, most):
        self.there[value] = self.is_there(value)
        self.solver.addConstr(self.there[value] <= most)

    def add_event(self, event, in_use):
        is_need, value, other_bytes = self.step.events[event]
        if is_need:
            self.solver.addConstr(self.there[value] >= 1)
        self.in_use = in_use
        self.change(value, self.there[value])
        self.limit_backward(other_bytes)

    def least_ms(self):
        """None: impossible."""
        self.solver.run()
        status = self.solver.getModelStatus()
        if status == highspy.HighsModelStatus.kInfeasible:
            return None
        assert status == highspy.HighsModelStatus.kOptimal, status
        return round(self.solver.getInfo().objective_function_value)


def least_budget_bytes(step, most_bytes, passes):
    """The smallest budget for which there is a plan."""
    impossible, possible = 0, most_bytes
    while possible > impossible + 1:
        middle = (impossible + possible) // 2
        if Program(step, middle, passes).least_ms() is None:
            impossible = middle
        else:
            possible = middle
    return possible


def solve(graph, passes):
    step = Step(graph)
    plain = plain_peak_bytes(step)
    least = least_budget_bytes(step, plain, passes)
    budgets = [least + math.ceil(fraction * (plain - least)) for fraction in FRACTIONS]
    optima = []
    for budget in budgets:
        start = time.time()
        optima.append(Program(step, budget, passes).least_ms())
        print(f"{graph['name']}: {budget} bytes ({least} to {plain}), {optima[-1]} ms, {time.time() - start:.1f} s",
              flush=True)
    return {**graph, "least_budget_bytes": least, "budgets": budgets, "least_replay_ms": optima}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--passes", type=int, default=PASSES)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    solved = [solve(graph, options.passes) for graph in remat_graphs.graphs() if options.only in graph["name"]]
    if not options.only:
        text = ",\n".join(json.dumps(graph, separators=(",", ":")) for graph in solved)
        pathlib.Path(__file__).with_suffix(".json").write_text(f"[\n{text}\n]\n")


if __name__ == "__main__":
    main()
