"""The API for type checkers; at run time names load lazily, see `__init__.py`."""

from latensor.decomposition import constraints as constraints
from latensor.decomposition.algorithms.als import AlternatingLeastSquares as AlternatingLeastSquares
from latensor.decomposition.algorithms.foobi import Foobi as Foobi
from latensor.decomposition.algorithms.gauss_newton import GaussNewton as GaussNewton
from latensor.decomposition.algorithms.jennrich import (
    SimultaneousDiagonalization as SimultaneousDiagonalization,
)
from latensor.decomposition.algorithms.joint_diagonalization import (
    JointDecomposition as JointDecomposition,
)
from latensor.decomposition.algorithms.joint_diagonalization import (
    JointDiagonalization as JointDiagonalization,
)
from latensor.decomposition.algorithms.power_method import PowerMethod as PowerMethod
from latensor.decomposition.algorithms.shared_factor import SharedFactor as SharedFactor
from latensor.decomposition.algorithms.stochastic import (
    StochasticLeastSquares as StochasticLeastSquares,
)
from latensor.decomposition.algorithms.subspace_power import SubspacePower as SubspacePower
from latensor.decomposition.algorithms.symmetric_als import (
    SymmetricLeastSquares as SymmetricLeastSquares,
)
from latensor.decomposition.algorithms.symmetric_spectral import (
    SymmetricSpectral as SymmetricSpectral,
)
from latensor.decomposition.algorithms.tensorization import Tensorization as Tensorization
from latensor.decomposition.auto import Automatic as Automatic
from latensor.decomposition.complete import complete as complete
from latensor.decomposition.decompose import decompose as decompose
from latensor.decomposition.optimize.iteration import Progress as Progress
from latensor.decomposition.parafac2 import Parafac2Decomposition as Parafac2Decomposition
from latensor.decomposition.parafac2 import parafac2 as parafac2
from latensor.decomposition.result import Decomposition as Decomposition
from latensor.decomposition.result import Status as Status
from latensor.decomposition.robust import RobustDecomposition as RobustDecomposition
from latensor.decomposition.robust import robust_pca as robust_pca
from latensor.decomposition.tensor_pca import TensorPCA as TensorPCA
from latensor.decomposition.tensor_pca import tensor_pca as tensor_pca
from latensor.decomposition.tensor_train import tensor_train as tensor_train
from latensor.decomposition.tucker import TuckerDecomposition as TuckerDecomposition
from latensor.decomposition.tucker import tucker as tucker
