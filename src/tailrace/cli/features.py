"""`tailrace features`: levels of the features of any Kafka cluster."""

from collections.abc import Mapping

import click

from tailrace.cli.arguments import aligned
from tailrace.cli.feature_levels import FEATURE, RELEASE, release_name
from tailrace.cli.on_cluster import (
    AS_JSON,
    Connection,
    change,
    check_controllers,
    emit,
    on_cluster,
)
from tailrace.client.admin.cluster import (
    FeatureMetadata,
    FeatureUpdate,
    UpgradeType,
    describe_features,
    update_features,
)
from tailrace.cluster.metadata.features import FEATURES, initial_levels

FORMAT = "tailrace.features/1"

# As in kafka-features. Version 1 of UpdateFeatures added the field for it.
_DRY_RUN = click.option(
    "--dry-run", is_flag=True, help="Let the broker validate the change without making it."
)


@click.group()
def features() -> None:
    """Show, upgrade and downgrade the feature levels of any Kafka cluster.

    Brokers that do not support a level cannot join the cluster, so upgrade all brokers first.
    """


@features.command()
@AS_JSON
@on_cluster
def describe(*, as_json: bool, connection: Connection) -> None:
    """Show each feature's finalized level and the levels that the broker supports.

    For metadata.version the Kafka release of the level is shown too.
    """
    with connection.open() as cluster:
        found = cluster.do(describe_features)
    rows = [("feature", "level", "release", "supported levels")]
    for name in sorted(found.supported.keys() | found.finalized.keys()):
        level, known = _level(found, name), found.supported.get(name)
        release = release_name(name, level)
        if as_json:
            fields = {
                "feature": name,
                "level": level,
                "release": release,
                "min_level": None if known is None else known.min_level,
                "max_level": None if known is None else known.max_level,
            }
            emit(FORMAT, "feature", fields)
        shown = "-" if known is None else f"{known.min_level} to {known.max_level}"
        rows.append((name, str(level), release or "-", shown))
    for line in () if as_json else aligned(rows, right=(1,)):
        click.echo(line)


@features.command()
@FEATURE
@RELEASE
@_DRY_RUN
@AS_JSON
@on_cluster
def upgrade(
    *,
    levels: Mapping[str, int],
    release: int | None,
    dry_run: bool,
    as_json: bool,
    connection: Connection,
) -> None:
    """Raise feature levels: all that are given, or none.

    Brokers of older releases cannot join afterwards. A metadata.version that added record types
    cannot be lowered again.
    """
    _change(
        connection, levels, release, kind=UpgradeType.UPGRADE, is_dry_run=dry_run, as_json=as_json
    )


@features.command()
@FEATURE
@RELEASE
@click.option("--unsafe", is_flag=True, help="Allow it even if the cluster may lose metadata.")
@_DRY_RUN
@AS_JSON
@on_cluster
def downgrade(
    *,
    levels: Mapping[str, int],
    release: int | None,
    unsafe: bool,
    dry_run: bool,
    as_json: bool,
    connection: Connection,
) -> None:
    """Lower feature levels: all that are given, or none. Level 0 disables a feature."""
    # Level 0 is what `kafka-features disable` asks for.
    kind = UpgradeType.UNSAFE_DOWNGRADE if unsafe else UpgradeType.SAFE_DOWNGRADE
    _change(connection, levels, release, kind=kind, is_dry_run=dry_run, as_json=as_json)


def _change(
    connection: Connection,
    levels: Mapping[str, int],
    release: int | None,
    *,
    kind: UpgradeType,
    is_dry_run: bool,
    as_json: bool,
) -> None:
    if not levels and release is None:
        raise click.UsageError("nothing to change; give --feature NAME=LEVEL or --release-version")
    with connection.open() as cluster:
        wanted = dict(levels)
        if release is not None:
            found = cluster.do(describe_features)
            # kafka-features refuses --release-version beside --feature. Here the feature counts, so
            # that a release can be taken with one exception.
            wanted = _of_release(release, found, kind) | wanted
        # Nothing to send is no error: a script may run twice.
        if wanted:
            check_controllers(cluster)
            updates = {name: FeatureUpdate(level, kind) for name, level in wanted.items()}
            outcomes = change(cluster, update_features, updates, validate_only=is_dry_run)
            # A broker that changes all or nothing says the same of each.
            errors = {str(each): each for each in outcomes.errors.values()}
            if len(errors) == 1:
                raise errors.popitem()[1]
            outcomes.results()
    verb = "can be set to" if is_dry_run else "has"
    for name, level in wanted.items():
        if as_json:
            emit(FORMAT, "changed", {"feature": name, "level": level, "dry_run": is_dry_run})
        else:
            click.echo(f"{name} {verb} level {level}")
    if not wanted and not as_json:
        click.echo("nothing to change: the features have these levels already")


def _of_release(release: int, found: FeatureMetadata, kind: UpgradeType) -> dict[str, int]:
    """The levels with which a cluster of the release begins, as far as they change as wanted."""
    initial = initial_levels(release)
    levels = {name: initial.get(name, 0) for name in FEATURES if name in found.supported}
    # Only what changes in the wanted direction: a controller refuses an upgrade to a lower level,
    # and with it all other features of the request.
    if kind is UpgradeType.UPGRADE:
        return {name: level for name, level in levels.items() if level > _level(found, name)}
    return {name: level for name, level in levels.items() if level < _level(found, name)}


def _level(found: FeatureMetadata, name: str) -> int:
    finalized = found.finalized.get(name)
    # kafka-features shows a feature that is not finalized at level 0 too.
    return 0 if finalized is None else finalized.max_level
