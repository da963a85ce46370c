"""A Spark session for all tests of this folder, which run by `make test-spark` only."""

import os
import shutil
import sys
from pathlib import Path

import pytest


def pytest_collection_modifyitems(items):
    missing = None
    if os.environ.get("LATENSOR_TEST_SPARK") != "1":
        missing = "run by make test-spark"
    elif shutil.which("java") is None and not os.environ.get("JAVA_HOME"):
        missing = "Spark needs Java 17 or 21: install openjdk-17-jre-headless"
    for item in items:
        if missing is not None and item.path.parent.name == "spark":
            item.add_marker(pytest.mark.skip(reason=missing))


@pytest.fixture(scope="session")
def spark():
    sql = pytest.importorskip("pyspark.sql")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    tests = str(Path(__file__).parents[1])
    os.environ["PYTHONPATH"] = os.pathsep.join([tests, os.environ.get("PYTHONPATH", "")])
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    builder = sql.SparkSession.builder.master("local[2,4]").appName("latensor")
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "1g",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.sql.shuffle.partitions": "2",
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()
