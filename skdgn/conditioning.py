"""What a fitted model says of some features, given others: imputation, conditional densities."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from skdgn._checks import index_of_feature
from skdgn._network import Floats
from skdgn.inference import ExactInference

_METHODS = ("mean", "sample")


class ExactConditioning(ExactInference):
    """The methods of an exact density that condition on some of the features.

    A mixin, like `ExactInference`.
    """

    n_features_in_: int

    def impute(
        self,
        X: ArrayLike,
        method: str = "mean",
        n_draws: int | None = None,
        random_state: Any = None,
    ) -> Any:
        """Fill in what is missing, given what was observed.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            NaN where a value is missing.  Rows without any value are allowed.
        method : {"mean", "sample"}, default="mean"
            The conditional mean, or an independent draw from the conditional distribution: of the
            region, then of the latent point in it, then of the noise; before all of them, of the
            network of a mixture or the member of an ensemble.
        n_draws : int, default=None
            Number of completed tables; ``method="sample"`` only.  None returns one, without an
            axis for it.
        random_state : int, RandomState, Generator or None, default=None
            Seed of the draws: an integer gives the same ones each time.  None takes the
            estimator's own ``random_state``.

        Returns
        -------
        X_imputed : array-like of shape (n_samples, n_features) or (n_draws, n_samples, n_features)
            Observed entries are returned as they are.  A frame is returned as a frame, with the
            same columns and index; several draws as a list of frames.

        Examples
        --------
        >>> import numpy as np
        >>> from skdgn import PiecewiseAffineDGN
        >>> model = PiecewiseAffineDGN.from_network(
        ...     coefs=[[[1.0]], [[1.0], [2.0]]],
        ...     intercepts=[[0.0], [0.0, 0.0]],
        ...     noise_covariance=0.01,
        ...     activation="abs",
        ... )
        >>> model.impute([[1.0, np.nan], [np.nan, 4.0]]).round(2)
        array([[1.  , 1.98],
               [2.  , 4.  ]])
        """
        check_is_fitted(self)
        if not isinstance(method, str) or method not in _METHODS:
            raise ValueError(f"method must be one of {_METHODS}, got {method!r}.")
        if n_draws is not None:
            if method != "sample":
                raise ValueError(
                    f'n_draws must be None unless method="sample", got {n_draws!r} with '
                    f"method={method!r}."
                )
            if not isinstance(n_draws, Integral) or isinstance(n_draws, bool) or n_draws < 1:
                raise ValueError(f"n_draws must be a positive integer or None, got {n_draws!r}.")
        observed = self._validate_rows(X)
        holes = np.isnan(observed)
        chosen = np.flatnonzero(holes.any(axis=1))
        rows = np.asarray(observed[chosen], dtype=np.float64)
        model = self._fitted_model()
        if chosen.size == 0:
            filled = np.empty((n_draws or 1, *rows.shape))
        elif method == "mean":
            filled = model.impute(rows, self._workers())[None]
        else:
            generator = self._random_source(random_state)
            filled = model.draw_missing(rows, int(n_draws or 1), generator, self._workers())
        tables = [_fill_table(X, observed, holes, chosen, values) for values in filled]
        if n_draws is None:
            return tables[0]
        return tables if _is_frame(X) else np.stack(tables)

    def conditional_score_samples(
        self, X: ArrayLike, given: int | str | Sequence[int] | Sequence[str]
    ) -> Floats:
        """Compute the exact log density of some features of each row, given the others.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            NaN where a value is missing: it is then integrated out on both sides.
        given : int, str or sequence of them
            Features b to condition on, by index or, if names are known from `fit`, by name; the
            density is that of all others.  No feature gives `score_samples`, all of them 0.

        Returns
        -------
        log_density : ndarray of shape (n_samples,)
            log p(x_a | x_b) in nats; NaN if x_b is so far out that its own log density is -inf.

        Examples
        --------
        >>> from skdgn import PiecewiseAffineDGN
        >>> model = PiecewiseAffineDGN.from_network(
        ...     coefs=[[[1.0], [1.0]]],
        ...     intercepts=[[0.0, 0.0]],
        ...     noise_covariance=1.0,
        ...     activation="relu",
        ... )
        >>> model.conditional_score_samples([[0.0, 1.0]], given=1).round(4)
        array([-1.205...])
        """
        rows = self._validate_rows(X)
        others, workers = self._other_features(given), self._workers()
        return self._fitted_model().conditional_log_density(rows, others, workers)

    def _other_features(
        self, given: int | str | Sequence[int] | Sequence[str]
    ) -> NDArray[np.bool_]:
        """Mark the features that are not given."""
        names = getattr(self, "feature_names_in_", np.empty(0, dtype=object)).tolist()
        if isinstance(given, str | Integral):
            features: Iterable[object] = [given]
        elif isinstance(given, Iterable) and not isinstance(given, bytes):
            features = given
        else:
            raise ValueError(f"given must hold indices or names of features, got {given!r}.")
        others = np.ones(self.n_features_in_, dtype=bool)
        for feature in features:
            others[index_of_feature(feature, names, self.n_features_in_, "given")] = False
        return others


def _is_frame(X: Any) -> bool:
    return hasattr(X, "columns") and (hasattr(X, "isetitem") or hasattr(X, "with_columns"))


def _fill_table(
    X: Any,
    observed: NDArray[Any],
    holes: NDArray[np.bool_],
    chosen: NDArray[np.intp],
    values: Floats,
) -> Any:
    """Copy a table; ``values`` are the rows ``chosen``, completed."""
    table = observed.copy()
    table[chosen] = np.where(holes[chosen], values, observed[chosen])
    if not _is_frame(X):
        return table
    with_holes = np.flatnonzero(holes.any(axis=0))
    if hasattr(X, "isetitem"):  # pandas
        frame = X.copy()
        for d in with_holes:
            dtype = X.dtypes.iloc[d]
            column = table[:, d]
            frame.isetitem(d, column.astype(dtype) if dtype == np.float32 else column)
        return frame
    columns = [X[name] for name in X.columns]  # polars
    return X.with_columns(
        *(
            type(columns[d])(
                columns[d].name,
                table[:, d],
                dtype=columns[d].dtype if columns[d].dtype.is_float() else None,
            )
            for d in with_holes
        )
    )
