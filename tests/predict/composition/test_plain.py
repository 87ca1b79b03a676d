"""Configurations made without Hydra are those that Hydra composes; other words are left to it."""

from dataclasses import replace
from typing import Any

import pytest

from gnnperf.predict import Request
from gnnperf.predict.composition.plain import plain_config
from gnnperf.predict.composition.with_hydra import composed_by_hydra


@pytest.mark.parametrize(
    ("words", "values"),
    [
        ((), {}),
        (("trace=/tmp/some-run/1.json.gz", "out=../out_1"), {}),
        (("plan=gpt_405b", "hardware=h100_sxm", "cluster=hgx_h100"), {}),
        (("collectives=specification",), {"trace": "a ${b}, 'c'", "quiet": True}),
    ],
)
def test_names_and_paths_give_what_hydra_composes(words: tuple[str, ...], values: dict[str, Any]) -> None:
    plain, composed = (
        plain_config("predict", Request, words, **values),
        composed_by_hydra("predict", Request, words, values),
    )
    assert plain is not None
    assert plain.device_spec() == composed.device_spec()
    assert plain.cluster_spec() == composed.cluster_spec()
    unspecified: dict[str, Any] = {"hardware": {}, "cluster": {}}  # compared above: numbers may be texts
    assert replace(plain, **unspecified) == replace(composed, **unspecified)


@pytest.mark.parametrize(
    ("words", "values"),
    [
        (("out=null",), {}),
        (("out=5",), {}),
        (("out=a,b",), {}),
        (("out=a", "out=b"), {}),
        (("trace=x", "--json"), {}),
        (("mode=gnn",), {}),
        (("hardware=mine.yaml",), {}),
        (("hardware=unknown",), {}),
        (("plan.parallelism.tensor=4",), {}),
        (("whatif=fuse",), {}),
        (("run.tokens=1e9",), {}),
        ((), {"step": 1}),
        ((), {"run.tokens": 1e9}),
    ],
)
def test_other_words_are_left_to_hydra(words: tuple[str, ...], values: dict[str, Any]) -> None:
    assert plain_config("predict", Request, words, **values) is None


def test_an_entry_point_with_a_folder_of_its_own_is_left_to_hydra() -> None:
    assert plain_config("train", Request, ("out=x",)) is None
