"""`gnnperf predict TRACE`, `what-if TRACE EDIT` and `report TRACE`: plain flags for the keys of predict.py."""

import argparse
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gnnperf.core import (
    InputError,
    Subparsers,
    add_command,
    bars_on_terminal,
    complain,
    files,
    reuse_memory,
    say,
    to_json,
    use_python_strings,
    write_out,
)

if TYPE_CHECKING:
    from gnnperf.predict import Request

DESCRIPTION = """\
Predict one step: on the hardware of the trace, on other hardware, or after changes.

Without --gpu the prediction starts from what the trace measured on its own hardware. The files of the prediction
(prediction.json, nodes.parquet, timeline.json.gz, report.html) go to --out.
"""
EXAMPLES = """\
gnnperf predict trace.json.gz                                       the step on its own GPU, and what holds it up
gnnperf predict runs/trace_dir --gpu h200                           the same step on another GPU
gnnperf predict runs/trace_dir --gpu h100_sxm,h200,b200             one table of several
gnnperf predict trace.json.gz --what-if batch=2x                    after a change; --what-if may be repeated
gnnperf predict trace.json.gz --what-if link=pcie_gen4_x16 --json   for a program to read
gnnperf predict trace.json.gz --set evidence=other_steps            a forecast from the other steps of the trace
gnnperf predict trace.json.gz --set stalls=remove                   without stalls; profiler=remove: without its cost
gnnperf predict --plan megatron_18b --gpu a100_sxm_80gb --set plan.parallelism.tensor=4
gnnperf predict --plan llama3_70b_fsdp --gpu h100_sxm --tokens 15e12 --usd-per-gpu-hour 2.5

what-if: `gnnperf what-if --help` lists the edits
every key: python predict.py --cfg job, or docs/reference

exit code: 0, or 2 input that cannot be used, 3 too much is not covered, 4 the step is beyond --max-step-ms
"""


WHAT_IF = """\
Predict a step after changes, next to the step without them. Everything that an edit leaves alone stays as measured.

The same as gnnperf predict with --what-if EDIT for each edit.
"""
WHAT_IF_EXAMPLES = """\
gnnperf what-if trace.json.gz batch=2x                              twice the batch
gnnperf what-if trace.json.gz batch=2x link=pcie_gen4_x16           two changes, one after the other
gnnperf what-if runs/trace_dir straggler=rank:1,factor:1.3 --json   for a program to read
gnnperf what-if runs/trace_dir dtype=bfloat16 --gpu h200

EDIT: NAME, NAME=VALUE (the first setting of the edit) or NAME=SETTING:VALUE,...
  batch=2x                              samples of a step
  sequence=2x                           tokens of a sample
  dtype=bfloat16                        of float32 products, convolutions, attention; of:, scope:all: others
  latency=op:aten::mm,factor:0.5        of one op; us:100 sets it
  fuse                                  elementwise ops in a row become one
  horizontal=op:aten::mm                equal independent calls become one batched call
  stream=op:aten::mm                    kernels run on a stream of their own
  table_size=2x                         rows of embedding tables
  straggler=rank:1,factor:1.3           one rank works slower
  stall=us:5000                         every step waits for its input
  pause=us:5000,rank:0                  one rank sleeps; place: start, backward, optimizer
  world_size=64                         more or fewer data-parallel ranks
  tensor=2                              tensor-parallel ranks divide the layers of a data-parallel transformer
  overlap, block                        wait for collectives at the first use of the result, or at once
  compress=to:float16                   messages of all-reduces; or ratio:4
  device=h100_sxm                       another GPU; links and hosts stay (--gpu changes all)
  link=pcie_gen4_x16                    other links; or bandwidth_factor:0.5, rate_gbit_per_s:100
  cluster=nodes:2                       other nodes and hosts; or to:hgx_h100, host:grace
every setting: docs/how-to/predict.md, Edits; recipes with real output: docs/how-to/what-if.md
"""
REPORT = """\
Predict one step and write its report: one page with the step time, what holds it up, what-ifs and a timeline.

The same as gnnperf predict, with the address of the page as the last line. Of a folder that gnnperf predict wrote, that
page is taken, and nothing is predicted.
"""
REPORT_EXAMPLES = """\
gnnperf report trace.json.gz                            write the report
gnnperf report trace.json.gz --open                     ... and open it in the browser
gnnperf report runs/trace_dir --what-if batch=2x --gpu h200 --out outputs/larger
gnnperf report outputs/own --open                       the report of an earlier prediction
"""
PAGE = "report.html"


def add_parsers(subparsers: Subparsers) -> None:
    """Add the `predict`, `report` and `what-if` commands."""
    short = "one step of a trace or plan: its time, what holds it up, what-ifs, other GPUs"
    predicting = add_command(subparsers, "predict", short, DESCRIPTION, EXAMPLES, _predict)
    short = "the same as one page, which --open shows in the browser"
    reporting = add_command(subparsers, "report", short, REPORT, REPORT_EXAMPLES, _report)
    reporting.add_argument("--open", action="store_true", help="open the page in the browser")
    for parser in (predicting, reporting):
        parser.add_argument("trace", nargs="?", metavar="TRACE", help="trace file, directory of rank files, or archive")
        parser.add_argument("--plan", metavar="NAME", help="a plan of conf/plan or a .yaml file, in place of a trace")
        parser.add_argument("--what-if", dest="edits", action="append", default=[], metavar="EDIT",
                            help="a change, such as batch=2x; may be repeated")  # fmt: skip
        _add_options(parser)
    short = "the step after changes, next to the step without them"
    parser = add_command(subparsers, "what-if", short, WHAT_IF, WHAT_IF_EXAMPLES, _predict)
    parser.add_argument("trace", metavar="TRACE", help="trace file, directory of rank files, or archive")
    parser.add_argument("edits", nargs="+", metavar="EDIT", help="NAME, NAME=VALUE or NAME=SETTING:VALUE,...")
    parser.set_defaults(plan=None)
    _add_options(parser)


def _add_options(parser: argparse.ArgumentParser) -> None:
    """What all three share."""
    parser.add_argument("--set", dest="keys", action="append", default=[], metavar="KEY=VALUE",
                        help="any other key of predict.py, such as stalls=remove; may be repeated")  # fmt: skip
    parser.add_argument("--gpu", metavar="NAME", help="one of `gnnperf devices`, or a .yaml file; a,b,c: a table")
    parser.add_argument("--cluster", metavar="NAME", help="its links and hosts (default: the device's)")
    parser.add_argument("--run", dest="recording", type=int, metavar="N", help="which of several recordings in TRACE")
    parser.add_argument("--ranks", metavar="LIST", help="read only these ranks, e.g. 0-7,12")
    parser.add_argument("--trace-steps", metavar="A:B", help="read only these steps, by the numbers of their marks")
    parser.add_argument("--step", type=int, metavar="N", help="which step, from 0 (default: the median one)")
    parser.add_argument("--checkpoint", metavar="FILE", help="a trained network (checkpoint.pt of gnnperf train)")
    parser.add_argument("--out", metavar="DIR", help="folder for the files (default: outputs/predict/...)")
    parser.add_argument("--tables", metavar="DIR", help="also write CSV: ops, kernels, collectives, ranks")
    parser.add_argument("--max-step-ms", type=float, metavar="MS", help="exit code 4 if the step takes longer")
    parser.add_argument("--tokens", type=float, metavar="N", help="length of a run in tokens: gives its hours")
    parser.add_argument("--steps", type=float, metavar="N", help="length of a run in steps, likewise")
    parser.add_argument("--usd-per-gpu-hour", type=float, metavar="USD", help="price of a device: gives the cost")
    parser.add_argument("--verbose", action="store_true", help="print all warnings and notes")
    parser.add_argument("--quiet", action="store_true", help="print nothing")


def _predict(args: argparse.Namespace) -> None:
    run_request(_request(args))


def _request(args: argparse.Namespace) -> "Request":
    reuse_memory()
    files.hash_ahead([Path(args.trace)] if args.trace is not None else [])
    use_python_strings()
    from gnnperf.predict import Request, composed

    return composed("predict", Request, *_overrides(args), **_given(args))


def _report(args: argparse.Namespace) -> None:
    from gnnperf.report.compare.side import DOCUMENT, is_prediction, read_document

    if args.trace is not None and is_prediction(Path(args.trace)):
        page = Path(args.trace) / PAGE
        if [*_overrides(args), *(_given(args).keys() - {"trace", "json", "quiet", "verbose"})]:
            raise InputError("holds a prediction; other options need its trace", where=args.trace,
                             allowed="--open, --json and --quiet", remedy="name the trace")  # fmt: skip
        if not page.is_file():
            raise InputError("no such file", where=str(page), remedy="predict again")
        if args.json:
            write_out(to_json(read_document(page.parent / DOCUMENT), indent=1))
    else:
        page = next(path for path in run_request(_request(args)) if path.name == PAGE)
    address = page.absolute().as_uri()
    if not (args.json or args.quiet):
        say(f"report: {address}")
    if args.open:
        import webbrowser

        if not webbrowser.open(address):
            complain("gnnperf", f"no browser opens {address}")


def run_request(request: "Request") -> tuple[Path, ...]:
    """Trace -> graph -> prediction -> schedule -> report, of predict.py and `gnnperf predict`; what was written.

    Raises:
        InputError: the request cannot be predicted, too little is covered, or the step is beyond a limit.
    """
    # imported after the user's files are known to be plain: one that is not is refused at once
    from gnnperf.predict import check, check_covered, memory_ahead, requested_graph, setup_of, with_alternatives
    from gnnperf.report.compare.text import read_threshold
    from gnnperf.report.console import print_summary
    from gnnperf.report.json_document import document
    from gnnperf.report.write import check_output, default_out, write_report, write_tables

    check(request)
    threshold = read_threshold(request.max_step_ms, request.max_regression, request.against)
    if request.out is not None:
        check_output(Path(request.out))
    with bars_on_terminal(request.quiet or request.json), ExitStack() as meanwhile:
        graph = requested_graph(request, meanwhile)  # trace or plan -> execution graph
        with memory_ahead(graph, request):
            setup = setup_of(graph, request)  # its step, the hardware, the predictors in their order
            prediction = setup.predict()  # latency of every node
            result = setup.step_prediction(prediction)  # schedule, step time, findings, edits, memory
        result = with_alternatives(result, setup)  # hardware=[...]: the same on each device
        check_covered(result, request.fallback)
        written = write_report(result, Path(request.out or default_out(result)))
        if request.tables:
            written = (*written, *write_tables(result, Path(request.tables)))
    if request.json:
        write_out(to_json(document(result)))
    elif not request.quiet:
        print_summary(result, written, verbose=request.verbose)
    threshold.check(result)
    return written


def _overrides(args: argparse.Namespace) -> list[str]:
    """Choices of conf/, then the keys as they were written."""
    gpu = f"[{args.gpu}]" if args.gpu and "," in args.gpu else args.gpu
    choices = {"hardware": gpu, "cluster": args.cluster, "plan": args.plan}
    return [*(f"{key}={value}" for key, value in choices.items() if value is not None), *args.keys]


def _given(args: argparse.Namespace) -> dict[str, Any]:
    """Values that need no grammar: paths, numbers and edits."""
    from gnnperf.predict import parse_edit

    same = ("trace", "recording", "ranks", "step", "checkpoint", "max_step_ms", "out", "tables")
    values = {"steps": args.trace_steps, **{name: getattr(args, name) for name in same}}
    values |= {name: getattr(args, name) or None for name in ("json", "quiet", "verbose")}
    values |= {"run.tokens": args.tokens, "run.steps": args.steps, "price.usd_per_gpu_hour": args.usd_per_gpu_hour}
    edits = [parse_edit(text) for text in args.edits]
    return {key: value for key, value in (*values.items(), ("whatif", edits or None)) if value is not None}
