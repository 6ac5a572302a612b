"""How code is compiled, batched, seeded, reported on and sent to workers."""

from skdgn._runtime.checks import check_finite, check_integer, check_nonnegative, is_integer
from skdgn._runtime.compiler import (
    INV_SQRT_2PI,
    LOG_SQRT_2PI,
    PART_OPTIONS,
    SQRT_HALF,
    erfcx,
    inlined_kernel,
    inlined_sum_kernel,
    kernel,
    ndtri,
    owens_t,
    part_kernel,
    sum_kernel,
)
from skdgn._runtime.extras import require
from skdgn._runtime.reporter import Reporter
from skdgn._runtime.seeds import RandomSource, draw_seed, make_generator, random_source
from skdgn._runtime.tables import (
    PASS_BYTES,
    OrderedColumns,
    Rows,
    ScaledRows,
    Table,
    fits_into,
    merge_duplicates,
    observed_weights,
    order_columns,
    sample_rows,
    value_ranges,
)
from skdgn._runtime.types import Bools, Floats
from skdgn._runtime.versions import VersionedMixin, __version__
from skdgn._runtime.workers import MOST_ROWS, Workers, read, row_batches, way_of_returning

__all__ = [
    "INV_SQRT_2PI",
    "LOG_SQRT_2PI",
    "MOST_ROWS",
    "PART_OPTIONS",
    "PASS_BYTES",
    "SQRT_HALF",
    "Bools",
    "Floats",
    "OrderedColumns",
    "RandomSource",
    "Reporter",
    "Rows",
    "ScaledRows",
    "Table",
    "VersionedMixin",
    "Workers",
    "__version__",
    "check_finite",
    "check_integer",
    "check_nonnegative",
    "draw_seed",
    "erfcx",
    "fits_into",
    "inlined_kernel",
    "inlined_sum_kernel",
    "is_integer",
    "kernel",
    "make_generator",
    "merge_duplicates",
    "ndtri",
    "observed_weights",
    "order_columns",
    "owens_t",
    "part_kernel",
    "random_source",
    "read",
    "require",
    "row_batches",
    "sample_rows",
    "sum_kernel",
    "value_ranges",
    "way_of_returning",
]
