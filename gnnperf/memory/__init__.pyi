from .edits import memory_edits as memory_edits
from .measured import OUTSIDE as OUTSIDE
from .measured import Measured as Measured
from .measured import Part as Part
from .measured import PeakMemory as PeakMemory
from .measured import measured_peaks as measured_peaks
from .planned import planned_peak as planned_peak
from .recorded import peak_memory as peak_memory
