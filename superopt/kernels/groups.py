"""The groups of nodes that become kernels. A group is a convex part of an island, and its long loop nests have vector code."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import onnx_ir as ir

from superopt.algebra.terms import variables
from superopt.kernels.emit import Target, is_vectorized
from superopt.kernels.loops import Steps, UnsupportedError
from superopt.kernels.schedule import KernelProgram, iterations, program_of
from superopt.model.bodies import TOP
from superopt.model.islands import Chart, Island, values_read
from superopt.model.lift import STANDARD, is_standard
from superopt.policy import KERNELS


@dataclass(frozen=True, eq=False)
class Group:
    """Nodes that become one kernel, and the kernel's loop nests."""

    island: Island
    program: KernelProgram


def kernel_program(island: Island, target: Target, most: int) -> KernelProgram:
    """Return the loop nests of an island. No nest may have more than `most` iterations.

    `target` describes the vectors of the processor for which code is written.

    Raises:
        UnsupportedError: The generator cannot write a kernel for the island.
    """
    if island.scope != TOP or island.dtype != ir.DataType.FLOAT or island.conditions:
        raise UnsupportedError("an island is in a control flow body, has booleans, or has a type other than float32")
    if any(x.condition for x in variables(*island.outputs.values())):
        raise UnsupportedError("an island reads booleans")
    program = program_of(island.outputs, target.panel)
    if any(not is_vectorized(nest, target) and iterations(nest) > KERNELS.max_scalar_iterations for nest in program.nests):
        raise UnsupportedError("a long loop nest has no vector code")
    if any(iterations(nest) > most for nest in program.nests):
        raise UnsupportedError("a loop nest has too many iterations")
    return program


def kernel_groups(chart: Chart, target: Target, most: int) -> Iterator[Group]:
    """Yield each part of an island that can become a kernel, with the loop nests of the part.

    An island is divided at each node for which the generator writes no kernel: the nodes that depend on this node are in later
    parts. A part of a single node is left out unless the node is a recurrence. A part is also left out if the generator cannot
    write a kernel for the whole part. No nest has more than `most` iterations.
    """
    known: dict[object, bool] = {}
    for island in (one for one in chart.islands() if one.scope == TOP):
        for nodes in _parts(chart, island, target, most, known).values():
            part = chart.island(nodes)
            try:
                program = kernel_program(part, target, most)
            except UnsupportedError:
                continue
            if len(nodes) > 1 or any(isinstance(p, Steps) for p in program.parts):
                yield Group(part, program)


def _parts(chart: Chart, island: Island, target: Target, most: int, known: dict[object, bool]) -> Mapping[int, list[ir.Node]]:
    """Return the nodes with kernels, grouped by level.

    On a path through the island, the level increases by 1 wherever a node without a kernel follows a node with a kernel. Nodes
    outside the island have no kernel. A path may lead over such nodes if they compute only shapes and constants.
    """
    inside = set(island.nodes)
    levels: dict[ir.Node, int] = {}
    taken: dict[ir.Node, bool] = {}
    parts: dict[int, list[ir.Node]] = {}
    for node in chart.model.graph:
        taken[node] = node in inside and _has_kernel(chart, node, target, most, known)
        producers = [p for v in values_read(node) if (p := v.producer()) in levels and p is not None]
        if taken[node]:
            levels[node] = max((levels[p] for p in producers), default=0)
            parts.setdefault(levels[node], []).append(node)
        elif node in inside or producers:
            levels[node] = max((levels[p] + taken[p] for p in producers), default=0)
    return parts


def _has_kernel(chart: Chart, node: ir.Node, target: Target, most: int, known: dict[object, bool]) -> bool:
    """Return whether the node may be in a kernel.

    ONNX Runtime 1.32 crashes if a function contains an operator of the standard domain that only ONNX Runtime defines, such as
    SimplifiedLayerNormalization, or LayerNormalization before opset 17.
    """
    if node.domain in STANDARD and not is_standard(node, chart.opset):
        return False
    values = (*node.inputs, *node.outputs)
    described = (f"{v.dtype} {v.shape} {v.const_value is not None}" if v is not None else "" for v in values)
    key = (node.op_identifier(), *described, str(node.attributes))
    if key not in known:
        try:
            kernel_program(chart.island([node]), target, most)
            known[key] = True
        except UnsupportedError:
            known[key] = False
    return known[key]
