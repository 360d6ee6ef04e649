"""The history database: its tables, its version, and how it is opened.

SQLite by default, in WAL mode: readers and the one writer do not wait for each other, and what was committed
survives the end of the process. PostgreSQL by URL, for more than one replica.

    series         one row per camera and zone; zone is "" for the whole frame
    counts         every count; times are milliseconds since 1970, UTC
    minutes, hours, days
                   the same counts rolled up: number, sum, least, most
    cameras        settings that were changed over HTTP
    alerts         raised alerts
    deliveries     messages about alerts that a receiver has not taken yet
    observations   counts on their way from other replicas to the one that evaluates limits
    latest         the newest count of each camera, as JSON, for all replicas
    leases         which replica evaluates limits
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    Float,
    ForeignKey,
    Integer,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
    create_engine,
    event,
    insert,
    select,
    text,
    update,
)
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, SQLAlchemyError

from uepnet.model.errors import InputError, OutputError

VERSIONS, HISTORY, CONTROL = MetaData(), MetaData(), MetaData()
# A network that swallows packets must not stop the writing for a quarter of an hour, as TCP alone would.
POSTGRESQL_PATIENCE = {
    "connect_timeout": 5,
    "tcp_user_timeout": 15_000,  # milliseconds
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
}
MIGRATION_LOCK = 7_316_014  # any number, the same in all replicas

version = Table("schema_version", VERSIONS, Column("version", Integer, nullable=False))

series = Table(
    "series",
    HISTORY,
    Column("id", Integer, primary_key=True),
    Column("camera", Text, nullable=False),
    Column("zone", Text, nullable=False),
    UniqueConstraint("camera", "zone"),
)
counts = Table(
    "counts",
    HISTORY,
    Column("series", Integer, ForeignKey("series.id"), primary_key=True),
    Column("time", BigInteger, primary_key=True),
    Column("people", Float, nullable=False),
    Column("low", Float),
    Column("high", Float),
    Column("density", Float),
    sqlite_with_rowid=False,
)


def _buckets(name: str) -> Table:
    return Table(
        name,
        HISTORY,
        Column("series", Integer, ForeignKey("series.id"), primary_key=True),
        Column("time", BigInteger, primary_key=True),  # where the bucket begins
        Column("number", Integer, nullable=False),
        Column("total", Float, nullable=False),
        Column("least", Float, nullable=False),
        Column("most", Float, nullable=False),
        Column("ranged", Integer, nullable=False),  # how many of the counts had a range
        Column("low", Float, nullable=False),  # sums over them
        Column("high", Float, nullable=False),
        Column("measured", Integer, nullable=False),  # how many had a density
        Column("density", Float, nullable=False),  # the sum over them
        Column("densest", Float, nullable=False),
        sqlite_with_rowid=False,
    )


minutes, hours, days = _buckets("minutes"), _buckets("hours"), _buckets("days")
BUCKETS: dict[str, tuple[Table, int]] = {
    "minute": (minutes, 60_000),
    "hour": (hours, 3_600_000),
    "day": (days, 86_400_000),
}

cameras = Table(
    "cameras",
    CONTROL,
    Column("camera", Text, primary_key=True),
    Column("settings", Text, nullable=False),
    Column("changed", BigInteger, nullable=False),
)
alerts = Table(
    "alerts",
    CONTROL,
    Column("id", Text, primary_key=True),
    Column("camera", Text, nullable=False),
    Column("opened", BigInteger, nullable=False, index=True),
    Column("ended", BigInteger, index=True),
    Column("acknowledged", Boolean, nullable=False),
    Column("content", Text, nullable=False),
)
deliveries = Table(
    "deliveries",
    CONTROL,
    Column("id", Text, primary_key=True),
    Column("receiver", Text, nullable=False),
    Column("made", BigInteger, nullable=False),
    Column("content", Text, nullable=False),
)
observations = Table(
    "observations",
    CONTROL,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("content", Text, nullable=False),
)
latest = Table(
    "latest",
    CONTROL,
    Column("camera", Text, primary_key=True),
    Column("time", BigInteger, nullable=False),
    Column("content", Text, nullable=False),
)
leases = Table(
    "leases",
    CONTROL,
    Column("name", Text, primary_key=True),
    Column("holder", Text, nullable=False),
    Column("until", BigInteger, nullable=False),
)

# Each brings the database from the version before it to its own; what is in it stays.
MIGRATIONS: Sequence[Callable[[Connection], None]] = (HISTORY.create_all, CONTROL.create_all)


class Database:
    """Opened at once and brought to the newest version; raises InputError or OutputError with one sentence."""

    def __init__(self, url: str, migrations: Sequence[Callable[[Connection], None]] = MIGRATIONS) -> None:
        self.url = _checked(url)
        self.name = self.url.render_as_string(hide_password=True)
        self.shared = self.url.get_backend_name() == "postgresql"
        self._migrations = migrations
        if not self.shared:
            _make_folder(self.url)
        options: dict[str, Any] = {"pool_pre_ping": True, "pool_size": 5} if self.shared else {}
        connect = POSTGRESQL_PATIENCE if self.shared else {"timeout": 10}
        try:
            self.engine = create_engine(self.url, connect_args=connect, **options)
            if not self.shared:
                event.listen(self.engine, "connect", _prepare_sqlite)
                event.listen(self.engine, "begin", _begin_sqlite)
            with self.writing() as connection:
                self._migrate(connection)
        except ModuleNotFoundError as error:
            raise InputError(f"The history database needs {error.name}: pip install 'uepnet[postgres]'.") from None
        except SQLAlchemyError as error:
            raise OutputError(f"The history database {self.name} cannot be opened: {database_reason(error)}.") from None

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """One transaction."""
        with self.engine.begin() as connection:
            yield connection

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        with self.engine.connect().execution_options(read=True) as connection:
            yield connection

    def close(self) -> None:
        self.engine.dispose()

    def _migrate(self, connection: Connection) -> None:
        if self.shared:
            # Replicas start together: one migrates, the others wait for it.
            connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": MIGRATION_LOCK})
        VERSIONS.create_all(connection)
        found = connection.execute(select(version.c.version)).scalar()
        if found is None:
            connection.execute(insert(version).values(version=0))
        have = found or 0
        if have > len(self._migrations):
            raise InputError(
                f"The history database {self.name} has version {have}, this uepnet knows up to"
                f" {len(self._migrations)}: use a newer uepnet or another database."
            )
        for migrate in self._migrations[have:]:
            migrate(connection)
        connection.execute(update(version).values(version=len(self._migrations)))


def default_url() -> str:
    """A SQLite file in the user's state directory; systemd names one for its units."""
    given = os.environ.get("STATE_DIRECTORY", "").partition(":")[0]
    home = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    folder = Path(given) if given else Path(home) / "uepnet"
    return f"sqlite:///{folder / 'history.sqlite'}"


def database_reason(error: SQLAlchemyError) -> str:
    """The driver's own words, on one line, without the statement."""
    original = getattr(error, "orig", None) or error
    words = " ".join(str(original).split())
    return words[:200].rstrip(".") or type(original).__name__


def _checked(url: str) -> URL:
    try:
        parsed = make_url(url)
    except ArgumentError:
        raise InputError(
            "The history must be off or a database URL such as sqlite:////var/lib/uepnet/history.sqlite"
            " or postgresql://user:password@host/uepnet."
        ) from None
    if parsed.drivername == "postgresql":
        parsed = parsed.set(drivername="postgresql+psycopg")
    try:
        backend = parsed.get_backend_name()
        parsed.get_dialect()
    except NoSuchModuleError:
        backend = parsed.drivername
    if backend not in ("sqlite", "postgresql"):
        raise InputError(f"The history can be in SQLite or PostgreSQL, not in {backend}.")
    return parsed


def _make_folder(url: URL) -> None:
    if not url.database or url.database == ":memory:":
        raise InputError("The history needs a file: sqlite:////path/to/history.sqlite.")
    folder = Path(url.database).parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"The folder {folder} for the history cannot be made: {error.strerror}.") from None


def _prepare_sqlite(connection: Any, record: object) -> None:
    connection.isolation_level = None  # transactions begin where SQLAlchemy says so, see _begin_sqlite
    cursor = connection.cursor()
    for pragma in ("journal_mode = WAL", "synchronous = NORMAL", "busy_timeout = 10000"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _begin_sqlite(connection: Connection) -> None:
    # A writer that began as a reader could not wait for another one, it would fail.
    reads = connection.get_execution_options().get("read", False)
    connection.exec_driver_sql("BEGIN" if reads else "BEGIN IMMEDIATE")
