"""How failed logins slow down the next ones."""

import pytest

from mooring.api.throttle import LoginThrottle, account_key, address_key
from mooring.model.errors import TooManyAttempts


class Clock:
    def __init__(self) -> None:
        self.time = 0.0

    def __call__(self) -> float:
        return self.time


def wait_of(throttle: LoginThrottle, *keys: str) -> int:
    try:
        throttle.check(*keys)
    except TooManyAttempts as error:
        seconds: int = error.details["retry_after_seconds"]
        return seconds
    return 0


def test_the_wait_doubles_with_every_failure_after_the_fifth_up_to_a_minute():
    clock = Clock()
    throttle = LoginThrottle(clock=clock)
    waits = []
    for _ in range(14):
        throttle.failed("a")
        waits.append(wait_of(throttle, "a"))
        clock.time += waits[-1]
        assert wait_of(throttle, "a") == 0
    assert waits == [0, 0, 0, 0, 1, 2, 4, 8, 16, 32, 60, 60, 60, 60]


def test_any_of_the_keys_may_have_to_wait():
    throttle = LoginThrottle(clock=Clock())
    for account in range(5):
        throttle.failed(account_key(f"user{account}"), address_key("192.0.2.1"))
    assert wait_of(throttle, account_key("user0")) == 0
    assert wait_of(throttle, account_key("another"), address_key("192.0.2.1")) == 1


def test_a_success_frees_the_account_but_not_the_address():
    throttle = LoginThrottle(clock=Clock())
    for _ in range(5):
        throttle.failed("account a", "address b")
    throttle.succeeded("account a")
    assert wait_of(throttle, "account a") == 0
    assert wait_of(throttle, "address b") == 1


def test_failures_are_forgotten_after_a_quarter_of_an_hour():
    clock = Clock()
    throttle = LoginThrottle(clock=clock)
    for _ in range(5):
        throttle.failed("a")
    clock.time += 900
    throttle.failed("a")
    assert wait_of(throttle, "a") == 0
    assert len(throttle) == 1


def test_the_memory_is_bounded():
    throttle = LoginThrottle(max_keys=10, clock=Clock())
    for number in range(1000):
        throttle.failed(str(number))
    assert len(throttle) == 10


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("2001:db8:0:1::1", "2001:db8:0:1:ffff::2", True),
        ("2001:db8:0:1::1", "2001:db8:0:2::1", False),
        ("192.0.2.1", "192.0.2.2", False),
        (None, None, True),
    ],
)
def test_an_ipv6_network_counts_as_one_address(one: str | None, other: str | None, same: bool):
    assert (address_key(one) == address_key(other)) is same
