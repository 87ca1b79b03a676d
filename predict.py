"""Predict one step of a trace, or of a plan that nobody ran.

python predict.py trace=PATH [hardware=NAME] [mode=hybrid|gnn|analytic|replay] [checkpoint=FILE] [out=DIR] [step=N]
                  [measured=FILE] [collectives=NAME] [whatif=[{batch:{factor:2}}]] [jitter=trace]
python predict.py plan=megatron_18b hardware=a100_sxm_80gb [plan.parallelism.tensor=4] [cluster=NAME]
Every key: python predict.py --cfg job
"""

from pathlib import Path

from gnnperf.config import entry_point
from gnnperf.predict import PredictConfig, StepPrediction
from gnnperf.predict.api import check, predict
from gnnperf.predict.asked import to_request
from gnnperf.predict.fallback import check_covered
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


def default_out(answer: StepPrediction) -> Path:
    """outputs/predict/<run>-<mode>-<hardware>, in characters that every file system takes."""
    words = (answer.prediction.graph.name, str(answer.mode), answer.hardware)
    name = "-".join(word for word in words if word)
    return Path("outputs/predict") / "".join(c if c.isalnum() or c in "._-" else "_" for c in name).lstrip(".")


if __name__ == "__main__":
    main()
