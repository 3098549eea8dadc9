"""The lists of slow tests, and the distribution of tests to processes."""

from __future__ import annotations

import gc
import os
import re
import signal
import time
from collections.abc import Callable
from functools import cache
from hashlib import sha256
from pathlib import Path

import psutil
import pytest
from hypothesis import settings
from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

from tests.tallies import Tally

ROOT = Path(__file__).parents[1]
# OpenMP's waiting threads spin for milliseconds, on cores that others need: a run took twice as long.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

_BEGAN = time.monotonic()
_POOLS = "pools"
_CONTROL_PLANE = "control-plane"  # in the names of tests that need the real one, which one process starts
# Whole runs, lives of clusters, launchers, kills, conformance: minutes each. Only `make test-all` runs them.
_SLOW = (
    "tests/conformance/test_clouds.py",
    "tests/conformance/test_launchers.py",
    "tests/conformance/test_reach.py",
    "tests/contract/aws/test_blocks.py",
    "tests/contract/aws/test_cluster_side.py",
    "tests/contract/aws/test_identities_needed.py",
    "tests/contract/aws/test_insights.py",
    "tests/contract/aws/test_lost_machines.py",
    "tests/contract/aws/test_network_side.py",
    "tests/contract/aws/test_policy_enforced.py",
    "tests/contract/aws/test_sweep_policy.py",
    "tests/contract/azure/test_callers.py",
    "tests/contract/azure/test_cluster_side.py",
    "tests/contract/azure/test_network_side.py",
    "tests/contract/azure/test_reservations.py",
    "tests/contract/azure/test_workload_identity.py",
    "tests/contract/gcp/test_cluster_side.py",
    "tests/contract/gcp/test_each_permission.py",
    "tests/contract/gcp/test_first_try.py",
    "tests/contract/gcp/test_network_side.py",
    "tests/contract/kubernetes/test_control_plane.py",
    "tests/contract/kubernetes/test_roles_needed.py",
    "tests/contract/kubernetes/test_short_runs.py",
    "tests/contract/kubernetes/test_training.py",
    "tests/contract/kubernetes/test_user_script.py",
    "tests/contract/mutants/test_every_shape.py",
    "tests/contract/page/test_in_browser.py",
    "tests/contract/ray/test_prepare_on_ray.py",
    "tests/contract/ray/test_ray_cluster.py",
    "tests/contract/ray/test_ray_own_head.py",
    "tests/contract/serving/test_graph.py",
    "tests/contract/serving/test_published.py",
    "tests/contract/serving/test_serve.py",
    "tests/contract/serving/test_triton.py",
    "tests/contract/slurm/test_slurm_launcher.py",
    "tests/contract/slurm/test_slurm_notices.py",
    "tests/contract/test_dataset_tiers.py",
    "tests/contract/test_goodput_shown.py",
    "tests/contract/test_managed_collision.py",
    "tests/contract/test_moved_laptop.py",
    "tests/contract/test_prepare_from_bucket.py",
    "tests/contract/test_trainer_handshake.py",
    "tests/contract/torchx/test_component.py",
    "tests/docs/test_pages.py",
    "tests/docs/test_sandbox_pages.py",
    "tests/docs/test_tutorials.py",
    "tests/e2e/test_agent_kills.py",
    "tests/e2e/test_daily.py",
    "tests/e2e/test_faulty_wire.py",
    "tests/e2e/test_foreign_modules.py",
    "tests/e2e/test_left_behind.py",
    "tests/e2e/test_live.py",
    "tests/e2e/test_local_launcher.py",
    "tests/e2e/test_main_job.py",
    "tests/e2e/test_movielens.py",
    "tests/e2e/test_mutants_on_nodes.py",
    "tests/e2e/test_new_cloud.py",
    "tests/e2e/test_parts_taken_away.py",
    "tests/e2e/test_pod_agent.py",
    "tests/e2e/test_pod_lost.py",
    "tests/e2e/test_ray_driver.py",
    "tests/e2e/test_sandbox_run.py",
    "tests/e2e/test_sandbox_session.py",
    "tests/e2e/test_several_labels.py",
    "tests/e2e/test_smoke.py",
    "tests/e2e/test_taobao.py",
    "tests/e2e/test_user_script.py",
    "tests/e2e/test_wheel.py",
    "tests/trainer/test_bad_steps_on_ranks.py",
    "tests/trainer/test_caching.py",
    "tests/trainer/test_chaos.py",
    "tests/trainer/test_checkpoint_background.py",
    "tests/trainer/test_checkpoint_clouds.py",
    "tests/trainer/test_checkpoint_layers.py",
    "tests/trainer/test_checkpoint_one_pass.py",
    "tests/trainer/test_communication.py",
    "tests/trainer/test_compile.py",
    "tests/trainer/test_damaged_store.py",
    "tests/trainer/test_data_formats.py",
    "tests/trainer/test_device_learner.py",
    "tests/trainer/test_failed_saves.py",
    "tests/trainer/test_learning.py",
    "tests/trainer/test_numerics.py",
    "tests/trainer/test_plan_command.py",
    "tests/trainer/test_plans.py",
    "tests/trainer/test_publishing_kills.py",
    "tests/trainer/test_publishing_runs.py",
    "tests/trainer/test_reworded.py",
    "tests/trainer/test_run.py",
    "tests/trainer/test_snapshot.py",
    "tests/trainer/test_spot_runs.py",
    "tests/trainer/test_store_clouds.py",
    "tests/trainer/test_store_faults.py",
    "tests/trainer/test_support_ranks.py",
    "tests/trainer/test_touched.py",
    "tests/trainer/test_warm_start.py",
    "tests/unit/data/test_prepare_memory.py",
    "tests/unit/scripts/test_mypy_sdks.py",
)

# Tests of minutes: `make test` or `make slow` runs them with these parameters, `make soak` with the others.
# Without parameters here, `make soak` alone runs the test. `.ci/run` has to end within its time.
_SAMPLED = {
    "tests/conformance/test_clouds.py::"
    "test_a_denied_action_is_named_by_up_and_down_leaves_nothing": ("aws", "gcp"),
    "tests/conformance/test_clouds.py::test_a_manually_deleted_resource_is_recreated": ("aws", "gcp"),
    "tests/conformance/test_clouds.py::test_an_expired_cluster_is_found_from_another_home": ("gcp",),
    "tests/conformance/test_clouds.py::"
    "test_another_cluster_of_a_similar_name_is_never_touched": ("aws", "azure"),
    "tests/conformance/test_clouds.py::"
    "test_credentials_of_another_account_are_refused_without_any_change": ("azure", "gcp"),
    "tests/conformance/test_clouds.py::"
    "test_ctrl_c_ends_a_command_at_once_and_the_next_command_continues": ("gcp", "kubernetes"),
    "tests/conformance/test_clouds.py::"
    "test_down_during_an_up_of_another_home_finally_leaves_nothing": ("aws", "kubernetes"),
    "tests/conformance/test_clouds.py::"
    "test_down_leaves_nothing_after_a_killed_up_with_a_lost_journal_and_late_lists": (
        "azure-third", "gcp-third",
    ),
    "tests/conformance/test_clouds.py::"
    "test_down_without_a_name_removes_no_cluster_of_another_owner": ("azure", "gcp"),
    "tests/conformance/test_clouds.py::"
    "test_leaks_removes_orphaned_resources_and_nothing_else": ("aws", "gcp"),
    "tests/conformance/test_clouds.py::"
    "test_the_guard_sizes_the_pools_of_a_managed_cluster_and_up_keeps_their_nodes": ("aws", "azure"),
    "tests/conformance/test_clouds.py::"
    "test_transient_faults_at_every_kind_of_call_are_retried": (
        "aws-lost", "azure-5xx", "gcp-throttle", "kubernetes-lost",
    ),
    "tests/conformance/test_clouds.py::"
    "test_two_concurrent_ups_of_one_home_take_turns_or_one_names_the_lock_holder": ("azure", "kubernetes"),
    "tests/conformance/test_clouds.py::"
    "test_up_and_down_killed_at_a_sample_of_changes_continue_without_duplicates_or_orphans": (
        "aws-eighth", "kubernetes-eighth",
    ),
    "tests/conformance/test_interrupts.py::"
    "test_ctrl_c_shows_what_exists_and_the_command_that_continues": ("kubernetes-down",),
    "tests/conformance/test_reach.py::"
    "test_a_cluster_of_a_killed_up_is_never_shown_as_ready": ("aws", "kubernetes"),
    "tests/conformance/test_reach.py::"
    "test_an_unreachable_cluster_is_not_ready_and_every_command_says_what_is_missing": ("kubernetes",),
    "tests/conformance/test_reach.py::"
    "test_skipped_addons_are_not_missing_and_up_explains_the_consequence": ("gcp",),
    "tests/conformance/test_reach.py::"
    "test_up_admits_this_machine_and_changes_the_access_in_place": ("gcp",),
    "tests/conformance/test_reach.py::"
    "test_up_refuses_a_private_api_that_this_machine_would_not_reach": ("azure", "kubernetes"),
    "tests/contract/aws/test_cluster_side.py::"
    "test_mutable_eks_settings_are_changed_in_place": (
        "change0-eks:UpdateNodegroupConfig", "change3-eks:UpdateNodegroupVersion",
        "change5-eks:UpdateClusterConfig",
    ),
    "tests/contract/aws/test_failed_region.py::test_the_end_of_a_cluster_stops_its_run_in_all_regions": (),
    "tests/contract/aws/test_identities_escalation.py::"
    "test_each_path_opens_with_the_actions_that_it_needs": (),
    "tests/contract/aws/test_managed.py::"
    "test_a_keeper_that_is_killed_at_each_call_leaves_nothing_twice": (),
    "tests/contract/aws/test_managed.py::"
    "test_a_run_leaves_a_node_that_the_clouds_agent_reports_as_unhealthy": (),
    "tests/contract/aws/test_managed.py::"
    "test_nodes_are_cordoned_for_a_round_before_their_pool_is_released": (),
    "tests/contract/aws/test_managed.py::"
    "test_progress_is_what_the_run_prints_and_its_restart_and_saves_are_measured": (),
    "tests/contract/aws/test_managed.py::"
    "test_several_runs_have_separate_nodes_in_the_order_of_their_submission": (),
    "tests/contract/aws/test_managed.py::test_the_end_of_a_managed_cluster_needs_no_keeper": ("budget",),
    "tests/contract/aws/test_managed_clients.py::"
    "test_an_up_that_is_killed_and_repeated_leaves_the_run_its_nodes": (),
    "tests/contract/aws/test_managed_kills.py::"
    "test_a_run_succeeds_and_leaves_nothing_whatever_fails_at_a_call": (),
    "tests/contract/aws/test_managed_regions.py::"
    "test_a_keeper_that_is_killed_while_it_offers_a_run_offers_it_once": (),
    "tests/contract/aws/test_managed_regions.py::"
    "test_a_run_that_waits_behind_others_is_offered_to_the_next_region": (),
    "tests/contract/aws/test_managed_regions.py::"
    "test_a_run_with_a_part_of_its_nodes_leaves_once_its_pods_have_ended": (),
    "tests/contract/azure/test_budget.py::test_a_stock_out_costs_nothing_and_the_budget_lasts_longer": (),
    "tests/contract/azure/test_budget.py::test_the_budget_follows_the_spot_price": (),
    "tests/contract/azure/test_cluster_side.py::"
    "test_mutable_aks_settings_are_changed_in_place": (
        "change1-Put managedClusters/agentPools", "change3-Put managedClusters",
    ),
    "tests/contract/azure/test_data_from_lustre.py::"
    "test_train_imports_the_dataset_and_its_pods_read_it_from_lustre": (),
    "tests/contract/azure/test_end_schedule.py::test_gpu_nodes_of_a_killed_up_end_on_each_sampled_call": (),
    "tests/contract/azure/test_login_answers.py::"
    "test_a_login_without_an_answer_is_no_refusal_of_the_credentials": (
        "a page", "a page for the tenant", "half a document", "no object", "a document without a token",
    ),
    "tests/contract/gcp/test_budget.py::test_a_stock_out_costs_nothing_and_the_budget_lasts_longer": (),
    "tests/contract/gcp/test_budget.py::test_spot_nodes_are_metered_at_the_price_of_the_last_up": (),
    "tests/contract/gcp/test_end_killed.py::test_the_workflow_of_a_killed_up_is_made_once_and_removed": (),
    "tests/contract/kubernetes/test_claims.py::test_pods_claim_the_devices_of_a_whole_node": ("stand-in",),
    "tests/contract/kubernetes/test_control_plane.py::"
    "test_a_life_of_a_cluster_trains_stops_resumes_and_leaves_what_others_have": ("torchrun",),
    "tests/contract/kubernetes/test_control_plane.py::"
    "test_a_model_of_the_users_own_trains_in_pods_as_on_this_machine": (),
    "tests/contract/kubernetes/test_gang.py::"
    "test_a_run_with_one_of_two_nodes_fails_with_the_reason_and_leaves_no_pod": (
        "control-plane-torchrun", "stand-in-torchrun", "stand-in-jobset",
    ),
    "tests/contract/kubernetes/test_launchers.py::"
    "test_a_stopped_run_continues_as_its_next_launch": (
        "control-plane-torchrun", "control-plane-pytorchjob", "stand-in-torchrun", "stand-in-pytorchjob",
        "stand-in-jobset", "stand-in-trainjob", "stand-in-rayjob",
    ),
    "tests/contract/kubernetes/test_own_features.py::"
    "test_a_run_whose_node_is_taken_gives_the_same_model_and_scores": (),
    "tests/contract/kubernetes/test_short_runs.py::"
    "test_a_run_of_one_rank_prints_its_steps_and_succeeds": ("stand-in-torchrun",),
    "tests/contract/kubernetes/test_stop_elsewhere.py::"
    "test_a_run_that_a_silent_cluster_could_take_is_not_stopped": (),
    "tests/contract/kubernetes/test_user_script.py::"
    "test_a_script_runs_in_each_operators_pods_with_its_code_requirements_and_secret": (
        "stand-in-torchrun",
    ),
    "tests/contract/kubernetes/test_user_script.py::"
    "test_a_stopped_script_continues_on_new_pods_with_its_checkpoints": (),
    "tests/contract/kubernetes_adopted/test_virtual_days.py::"
    "test_a_guard_that_halts_only_once_is_found": (),
    "tests/contract/mutants/test_every_shape.py::"
    "test_a_stand_in_refuses_what_its_vendor_refuses": ("azure",),
    "tests/contract/mutants/test_every_shape.py::"
    "test_the_kubernetes_stand_in_refuses_what_a_real_api_server_refuses": ("aws-p5", "gcp-a3-mega"),
    "tests/contract/page/test_in_browser.py::"
    "test_no_page_has_a_grave_finding_or_scrolls_sideways": ("390-light", "1280-dark"),
    "tests/contract/page/test_in_browser.py::test_the_picture_of_a_plan_has_none_either": ("390-dark",),
    "tests/contract/page/test_in_browser.py::test_the_report_has_none_either": ("390-light",),
    "tests/contract/ray/test_prepare_on_ray.py::"
    "test_a_file_that_the_nodes_do_not_see_is_refused_before_any_work": (),
    "tests/contract/ray/test_prepare_on_ray.py::"
    "test_tasks_of_killed_workers_are_repeated_with_the_same_bytes": (),
    "tests/contract/ray/test_prepare_on_ray.py::test_two_nodes_give_the_bytes_of_one_machine": (),
    "tests/contract/ray/test_ray_own_head.py::test_this_machine_notifies_the_end_of_a_run": (),
    "tests/contract/serving/test_graph.py::"
    "test_torch_alone_computes_the_scores_of_predict": ("dlrm-int8", "dlrm-every-kind", "din", "mmoe"),
    "tests/contract/serving/test_published.py::"
    "test_published_versions_are_served_one_after_the_other_without_a_pause": ("fp16",),
    "tests/contract/serving/test_serve.py::"
    "test_served_scores_are_those_of_predict": ("dlrm-every-kind", "dlrm-int8", "mmoe", "two_tower"),
    "tests/contract/serving/test_triton.py::test_the_repository_scores_like_predict": ("dlrm", "mmoe"),
    "tests/contract/slurm/test_slurm_notices.py::"
    "test_the_end_is_sent_by_a_process_that_outlives_the_command": (),
    "tests/contract/test_dataset_tiers.py::"
    "test_a_dataset_of_660_gb_has_a_tier_on_the_default_nodes_of_each_cloud": ("aws",),
    "tests/contract/test_feature_kinds.py::test_killed_and_resumed_is_the_same_model_bit_by_bit": ("2",),
    "tests/docs/test_pages.py::"
    "test_the_page_runs_as_written": (
        "README.md", "docs/attach.md", "docs/data.md", "docs/install.md", "docs/own-loader.md",
        "docs/plan.md", "docs/publishing.md", "docs/python-api.md", "docs/ui.md",
    ),
    "tests/docs/test_sandbox_pages.py::"
    "test_the_page_runs_as_written": (
        "docs/capacity.md", "docs/clouds/aws.md", "docs/train-on-a-cluster.md",
    ),
    "tests/docs/test_tutorials.py::test_the_tutorial_runs_as_written": ("docs/tutorials/own-data.md",),
    "tests/e2e/test_autostop.py::test_idle_gpu_nodes_are_stopped_and_up_brings_them_back": ("gcp",),
    "tests/e2e/test_faulty_wire.py::"
    "test_a_faulty_wire_to_a_cloud_leaves_nothing_twice_and_nothing_behind": (),
    "tests/e2e/test_faulty_wire.py::"
    "test_a_faulty_wire_to_the_cluster_of_a_cloud_leaves_nothing_twice_and_nothing_behind": (),
    "tests/e2e/test_histories.py::"
    "test_the_history_is_learned": ("din-case0", "hstu-case1", "din-case2", "deepfm-case4"),
    "tests/e2e/test_live.py::test_a_failed_train_is_followed_by_down": (),
    "tests/e2e/test_live.py::test_an_interruption_of_a_run_is_followed_by_down": (),
    "tests/e2e/test_live.py::test_the_line_trains_in_the_sandbox_and_the_report_has_every_command": (),
    "tests/e2e/test_local_launcher.py::"
    "test_a_killed_worker_is_restarted_and_resumes_from_the_newest_checkpoint": ("trainer",),
    "tests/e2e/test_new_cloud.py::test_a_new_cloud_goes_up_trains_is_preempted_resumes_and_goes_down": (),
    "tests/e2e/test_next_steps.py::"
    "test_each_command_that_changes_a_cluster_on_a_cloud_ends_with_the_next_step": (),
    "tests/e2e/test_own_features.py::test_killed_and_resumed_is_the_same_model_bit_by_bit": ("1",),
    "tests/e2e/test_sandbox_run.py::test_the_command_of_the_page_runs_as_written": ("aws",),
    "tests/e2e/test_sandbox_run.py::test_the_flow_of_the_page_trains_in_pods_and_leaves_nothing": (),
    "tests/e2e/test_sandbox_session.py::"
    "test_the_cost_of_a_cluster_is_metered_and_known_after_its_removal": (),
    "tests/e2e/test_screenshots.py::test_new_pictures_have_the_sizes_of_the_committed_ones": (),
    "tests/e2e/test_several_labels.py::test_every_task_is_learned_and_scored": (),
    "tests/e2e/test_several_labels.py::test_killed_and_resumed_is_the_same_model_bit_by_bit": ("mmoe-2",),
    "tests/e2e/test_several_labels.py::test_shuffled_labels_of_one_task_fail": (),
    "tests/e2e/test_taobao.py::test_both_labels_are_learned": (),
    "tests/e2e/test_taobao.py::test_scores_have_a_column_for_each_label": (),
    "tests/e2e/test_taobao.py::test_with_the_histories_of_other_rows_the_same_check_fails": (),
    "tests/trainer/test_failed_saves.py::"
    "test_a_run_outlives_an_outage_of_its_store_and_ends_with_the_same_model": ("at once",),
    "tests/trainer/test_publishing_kills.py::"
    "test_a_publisher_that_is_killed_at_a_write_harms_no_reader": ("delta-every third",),
    "tests/trainer/test_publishing_runs.py::"
    "test_a_run_that_continues_with_fewer_ranks_is_published_further": ("row_wise",),
    "tests/trainer/test_store_faults.py::"
    "test_a_run_with_many_faults_of_its_store_ends_with_the_same_model": (),
    "tests/trainer/test_trackers.py::test_the_real_mlflow_has_one_run_over_restarts": (),
    "tests/trainer/test_warm_start.py::test_two_ranks_find_the_rows_of_their_parts": ("row_wise",),
}  # fmt: skip

# Unit tests that compute for seconds: `make test` runs them, `make quick` leaves them out.
_LONG = (
    "tests/unit/data/test_synth.py",
    "tests/unit/data/test_tsv.py",
    "tests/unit/image/test_bootstrap.py",
    "tests/unit/image/test_build_image.py",
    "tests/unit/image/test_push_image.py",
    "tests/unit/test_extras.py",
    "tests/unit/test_safe_yaml.py",
)

# With `--reruns 1`, which `make test` and `make slow` use: of 8,000 tests with thousands of processes on
# shared cores, one or two exceed a limit of time.
_MOST_RERUNS = 4
_MOST_FILES = 300


class ByFileAndCloud(LoadFileScheduling):
    """Keep a file's tests together, because they share expensive fixtures; separate those of each cloud.

    All files whose tests run on the pools of ranks are together, too: each pool is many processes with torch.
    """

    def _split_scope(self, nodeid: str) -> str:
        return _scope_of(nodeid)


def _scope_of(nodeid: str) -> str:
    file, _, name = nodeid.partition("::")
    if _CONTROL_PLANE in name or file.endswith("/test_control_plane.py"):
        return _CONTROL_PLANE
    if file.startswith("tests/trainer/") and _runs_on_pools(file):
        return _POOLS
    if not file.startswith("tests/conformance/"):
        return file
    return f"{file}::{name.rpartition('[')[2].rstrip(']').partition('-')[0]}"


@cache
def _runs_on_pools(file: str) -> bool:
    return bool(re.search(r"\b(ranks: RankPool|worlds: Worlds)\b", (ROOT / file).read_text(encoding="utf-8")))


def pytest_configure() -> None:
    """Restore the signals' defaults: a shell that runs the tests in the background ignores them.

    Hypothesis's limit of 200 ms an example is off: a busy machine exceeds it.
    """
    settings.register_profile("any machine", deadline=None)
    settings.load_profile("any machine")
    for number in (signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_IGN:
            default = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
            signal.signal(number, default)


@pytest.fixture
def tally(record_property: Callable[[str, object], None]) -> Tally:
    """Print a line with what a test counted, and keep it for the report of `make soak`."""

    def keep(line: str) -> None:
        record_property("tally", line)
        print(line, flush=True)

    return keep


def pytest_sessionstart() -> None:
    """Refuse a listed file that does not exist: after a rename, its slow tests would run in `make test`."""
    sampled = (test.partition("::")[0] for test in _SAMPLED)
    if missing := [file for file in (*_SLOW, *_LONG, *sampled) if not (ROOT / file).is_file()]:
        raise pytest.UsageError(f"tests/conftest.py lists files that do not exist: {', '.join(missing)}")


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark the slow and the long tests before `-m` selects by mark."""
    file = item.nodeid.partition("::")[0]
    if file in _SLOW:
        item.add_marker(pytest.mark.slow)
    if file in _LONG:
        item.add_marker(pytest.mark.long)
    test, _, parameters = item.nodeid.partition("[")
    if parameters.removesuffix("]") not in _SAMPLED.get(test, (parameters.removesuffix("]"),)):
        item.add_marker(pytest.mark.soak)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Start with the pools, which take minutes on one worker; otherwise the others would wait for it.

    If the tests have a limit of time, the files' order depends on the commit, so that it is not always the
    same ones that do not run.
    """
    if order := os.environ.get("CLOUDREC_TESTS_ORDER", ""):
        items.sort(key=lambda item: sha256(f"{order}{item.nodeid.partition('::')[0]}".encode()).digest())
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: _scope_of(item.nodeid) != _POOLS)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Skip a test that would start after the limit of time that `.ci/run` sets for the slow ones."""
    limit = os.environ.get("CLOUDREC_TESTS_SECONDS", "")
    if limit and time.monotonic() - _BEGAN > float(limit):
        pytest.skip(f"the {limit} s for these tests are over: `make slow` runs all of them")


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown() -> None:
    """Close the connections of commands that ended, which the clouds' clients hold in cycles.

    A test process is so large that Python rarely looks for such cycles: a thousand sockets came together.
    """
    if psutil.Process().num_fds() > _MOST_FILES:
        gc.collect()


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail a session in which many tests passed at the second try: then the code is wrong, not the load."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None and len(reporter.stats.get("rerun", ())) > _MOST_RERUNS:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """State the limit where it is exceeded."""
    if (count := len(terminalreporter.stats.get("rerun", ()))) > _MOST_RERUNS:
        terminalreporter.write_line(f"{count} tests failed at the first try; the limit is {_MOST_RERUNS}")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: WorkerController) -> ByFileAndCloud | None:
    return ByFileAndCloud(config, log) if config.getoption("dist") == "loadfile" else None
