"""How this host starts a JVM for Spark, as configured."""

from __future__ import annotations

import sys

from firesteel.config import Configuration
from firesteel.config.sections import ClassArchive
from firesteel.engines.launcher import LaunchOptions
from firesteel.worker.sandboxing import sandbox_policy


def launch_options(configuration: Configuration) -> LaunchOptions:
    return LaunchOptions(
        cache_dir=configuration.data.cache_dir,
        java_home=configuration.java.home,
        python=str(configuration.driver.python or sys.executable),
        start_timeout=configuration.engine.start_timeout,
        stop_timeout=configuration.engine.stop_timeout,
        class_archive=configuration.engine.class_archive is ClassArchive.AUTO,
        ui=configuration.engine.ui,
        passed_variables=configuration.driver.environment_pass,
        sandbox=sandbox_policy(configuration),
    )
