from .peak import Part as Part
from .peak import PeakMemory as PeakMemory
