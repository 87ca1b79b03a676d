"""Predict one step of a trace, or of a plan that nobody ran.

python predict.py trace=PATH [hardware=NAME] [mode=hybrid|gnn|analytic|replay] [checkpoint=FILE] [out=DIR] [step=N]
                  [measured=FILE] [collectives=NAME] [whatif=[{batch:{factor:2}}]] [jitter=trace]
python predict.py plan=megatron_18b hardware=a100_sxm_80gb [plan.parallelism.tensor=4] [cluster=NAME]
Every key: python predict.py --cfg job
"""

from pathlib import Path

from gnnperf.config import entry_point
from gnnperf.predict import PredictConfig, StepPrediction
from gnnperf.predict.api import Request, check, predict
from gnnperf.predict.fallback import check_covered
from gnnperf.predict.rank_memory import MemoryQuestion
from gnnperf.predict.whatif import read_edits
from gnnperf.report import check_output, print_summary, write_report


@entry_point("predict", PredictConfig)
def main(config: PredictConfig) -> None:
    """Trace -> graph -> prediction -> report."""
    request = to_request(config)
    check(request)
    if config.out is not None:
        check_output(Path(config.out))
    answer = predict(request)
    check_covered(answer, config.fallback)
    written = write_report(answer, Path(config.out or default_out(answer)))
    print_summary(answer, written)


def to_request(config: PredictConfig) -> Request:
    """The same wishes with paths as paths."""
    return Request(
        trace=None if config.trace is None else Path(config.trace),
        plan=config.asked_plan(),
        mode=config.mode,
        hardware=config.device_spec(),
        cluster=config.cluster_spec(),
        collectives=config.collectives,
        checkpoint=None if config.checkpoint is None else Path(config.checkpoint),
        measured=None if config.measured is None else Path(config.measured),
        step=config.step,
        cache_dir=None if config.cache_dir is None else Path(config.cache_dir).expanduser(),
        whatif=read_edits(config.whatif),
        jitter=config.jitter,
        findings=config.findings,
        memory=MemoryQuestion(config.batches_held) if config.memory else None,
    )


def default_out(answer: StepPrediction) -> Path:
    """outputs/predict/<run>-<mode>-<hardware>, in characters that every file system takes."""
    words = (answer.prediction.graph.name, str(answer.mode), answer.hardware)
    name = "-".join(word for word in words if word)
    return Path("outputs/predict") / "".join(c if c.isalnum() or c in "._-" else "_" for c in name).lstrip(".")


if __name__ == "__main__":
    main()
