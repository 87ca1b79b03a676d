from .edits import memory_edits as memory_edits
from .measured import Measured as Measured
from .measured import measured_peaks as measured_peaks
from .peak import OUTSIDE as OUTSIDE
from .peak import Part as Part
from .peak import PeakMemory as PeakMemory
from .planned import planned_peak as planned_peak
from .recorded import peak_memory as peak_memory
