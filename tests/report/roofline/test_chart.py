"""Axes and marks."""

from __future__ import annotations

import pytest

from gnnperf.report.roofline.chart import HEIGHT, WIDTH, Axis, Chart, decades, number_text


def test_a_logarithmic_axis_has_decades() -> None:
    axis = Axis(0.1, 1000.0, "x")
    assert [axis.at(value) for value in (0.1, 10.0, 1000.0)] == pytest.approx([0.0, 0.5, 1.0])
    assert axis.ticks() == pytest.approx([0.1, 1.0, 10.0, 100.0, 1000.0])
    assert (axis.at(0.0), axis.at(1e9)) == (0.0, 1.0)  # outside: at its ends


def test_an_even_axis_has_round_ticks() -> None:
    assert Axis(0.0, 7.3, "x", False).ticks() == pytest.approx([0, 2, 4, 6])
    assert Axis(72.7, 76.4, "x", False).ticks() == pytest.approx([73, 74, 75, 76])
    assert Axis(0.0, 1.0, "x", False).at(0.25) == 0.25


def test_ends_are_decades_around_the_values() -> None:
    assert decades([0.3, 4e5]) == pytest.approx((0.1, 1e6))
    assert decades([10.0]) == pytest.approx((10.0, 100.0))


def test_numbers_have_prefixes() -> None:
    assert [number_text(v) for v in (0.51, 7.0, 1.5e12, 2e16)] == ["0.51", "7", "1.5 T", "20 P"]


def test_marks_lie_where_the_axes_say_and_names_are_escaped() -> None:
    chart = Chart(Axis(0.0, 1.0, "<x>", False), Axis(0.0, 1.0, "y", False))
    chart.dot(1.0, 1.0, "f0", "<b>")
    chart.line([(0.0, 0.0), (1.0, 0.0)], "peak")
    drawn = chart.svg('a "picture"')
    assert f'cx="{WIDTH - 16:.1f}" cy="14.0"' in drawn
    assert f'points="78.0,{HEIGHT - 46:.1f} {WIDTH - 16:.1f},{HEIGHT - 46:.1f}"' in drawn
    assert "&lt;b&gt;" in drawn
    assert "&lt;x&gt;" in drawn
    assert "<b>" not in drawn
