"""Stencils in the language of GT4Py, which reads their source: a name that is assigned is a field that is written."""
# ruff: noqa: F841

import numpy as np
from gt4py.cartesian.gtscript import (
    BACKWARD,
    FORWARD,
    IJ,
    IJK,
    PARALLEL,
    Field,
    K,
    computation,
    interval,
)


def laplacian(inp: Field[IJK, np.float64], out: Field[IJK, np.float64]):
    with computation(PARALLEL), interval(...):
        out = inp[-1, 0, 0] + inp[1, 0, 0] + inp[0, -1, 0] + inp[0, 1, 0] - 4.0 * inp[0, 0, 0]


def tridiagonal(
    below: Field[IJK, np.float64],
    middle: Field[IJK, np.float64],
    above: Field[IJK, np.float64],
    right: Field[IJK, np.float64],
    out: Field[IJK, np.float64],
):
    with computation(FORWARD):
        with interval(0, 1):
            above = above / middle
            right = right / middle
        with interval(1, None):
            above = above / (middle - below * above[0, 0, -1])
            right = (right - below * right[0, 0, -1]) / (middle - below * above[0, 0, -1])
    with computation(BACKWARD):
        with interval(-1, None):
            out = right
        with interval(0, -1):
            out = right - above * out[0, 0, 1]


def planes_and_columns(
    surface: Field[IJ, np.float64],
    profile: Field[K, np.float64],
    out: Field[IJK, np.float64],
):
    with computation(PARALLEL), interval(...):
        out = surface + 10.0 * profile


def components(
    vector: Field[IJK, (np.float64, (2,))],
    matrix: Field[IJK, (np.float64, (2, 3))],
    out: Field[IJK, (np.float64, (2,))],
):
    with computation(PARALLEL), interval(...):
        out[0, 0, 0][0] = vector[0, 0, 0][1] + matrix[0, 0, 0][0, 2]
        out[0, 0, 0][1] = vector[0, 0, 0][0] - matrix[0, 0, 0][1, 0]


def single(inp: Field[IJK, np.float32], out: Field[IJK, np.float32]):
    with computation(PARALLEL), interval(...):
        out = 2.0 * inp
