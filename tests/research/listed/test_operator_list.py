from __future__ import annotations

from pathlib import Path

from research.listed.operator_list import NUMBER, ListedOp, read_operator_list

HEAD = "Name,OpName,FwOps,BwOps,AccOps,Prev,Next,InputShapes,OutputShape"


def _list(folder: Path, *lines: str) -> Path:
    path = folder / "list.csv"
    path.write_text("\n".join((HEAD, *lines)) + "\n", encoding="utf-8")
    return path


def test_a_node_has_shapes_and_sources(tmp_path: Path) -> None:
    line = """matmul_1,BMM,"[['BMM', (2, 3, 4, 5)]]",[],[],"{'b', 'a'}",{'c'},"[(2, 3, 4), (2, 4, 5)]","(2, 3, 5)\""""
    (results,) = read_operator_list(_list(tmp_path, line))
    assert results == ListedOp("matmul_1", "BMM", frozenset("ab"), ((2, 3, 4), (2, 4, 5)), (2, 3, 5))
    assert results.function == "matmul" and results.tensors == results.inputs


def test_a_number_is_no_tensor_and_a_path_keeps_its_number(tmp_path: Path) -> None:
    lines = (
        'size,misc,[],[],[],set(),set(),"[(2, 3), (1,)]","(1,)"',
        'h_0_ln_1,VECln,[],[],[],set(),set(),[],"(2, 3)"',
    )
    size, norm = read_operator_list(_list(tmp_path, *lines))
    assert size.tensors == ((2, 3),) and size.output == NUMBER
    assert norm.name == "h_0_ln_1" and not norm.sources


def test_sums_over_ranks_and_rows_of_tables_are_read(tmp_path: Path) -> None:
    lines = (
        "g,allreduce,[],\"[['ALLREDUCE_ASYNC', (12,)]]\",[],set(),set(),[],[]",
        "s,allreduce,\"[['ALLREDUCE', (7,)]]\",\"[['ALLREDUCE', (7,)]]\",[],set(),set(),[],[]",
        'e,EMBEDDING,[],"[[\'MEM\', ((50, 4),)]]",[],set(),set(),"[(2, 3)]","(2, 3, 4)"',
    )
    gradient, result, table = read_operator_list(_list(tmp_path, *lines))
    assert (gradient.forward_sum, gradient.backward_sum, gradient.aside) == (0, 12, True)
    assert (result.forward_sum, result.backward_sum, result.aside) == (7, 7, False)
    assert table.table_rows == 50
