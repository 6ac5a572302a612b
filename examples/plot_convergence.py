"""
Does EM never decrease the likelihood?
======================================

The paper [1]_ gives closed-form updates for every layer and promises convergence.  For the output
layer and the noise, the guarantee holds.  For hidden layers it does not: these updates keep the old
activation patterns, but the cells of latent space move with the weights.  This example compares
these updates with the two that ``skdgn`` offers, which check the exact likelihood before they
accept a step.

.. [1] R. Balestriero, S. Paris, R. G. Baraniuk, *Analytical Probability Distributions and
   EM-Learning for Deep Generative Networks*, 2020.
"""

import itertools
import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.exceptions import ConvergenceWarning

from skdgn import PiecewiseAffineDGN
from skdgn._fit.em.loop import Problem
from skdgn._fit.m_step.weight_priors import WeightPrior
from skdgn._network import Activation, Network
from skdgn._noise.gaussian import Noise
from skdgn._runtime.workers import Workers
from skdgn.datasets import make_noisy_circle

X = make_noisy_circle(300, noise=0.05, random_state=0)
N_STARTS = 4
N_UPDATES = 150
LAYERS_PER_ITERATION = {"layerwise": 3, "joint": 1}

# %%
# All methods start from the same random weights, with hidden layers of 8 and 8 units, and the same
# noise.


def random_start(seed):
    rng = np.random.default_rng(seed)
    widths = (1, 8, 8, 2)
    coefs = [
        rng.normal(scale=np.sqrt(2.0 / fan_in), size=(fan_out, fan_in))
        for fan_in, fan_out in itertools.pairwise(widths)
    ]
    return coefs, [0.1 * rng.normal(size=width) for width in widths[1:]]


# %%
# The paper updates one layer after the other, from the last to the first, and repeats this; each
# update is followed by an E-step and the best noise.  The likelihood is recorded, but not used.
# (Weights and biases of a layer are updated together, which is the larger maximum; a tiny damping
# keeps matrices of unused units invertible.)


def paper_updates(coefs, intercepts):
    network = Network.from_arrays(coefs, intercepts, Activation.from_name("leaky_relu", 0.1))
    prior = WeightPrior(None, 1.0, np.ones(2))
    floors = np.full(2, 1e-6)
    problem = Problem(X, np.ones(len(X)), "diag", 0, floors, prior, 20_000, Workers())
    state = problem.evaluate(network, Noise.from_covariance(np.ones(2), 2))
    likelihoods = [state.lower_bound]
    for layer in itertools.islice(itertools.cycle((2, 1, 0)), N_UPDATES):
        network = problem.propose(state, [layer])(1e-7)
        state = problem.evaluate(network, problem.best_noise(state, network))
        likelihoods.append(state.lower_bound)
    return np.array(likelihoods)


# %%
# The safeguarded methods are the same updates, shortened if the likelihood would decrease
# (``m_step="layerwise"``), and steps in all layers at once (``m_step="joint"``, the default).  An
# iteration of the first is a round over the three layers, which costs as much as three iterations
# of the second.


def safeguarded(coefs, intercepts, m_step):
    model = PiecewiseAffineDGN.from_network(coefs, intercepts, [1.0, 1.0], activation="leaky_relu")
    max_iter = N_UPDATES // LAYERS_PER_ITERATION[m_step]
    model.set_params(warm_start=True, m_step=m_step, max_iter=max_iter, tol=0.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # tol=0 never converges
        return model.fit(X).lower_bounds_


figure, panels = plt.subplots(1, N_STARTS, figsize=(15, 3.9), layout="constrained", sharey=True)
print("start  paper: falls  largest fall      end  layerwise: end  joint: end")
for seed, panel in enumerate(panels):
    start = random_start(seed)
    plain = paper_updates(*start)
    ways = {m_step: safeguarded(*start, m_step) for m_step in LAYERS_PER_ITERATION}
    falls = -np.minimum(np.diff(plain), 0.0)
    for likelihoods in ways.values():
        assert np.all(np.diff(likelihoods) >= 0.0)
    print(
        f"{seed:5d}  {np.count_nonzero(falls > 1e-9):12d}  {falls.max():12.3f}  {plain[-1]:7.3f}"
        f"  {ways['layerwise'][-1]:14.3f}  {ways['joint'][-1]:10.3f}"
    )
    panel.plot(plain, color="tab:red", label="the paper's updates")
    fallen = np.flatnonzero(falls > 1e-9) + 1
    panel.plot(fallen, plain[fallen], "v", color="tab:red", markersize=5, label="it fell")
    for (m_step, likelihoods), color in zip(ways.items(), ("tab:blue", "black"), strict=True):
        updates = LAYERS_PER_ITERATION[m_step] * (1 + np.arange(likelihoods.size))
        panel.plot(updates, likelihoods, color=color, label=m_step)
    panel.set(xlabel="updates", title=f"start {seed}", ylim=(-4.0, 0.3))
panels[0].set_ylabel("mean log-likelihood, exact")
panels[0].legend(loc="lower right")
figure.savefig("convergence.png", dpi=110)
print("saved convergence.png")
