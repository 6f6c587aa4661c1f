"""Failed logins slow down the next ones, by account and address."""

import pytest

from mooring.api.auth.login_throttle import LoginThrottle
from mooring.model.errors import TooManyAttempts

HERE, THERE = "192.0.2.1", "198.51.100.9"


class Clock:
    def __init__(self) -> None:
        self.time = 0.0

    def __call__(self) -> float:
        return self.time


def wait_of(throttle: LoginThrottle, account: str, address: str | None, *, known: bool = True) -> int:
    try:
        throttle.check(account, address)
        if not known:
            throttle.check_account(account)
    except TooManyAttempts as error:
        seconds: int = error.details["retry_after_seconds"]
        return seconds
    return 0


def test_the_wait_doubles_with_every_failure_after_the_fifth_up_to_a_minute():
    clock = Clock()
    throttle = LoginThrottle(clock=clock)
    waits = []
    for _ in range(14):
        throttle.failed("ada", HERE)
        waits.append(wait_of(throttle, "ada", HERE))
        clock.time += waits[-1]
        assert wait_of(throttle, "ada", HERE) == 0
    assert waits == [0, 0, 0, 0, 1, 2, 4, 8, 16, 32, 60, 60, 60, 60]


def test_failures_elsewhere_do_not_lock_an_account_here():
    throttle = LoginThrottle(clock=Clock())
    for _ in range(1000):
        throttle.failed("ada", THERE)
    assert wait_of(throttle, "ada", THERE) == 60
    assert wait_of(throttle, "ada", HERE) == 0
    assert throttle.is_attacked("ada")


def test_an_account_that_many_addresses_guess_at_makes_unknown_ones_wait_a_little():
    throttle = LoginThrottle(clock=Clock())
    for number in range(1000):
        throttle.failed("ada", f"198.51.{number // 250}.{number % 250}")
    assert wait_of(throttle, "ada", HERE, known=True) == 0
    assert wait_of(throttle, "ada", HERE, known=False) == 10
    assert wait_of(throttle, "ben", HERE, known=False) == 0


def test_an_address_that_tries_many_accounts_has_to_wait():
    throttle = LoginThrottle(clock=Clock())
    for number in range(20):
        throttle.failed(f"user{number}", HERE)
    assert wait_of(throttle, "another", HERE) == 1
    assert wait_of(throttle, "another", THERE) == 0


def test_a_success_frees_the_pair_but_not_the_address():
    throttle = LoginThrottle(clock=Clock())
    for _ in range(20):
        throttle.failed("ada", HERE)
    throttle.succeeded("ada", HERE)
    assert wait_of(throttle, "ben", HERE) == 1
    for _ in range(5):
        throttle.failed("ben", THERE)
    assert wait_of(throttle, "ben", THERE) == 1
    throttle.succeeded("ben", THERE)
    assert wait_of(throttle, "ben", THERE) == 0


def test_failures_are_forgotten_after_a_quarter_of_an_hour():
    clock = Clock()
    throttle = LoginThrottle(clock=clock)
    for _ in range(5):
        throttle.failed("ada", HERE)
    clock.time += 900
    throttle.failed("ada", HERE)
    assert wait_of(throttle, "ada", HERE) == 0
    assert len(throttle) == 3


def test_the_memory_is_bounded():
    throttle = LoginThrottle(max_keys=10, clock=Clock())
    for number in range(1000):
        throttle.failed(str(number), f"198.51.{number // 250}.{number % 250}")
    assert len(throttle) == 30


def test_one_address_has_few_attempts_in_progress():
    throttle = LoginThrottle(clock=Clock())
    with throttle.attempt(HERE), throttle.attempt(HERE), throttle.attempt(HERE), throttle.attempt(HERE):
        with pytest.raises(TooManyAttempts), throttle.attempt(HERE):
            pass
        with throttle.attempt(THERE):
            pass
    with throttle.attempt(HERE):
        pass
