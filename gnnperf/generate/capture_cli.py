"""`gnnperf capture SCRIPT`: the graph of a training step that never ran, from a function of the user's script."""

import argparse
import importlib.util
import inspect
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from gnnperf.core import InputError, Subparsers, add_command, counted, print_result

DESCRIPTION = """\
Capture one training step of a program that never runs: nothing is computed, nothing is sent, no GPU is needed.

SCRIPT is imported, so its own code runs; what stands below `if __name__ == "__main__":` does not. It defines a function

    def build():                                      # called once per rank, with a process group up
        model = DistributedDataParallel(Model())      # model, wrappers, optimizer and inputs are made inside
        optimizer = torch.optim.AdamW(model.parameters())
        tokens = torch.zeros(8, 512, dtype=torch.int64)

        def step():                                   # one training step, without arguments
            optimizer.zero_grad()
            model(tokens).sum().backward()
            optimizer.step()

        return step

torch.distributed.get_rank() returns the rank. The script does not call init_process_group, and leaves its tensors
on the CPU. A step whose shapes depend on values (.item(), nonzero) is refused, with the op and its line.
"""
EXAMPLES = """\
gnnperf capture gpt.py --ranks 8 --out captured/mine                    eight ranks of build() in gpt.py
gnnperf predict captured/mine --gpu h100_sxm --cluster hgx_h100         its step on a GPU
gnnperf predict captured/mine --gpu h200 --what-if batch=2x             ... and after a change
gnnperf capture gpt.py --function large --out captured/large -- --layers 48
gnnperf capture gpt.py --ranks 1024 --only 0 --out captured/first       one rank of many: less work, others unknown

The captured step is that of CPU ranks: ops in program order, without launches and streams of a GPU.

exit code: 0, or 2 input that cannot be used; an error of the script keeps its traceback
"""
MODULE = "gnnperf_captured_script"


def add_parsers(subparsers: Subparsers) -> None:
    """Add the `capture` command."""
    short = "the graph of a training step that never ran, from a function of your script"
    parser = add_command(subparsers, "capture", short, DESCRIPTION, EXAMPLES, _capture)
    parser.add_argument("script", type=Path, metavar="SCRIPT", help="a Python file that defines build()")
    parser.add_argument("--ranks", type=int, default=1, metavar="N", help="number of ranks (default: %(default)s)")
    parser.add_argument("--only", type=_numbers, metavar="R,R", help="capture these ranks only (default: all)")
    parser.add_argument("--steps", type=int, default=2, metavar="N", help="captured steps (default: %(default)s)")
    parser.add_argument("--function", default="build", metavar="NAME", help="another function than build")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder that gnnperf predict reads")
    parser.usage = (
        "%(prog)s SCRIPT [--ranks N] --out DIR [--only R,R] [--steps N] [--function NAME] [--json] [-- ARGUMENTS]"
    )
    parser.parse_known_args = _split_from_arguments(parser.parse_known_args)  # type: ignore[method-assign,assignment]


def _split_from_arguments(parse: Callable[..., tuple[argparse.Namespace, list[str]]]) -> Callable[..., Any]:
    """What stands after `--` is the script's: argparse takes it only where no option stands before it."""

    def split(words: Sequence[str], namespace: argparse.Namespace | None = None) -> Any:
        end = list(words).index("--") if "--" in words else len(words)
        parsed, unknown = parse(words[:end], namespace)
        parsed.arguments = list(words[end + 1 :])
        return parsed, unknown

    return split


def _numbers(text: str) -> list[int]:
    return [int(one) for one in text.split(",")]


def _capture(args: argparse.Namespace) -> None:
    from gnnperf.core import files
    from gnnperf.trace import storage

    files.refuse_foreign(args.out, storage.FILES)  # before minutes of work
    build = function_of(args.script, args.function, args.arguments)
    from gnnperf.generate.capturing.api import captured_run  # it loads torch
    from gnnperf.graph import build_graph

    run = captured_run(build, args.ranks, args.script.stem, args.only, args.steps)
    graph = build_graph(run)
    storage.write_run(run, args.out)
    nodes = {str(kind): count for kind, count in graph.num_nodes_by_type().items() if count}
    counts = ", ".join(f"{count:,} {kind}" for kind, count in nodes.items())
    lines = (f"{run.name}: {len(run.tables)} of {run.world_size} ranks, {counted(len(graph.steps), 'step')}, "
             f"{counts} nodes", f"written: {args.out}", f"next: gnnperf predict {args.out} --gpu NAME")  # fmt: skip
    document = {"out": str(args.out), "world_size": run.world_size, "ranks": list(graph.ranks),
                "steps": len(graph.steps), "nodes": nodes}  # fmt: skip
    print_result(args, lambda: document, lambda: "\n".join(lines))


def function_of(script: Path, name: str, arguments: Sequence[str]) -> Callable[[], Any]:
    """The function that makes a rank's step; the script is imported, with the arguments in sys.argv.

    Raises:
        InputError: no such file or function, or one that takes arguments.
    """
    module = _imported(script, arguments)
    build = getattr(module, name, None)
    if not inspect.isfunction(build):
        functions = {key: value for key, value in vars(module).items() if inspect.isfunction(value)}
        own = [key for key, value in functions.items() if value.__module__ == module.__name__]
        raise InputError(f"defines no function {name!r}", where=str(script),
                         allowed=", ".join(own) or "a function without arguments that returns the training step",
                         remedy="see gnnperf capture --help, or name another one with --function")  # fmt: skip
    required = [p.name for p in inspect.signature(build).parameters.values() if p.default is p.empty]
    if required:
        raise InputError(f"{name} takes {', '.join(required)}", where=str(script), allowed="no arguments",
                         remedy="give them default values, or read sys.argv (after --)")  # fmt: skip
    return build


def _imported(script: Path, arguments: Sequence[str]) -> ModuleType:
    """The script as a module, with its folder first on the path, as `python SCRIPT` has it."""
    spec = importlib.util.spec_from_file_location(MODULE, script)
    if not script.is_file() or spec is None or spec.loader is None:
        raise InputError("no such Python file", where=str(script), allowed="a file that ends in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[MODULE] = module  # dataclasses and pickle look their module up
    sys.argv = [str(script), *arguments]
    sys.path.insert(0, str(script.resolve().parent))
    spec.loader.exec_module(module)
    return module
