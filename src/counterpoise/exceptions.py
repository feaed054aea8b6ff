"""One tree of errors, one tree of warnings."""


class CounterpoiseError(Exception):
    """Anything the library raises on purpose."""


class InvalidInputError(CounterpoiseError, ValueError):
    """The caller's data or parameters cannot be used as they are; the message says which, and what to do."""


class RenamedParameterError(InvalidInputError, TypeError):
    """A parameter has another name now; the message says which."""


class EmptySetError(InvalidInputError):
    """Conditions on the mix contradict one another: no mix meets them all."""


class NoRowsError(InvalidInputError):
    """A table has names of columns, but no rows."""


class EmptyContextError(InvalidInputError):
    """A declared context has no training samples, so nothing can be said about its risk."""


class CounterpoiseWarning(UserWarning):
    """Anything the library warns about."""


class NotCertifiedWarning(CounterpoiseWarning):
    """A solver stopped before the gap reached its tolerance; the message holds the gap and a remedy."""


class CoverageWarning(CounterpoiseWarning):
    """The confidence set may cover the true distribution less often than was asked."""


class OneContextWarning(CounterpoiseWarning):
    """No contexts were passed, so there is one, and nothing to be robust against."""


class SmallContextWarning(CounterpoiseWarning):
    """A context is so small that its in-sample reference risk is too good to be true."""


class UnseenCategoryWarning(CounterpoiseWarning):
    """A category is none of those that a model was fitted to, so it counts as missing."""


class StrayCellWarning(CounterpoiseWarning):
    """A cell in a column of numbers is none, so it counts as missing."""


class LearntByHeartWarning(CounterpoiseWarning):
    """A network has hardly any training risk left where its held-out risk is large, so weights by training risk err."""
