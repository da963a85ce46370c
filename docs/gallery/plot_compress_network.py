"""
Compress a trained network
==========================

A perceptron reads handwritten digits. `lt.nn.compress` leaves out hidden units that the others predict and replaces layers
by layers of low rank, one budget for all of them, truncated in the norm of the outputs; cutting singular values of each layer
by itself is the usual way.
"""

import numpy as np
import torch
from matplotlib.figure import Figure
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import latensor as lt

torch.manual_seed(0)
digits = load_digits()
data = torch.tensor(digits.data / 16, dtype=torch.float32), torch.tensor(digits.target)
x, held_out, y, truth = (torch.as_tensor(part) for part in train_test_split(*data, random_state=0))

network = torch.nn.Sequential(
    torch.nn.Linear(64, 128),
    torch.nn.ReLU(),
    torch.nn.Linear(128, 64),
    torch.nn.ReLU(),
    torch.nn.Linear(64, 10),
)
optimizer = torch.optim.Adam(network.parameters(), 3e-3)
for _ in range(150):
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(network(x), y).backward()
    optimizer.step()


def accuracy(model):
    with torch.no_grad():
        return 100 * float((model(held_out).argmax(dim=1) == truth).float().mean())


def truncated(keep):
    """Every layer by its own singular values, with the same fraction of its parameters."""
    layers = []
    for layer in network:
        if isinstance(layer, torch.nn.Linear):
            rank = max(1, round(keep * layer.weight.numel() / sum(layer.weight.shape)))
            layer = lt.nn.FactorizedLinear.from_dense(layer, rank)
        layers.append(layer)
    return torch.nn.Sequential(*layers)


fractions = np.array([0.1, 0.15, 0.25, 0.4])
ours = [accuracy(lt.nn.compress(network, keep=float(keep), inputs=[x])) for keep in fractions]
plain = [accuracy(truncated(keep)) for keep in fractions]

figure = Figure(figsize=(5.2, 3.6), layout="constrained")
axis = figure.subplots()
axis.axhline(accuracy(network), color="0.6", label="all parameters")
axis.plot(fractions, ours, "o-", label="lt.nn.compress")
axis.plot(fractions, plain, "s--", label="singular values, layer by layer")
axis.set_xlabel("fraction of the parameters kept")
axis.set_ylabel("accuracy on other digits, %")
axis.legend()
