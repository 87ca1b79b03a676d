"""Predict one step of a trace, or of a plan that never ran.

python predict.py trace=PATH [hardware=NAME] [mode=hybrid|gnn|analytic|replay] [checkpoint=FILE] [out=DIR] [step=N]
                  [hardware=[NAME,NAME]] [measured=FILE] [collectives=NAME] [whatif=[{batch:{factor:2}}]]
                  [--json] [--quiet] [--verbose] [--max-step-ms MS] [--max-regression PERCENT --against FOLDER]
python predict.py plan=megatron_18b hardware=a100_sxm_80gb [plan.parallelism.tensor=4] [cluster=NAME]
Every key: python predict.py --cfg job

exit code: 0, or 1 unexpected, 2 input that cannot be used, 3 too much is not covered, 4 the step is beyond a limit,
5 standard output cannot be written (the files in `out` are), 141 its reader left
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from gnnperf.predict import entry_point

if TYPE_CHECKING:
    from gnnperf.predict import Request

FLAGS = ("tables", "json", "quiet", "verbose", "max_step_ms", "max_regression", "against")


@entry_point("predict", "gnnperf.predict.request.Request", flags=FLAGS)
def main(request: Request) -> None:
    """Trace -> graph -> prediction -> schedule -> report."""
    # imported after the user's files are known to be plain: one that is not is refused at once
    from gnnperf.core import bars_on_terminal, to_json, write_out
    from gnnperf.predict import check, check_covered, requested_graph, setup_of, with_alternatives
    from gnnperf.report import (
        check_output,
        default_out,
        document,
        print_summary,
        read_threshold,
        write_report,
        write_tables,
    )

    check(request)
    threshold = read_threshold(request.max_step_ms, request.max_regression, request.against)
    if request.out is not None:
        check_output(Path(request.out))
    with bars_on_terminal(request.quiet or request.json):
        graph = requested_graph(request)  # trace or plan -> execution graph
        setup = setup_of(graph, request)  # its step, the hardware, the predictors in their order
        prediction = setup.predict()  # latency of every node
        answer = setup.answer(prediction)  # schedule, step time, findings, edits, memory
        answer = with_alternatives(answer, setup)  # hardware=[...]: the same on each device
        check_covered(answer, request.fallback)
        written = write_report(answer, Path(request.out or default_out(answer)))
        written += write_tables(answer, Path(request.tables)) if request.tables else ()
    if request.json:
        write_out(to_json(document(answer)))
    elif not request.quiet:
        print_summary(answer, written, verbose=request.verbose)
    threshold.check(answer)


if __name__ == "__main__":
    main()
