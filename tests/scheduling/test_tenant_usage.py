"""Tenant usage in memory: charged on admission, refunded for workloads that are not placed."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from mooring.model.tenancy.quotas import Scope, Tenant
from mooring.model.workloads.workload import Workload, new_tasks
from mooring.scheduling.tenant_usage import Usage, tenants_of
from tests.scheduling.builders import id_of

WORK = Workload(
    name="work",
    pool="blue",
    user_id=id_of("ann"),
    project_id=id_of("vision"),
    domain_id=id_of("lab"),
    access_key="MK1",
    request={"cpu": 2000, "memory": 1024},
    tasks=new_tasks("work", 3),
)
KEYPAIR, USER, PROJECT, DOMAIN = tenants_of(WORK)


def test_every_tenant_of_a_workload_is_charged_and_the_user_in_its_pool():
    usage = Usage()
    usage.charge(WORK)
    for tenant in (KEYPAIR, USER, PROJECT, DOMAIN):
        assert usage.used_by(tenant) == {"cpu": 6000, "memory": 3072, "sessions": 1}
    assert usage.used_in("blue", WORK.user_id) == {"cpu": 6000, "memory": 3072}
    assert usage.used_in("green", WORK.user_id) == {}


def test_a_session_is_given_back_with_its_last_task():
    usage = Usage()
    usage.charge(WORK)
    usage.refund(WORK, 2)
    assert usage.used_by(USER) == {"cpu": 2000, "memory": 1024, "sessions": 1}
    usage = Usage()
    usage.charge(WORK)
    usage.refund(WORK)
    assert not any(usage.used_by(DOMAIN).values())
    assert not any(usage.used_in("blue", WORK.user_id).values())


def test_a_workload_on_a_node_counts_as_one_session():
    usage = Usage()
    usage.update(USER, used={"sessions": 1}, limits={"sessions": 1})
    grown = replace(WORK, occupied={id_of("n1"): 1})
    assert usage.session_violations(grown) == []
    usage.charge(grown)
    usage.refund(grown)
    assert usage.used_by(USER)["sessions"] == 1


def test_private_work_counts_in_its_own_limit_and_not_by_amount():
    usage = Usage()
    private = replace(WORK, private=True)
    usage.charge(private)
    assert usage.used_by(USER) == {"private-sessions": 1}
    assert usage.used_in("blue", WORK.user_id) == {}
    usage.update(PROJECT, limits={"cpu": 0})
    assert usage.violations(private, 3) == []
    assert usage.tasks_within(private) == 3


def test_the_tightest_limit_says_how_many_tasks_may_start():
    usage = Usage()
    usage.update(USER, limits={"cpu": 5000})
    usage.update(DOMAIN, limits={"cpu": 9000, "memory": 4096}, used={"cpu": 6000})
    assert usage.tasks_within(WORK) == 1
    usage.update(DOMAIN, used={"cpu": 5000})
    assert usage.tasks_within(WORK) == 2
    usage.update(KEYPAIR, limits={"sessions": 1}, used={"sessions": 1})
    assert usage.tasks_within(WORK) == 0


def test_all_slots_of_a_limit_are_compared_those_that_nothing_is_asked_of_too():
    """The limit was lowered below what is in use: nothing more starts until that is over."""
    usage = Usage()
    usage.update(PROJECT, limits={"gpu": 1000}, used={"gpu": 2000}, name="vision")
    (violation,) = usage.violations(WORK, 1)
    assert (violation.slot, violation.used, violation.requested, violation.limit, violation.excess) == (
        "gpu",
        2000,
        0,
        1000,
        1000,
    )
    assert usage.tasks_within(WORK) == 0


def test_the_worked_numbers_of_a_violation():
    usage = Usage()
    usage.update(USER, limits={"cpu": 8}, used={"cpu": 6}, name="ann")
    (violation,) = usage.violations(replace(WORK, request={"cpu": 4}), 1)
    assert violation.as_dict() == {
        "scope": "user",
        "tenant": str(id_of("ann")),
        "name": "ann",
        "slot": "cpu",
        "used": 6,
        "requested": 4,
        "limit": 8,
        "excess": 2,
    }


def test_an_update_replaces_the_usage_and_returns_whether_it_eases():
    usage = Usage()
    usage.update(USER, limits={"cpu": 8000})
    usage.charge(WORK)
    assert not usage.update(USER, used={"cpu": 7000, "memory": 4096, "sessions": 1})
    assert usage.update(USER, used={"cpu": 6500, "memory": 4096, "sessions": 1})
    assert usage.update(USER, limits={"cpu": 6500})
    assert not usage.update(USER, limits={"cpu": 6500})
    assert usage.tasks_within(WORK) == 0
    assert usage.update(USER, limits={})
    assert usage.tasks_within(WORK) == 3
    usage.set_used_in_pools(WORK.user_id, {"green": {"cpu": 1}})
    assert usage.used_in("blue", WORK.user_id) == {}


def test_tenants_without_a_name_go_by_their_id():
    usage = Usage()
    assert usage.name_of(Tenant(Scope.DOMAIN, "x")) == "x"
    usage.update(PROJECT, name="vision")
    assert usage.names_of(WORK)["project"] == "vision"


AMOUNT = st.integers(0, 9)
STEPS = st.lists(st.tuples(st.sampled_from("abc"), AMOUNT, st.integers(1, 4), st.integers(0, 4)), max_size=12)


@given(STEPS, st.dictionaries(st.sampled_from(["cpu", "gpu"]), st.integers(0, 40)))
def test_admitted_usage_never_exceeds_a_limit_and_is_the_sum_of_the_reservations(
    steps: list[tuple[str, int, int, int]], limits: dict[str, int]
):
    """Workloads of three users of one project: each starts what may, and gives some of it back."""
    usage, stored = Usage(), 0
    usage.update(PROJECT, limits=limits)
    for number, (user, cpu, tasks, back) in enumerate(steps):
        name = f"w{number}"
        asked = replace(WORK, user_id=id_of(user), request={"cpu": cpu}, tasks=new_tasks(name, tasks))
        started = replace(asked, tasks=asked.tasks[: usage.tasks_within(asked)])
        if len(started.tasks) < tasks:
            assert usage.violations(asked, len(started.tasks) + 1)
        usage.charge(started)
        returned = min(back, len(started.tasks))
        usage.refund(started, returned)
        stored += cpu * (len(started.tasks) - returned)
        assert usage.used_by(PROJECT).get("cpu", 0) == stored <= limits.get("cpu", stored)


def test_timeslots_in_force_count_for_their_booker_until_they_are_over():
    usage, user = Usage(), Tenant(Scope.USER, "u")
    usage.update(user, used={"cpu": 1000})
    assert usage.set_booked({user: {"cpu": 4000, "gpu": 1000}}) == set()
    assert usage.used_by(user) == {"cpu": 5000, "gpu": 1000}
    usage.update(user, used={"cpu": 2000})
    assert usage.used_by(user) == {"cpu": 6000, "gpu": 1000}
    assert usage.set_booked({}) == {user}
    assert usage.used_by(user) == {"cpu": 2000}
