"""Rows on the workers of a cluster: estimators take dask collections, and only sums travel.

>>> from dask.distributed import Client                                # doctest: +SKIP
>>> import dask.dataframe as dd                                        # doctest: +SKIP
>>> Client("tcp://scheduler:8786")                                     # doctest: +SKIP
>>> table = dd.read_parquet("patients/")                               # doctest: +SKIP
>>> model = RobustLogisticRegression()                                 # doctest: +SKIP
>>> model.fit(table.drop(columns="ill"), table["ill"], contexts="hospital")  # doctest: +SKIP
"""

try:
    import dask  # noqa: F401
except ImportError as error:
    raise ImportError("counterpoise.dask needs dask. Run: pip install 'counterpoise[dask]'") from error

from counterpoise.dask.settings import settings

__all__ = ["settings"]
