from .debugprint import min_informative_str, pp
from .pictures import pydotprint
from .profile import profile_nodes

__all__ = ["min_informative_str", "pp", "profile_nodes", "pydotprint"]
