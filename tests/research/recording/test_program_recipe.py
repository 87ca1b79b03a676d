"""The recipe of small programs: what is held out, and sizes that follow from hidden channels."""

from research.recording.cpu_gloo import cpu_gloo
from research.recording.program_recipe import FAMILIES_HELD_OUT, PROGRAMS, cpu_programs
from research.recording.workloads.small_model import GROUPED, SMALL_MODELS, SmallModel


def test_no_program_is_in_two_parts_of_an_axis() -> None:
    plan = cpu_programs()
    model_of = {run.name: run.workload.model for run in plan.runs if isinstance(run.workload, SmallModel)}
    for parts in plan.splits.values():
        models = {part: {model_of[name] for name in names} for part, names in parts.items()}
        assert sum(map(len, models.values())) == len(set().union(*models.values())) == len(SMALL_MODELS) == 40
    held_out = {model for family in FAMILIES_HELD_OUT for model in PROGRAMS[family]}
    assert not held_out & {model_of[name] for name in plan.splits["family"]["train"]}


def test_the_last_runs_are_those_of_another_data_set_on_one_machine() -> None:
    shared = [run for run in cpu_programs().runs if not isinstance(run.workload, SmallModel)]
    assert len(shared) > 15 and set(shared) < set(cpu_gloo().runs)
    assert {(run.world_size <= 2, run.link.name) for run in shared} == {(True, "lo")}


def test_heads_and_layers_follow_from_hidden_channels() -> None:
    settings = GROUPED.of(SmallModel("llama", hidden=128))
    assert settings == {"hidden_size": 128, "intermediate_size": 256, "num_attention_heads": 8,
                        "num_key_value_heads": 4, "num_hidden_layers": 3, "vocab_size": 2000}  # fmt: skip
