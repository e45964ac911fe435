"""FairQueue: jobs in the background use what requests leave, and at most half of the slots and of the memory."""

from web.services.fair_queue import FairQueue, QueuedJob, Standing, Tenant

PROVEN = Standing.PROVEN
MEMORY = 10


def add(queue: FairQueue, tenant: str, memory: int = 0, *, background: bool = False) -> QueuedJob:
    job = QueuedJob(Tenant(tenant, 4), memory, queued_at=0, background=background)
    queue.add(job)
    return job


def add_background(queue: FairQueue, *tenants: str, memory: int = 0) -> list[QueuedJob]:
    return [add(queue, tenant, memory, background=True) for tenant in tenants]


def started(queue: FairQueue) -> str:
    return "".join(job.tenant.id for job in queue.start_next(0))


def test_the_background_has_half_of_the_slots_while_requests_come() -> None:
    come = True
    queue = FairQueue(3, MEMORY, lambda _tenant: PROVEN, requests_come=lambda: come)
    assert queue.free_for_background() == 2
    add_background(queue, *"aaaa")
    assert queue.free_for_background() == 0
    assert started(queue) == "aa"
    come = False
    assert started(queue) == "a"
    assert started(queue) == ""
    assert queue.free_for_background() == 0


def test_a_request_does_not_wait_for_the_background_alone() -> None:
    """One more job runs than there are slots."""
    come = False
    queue = FairQueue(2, MEMORY, lambda _tenant: PROVEN, requests_come=lambda: come)
    add_background(queue, *"aabb")
    assert started(queue) == "ab"
    come = True
    add(queue, "a")
    assert started(queue) == "a"
    assert queue.expected_wait(Tenant("c", 4), lambda _tenant: 1.0) == 0
    add(queue, "c")
    assert started(queue) == ""
    assert queue.running == 3


def test_the_background_has_half_of_the_memory() -> None:
    queue = FairQueue(5, MEMORY, lambda _tenant: PROVEN, requests_come=lambda: False)

    first = [*add_background(queue, "a", memory=3), *add_background(queue, "b", memory=2)]
    add_background(queue, "c", memory=1)
    assert started(queue) == "ab"
    add(queue, "d", 5)
    assert started(queue) == "d"
    (large,) = add_background(queue, "e", memory=6)
    for job in first:
        queue.remove(job)
    assert started(queue) == "c"
    add_background(queue, "f", memory=1)
    assert started(queue) == ""  # no job passes the large one
    add(queue, "f", 4)
    assert started(queue) == "f"
    assert large.started_at is None


def test_a_job_in_the_background_may_need_more_than_half_of_the_memory() -> None:
    queue = FairQueue(5, MEMORY, lambda _tenant: PROVEN)
    first, _ = add_background(queue, *"ab", memory=9)
    assert started(queue) == "a"
    queue.remove(first)
    assert started(queue) == "b"
