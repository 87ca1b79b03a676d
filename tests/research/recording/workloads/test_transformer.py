from pathlib import Path

import pytest
import torch

from research.recording.workloads import transformer
from research.recording.workloads.pipeline import Turn, gpipe, one_forward_one_backward
from research.recording.workloads.transformer import Transformer
from tests.research.recording.workloads import parallel_checks
from tests.research.recording.workloads.ranks import Ranks, results_of

REPLICATED = ("ddp", "blocking", "checkpointing", "repeats", "repeating_rank", "accumulation", "encoder", "fsdp",
              "fsdp_recomputed")  # fmt: skip
SHARING_A_BATCH = ("tp", "tp_recomputed", "gpipe", "1f1b")
F, B = Turn.FORWARD, Turn.BACKWARD


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Ranks:
    return results_of(parallel_checks.on_two_ranks, tmp_path_factory.mktemp("two"))


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory) -> Ranks:
    return results_of(parallel_checks.on_four_ranks, tmp_path_factory.mktemp("four"), world_size=4)


@pytest.mark.parametrize("form", [*REPLICATED, *SHARING_A_BATCH])
def test_gradients_are_those_of_the_plain_model(two: Ranks, form: str) -> None:
    for rank in two:
        assert rank[form]["error"] < 2e-5


@pytest.mark.parametrize("form", REPLICATED)
def test_every_rank_has_the_loss_of_its_own_batch(two: Ranks, form: str) -> None:
    for number, rank in enumerate(two):
        assert rank[form]["loss"] == pytest.approx(rank[form]["plain_losses"][number], rel=1e-5)


def test_ranks_that_share_a_batch_share_its_loss(two: Ranks) -> None:
    for form in ("tp", "tp_recomputed"):
        for rank in two:
            assert rank[form]["loss"] == pytest.approx(rank[form]["plain_losses"][0], rel=1e-5)
    for form in ("gpipe", "1f1b"):
        assert two[0][form]["loss"] == 0
        assert two[1][form]["loss"] == pytest.approx(two[1][form]["plain_losses"][0], rel=1e-5)


def test_four_ranks(four: Ranks) -> None:
    for rank in four:
        assert max(rank[form]["error"] for form in ("gpipe", "1f1b")) < 2e-5
    assert [rank["1f1b"]["loss"] for rank in four[:3]] == [0, 0, 0]


def test_repeats_leave_loss_and_gradients_in_bfloat16(two: Ranks) -> None:
    for rank in two:
        assert rank["bfloat16"]["1"] == rank["bfloat16"]["3"]
        assert rank["bfloat16"]["1"]["loss"] != rank["ddp"]["loss"]


def test_the_last_rank_may_have_more_samples(two: Ranks) -> None:
    assert [rank["uneven"] for rank in two] == [2, 3]


def test_batches_take_turns_in_their_lengths() -> None:
    batches = transformer._batches(Transformer(sequence=16, lengths=(8, 16, 4)), 0, 2)
    assert [next(batches)[0].shape for _ in range(4)] == [(2, 8), (2, 16), (2, 4), (2, 8)]


def test_places_are_passed_once_and_in_order(two: Ranks) -> None:
    for rank in two:
        assert rank["places"] == {kind: ["start", "backward", "optimizer"] for kind in ("ddp", "pp")}


def test_parallelism_names_ranks_by_kind(two: Ranks) -> None:
    assert two[0]["parallelism"] == {"ddp": {"dp": 2}, "fsdp": {"dp": 2, "fsdp": 2}, "tp": {"tp": 2}, "pp": {"pp": 2}}


def test_what_does_not_go_together_is_refused(two: Ranks) -> None:
    wheres = ["width", "width", "layers", "uneven", "blocking", "accumulation", "compile", "cuda_graph",
              "precision", "compile", "cuda_graph", "lengths", "lengths"]  # fmt: skip
    assert len(wheres) == len(parallel_checks.REFUSED)
    assert [message.split(":")[0] for message in two[0]["refused"]] == wheres


def test_orders_of_a_pipeline() -> None:
    assert gpipe(0, 2, 2) == [F, F, B, B]
    assert one_forward_one_backward(0, 2, 3) == [F, F, B, F, B, B]
    assert one_forward_one_backward(1, 2, 3) == [F, B, F, B, F, B]
    assert one_forward_one_backward(0, 4, 2) == [F, F, B, B]  # fewer micro-batches than stages


def test_one_rank_trains_the_plain_model_whatever_it_is_called(tmp_path: Path) -> None:
    (result,) = results_of(parallel_checks.on_one_rank, tmp_path, world_size=1)
    for kind, run in result.items():
        assert run["losses"] == pytest.approx(result["ddp"]["losses"], rel=1e-5), kind
    assert result["ddp"]["collectives"] == result["pp"]["collectives"] == []


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_captured_and_compiled_steps_train(tmp_path: Path) -> None:
    (result,) = results_of(parallel_checks.on_a_gpu, tmp_path, world_size=1)
    for losses in result.values():
        assert losses[12] < losses[0]
