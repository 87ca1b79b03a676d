"""Predict one step of a trace, or of a plan that never ran.

python predict.py trace=PATH [hardware=NAME] [mode=hybrid|gnn|analytic|replay] [checkpoint=FILE] [out=DIR] [step=N]
                  [hardware=[NAME,NAME]] [measured=FILE] [collectives=NAME] [whatif=[{batch:{factor:2}}]]
                  [--json] [--quiet] [--verbose] [--tables FOLDER] [--max-step-ms MS]
                  [--max-regression PERCENT --against FOLDER]
python predict.py plan=megatron_18b hardware=a100_sxm_80gb [plan.parallelism.tensor=4] [cluster=NAME]
Every key: python predict.py --cfg job

exit code: 0, or 1 unexpected, 2 input that cannot be used, 3 too much is not covered, 4 the step is beyond a limit,
5 standard output cannot be written (the files in `out` are), 141 its reader left
"""

from typing import TYPE_CHECKING

from gnnperf.predict import entry_point

if TYPE_CHECKING:
    from gnnperf.predict import Request

FLAGS = ("tables", "json", "quiet", "verbose", "max_step_ms", "max_regression", "against")


@entry_point("predict", "gnnperf.predict.request.Request", flags=FLAGS)
def main(request: "Request") -> None:
    """Trace -> graph -> prediction -> schedule -> report."""
    from gnnperf.report import run_request  # after the user's files are known to be plain

    run_request(request)


if __name__ == "__main__":
    main()
