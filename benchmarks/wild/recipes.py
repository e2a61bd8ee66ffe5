"""Recipes for the inputs of a model. A recipe is a function with its arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Concatenate, ParamSpec, TypeAlias

from benchmarks.wild.archives import Package
from benchmarks.wild.materials import Materials
from benchmarks.wild.sound import Array

Arrays: TypeAlias = Mapping[str, Array]
P = ParamSpec("P")


@dataclass(frozen=True)
class Recipe:
    """A function that makes one set of inputs from materials, and the other arguments of the function."""

    function: Callable[..., Arrays]
    arguments: tuple[Any, ...]
    options: Mapping[str, Any]

    def make(self, materials: Materials) -> Arrays:
        """Return the inputs by name."""
        return self.function(materials, *self.arguments, **self.options)

    def __str__(self) -> str:
        """Describe the inputs by the summary of the function and by its arguments."""
        summary = " ".join(str(self.function.__doc__).split("\n\n")[0].split()).removesuffix(".")
        told = [*map(str, self.arguments), *(f"{key}={value}" for key, value in self.options.items())]
        return f"{summary} ({', '.join(told)})" if told else summary


def recipe(function: Callable[Concatenate[Materials, P], Arrays]) -> Callable[P, Recipe]:
    """Turn a function of materials and arguments into a function that takes the arguments and returns a recipe."""

    def arguments(*positional: P.args, **named: P.kwargs) -> Recipe:
        return Recipe(function, positional, named)

    return arguments


@recipe
def answers(materials: Materials, package: Package, file: str, asked: Recipe) -> Arrays:
    """What another model of the package answers to its inputs."""
    return materials.outputs(package, file, asked.make(materials))
