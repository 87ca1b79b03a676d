from .compare.text import read_threshold as read_threshold
from .console import print_summary as print_summary
from .json_document import document as document
from .predict_cli import run_request as run_request
from .write import check_output as check_output
from .write import write_report as write_report
