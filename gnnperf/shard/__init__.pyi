from .parallelism.search import Effort as Effort
from .parallelism.search import Option as Option
from .parallelism.search import Problem as Problem
from .parallelism.search import SearchOutcome as SearchOutcome
from .parallelism.search import search_plans as search_plans
from .parallelism.space import candidates as candidates
from .parallelism.space import settings_text as settings_text
