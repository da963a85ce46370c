"""A fit on two executors of their own, one of which is killed: same bits?

python killed_executor.py FLAG prints whether an executor was killed and whether all bits agree.
"""

import json
import os
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import latensor as lt
from engines.partition_cases import MIXED


class KillsItsExecutor:
    """A partition whose first reader ends the Java machine that runs it."""

    def __init__(self, rows, flag, driver):
        self.rows, self.flag, self.driver = rows, flag, driver

    def __iter__(self):
        yield self.rows[:100]
        if os.getpid() != self.driver and not os.path.exists(self.flag):
            open(self.flag, "w").close()
            os.kill(executor_of(os.getpid()), signal.SIGKILL)
        yield self.rows[100:]


def executor_of(process):
    """The nearest ancestor that is a Java machine."""
    while Path(f"/proc/{process}/comm").read_text().strip() != "java":
        status = Path(f"/proc/{process}/status").read_text()
        process = int(status.split("PPid:")[1].split()[0])
    return process


def main(flag):
    from pyspark.sql import SparkSession

    folders = [*map(str, Path(__file__).parents[:2]), os.environ.get("PYTHONPATH", "")]
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.executor.memory": "1g",
        "spark.executorEnv.PYTHONPATH": os.pathsep.join(folders),
        "spark.sql.shuffle.partitions": "2",
    }
    builder = SparkSession.builder.master("local-cluster[2,1,1024]").appName("latensor")
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    parts = [[MIXED[:300]], KillsItsExecutor(MIXED[300:], flag, os.getpid())]
    model = lt.SphericalGaussianMixture(3, random_state=0, refine=1)
    found = model.fit(lt.sources.partitions(parts, engine="spark")).means_
    expected = model.fit(lt.sources.partitions([[MIXED[:300]], [MIXED[300:]]])).means_
    print(json.dumps({"killed": os.path.exists(flag), "same": bool((found == expected).all())}))
    session.stop()


if __name__ == "__main__":
    # Executors must find the class by the name of a module, not of a script.
    import killed_executor

    killed_executor.main(sys.argv[1])
