from .build import build_graph as build_graph
from .execution_graph import ExecutionGraph as ExecutionGraph
from .execution_graph import StepLabel as StepLabel
from .storage import load_graph as load_graph
from .storage import read_graph as read_graph
from .storage import write_graph as write_graph
