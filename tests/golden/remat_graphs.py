# SPDX-License-Identifier: Apache-2.0
"""Small training steps, as `RematGraph` describes them, from fixed seeds.

A graph is a dictionary of the fields of `RematGraph`; operations are [time_ms, temporary_bytes, inputs, outputs,
can_run_again], values [bytes, made_by, held_until, can_be_kept], events [is_need, value, other_bytes].
"""

import random


class Recorder:
    """Writes down a forward pass; `finish` adds its backward pass."""

    def __init__(self, rng, is_plain):
        self.rng = rng
        self.is_plain = is_plain  # one output, released at once, nothing besides the values
        self.operations = []
        self.values = []
        self.saved = []  # per operation: values that its backward needs

    def add(self, inputs, saves, value_bytes=None, outputs=1):
        """Returns the first output."""
        operation = len(self.operations)
        first = len(self.values)
        for value in inputs:
            self.values[value][2] = operation
        sizes = [value_bytes or self.rng.randint(1, 9)] + [self.rng.randint(1, 4) for _ in range(outputs - 1)]
        self.values += [[size, operation, operation, 1] for size in sizes]
        temporary_bytes = 0 if self.is_plain or self.rng.random() < 0.6 else self.rng.randint(1, 4)
        made = list(range(first, first + outputs))
        self.operations.append([self.rng.randint(1, 9), temporary_bytes, sorted(set(inputs)), made, 1])
        self.saved.append(saves + made[1:])
        return first

    def finish(self, name):
        events = []
        for operation, saved in zip(reversed(self.operations), reversed(self.saved)):
            events += self.plain_events(saved) if self.is_plain else self.events(operation, saved)
        first_bytes = 0 if self.is_plain else self.rng.randint(0, 2)
        return {"name": name, "base_bytes": 0 if self.is_plain else 7, "first_bytes": first_bytes,
                "operations": self.operations, "values": self.values, "events": events}

    def plain_events(self, saved):
        return [event for value in saved for event in ([1, value, 0], [0, value, 0])]

    def events(self, operation, saved):
        gradient_bytes = self.values[operation[3][0]][0]
        needs = [[1, value, gradient_bytes] for value in saved]
        return needs + [[0, value, self.rng.randint(0, gradient_bytes)] for value in saved]


def chain(recorder, operations):
    value = recorder.add([], [])
    for _ in range(operations - 1):
        value = recorder.add([value], [value], outputs=recorder.rng.choice([1, 1, 1, 2]))


def residual(recorder, operations):
    value = recorder.add([], [])
    while len(recorder.operations) + 3 <= operations:
        size = recorder.values[value][0]
        inner = recorder.add([value], [value])
        inner = recorder.add([inner], [inner], size)
        value = recorder.add([value, inner], [], size)
    recorder.add([value], [value], 1)


def unet(recorder, operations):
    value = recorder.add([], [])
    skips = []
    levels = (operations - 1) // 3
    for level in range(levels):
        skips.append(recorder.add([value], [value], 9 - 3 * level + recorder.rng.randint(0, 2)))
        value = skips[-1]
    for skip in reversed(skips):
        value = recorder.add([value, skip], [value, skip])
        value = recorder.add([value], [value])


def random_dag(recorder, operations):
    rng = recorder.rng
    for i in range(operations):
        known = len(recorder.values)
        inputs = {known - 1 - rng.randrange(min(2, known))} if known else set()
        if known > 1 and rng.random() < 0.5:
            inputs.add(rng.randrange(known))
        outputs = 1 if recorder.is_plain else rng.choice([1, 1, 1, 2])
        saves = sorted(v for v in inputs if recorder.is_plain or rng.random() < 0.8)
        recorder.add(sorted(inputs), saves, outputs=outputs)


def restricted_dag(recorder, operations):
    """Some that can only be kept, that are there to the end, or that forward overwrites."""
    random_dag(recorder, operations)
    for i, operation in enumerate(recorder.operations):
        if i % 4 == 1:
            operation[4] = 0
        first = recorder.values[operation[3][0]]
        if i % 4 == 2:
            first[2] = operations
        can_be_made = operation[4] and all(recorder.values[v][3] for v in operation[2])
        if i % 4 == 3 and can_be_made:
            first[3] = 0


# Name, kind, number of operations, and whether the graph is plain.
CASES = (
    [(f"chain {i}", chain, 8 + i, False) for i in range(5)]
    + [(f"residual {i}", residual, 10 + i, False) for i in range(5)]
    + [(f"U-Net {i}", unet, (7, 10, 13)[i % 3], False) for i in range(6)]
    + [(f"random {i}", random_dag, 7 + i, False) for i in range(6)]
    + [(f"restricted {i}", restricted_dag, 8 + i, False) for i in range(3)]
    + [(f"plain {i}", random_dag, 6 + i % 3, True) for i in range(5)]
)


def graphs():
    for seed, (name, kind, operations, is_plain) in enumerate(CASES):
        recorder = Recorder(random.Random(seed), is_plain)
        kind(recorder, operations)
        yield recorder.finish(name)
