"""The recipe for steps of several lengths: transformers whose batches differ in length, and the same at one length.

A prediction starts from the run at one length. The steps of the other run test its distribution.
"""

from dataclasses import replace

from research.recording.plan import Plan
from research.recording.run import RunSpec, Steps
from research.recording.workloads.transformer import Optimizer, Parallel, Transformer

LENGTHS = (64, 32, 96, 48, 128, 64, 192, 80)  # tokens per sample of the batches, in turn
FIXED = (64,)
STEPS = Steps(warmup=len(LENGTHS), unprofiled=32, profiled=2 * len(LENGTHS))  # every length twice in the trace
PROGRAMS = (
    (Transformer(layers=2, width=128), 2),
    (Transformer(layers=2, width=192, batch=4, causal=False), 1),
    (Transformer(layers=2, width=128, parallel=Parallel.TP), 2),
    (Transformer(layers=2, width=256, batch=4, parallel=Parallel.FSDP), 2),
    (Transformer(layers=1, width=256, checkpointing=True, optimizer=Optimizer.ADAMW), 1),
)  # program, ranks


def cpu_lengths() -> Plan:
    """The plan: every program at one length and at several."""
    runs = [RunSpec(replace(program, sequence=max(LENGTHS), lengths=lengths), ranks)
            for program, ranks in PROGRAMS for lengths in (FIXED, LENGTHS)]  # fmt: skip
    return Plan(name="cpu-lengths", runs=tuple(runs), steps=STEPS, splits={}, axes={}, min_gap_s=60.0, max_drift=0.05)
