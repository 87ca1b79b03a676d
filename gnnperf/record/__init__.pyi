from .recorder import record as record
from .step_recorder import PROFILER_WARMUP_STEPS as PROFILER_WARMUP_STEPS
from .step_recorder import step_profiler as step_profiler
