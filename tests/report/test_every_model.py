"""`summary`, `plot` and `report`: every estimator and every decomposition has them."""

from __future__ import annotations

import re
from collections.abc import Callable
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

import latensor as lt

HOSTILE = '<script>alert("x")</script>'


def _rows(d: int = 4) -> Any:
    return lt.datasets.make_spherical_mixture(300, d, 2, random_state=0).samples


def _tensor_rows() -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((120, 4, 3))
    return X, X[:, 0, 0] + 2 * X[:, 1, 1] + 0.1 * rng.standard_normal(120)


def _regression() -> tuple[Any, Any]:
    found = lt.datasets.make_regressions(400, 3, 2, random_state=0)
    return found.X, found.y


def _network(target: str) -> tuple[Any, Any]:
    found = lt.datasets.make_network(600, 3, 2, target=target, random_state=0)
    return found.X, found.y


def _views() -> Any:
    return lt.datasets.make_multi_view(300, (4, 4, 4), 2, random_state=0).views


def _chain() -> Any:
    return lt.datasets.make_hmm(900, 5, 2, random_state=0).X


def _points() -> Any:
    return lt.datasets.make_gaussian_hmm(600, 3, 2, random_state=0).X


def _labels() -> tuple[Any, Any]:
    X, y = _tensor_rows()
    return X, np.where(y > 0, HOSTILE, "other")


FITTED: dict[str, Callable[[], tuple[Any, tuple[Any, ...]]]] = {
    "spherical": lambda: (lt.SphericalGaussianMixture(2, random_state=0), (_rows(),)),
    "diagonal": lambda: (lt.DiagonalGaussianMixture(2, random_state=0), (_rows(),)),
    "full": lambda: (lt.GaussianMixture(2, random_state=0), (_rows(),)),
    "tied": lambda: (lt.GaussianMixture(2, covariance_type="tied", random_state=0), (_rows(),)),
    "auto": lambda: (lt.GaussianMixture("auto", random_state=0), (_rows(2),)),
    "product": lambda: (lt.ProductMixture(2, random_state=0), (_rows(6),)),
    "pearson": lambda: (
        lt.PearsonMixture(),
        (lt.datasets.make_pearson(500, random_state=0).samples,),
    ),
    "views": lambda: (lt.MultiViewMixture(2, random_state=0), (_views(),)),
    "categorical": lambda: (lt.CategoricalHMM(2, random_state=0), (_chain(),)),
    "gaussian hmm": lambda: (lt.GaussianHMM(2, random_state=0), (_points(),)),
    "ica": lambda: (
        lt.ICA(2, random_state=0),
        (lt.datasets.make_ica(500, 2, 2, random_state=0).samples,),
    ),
    "pca": lambda: (lt.PCA(2), (_rows(),)),
    "cca": lambda: (lt.CCA(1), (_rows()[:, :2], _rows()[:, 2:])),
    "noisy or": lambda: (
        lt.NoisyOrNetwork(2, random_state=0),
        (lt.datasets.make_noisy_or(600, 10, 2, random_state=0).samples,),
    ),
    "regressions": lambda: (lt.MixtureOfRegressions(2, random_state=0), _regression()),
    "network": lambda: (lt.TwoLayerNetwork(2, random_state=0), _network("real")),
    "network of classes": lambda: (lt.TwoLayerClassifier(2, random_state=0), _network("binary")),
    "communities": lambda: (
        lt.MixedMembershipBlockModel(2, random_state=0),
        (lt.datasets.make_block_model(120, 2, random_state=0).adjacency,),
    ),
    "tree": lambda: (
        lt.LatentTree(random_state=0),
        (lt.datasets.make_tree(300, 6, random_state=0).X,),
    ),
    "tucker classifier": lambda: (lt.TuckerClassifier((1, 1)), _labels()),
    "cp regression": lambda: (lt.CPRegressor(2), _tensor_rows()),
    "tucker regression": lambda: (lt.TuckerRegressor((2, 2)), _tensor_rows()),
    "classifier": lambda: (lt.CPClassifier(1), _labels()),
    "partial least squares": lambda: (lt.CPPLS(2), _tensor_rows()),
    "topics": lambda: (
        lt.LatentDirichletAllocation(2, random_state=0),
        (lt.datasets.make_topics(200, 30, 2, random_state=0).counts,),
    ),
    "single topic": lambda: (
        lt.SingleTopic(2, random_state=0),
        (lt.datasets.make_single_topic(200, 30, 2, random_state=0).counts,),
    ),
}


class _Tags(HTMLParser):
    """The tags of a page that are open, and whether all were closed in turn."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.scripts = 0

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.scripts += tag == "script"
        if tag not in ("meta", "link", "img", "input", "br", "hr"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def _check_page(page: str, n_scripts: int) -> None:
    tags = _Tags()
    tags.feed(page)
    assert not tags.open
    assert tags.scripts == n_scripts
    assert "http" not in page.replace("http-equiv", "").replace("http://www.w3.org", "")


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", FITTED)
def test_words_picture_and_page(name: str, tmp_path: Any) -> None:
    model, data = FITTED[name]()
    for early in ("summary", "plot", "to_hmmlearn"):
        if hasattr(model, early):
            with pytest.raises(NotFittedError):
                getattr(model, early)()
    for early in ("score", "aic", "bic"):
        if hasattr(model, early):
            with pytest.raises(NotFittedError):
                getattr(model, early)(*data)
    model.fit(*data)
    text = model.summary()
    assert type(model).__name__ in text.splitlines()[0]
    if hasattr(model, "certificate_"):
        assert str(model.certificate_) in text
    assert model.plot(*data).axes
    path = model.report(tmp_path / "page.html", *data, title=HOSTILE)
    page = path.read_text(encoding="utf-8")
    assert HOSTILE not in page
    is_topics = "topic" in name
    _check_page(page, n_scripts=int(is_topics))
    if not is_topics:
        assert "data:image/png;base64," in page
    if hasattr(model, "certificate_"):
        assert model.certificate_.verdict in page


def test_every_public_estimator_is_shown() -> None:
    shown = {type(make()[0]).__name__ for make in FITTED.values()}
    public = {
        name
        for name in lt.models.__all__
        if hasattr(getattr(lt.models, name), "fit") and name != "TensorShape"
    }
    assert public <= shown


def _tensor() -> Any:
    rng = np.random.default_rng(0)
    return lt.CPTensor(None, tuple(rng.random((n, 2)) for n in (7, 6, 5))).to_dense()


def _with_errors(low_rank: Any) -> Any:
    rng = np.random.default_rng(1)
    return low_rank + np.where(rng.random(low_rank.shape) < 0.05, 9.0, 0.0)


def _spiked(strength: float) -> Any:
    v = np.full(12, 12**-0.5)
    noise = np.random.default_rng(0).standard_normal((12, 12, 12))
    return strength * lt.outer(v, v, v) + noise


DECOMPOSED: dict[str, tuple[Callable[[], Any], str]] = {
    "cp": (lambda: lt.decompose(_tensor(), 2, random_state=0), "CP Decomposition"),
    "tucker": (lambda: lt.tucker(_tensor(), 2, random_state=0), "Tucker Decomposition"),
    "slices": (
        lambda: lt.parafac2(list(_tensor()), 2, n_starts=2, max_iter=20, random_state=0),
        "PARAFAC2 Decomposition",
    ),
    "train": (lambda: lt.tensor_train(_tensor(), ranks=2), "Tensor Train"),
    "robust matrix": (
        lambda: lt.robust_pca(_with_errors(np.outer(np.arange(40.0), np.ones(30))), 1),
        "Robust Decomposition",
    ),
    "robust tensor": (
        lambda: lt.robust_pca(_with_errors(np.ones((9, 10, 11))), 1),
        "Robust Decomposition",
    ),
    "zero": (lambda: lt.robust_pca(np.zeros((4, 5))), "Robust Decomposition"),
    "spike": (lambda: lt.tensor_pca(_spiked(30.0)), "Tensor PCA"),
    "noise": (lambda: lt.tensor_pca(_spiked(0.0)), "Tensor PCA"),
    "asymmetric spike": (lambda: lt.tensor_pca(_spiked(30.0), symmetric=False), "Tensor PCA"),
}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", DECOMPOSED)
def test_decompositions(name: str, tmp_path: Any) -> None:
    make, called = DECOMPOSED[name]
    found = make()
    text = found.summary()
    assert repr(found) in text
    if name != "train":
        assert str(found.certificate) in text
    assert found.plot().axes
    page = found.report(tmp_path / "page.html", title="a & b").read_text(encoding="utf-8")
    assert "a &amp; b" in page
    assert "data:image/png;base64," in page
    _check_page(page, 0)
    plain = lt.report.model_report(found)
    assert f"<bdi>{called}</bdi>" in plain
    assert "`" not in plain.partition("What was found")[0]
    loaded = lt.load(found.save(tmp_path / "found.npz"))
    assert type(loaded) is type(found)
    assert repr(loaded) == repr(found)
    # The data of a CP decomposition are not in its file, nor what is asked of them.
    assert name == "cp" or loaded.summary() == text


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_verdicts_about_gross_errors_and_spikes() -> None:
    rng = np.random.default_rng(0)
    low_rank = rng.standard_normal((60, 2)) @ rng.standard_normal((2, 50))
    found = lt.robust_pca(_with_errors(low_rank), 2)
    assert found.certificate.verdict == "stable"
    assert found.certificate.gross == found.sparse.nnz
    seen = rng.random(low_rank.shape) < 0.8
    masked = lt.robust_pca(_with_errors(low_rank), 2, mask=seen)
    assert masked.n_observed == masked.certificate.observed == seen.sum()
    # The weakest direction turns by the angle that the certificate expects.
    angles, expected = [], []
    for seed in range(5):
        noise = 0.3 * np.random.default_rng(seed).standard_normal(low_rank.shape)
        noisy = lt.robust_pca(_with_errors(low_rank) + noise, 2)
        truth = np.linalg.svd(low_rank, full_matrices=False)[0][:, :2]
        weakest = noisy.low_rank.factors[0][:, -1]
        angles.append(np.sqrt(1 - np.linalg.norm(truth.T @ weakest) ** 2))
        expected.append(noisy.certificate.angles[0])
    assert 0.7 < np.mean(angles) / np.mean(expected) < 1.4
    assert lt.robust_pca(np.eye(30), 1).certificate.verdict != "stable"
    assert lt.tensor_pca(_spiked(30.0)).certificate.verdict == "stable"
    assert lt.tensor_pca(_spiked(0.0)).certificate.verdict == "unstable"


def test_names_of_features_are_shown_and_escaped() -> None:
    rows = _rows(3)
    model = lt.GaussianMixture(2, random_state=0).fit(rows)
    page = lt.report.model_report(model, rows, names=["height", HOSTILE, "width"])
    assert "mean height" in page
    assert HOSTILE not in page


@pytest.mark.parametrize(
    "found",
    [
        lambda tensor: lt.decompose(tensor, 2, random_state=0),
        lambda tensor: lt.tucker(tensor, 2, random_state=0),
        lambda tensor: lt.tensor_train(tensor, 2),
        lambda tensor: lt.tensor_pca(tensor, symmetric=False, random_state=0),
    ],
    ids=["CP", "Tucker", "train", "tensor PCA"],
)
def test_names_of_modes_are_shown_and_escaped(found: Any) -> None:
    names = ["time", HOSTILE, "place"]
    result = found(_tensor())
    page = lt.report.model_report(result, names=names)
    assert all(f">{name}<" in page for name in ("time", "place"))
    assert HOSTILE not in page
    assert ">time<" not in lt.report.model_report(result, names={0: "time"})


def test_what_needs_data_says_so(tmp_path: Any) -> None:
    rows = _rows(3)
    model = lt.GaussianMixture(2, random_state=0).fit(rows)
    with pytest.raises(lt.InvalidInputError, match=r"plot\(X\)"):
        model.plot()
    # A page without data has no picture, and says the rest.
    page = model.report(tmp_path / "page.html").read_text(encoding="utf-8")
    assert "What was found" in page
    assert "data:image/png" not in page
    topics = lt.LatentDirichletAllocation(2, random_state=0).fit(
        lt.datasets.make_topics(200, 30, 2, random_state=0).counts
    )
    with pytest.raises(lt.InvalidInputError, match="report"):
        topics.report(tmp_path / "topics.html")
    assert not (tmp_path / "topics.html").exists()


def test_a_page_is_not_written_over_a_device(tmp_path: Any) -> None:
    model = lt.PCA(1).fit(_rows(3))
    with pytest.raises(lt.InvalidInputError):
        model.report(tmp_path)


def test_a_page_about_texts_shows_them(tmp_path: Any) -> None:
    texts = ["a cat and a dog", "dogs, cats and pets", "tensors of moments", "moments, words"] * 20
    model = lt.LatentDirichletAllocation(2, random_state=0).fit(texts)
    page = model.report(tmp_path / "page.html", texts).read_text(encoding="utf-8")
    plain = re.sub("</?mark>", "", page)
    assert any(text in plain for text in texts)


def test_a_page_of_two_sides_says_the_features_of_both(tmp_path: Any) -> None:
    model = lt.CCA(1).fit(_rows()[:, :2], _rows()[:, 2:])
    sizes = len(model.x_weights_), len(model.y_weights_)
    page = model.report(tmp_path / "page.html").read_text(encoding="utf-8")
    assert f"{sizes[0]} and {sizes[1]}" in page
