"""`tailrace demo`: real flights through a real broker into Spark, in one command."""

from pathlib import Path

import click

from tailrace.runtime.extras import check_extra


@click.command()
@click.option(
    "--data",
    default="demo-data",
    show_default=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="Directory for the topics, the Parquet files and the picture.",
)
@click.option(
    "--keep", is_flag=True, help="Reuse the data that an earlier run left in the directory."
)
def demo(data: Path, *, keep: bool) -> None:
    """Produce a year of flights to a broker, read them with Spark, and check the result.

    Needs the extra: pip install "tailrace[demo]".
    """
    check_extra("demo", "tailrace demo")
    # These imports take seconds; without a line the command seems to hang.
    click.echo("Loading pandas, PySpark and Matplotlib")
    from tailrace.demo.run import run

    began = click.get_current_context().find_root().meta["began"]
    run(data, keep=keep, began=began)
