"""Names of processors distinguish processors that virtual machines call the same."""

import pytest

from superopt.runtime.hardware import cpu_name, parse_cpuinfo

FIRST = "processor\t: 0\ncpu family\t: 25\nmodel\t\t: {model}\nmodel name\t: AMD EPYC\nflags\t\t: sse avx avx2{flags}\n"


@pytest.mark.parametrize(("model", "flags", "more"), [(1, "", "model 1, AVX2"), (17, " avx512f avx512bw", "model 17, AVX-512")])
def test_processors_of_one_name_are_told_apart(model: int, flags: str, more: str) -> None:
    one = FIRST.format(model=model, flags=flags)
    assert parse_cpuinfo(f"{one}\n{one.replace('AMD', 'Another')}") == f"AMD EPYC (family 25, {more})"


@pytest.mark.parametrize(
    ("cpuinfo", "name"),
    [("", ""), ("processor\t: 0\nBogoMIPS\t: 50.00\n", ""), ("model name\t: ARMv8\nFeatures\t: fp asimd\n", "ARMv8")],
)
def test_what_is_not_said_is_left_out(cpuinfo: str, name: str) -> None:
    assert parse_cpuinfo(cpuinfo) == name


def test_this_machine_has_a_name() -> None:
    assert cpu_name()
