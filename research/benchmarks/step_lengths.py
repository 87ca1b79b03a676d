"""Steps whose sequences differ in length, predicted from a trace of steps of one length.

    python -m research.benchmarks.step_lengths

Runs of `datasets/cpu-lengths`: every program ran with one length, and with eight that take turns. The first run's
recording and the list of lengths give the 10th, 50th and 90th percentile of step times; those of the second run's
recorded steps are measured. Each recording of one is paired with each of the other. Trivial predictions: every step as
it was traced, and the traced step times tokens. "Another recording" is the noise of the measured percentiles.
"""

from collections.abc import Mapping, Sequence
from itertools import permutations, product
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from gnnperf.core import each
from gnnperf.gnn.data.recordings import Recording, read_recordings
from gnnperf.graph import load_graph
from gnnperf.predict import Request, predict
from gnnperf.schedule import step_us
from research.benchmarks._frame import print_head, print_row, run_main
from research.benchmarks._results import save_result

DATA = Path("datasets/cpu-lengths")
QUANTILES = (0.1, 0.5, 0.9)
WAYS = ("edit", "as traced", "times tokens", "another recording")


def main() -> None:
    print_head("program", "prediction", *(f"p{round(100 * share)} error" for share in QUANTILES))
    errors = {name: np.array(rows) for name, rows in _signed_errors().items()}  # [num_pairs, 4, 3] each, NaN: no such
    for name, signed in errors.items():
        for way, row in zip(WAYS, np.nanmean(signed, axis=0), strict=True):
            print_row(name, way, *(f"{value:+.1f} %" for value in row))
    print()
    print_head("all programs", *(f"p{round(100 * share)}: mean error" for share in QUANTILES), "mean", "max", "bias")
    every = np.stack([np.nanmean(np.abs(signed), axis=0) for signed in errors.values()])  # [num_programs, 4, 3]
    bias = np.stack([np.nanmean(signed, axis=0) for signed in errors.values()]).mean(axis=(0, 2))
    for place, way in enumerate(WAYS):
        own = every[:, place]
        print_row(way, *(f"{value:.1f} %" for value in own.mean(axis=0)), f"{own.mean():.1f} %", f"{own.max():.1f} %",
                  f"{bias[place]:+.1f} %")  # fmt: skip
    save_result("step_lengths", *every[:, 0].mean(axis=0))


def _signed_errors() -> Mapping[str, Sequence[np.ndarray]]:
    """Program -> [4, 3] signed relative errors in % of each pair of recordings, in the order of WAYS and QUANTILES."""
    recordings = read_recordings(DATA)
    programs: dict[str, dict[bool, list[Recording]]] = {}
    for run, repeats in recordings.items():
        name, _, rest = run.partition("_len")
        lengths, _, ranks = rest.partition("_")
        programs.setdefault(f"{name} {ranks}", {})["-" in lengths] = list(repeats.values())
    return {
        name: _of_program(of[False], of[True]) for name, of in each(list(programs.items()), "predicting", "programs")
    }


def _of_program(fixed: Sequence[Recording], several: Sequence[Recording]) -> list[np.ndarray]:
    (traced_length,), lengths = _lengths(fixed[0]), _lengths(several[0])
    measured_us = [np.quantile(_steps_us(run), QUANTILES) for run in several]
    result = []
    for source, truth_us in product(fixed, measured_us):
        predicted_us = _predicted_us(source, lengths)
        traced_us = np.median(_steps_us(source))
        scaled_us = traced_us * np.quantile(lengths, QUANTILES) / traced_length
        rows = (predicted_us, np.full(len(QUANTILES), traced_us), scaled_us, np.full(len(QUANTILES), np.nan))
        result.append(100 * (np.stack(rows) / truth_us - 1))
    for one_us, truth_us in permutations(measured_us, 2):
        noise = np.full((len(WAYS), len(QUANTILES)), np.nan)
        noise[-1] = 100 * (one_us / truth_us - 1)
        result.append(noise)
    return result


def _lengths(run: Recording) -> list[int]:
    """Of the batches, as the name of the run has them."""
    return [int(length) for length in run.run.partition("_len")[2].partition("_")[0].split("-")]


def _steps_us(run: Recording) -> np.ndarray:
    """[num_steps] recorded steps."""
    return np.array([step_us(step) for step in load_graph(run.path, None).steps])


def _predicted_us(source: Recording, lengths: Sequence[int]) -> np.ndarray:
    """[3] percentiles of the edited trace."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / "lengths.csv"
        file.write_text("\n".join(map(str, lengths)) + "\n", encoding="utf-8")
        edit = {"sequence": {"lengths": str(file)}}
        step = predict(Request(trace=source.path, whatif=[edit], memory=False, findings=False))
    assert step.whatif is not None, "an edit was requested"
    return np.array([step.whatif.quantiles_us[share] for share in QUANTILES])


if __name__ == "__main__":
    run_main(main)
