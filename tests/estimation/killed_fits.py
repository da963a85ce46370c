"""Fits that are ended by SIGKILL at random moments until one ends by itself: same bits?

python killed_fits.py MODEL FOLDER SEED KILLS prints the number of kills and whether all bits agree.
Every fit runs in a forked process; no thread is started before.
"""

import json
import os
import random
import shutil
import signal
import sys
import time

import numpy as np

import latensor as lt
from latensor.estimation import checkpoint

# A stream that would take half a minute is not waited for: saves are due after milliseconds.
checkpoint._FIRST_COST = 1e-5
PAUSE = 0.004


class Slowly:
    """Batches that take their time."""

    def __init__(self, batches):
        self.batches = batches

    def __iter__(self):
        for batch in self.batches:
            time.sleep(PAUSE)
            yield batch.copy() if hasattr(batch, "copy") else batch


def mixture(folder, source):
    X = lt.datasets.make_spherical_mixture(60_000, 4, 3, separation=3, random_state=0).samples
    model = lt.SphericalGaussianMixture(3, random_state=0, n_jobs=1)
    type(model)._row_limit = 5000
    model.fit(source([X[i : i + 2000] for i in range(0, len(X), 2000)]), checkpoint=folder)
    return model.means_


def topics(folder, source):
    counts = lt.datasets.make_single_topic(24_000, 40, 3, random_state=0).counts
    parts = [counts[i : i + 4096] for i in range(0, counts.shape[0], 4096)]
    model = lt.LatentDirichletAllocation(3, random_state=0, refine=3, n_jobs=1)
    model.fit(lt.sources.partitions([Slowly(parts[:3]), Slowly(parts[3:])]), checkpoint=folder)
    return model.components_


def single(folder, source):
    counts = lt.datasets.make_single_topic(12_000, 40, 3, random_state=0).counts
    parts = [counts[i : i + 2048] for i in range(0, counts.shape[0], 2048)]
    model = lt.SingleTopic(3, random_state=0, refine=8, n_jobs=1)
    model.fit(lt.sources.partitions([Slowly(parts[:3]), Slowly(parts[3:])]), checkpoint=folder)
    return model.components_


def chain(folder, source):
    data = lt.datasets.make_gaussian_hmm(
        40_000, 1, 2, n_sequences=400, stay=0.7, means=[[0], [5]], random_state=1
    )
    ends = np.cumsum(data.lengths)
    batches = []
    for i in range(0, 400, 20):
        rows = data.X[ends[i] - data.lengths[i] : ends[i + 19]]
        batches.append((rows, data.lengths[i : i + 20]))
    model = lt.GaussianHMM(2, random_state=0, n_jobs=1)
    type(model)._row_limit = 3000
    return model.fit(source(batches), checkpoint=folder).means_


MODELS = {"mixture": mixture, "topics": topics, "single": single, "chain": chain}


def run(name, folder, result):
    """A fit in a process of its own, which leaves its result in a file."""
    child = os.fork()
    if child == 0:
        try:
            np.save(result, MODELS[name](folder, Slowly))
        except BaseException as error:
            print(repr(error), file=sys.stderr)
            os._exit(1)
        os._exit(0)
    return child


def main(name, folder, seed, wanted):
    rng = random.Random(seed)
    result = os.path.join(folder, "result.npy")
    # The first one compiles; forked processes need not do so again.
    expected = MODELS[name](os.path.join(folder, "first"), Slowly)
    begin = time.monotonic()
    os.waitpid(run(name, os.path.join(folder, "undisturbed"), result), 0)
    length = time.monotonic() - begin
    kills = fits = 0
    same = np.array_equal(np.load(result), expected)
    while kills < wanted:
        broken = os.path.join(folder, f"broken{fits}")
        os.remove(result)
        while not os.path.exists(result):
            child = run(name, broken, result)
            if kills < wanted:
                time.sleep(rng.uniform(0.05, 1.0) * length)
                found, status = os.waitpid(child, os.WNOHANG)
                if found == 0:
                    os.kill(child, signal.SIGKILL)
                    os.waitpid(child, 0)
                    kills += 1
                    continue
            else:
                _, status = os.waitpid(child, 0)
            if status:
                sys.exit(f"a fit failed with status {status}")
        same = same and np.array_equal(np.load(result), expected)
        shutil.rmtree(broken)
        fits += 1
    print(json.dumps({"kills": kills, "fits": fits, "same": same, "seconds": length}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
