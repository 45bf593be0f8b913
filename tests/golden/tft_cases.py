# SPDX-License-Identifier: Apache-2.0
"""The shapes of model that are compared, and random parameters and inputs for each."""
import zlib

import numpy as np

from tft_shapes import Options, parameter_shapes

BATCH = 3

# The layer norm of two logits gives almost exactly -1 and 1 and lets no gradient through. A large epsilon does, so that
# the gradients of these networks mean something; two_variables and no_static keep the default.
WIDE_NORM = dict(layer_norm_epsilon=0.1)

ALL_KINDS = dict(static_reals=2, known_reals=2, observed_reals=1)
ALL_KINDS |= dict(static_cardinalities=(3,), known_cardinalities=(4,), observed_cardinalities=(2,))
SMALL = dict(static_cardinalities=(3,), known_reals=1, observed_reals=1) | WIDE_NORM

# Selection networks of one variable are in targets_only, one_variable, encoder_grn and others, of two variables in
# two_variables (static, historical), no_known (the same) and no_static (future).
CASES = {
    "all_kinds": Options(**ALL_KINDS),
    "targets_only": Options(),
    "no_known": Options(static_reals=1, static_cardinalities=(3,), observed_cardinalities=(2,), **WIDE_NORM),
    "no_static": Options(known_reals=1, known_cardinalities=(3,), observed_reals=1, observed_cardinalities=(2,)),
    "no_categorical": Options(static_reals=2, known_reals=1, observed_reals=2, **WIDE_NORM),
    "categorical_only": Options(
        static_cardinalities=(3,), known_cardinalities=(4,), observed_cardinalities=(2,), **WIDE_NORM
    ),
    "two_lstm_layers": Options(lstm_layers=2, hidden_size=6, **SMALL),
    "encoder_grn": Options(encoder_grn=True, **SMALL),
    "encoder_grn_no_known": Options(hidden_size=6, encoder_grn=True, observed_reals=2, **WIDE_NORM),
    "variable_width_3": Options(variable_width=3, static_reals=1, known_reals=1, known_cardinalities=(3,)),
    # The flat input of each selection network is then as wide as its output: no skip parameters.
    "variable_width_1": Options(hidden_size=6, variable_width=1, static_reals=2, known_reals=2, **WIDE_NORM),
    "one_variable": Options(static_reals=1, observed_reals=1),
    "two_variables": Options(static_cardinalities=(2, 3), known_reals=1, observed_reals=1),
    "other_sizes": Options(
        encoder_length=5,
        horizon=2,
        hidden_size=6,
        attention_heads=3,
        quantiles=(0.05, 0.25, 0.75, 0.95),
        **SMALL,
    ),
}


# The first draw has two logits so close that their layer norm magnifies the rounding of float32 beyond the tolerance.
REDRAWN = {"two_variables": 3}


def random_parameters(options, rng):
    parameters = {}
    for name, shape in parameter_shapes(options).items():
        value = rng.normal(size=shape)
        if name.endswith(("norm.weight", "norm_weight")):
            value = 1 + 0.3 * value
        elif len(shape) > 1 and "embedding" not in name:
            inputs = shape[1]  # of Linear's [out, in] and of the stacked [variable, in, out]
            value = value / np.sqrt(inputs)
        elif "embedding" not in name:
            value = 0.3 * value
        parameters[name] = value
    return parameters


def random_inputs(options, rng):
    e, n = options.encoder_length, options.encoder_length + options.horizon
    kinds = {
        "static": ((BATCH,), options.static_reals, options.static_cardinalities),
        "observed": ((BATCH, e), options.observed_reals, options.observed_cardinalities),
        "known": ((BATCH, n), options.known_reals, options.known_cardinalities),
    }
    inputs = {}
    for kind, (shape, reals, cardinalities) in kinds.items():
        if reals > 0:
            inputs[f"{kind}_real"] = rng.normal(size=(*shape, reals))
        if cardinalities:
            columns = [rng.integers(0, cardinality, size=shape) for cardinality in cardinalities]
            inputs[f"{kind}_categorical"] = np.stack(columns, -1)
    return inputs


def data_of(case):
    """Parameters, inputs and target [B, H] of a case; always the same."""
    options = CASES[case]
    rng = np.random.default_rng(zlib.crc32(case.encode()) + REDRAWN.get(case, 0))
    parameters, inputs = random_parameters(options, rng), random_inputs(options, rng)
    return parameters, inputs, rng.normal(size=(BATCH, options.horizon))
