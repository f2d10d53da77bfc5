from .errors import FlowlexError as FlowlexError
from .formulations.language.labels import StatementError as StatementError
from .instances import generate as generate
from .instances import read_instance as read_instance
from .instances.generators.registry import generator as generator
from .instances.instance_base import Instance as Instance
from .models import model_for as model_for
from .models import solve as solve
from .models.allocation.model import Allocation as Allocation
from .models.flow.live.scheduler import FlowScheduler as FlowScheduler
from .models.flow.model import FlowScheduling as FlowScheduling
from .models.gpu.model import GpuAssignment as GpuAssignment
from .models.jit.live_scheduler import JitScheduler as JitScheduler
from .models.jit.model import JitBandwidth as JitBandwidth
from .models.load.model import LoadPartition as LoadPartition
from .models.min_cost_flow import MinCostFlow as MinCostFlow
from .models.reading import read as read
from .models.parameter_study import study as study
from .models.pods.model import PodPlacement as PodPlacement
from .models.model import Model as Model
from .models.problem import Problem as Problem
from .simulation.cluster.simulate_cluster import simulate_cluster as simulate_cluster
from .validation.certificates.solution_files import verify as verify
from .validation.unimodularity.check import check as check
from .validation.unimodularity.implied_integers.search import implied_integers as implied_integers

__version__: str
