"""Workers and leaders in virtual time: no attempt begins while the one before it may still run (I27), and none ends in vain."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest
from tests.simulation.fleet_world import FleetHistory, FleetWorld, WorkerPlan

from firesteel.testing.virtual_time import inline, run_in_virtual_time

SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 12))]


def simulate(plan: WorkerPlan, directory: Path) -> FleetHistory:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(asyncio, "to_thread", inline)
        random.seed(plan.seed)  # for what draws by itself, such as pauses between two tries
        return run_in_virtual_time(lambda: FleetWorld(plan, directory).play())


def judged(history: FleetHistory) -> FleetHistory:
    assert history.errors == []
    assert history.overlaps == []
    assert history.stuck == []
    return history


@pytest.mark.parametrize("seed", SEEDS)
def test_no_faults(seed: int, tmp_path: Path) -> None:
    assert judged(simulate(WorkerPlan(seed), tmp_path)).restarts == 0


@pytest.mark.parametrize("seed", SEEDS)
def test_leaders_come_and_go_and_nothing_restarts(seed: int, tmp_path: Path) -> None:
    history = judged(simulate(WorkerPlan(seed, elections=True), tmp_path))
    assert history.elections > 2
    assert history.restarts == 0


@pytest.mark.parametrize("seed", SEEDS)
def test_brief_cuts_restart_nothing(seed: int, tmp_path: Path) -> None:
    assert judged(simulate(WorkerPlan(seed, cuts=(0.1, 1.0)), tmp_path)).restarts == 0


@pytest.mark.parametrize("seed", SEEDS)
def test_workers_are_cut_off_beyond_their_time(seed: int, tmp_path: Path) -> None:
    judged(simulate(WorkerPlan(seed, cuts=(4.0, 40.0)), tmp_path))


@pytest.mark.parametrize("seed", SEEDS)
def test_worker_processes_die_and_come_back_and_nothing_restarts(seed: int, tmp_path: Path) -> None:
    assert judged(simulate(WorkerPlan(seed, kills=True), tmp_path)).restarts == 0


@pytest.mark.parametrize("seed", SEEDS)
def test_workers_and_leaders_at_once(seed: int, tmp_path: Path) -> None:
    judged(simulate(WorkerPlan(seed, cuts=(0.5, 40.0), kills=True, elections=True), tmp_path))
