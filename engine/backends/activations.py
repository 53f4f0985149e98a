"""The elementwise functions of `Ops`: activations, gates, and functions with numbers of their own."""

from __future__ import annotations

ACTIVATIONS = ("silu", "gelu", "gelu_tanh", "relu", "relu2", "clamped_swiglu")
"""The activations of `Ops.gated`; `Ops.activate` has all but the last. "gelu" is x Phi(x) with the error
function, "gelu_tanh" its usual approximation (arXiv 1606.08415), "relu2" the square of relu. "clamped_swiglu"
is (up + 1) gate sigmoid(1.702 gate), with gate at most 7 and up within -7 .. 7 (GPT-OSS's reference code).
"""
SHAPED = ("xielu", "clamp", "sigmoid", "root", "between")
"""The functions of `Ops.activate_with`, and their numbers. "xielu" (arXiv 2411.13010) of p, n, l is
p x^2 + l x above 0, n (e^x - 1 - x) + l x below; "clamp" of c is x within -c .. c;
"sigmoid" of s, t is s sigmoid(x) + t; "root" of r is sqrt(max(|x|, r)) with the sign of x;
"between" of a, b is x within a .. b.
"""
GATES = (*ACTIVATIONS, "sigmoid", "softplus", "identity", "smaller")
"""What `Ops.gated` does with its gate: an activation, its sigmoid, log(1 + e^x), or nothing. With "smaller"
the result is no product but whichever of gate and up is nearer to 0, the gate if neither is.
"""
