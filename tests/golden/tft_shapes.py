# SPDX-License-Identifier: Apache-2.0
"""Options of the reference model, and the name and shape of every parameter as the C++ model has them.

Letters: D hidden width, W width of real embeddings, V variables.
"""
import dataclasses
import math


@dataclasses.dataclass(frozen=True)
class Options:
    """As reprise::TftOptions; dropout is 0 here."""

    encoder_length: int = 7
    horizon: int = 3
    hidden_size: int = 8
    attention_heads: int = 2
    lstm_layers: int = 1
    quantiles: tuple = (0.1, 0.5, 0.9)
    variable_width: int = 0
    encoder_grn: bool = False
    layer_norm_epsilon: float = 1e-5
    static_reals: int = 0
    known_reals: int = 0
    observed_reals: int = 1
    static_cardinalities: tuple = ()
    known_cardinalities: tuple = ()
    observed_cardinalities: tuple = ()

    @property
    def width(self):
        return self.variable_width or self.hidden_size

    def selections(self):
        """Real and categorical variables of each selection network that exists, and whether it has a context."""
        static = (self.static_reals, len(self.static_cardinalities))
        known = (self.known_reals, len(self.known_cardinalities))
        historical = (self.observed_reals + known[0], len(self.observed_cardinalities) + known[1])
        has_static = sum(static) > 0
        all_three = {
            "static_vsn": (*static, False),
            "historical_vsn": (*historical, has_static),
            "future_vsn": (*known, has_static),
        }
        return {name: kinds for name, kinds in all_three.items() if kinds[0] + kinds[1] > 0}


def grn_shapes(name, inputs, hidden, outputs, has_context):
    shapes = {f"{name}.input.weight": (hidden, inputs), f"{name}.input.bias": (hidden,)}
    if has_context:
        shapes[f"{name}.context.weight"] = (hidden, hidden)
    shapes |= {f"{name}.hidden.weight": (hidden, hidden), f"{name}.hidden.bias": (hidden,)}
    if inputs != outputs:
        shapes |= {f"{name}.skip.weight": (outputs, inputs), f"{name}.skip.bias": (outputs,)}
    return shapes | gate_shapes(name, hidden, outputs)


def gate_shapes(name, inputs, outputs):
    shapes = {f"{name}.gate.weight": (2 * outputs, inputs), f"{name}.gate.bias": (2 * outputs,)}
    if outputs != 1:  # layer norm over one output would make it constant
        shapes |= {f"{name}.norm.weight": (outputs,), f"{name}.norm.bias": (outputs,)}
    return shapes


def variable_grn_shapes(name, variables, inputs, hidden):
    """One network per variable, stacked; weights are [variable, in, out]."""
    shapes = {
        f"{name}.input_weight": (variables, inputs, hidden),
        f"{name}.input_bias": (variables, hidden),
        f"{name}.hidden_weight": (variables, hidden, hidden),
        f"{name}.hidden_bias": (variables, hidden),
        f"{name}.gate_weight": (variables, hidden, 2 * hidden),
        f"{name}.gate_bias": (variables, 2 * hidden),
        f"{name}.norm_weight": (variables, hidden),
        f"{name}.norm_bias": (variables, hidden),
    }
    if inputs != hidden:
        shapes |= {f"{name}.skip_weight": (variables, inputs, hidden), f"{name}.skip_bias": (variables, hidden)}
    return shapes


def selection_shapes(name, reals, categoricals, has_context, o):
    d, shapes = o.hidden_size, {}
    flat = reals * o.width + categoricals * d
    shapes |= grn_shapes(f"{name}.weight_grn", flat, d, reals + categoricals, has_context)
    if reals > 0:
        shapes |= variable_grn_shapes(f"{name}.real_grn", reals, o.width, d)
    if categoricals > 0:
        shapes |= variable_grn_shapes(f"{name}.categorical_grn", categoricals, d, d)
    return shapes


def embedding_shapes(name, reals, cardinalities, o):
    shapes = {}
    if reals > 0:
        shapes |= {f"{name}.real_weight": (reals, o.width), f"{name}.real_bias": (reals, o.width)}
    for i, cardinality in enumerate(cardinalities):
        shapes[f"{name}.categorical.{i}.weight"] = (cardinality, o.hidden_size)
    return shapes


def lstm_shapes(name, layers, d):
    shapes = {}
    for i in range(layers):
        shapes |= {f"{name}.weight_ih_l{i}": (4 * d, d), f"{name}.weight_hh_l{i}": (4 * d, d)}
        shapes |= {f"{name}.bias_ih_l{i}": (4 * d,), f"{name}.bias_hh_l{i}": (4 * d,)}
    return shapes


def parameter_shapes(o):
    """Name and shape of every parameter."""
    d, head = o.hidden_size, o.hidden_size // o.attention_heads
    selections = o.selections()
    has_static, has_known = "static_vsn" in selections, "future_vsn" in selections
    shapes = embedding_shapes("static_embedding", o.static_reals, o.static_cardinalities, o)
    shapes |= embedding_shapes("known_embedding", o.known_reals, o.known_cardinalities, o)
    shapes |= embedding_shapes("observed_embedding", o.observed_reals, o.observed_cardinalities, o)
    for name, (reals, categoricals, has_context) in selections.items():
        shapes |= selection_shapes(name, reals, categoricals, has_context, o)
    if has_static:
        for context in ("selection", "enrichment", "hidden_state", "cell_state"):
            shapes |= grn_shapes(f"static_encoder.{context}", d, d, d, False)
    if o.encoder_grn:
        shapes |= grn_shapes("historical_encoder", d, d, d, False)
        shapes |= grn_shapes("future_encoder", d, d, d, False) if has_known else {}
    shapes |= lstm_shapes("lstm_encoder", o.lstm_layers, d) | lstm_shapes("lstm_decoder", o.lstm_layers, d)
    shapes |= gate_shapes("lstm_gate", d, d)
    shapes |= grn_shapes("enrichment", d, d, d, has_static)
    shapes |= {"attention.query.weight": (d, d), "attention.key.weight": (d, d)}
    shapes |= {"attention.value.weight": (head, d), "attention.output.weight": (d, head)}
    shapes |= gate_shapes("attention_gate", d, d)
    shapes |= grn_shapes("positionwise", d, d, d, False)
    shapes |= gate_shapes("output_gate", d, d)
    return shapes | {"quantile.weight": (len(o.quantiles), d), "quantile.bias": (len(o.quantiles),)}


def count_parameters(options):
    return sum(math.prod(shape) for shape in parameter_shapes(options).values())
