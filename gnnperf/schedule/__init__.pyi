from .contention import schedule_with_contention as schedule_with_contention
from .longest_path import Schedule as Schedule
from .longest_path import schedule as schedule
