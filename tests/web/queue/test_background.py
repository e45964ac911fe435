"""FairQueue: jobs in the background use what requests leave, and at most half of the slots and of the memory."""

from web.services.admission.fair_queue import FairQueue, Kind, QueuedTask, Standing, Tenant

RESTRICTED, UNPROVEN, PROVEN = Standing
MEMORY = 10


def add(queue: FairQueue, tenant: str, memory: int = 0, *, background: bool = False) -> QueuedTask:
    job = QueuedTask(Tenant(tenant, 4), memory, 0, Kind.BACKGROUND if background else Kind.LONG)
    queue.add(job)
    return job


def add_background(queue: FairQueue, *tenants: str, memory: int = 0) -> list[QueuedTask]:
    return [add(queue, tenant, memory, background=True) for tenant in tenants]


def started(queue: FairQueue) -> str:
    return "".join(job.tenant.id for job in queue.start_next(0))


def test_the_background_has_half_of_the_slots_while_requests_come() -> None:
    come = True
    queue = FairQueue(3, MEMORY, lambda _tenant: UNPROVEN, lambda: False, requests_come=lambda: come)
    assert queue.background_standing() is RESTRICTED
    add_background(queue, "a")
    assert queue.background_standing() is RESTRICTED
    add_background(queue, *"aaa")
    assert queue.background_standing() is None
    assert started(queue) == "aa"
    come = False
    assert started(queue) == "a"
    assert started(queue) == ""
    assert queue.background_standing() is None


def test_the_background_has_the_kept_slot_for_proven_tenants() -> None:
    standings = {"a": UNPROVEN, "c": PROVEN}
    queue = FairQueue(2, MEMORY, lambda tenant: standings[tenant.id])
    add_background(queue, "a")
    assert started(queue) == "a"
    assert queue.background_standing() is PROVEN
    add_background(queue, "c")
    assert started(queue) == "c"
    assert queue.background_standing() is None


def test_a_restricted_tenant_in_the_background_keeps_others_from_starting() -> None:
    queue = FairQueue(4, MEMORY, lambda _tenant: RESTRICTED)
    add_background(queue, "a")
    assert started(queue) == "a"
    assert queue.background_standing() is UNPROVEN


def test_parts_of_a_job_keep_no_others_from_starting() -> None:
    queue = FairQueue(2, MEMORY, lambda _tenant: UNPROVEN, lambda: False, requests_come=lambda: False)
    parts = [QueuedTask(Tenant("a", 8), 0, 0, Kind.BACKGROUND, is_part=True) for _ in range(4)]
    for part in parts:
        queue.add(part)
    assert started(queue) == "aa"
    assert queue.background_standing() is RESTRICTED
    add_background(queue, "b")
    for part in parts[:2]:
        part.used = 2.0
        queue.remove(part)
    assert started(queue) == "ba"


def test_requests_start_before_the_background() -> None:
    queue = FairQueue(1, MEMORY)
    running = add(queue, "b")
    queue.start_next(0)
    add_background(queue, *"ac")
    add(queue, "b")
    queue.remove(running)
    assert started(queue) == "b"


def test_a_request_does_not_wait_for_the_background_alone() -> None:
    """One more job runs than there are slots."""
    come = False
    queue = FairQueue(2, MEMORY, lambda _tenant: PROVEN, lambda: False, requests_come=lambda: come)
    add_background(queue, *"aabb")
    assert started(queue) == "ab"
    come = True
    add(queue, "a")
    assert started(queue) == "a"
    add(queue, "c")
    assert started(queue) == ""
    assert queue.running == 3


def test_the_background_has_half_of_the_memory() -> None:
    queue = FairQueue(5, MEMORY, requests_come=lambda: False)

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
