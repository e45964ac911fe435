"""Peewee models of all tables. They are bound to no database: each query runs on its transaction's connection.

Times are Unix time in whole seconds, amounts are credits. Constraints and indexes are defined in the migrations. Fields
are named as in the API, columns as in the migrations.
"""

from peewee import BigIntegerField, BooleanField, CompositeKey, Model, TextField


class Account(Model):
    """An account. `credits_remaining` excludes `credits_held`."""

    id = TextField(primary_key=True)
    email = TextField()
    email_key = TextField(unique=True)  # the normalized address
    name = TextField()
    verified_at = BigIntegerField(null=True)
    credits_remaining = BigIntegerField(column_name="balance", default=0)
    credits_held = BigIntegerField(column_name="held", default=0)
    credits_total_purchased = BigIntegerField(column_name="purchased", default=0)
    credits_used_total = BigIntegerField(column_name="used", default=0)
    created_at = BigIntegerField()
    last_used_at = BigIntegerField(null=True)
    address = TextField(null=True)  # the IP address that registered it, if that is known
    low_credits = BigIntegerField(null=True)  # the balance below which credits.low is sent, until it has been
    plan = TextField(null=True)  # None: by the settings and its purchases
    plan_changes = TextField(null=True)  # JSON: limits that differ from the plan
    role = TextField()  # by default, member
    language = TextField(null=True)  # the code of the language of pages and emails, if one was chosen


class Key(Model):
    """An API key, stored as its SHA-256. A rotated key is valid until `expires_at`."""

    key_id = TextField(column_name="id", primary_key=True)
    account = TextField()
    sha256 = TextField(unique=True)
    key_prefix = TextField(column_name="prefix")
    name = TextField()
    created_at = BigIntegerField()
    last_used_at = BigIntegerField(null=True)
    expires_at = BigIntegerField(null=True)
    revoked_at = BigIntegerField(null=True)

    class Meta:
        table_name = "api_key"


class Preset(Model):
    """Fields of requests, as JSON, that an account keeps under a name."""

    account = TextField()
    name = TextField()
    fields = TextField()
    created_at = BigIntegerField()
    updated_at = BigIntegerField()

    class Meta:
        primary_key = CompositeKey("account", "name")


class Verification(Model):
    """An email verification token, stored as its SHA-256. `account` is null for a new registration."""

    sha256 = TextField(primary_key=True)
    purpose = TextField()
    account = TextField(null=True)
    email = TextField()
    name = TextField()
    created_at = BigIntegerField()
    expires_at = BigIntegerField()
    used_at = BigIntegerField(null=True)


class Entry(Model):
    """A ledger entry, unique per `ref`. Charges of archived months are replaced by one entry per account and month."""

    ref = TextField(primary_key=True)
    account = TextField()
    kind = TextField()
    amount = BigIntegerField()  # negative if credits are removed
    at = BigIntegerField()
    reason = TextField(null=True)  # why an operator granted or removed credits


class Server(Model):
    """A server, its latest run, and when that was alive for the last time."""

    name = TextField(primary_key=True)
    boot = TextField()
    alive_at = BigIntegerField()


class Hold(Model):
    """Credits reserved for a running operation. The row is deleted when the operation ends."""

    id = TextField(primary_key=True)
    account = TextField()
    amount = BigIntegerField()
    state = TextField()  # held; or settled or released, by a server of the previous release
    server = TextField()
    boot = TextField()
    created_at = BigIntegerField()
    expires_at = BigIntegerField()


class Usage(Model):
    """A finished operation, successful or failed."""

    account = TextField()
    operation = TextField()
    input_format = TextField()
    output_format = TextField()
    bytes_in = BigIntegerField()
    bytes_out = BigIntegerField()
    success = BooleanField()
    credits = BigIntegerField()
    at = BigIntegerField()

    class Meta:
        primary_key = False


class UsageDay(Model):
    """Sums of the usage of an account on a day (UTC, days since 1970-01-01), kept by a trigger."""

    account = TextField()
    day = BigIntegerField()
    operation = TextField()
    input_format = TextField()
    output_format = TextField()
    success = BooleanField()
    conversions = BigIntegerField()
    credits = BigIntegerField()
    bytes_in = BigIntegerField()
    bytes_out = BigIntegerField()

    class Meta:
        table_name = "usage_day"
        primary_key = CompositeKey("account", "day", "operation", "input_format", "output_format", "success")


class Idempotency(Model):
    """An idempotency key: a running attempt, or the stored response."""

    account = TextField()
    path = TextField()
    key = TextField()
    fingerprint = TextField()
    state = TextField()  # running or done
    attempt = TextField()
    lease_until = BigIntegerField()
    status = BigIntegerField(null=True)
    headers = TextField(null=True)  # a JSON object
    body = TextField(null=True)
    file_id = TextField(null=True)
    created_at = BigIntegerField()

    class Meta:
        primary_key = CompositeKey("account", "path", "key")


class Batch(Model):
    """Files that are converted together."""

    batch_id = TextField(primary_key=True, column_name="id")
    account = TextField()
    output_format = TextField()
    added = BigIntegerField(default=0)  # number of files ever added
    ran_at = BigIntegerField(null=True)  # unused; servers of the previous release set it
    created_at = BigIntegerField()
    updated_at = BigIntegerField()
    expires_at = BigIntegerField()


class Run(Model):
    """A running conversion of a batch, or one whose server has crashed."""

    id = TextField(primary_key=True)
    batch = TextField()
    server = TextField()
    boot = TextField()
    lease_until = BigIntegerField()

    class Meta:
        table_name = "batch_run"


class File(Model):
    """An uploaded file and its result. Several files may share one upload."""

    file_id = TextField(primary_key=True, column_name="id")
    account = TextField()
    original_name = TextField()
    extension = TextField()
    input_format = TextField()
    original_size = BigIntegerField()
    source = TextField(null=True)  # the blob of the upload
    source_file_id = TextField(null=True, column_name="source_file")
    batch_id = TextField(null=True, column_name="batch")
    place = BigIntegerField(null=True)  # position in the batch
    result = TextField(null=True)  # the blob of the result
    result_size = BigIntegerField(null=True)  # bytes
    outcome = TextField(null=True)  # JSON
    failure = TextField(null=True, column_name="fault")  # JSON
    created_at = BigIntegerField()
    processed_at = BigIntegerField(null=True)
    expires_at = BigIntegerField()


class Lane(Model):
    """The queue of an account's jobs: how many wait and run, and the size of their inputs in bytes.

    At most `max_running` run at a time. `served` is its virtual time: the CPU time that its jobs have used, in
    microseconds, by which the lanes are ordered. New accounts of one address are a `crowd`: together, they run as many
    jobs and have used as much time as one of them. `proven`: its latest jobs were short. It is restricted until a
    Unix time.
    """

    account = TextField(primary_key=True)
    waiting = BigIntegerField()
    running = BigIntegerField()
    max_running = BigIntegerField()
    served = BigIntegerField()
    bytes = BigIntegerField()
    crowd = TextField(null=True)  # None: the account is alone
    proven = BigIntegerField()
    restricted_until = BigIntegerField()


class Job(Model):
    """A request that is processed in the background. `number` is when it was accepted, in nanoseconds of Unix time.

    Its inputs are blobs, and its credits are holds, whose keys and ids are derived from its own id.
    """

    job_id = TextField(primary_key=True, column_name="id")
    account = TextField()
    number = BigIntegerField()
    status = TextField(column_name="state")
    operation = TextField()
    input_format = TextField(null=True)
    output_format = TextField()
    tag = TextField(null=True)
    webhook_url = TextField(null=True)
    test = BooleanField()  # whether a test key was used
    request = TextField(null=True)  # JSON, until the job ends
    inputs = BigIntegerField()  # number of blobs
    size = BigIntegerField()  # bytes of all inputs
    holds = BigIntegerField()  # number
    done = BigIntegerField()  # files of a batch
    total = BigIntegerField(null=True)  # files of a batch
    fence = BigIntegerField()  # number of claims
    attempts = BigIntegerField()  # claims, except uncounted ones
    crashes = BigIntegerField()  # attempts whose worker process or server died
    server = TextField(null=True)  # The server of the latest claim; `boot` and `lease_until` belong to that claim, too.
    boot = TextField(null=True)
    lease_until = BigIntegerField(null=True)
    result = TextField(null=True)  # JSON; of a running batch, the entries of its files so far
    file_id = TextField(null=True, column_name="file")  # the file that the job has made
    error = TextField(null=True)  # JSON
    created_at = BigIntegerField()
    started_at = BigIntegerField(null=True)
    finished_at = BigIntegerField(null=True)
    expires_at = BigIntegerField(null=True)


class SigningKey(Model):
    """A secret that all servers of the database share, by its purpose, as hexadecimal digits."""

    name = TextField(primary_key=True)
    value = TextField()

    class Meta:
        table_name = "signing_key"


class Purchase(Model):
    """A purchase of a credit pack. `amount` is in minor units of the currency."""

    purchase_id = TextField(column_name="id", primary_key=True)
    account = TextField()
    pack = TextField()
    credits = BigIntegerField()
    amount = BigIntegerField()
    currency = TextField()
    state = TextField()
    session = TextField(unique=True, null=True)  # the provider's id of the checkout session
    event = TextField(null=True)  # the provider's id of the event that reported the payment
    created_at = BigIntegerField()
    expires_at = BigIntegerField(null=True)
    paid_at = BigIntegerField(null=True)
    tax = BigIntegerField(null=True)  # part of the amount; null if the provider has computed none
    buyer = TextField(null=True)  # the lines of an address, as the provider has it


class Payment(Model):
    """A payment, by the provider's id. `purchase` is null if a reversal was reported before the purchase."""

    id = TextField(primary_key=True)
    purchase = TextField(unique=True, null=True)
    reversed = BigIntegerField(default=0)  # credits to remove because of reversals
    shortfall = BigIntegerField(default=0)  # credits of reversed payments that were already spent


class Reversal(Model):
    """The latest state of a refund, a dispute, or all refunds of a charge. Amounts are in minor units."""

    id = TextField(primary_key=True)
    payment = TextField()
    kind = TextField()  # refund, dispute or charge
    amount = BigIntegerField()  # 0 if the reversal failed or was withdrawn
    at = BigIntegerField()
    final = BooleanField()


class DashboardSession(Model):
    """A dashboard session, by the SHA-256 of its token. It ends with the API key that it was opened with, if any."""

    sha256 = TextField(primary_key=True)
    account = TextField()
    api_key = TextField(null=True)
    created_at = BigIntegerField()
    expires_at = BigIntegerField()

    class Meta:
        table_name = "dashboard_session"


class Session(Model):
    """A dashboard session of a server of the previous release."""

    sha256 = TextField(primary_key=True)
    api_key = TextField()
    created_at = BigIntegerField()
    expires_at = BigIntegerField()


class Request(Model):
    """A logged request. Times are in milliseconds."""

    id = TextField(primary_key=True)
    account = TextField()
    method = TextField()
    path = TextField()
    status = BigIntegerField()
    code = TextField(null=True)
    milliseconds = BigIntegerField()
    at_milliseconds = BigIntegerField()
    details = TextField(null=True)  # JSON


class Counter(Model):
    """A sum over all rows of a table, without the changes that are not added yet."""

    name = TextField(primary_key=True)
    amount = BigIntegerField()


class StoredBytes(Model):
    """The size of the files of an account that are not deleted, kept by triggers once one of them has changed."""

    account = TextField(primary_key=True)
    bytes = BigIntegerField()

    class Meta:
        table_name = "stored_bytes"


class CounterChange(Model):
    """A change of a counter, inserted by a trigger."""

    name = TextField()
    amount = BigIntegerField()

    class Meta:
        table_name = "counter_change"
        primary_key = False


class Counted(Model):
    """A view: the values of the counters, computed from all rows."""

    name = TextField()
    amount = BigIntegerField()

    class Meta:
        primary_key = False


class Archive(Model):
    """A moved part of usage and charges: everything before the time `before`, into a file with this SHA-256."""

    before = BigIntegerField(primary_key=True)
    sha256 = TextField()
    at = BigIntegerField()


class Backfill(Model):
    """Work that a migration has left. `position` is where the next batch begins; done backfills have no row."""

    name = TextField(primary_key=True)
    position = TextField()


class Audit(Model):
    """What an administrator or an operator did. `details` is a JSON object."""

    id = TextField(primary_key=True)
    at = BigIntegerField()
    actor = TextField()
    action = TextField()
    subject = TextField()
    details = TextField()


class Identity(Model):
    """A subject of an OpenID Connect issuer, and the account that signs in with it."""

    issuer = TextField()
    subject = TextField()
    account = TextField()
    created_at = BigIntegerField()

    class Meta:
        primary_key = CompositeKey("issuer", "subject")
