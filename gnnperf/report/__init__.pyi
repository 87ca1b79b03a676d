from .console import print_summary as print_summary
from .write import check_output as check_output
from .write import write_report as write_report
