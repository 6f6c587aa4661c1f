"""A Slurm cluster of the tests, and the reading of Slurm's output."""

import psutil
import pytest

from benchmarks.peers import slurm as measured
from tests.peers.slurm import SlurmCluster, idle_nodes, require_programs, running_slurm
from tests.system.servers import eventually

LOG = """\
[2026-11-19T01:43:11.361] _slurm_rpc_submit_batch_job: JobId=1 InitPrio=4294901759 usec=353
[2026-11-19T01:43:11.521] sched: Allocate JobId=1 NodeList=n1 #CPUs=1 Partition=main
[2026-11-19T01:43:11.685] _job_complete: JobId=1 WEXITSTATUS 0
[2026-11-19T01:43:11.686] _job_complete: JobId=1 done
[2026-11-19T01:43:12.118] sched/backfill: _start_job: Started JobId=2 in main on n1
[2026-11-19T01:43:13.250] sched: Allocate JobId=5_48(54) NodeList=n5 #CPUs=1 Partition=main
[2026-11-19T01:43:14.000] sched/backfill: _start_job: Started JobId=5_49(55) in main on n1
[2026-11-19T01:43:20.673] _job_complete: JobId=5_48(54) done
"""
BASE = 1795052591.0  # 2026-11-19T01:43:11 UTC


def test_jobs_start_in_a_pass_or_by_backfill_and_elements_of_arrays_have_their_index():
    starts = {job: round(at - BASE, 3) for job, at in measured.started(LOG).items()}
    assert starts == {"1": 0.521, "2": 1.118, "5_48": 2.25, "5_49": 3.0}


def test_a_job_has_ended_when_slurm_is_done_with_it():
    assert {job: round(at - BASE, 3) for job, at in measured.ended(LOG).items()} == {"1": 0.686, "5_48": 9.673}


def test_only_idle_nodes_count_whether_booted_or_not():
    assert idle_nodes("3 idle\n5 idle~\n2 unknown\n1 idle*\n4 allocated\n") == 8
    assert idle_nodes("") == 0


@pytest.mark.slow
def test_a_job_runs_on_an_emulated_node(slurm: SlurmCluster):
    job = slurm.out("sbatch", "--parsable", "--wrap=echo $SLURMD_NODENAME").strip()
    eventually(lambda: job in measured.ended(slurm.log))
    assert (slurm.jobs / f"slurm-{job}.out").read_text().strip() in {"n1", "n2", "n3", "n4"}


@pytest.mark.slow
def test_a_refused_command_raises_its_message(slurm: SlurmCluster):
    with pytest.raises(RuntimeError, match="nvalid partition"):
        slurm.out("sbatch", "--partition=none", "--wrap=true")


@pytest.mark.slow
def test_jobs_on_hollow_nodes_are_allocated_and_everything_ends_with_the_cluster():
    require_programs()
    with running_slurm(nodes=20, cores=4, memory_mib=1024, hollow=True) as cluster:
        job = cluster.out("sbatch", "--parsable", "--wrap=true").strip()
        eventually(lambda: job in measured.started(cluster.log))
        folder = cluster.folder
    assert not folder.exists()
    assert [process.pid for process in psutil.process_iter(["cmdline"]) if str(folder) in str(process.info)] == []
