"""Programs: every size shows in a name, so that runs of a plan differ; models that no library has train a batch."""

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import pytest

from research.recording.workloads.cnn import Cnn, Layout
from research.recording.workloads.dlrm import Dlrm
from research.recording.workloads.library_model import MODELS, LibraryModel
from research.recording.workloads.moe import Moe
from research.recording.workloads.pipeline import Order
from research.recording.workloads.random_graph import RandomGraph
from research.recording.workloads.rl import Rl
from research.recording.workloads.sharded_tables import Sharding
from research.recording.workloads.small_model import SMALL_MODELS, SmallModel
from research.recording.workloads.transformer import Optimizer, Parallel, Transformer

# Of every program: the name of its defaults; one with every field changed, and its name.
CHANGED: tuple[tuple[str, Any, str], ...] = (
    ("resnet_n1_c16_i32_b16",
     Cnn(blocks=2, channels=8, image=24, batch=4, bucket_mb=0.5, layout=Layout.BOTTLENECK, precision="bfloat16",
         accumulation=2, repeats=3, repeating_rank=1, uneven=1.5, blocking=True, compile=True, cuda_graph=True),
     "resnet_n2_c8_i24_b4_mb0.5_bottleneck_bfloat16_acc2_rep3_on1_uneven1.5_blocking_compile_graph"),
    ("dlrm_t8_r100k_d32_b256",
     Dlrm(tables=4, rows=1500, dim=16, batch=8, pooling=1, skew=1.0, bottom=(8,), top=(8, 4), sharding=Sharding.ROW,
          overlap=True, repeats=2, repeating_rank=0, precision="bfloat16", accumulation=2),
     "dlrm_t4_r1500_d16_b8_p1_s1_bottom8_top8-4_row_overlap_rep2_on0_bfloat16_acc2"),
    ("moe_l2_w64_e4_s32_b8",
     Moe(layers=1, width=32, experts=8, sequence=16, batch=4, hidden=128, vocabulary=500, top=2, capacity_factor=2.0,
         padded=False, repeats=3, repeating_rank=1, precision="bfloat16", accumulation=2),
     "moe_l1_w32_e8_s16_b4_h128_v500_top2_c2_padded0_rep3_on1_bfloat16_acc2"),
    ("random_graph_s0_n16_e128k_b32",
     RandomGraph(7, num_ops=30, scale=1500, batch=4, image=24, precision="bfloat16", accumulation=2),
     "random_graph_s7_n30_e1500_b4_i24_bfloat16_acc2"),
    ("rl_h64_n64_t8",
     Rl(hidden=32, num_envs=8, horizon=4, vectorized=True, repeats=2, repeating_rank=0, accumulation=2),
     "rl_h32_n8_t4_tensor_rep2_on0_acc2"),
    ("gpt_l4_w128_s64_b8",
     Transformer(layers=1, width=64, sequence=32, batch=4, vocabulary=500, causal=False, bucket_mb=2.5,
                 parallel=Parallel.TP, order=Order.ONE_F_ONE_B, accumulation=2,
                 precision="bfloat16", checkpointing=True, optimizer=Optimizer.ADAMW, repeats=3, repeating_rank=1,
                 uneven=1.5, blocking=True, compile=True, cuda_graph=True, lengths=(8, 16)),
     "bert_l1_w64_s32_b4_v500_mb2.5_tp_1f1b_acc2_bfloat16_ckpt_adamw_rep3_on1_uneven1.5_blocking_compile_graph"
     "_len8-16"),
)  # fmt: skip


@pytest.mark.parametrize(("base_name", "changed", "name"), CHANGED, ids=lambda value: getattr(value, "kind", ""))
def test_every_field_shows_in_the_name(base_name: str, changed: Any, name: str) -> None:
    base = type(changed)()
    assert (base.name, changed.name) == (base_name, name)
    one_changed = {replace(base, **{f.name: getattr(changed, f.name)}).name for f in fields(base)}
    assert len(one_changed | {base.name}) == len(fields(base)) + 1


@pytest.mark.parametrize(("models", "at"), [
    (MODELS, LibraryModel("lstm", batch=2, size=4)), (MODELS, LibraryModel("diffusion", batch=1, size=16)),
    (SMALL_MODELS, SmallModel("seq2seq", batch=2, size=4)),
])  # fmt: skip
def test_a_batch_has_a_loss_and_gradients(models: dict[str, Callable[[Any], Any]], at: Any) -> None:
    for program in (models[at.model](at), models[at.model](at)):
        program.loss(program.model, program.inputs()).backward()
        assert any(weight.grad is not None and weight.grad.any() for weight in program.model.parameters())
